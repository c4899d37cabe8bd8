"""Training loop with validation: learning-rate schedule, early stopping, restarts and checkpoints."""

from __future__ import annotations

__all__ = ["AdamW", "ValidatedTrainer", "closing_all", "cosine", "notify_phase"]

import abc
import contextlib
import copy
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mcflow.errors import McflowWarning, TrainingError
from mcflow.fitting.callbacks import Callback, Epoch, History
from mcflow.fitting.distributed import ALONE, GradientMean, Workers, thread_pool
from mcflow.random import Streams
from mcflow.typing import Array, Header

RESTART_FACTOR = 4.0  # factor by which a restart lowers the learning rate
MAX_RESTARTS = 3  # restarts after losses that are not finite, before the training fails
MIN_RATE = 1e-3  # lower bound of the learning rate, as a fraction of the largest one
PART_SECONDS = 2.0  # seconds after which callbacks are notified within an epoch
CHUNK = 8  # batches for which independent parts of a network train on their own before they meet
BETAS = (0.9, 0.99)  # decay rates of the running means of gradients and of their squares
EPSILON = 1e-8  # added to the root of the second mean
#: Attributes of a trainer that a checkpoint stores by their names.
CAPTURED = ("epoch", "position", "rate", "restarts", "n_stale", "next_validation", "decay_start")


class ValidatedTrainer(abc.ABC):
    """Train a network with AdamW; the learning rate follows the epochs or the clock, validation stops the training.

    A network may have parts that do not depend on each other. Each has an optimiser and a generator of its own and
    trains on its own thread, so that the result does not depend on the number of threads. `config` is a `MaskedConfig`
    or an `ImageConfig`, whose fields on training are the same.
    """

    at_milestone = False  # whether a checkpoint is due regardless of the time since the last one

    def __init__(
        self,
        config: Any,
        network: nn.Module,
        n_rows: int,
        streams: Streams,
        *,
        callbacks: Sequence[Callback] = (),
        seconds: float | None = None,
        workers: Workers = ALONE,
    ) -> None:
        self.config, self.network, self.callbacks, self.streams = config, network, callbacks, streams
        self.n_rows, self.workers = n_rows, workers
        self._time = workers.from_first(config.max_time if seconds is None else seconds)
        self.seconds_after = 0.0  # expected time of the phases after the epochs, for callbacks
        self.history = History()
        self.epoch, self._start, self._notified = 0, time.perf_counter(), time.perf_counter()
        self.rate, self.restarts = config.learning_rate, 0
        self._order = torch.zeros(0, dtype=torch.int64)
        self._first = copy.deepcopy(network.state_dict())
        self._parts = self._independent_parts()
        self.generators = [streams.order]
        if len(self._parts) > 1:
            seeds = torch.randint(2**62, (len(self._parts),), generator=streams.order).tolist()
            self.generators += [torch.Generator().manual_seed(seed) for seed in seeds]
        self._together = [] if workers.alone else [GradientMean(workers, weights) for weights in self._parts]
        self._passed = 0.0  # seconds by the clock of the first worker at the last synchronisation
        self._begin()

    def _independent_parts(self) -> list[list[nn.Parameter]]:
        """Return the weights of each part."""
        return [list(self.network.parameters())]

    def generator(self, part: int) -> torch.Generator:
        """Return the generator of a part."""
        return self.generators[part + 1] if len(self._parts) > 1 else self.generators[0]

    @abc.abstractmethod
    def _shuffled(self) -> Tensor:
        """Return the order of the rows in the next epoch, rows last."""

    @abc.abstractmethod
    def _step(self, part: int, batch: Tensor) -> Tensor:
        """Update the weights of a part with the rows at `batch`; return the loss."""

    @abc.abstractmethod
    def _validation_error(self) -> float | None:
        """Return the error on the validation cells; None if there are none."""

    def _begin(self) -> None:
        self.optimisers = [AdamW(weights, self.rate, self.config.weight_decay) for weights in self._parts]
        self.best_error, self.best, self.n_stale = math.inf, copy.deepcopy(self.network.state_dict()), 0
        self.next_validation, self.decay_start = 1 / self.config.n_validations, 1.0
        self.position, self._losses = 0, [0.0, 0.0]

    def limit_time(self, seconds: float) -> None:
        """Set the time of the training in seconds, 0 for no limit; all workers take that of the first one."""
        self._time = self.workers.from_first(seconds)

    def train(self) -> None:
        """Train until the epochs or the time are used up or by early stopping; keep the best weights."""
        self._start = self._notified = time.perf_counter()
        for callback in self.callbacks:
            callback.on_begin(self)
        if not self.workers.alone:  # start from the state of the first worker, which may have resumed
            header, arrays = self.workers.from_first(self.capture())
            if not self.workers.is_first:
                self.restore(header, arrays)
            self._passed = header["seconds"]
        # Workers of a shared fit meet at every step, in the order of the parts.
        with thread_pool(len(self._parts) if self.workers.alone else 1) as self._map:
            while not self.history.ending:
                self._run_epoch()
                for callback in self.callbacks:
                    callback.on_epoch_end(self)
        self.network.load_state_dict(self.best)
        for callback in self.callbacks:
            callback.on_end(self)

    def _seconds(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._start if self.workers.alone else self._passed

    def _own_clock(self) -> float:
        """Return this worker's contribution to the common clock, which is that of the first worker."""
        return time.perf_counter() - self._start if self.workers.is_first else 0.0

    def progress(self, share_of_epoch: float = 0.0) -> float:
        """Return the completed fraction of the training, by epochs or by time, whichever is larger."""
        by_epochs: float = (self.epoch + share_of_epoch) / self.config.max_epochs
        by_time = self._seconds() / self._time if self._time else 0.0
        return min(1.0, max(by_epochs, by_time))

    def _run_epoch(self) -> None:
        start = time.perf_counter()
        loss = self._learn()
        if not math.isfinite(loss):
            self._restart(loss)
            return
        self.epoch += 1
        done = self.progress()
        ends = done >= self._end()
        error = self._validate() if ends or done >= self.next_validation else None
        self.history.epochs.append(Epoch(self.epoch, 0.0, loss, 0, time.perf_counter() - start, error))
        if ends:
            late = self._time > 0 and self._seconds() >= self._time
            self.history.ending = "early_stopping" if done < 1 else "max_time" if late else "max_epochs"
        elif error is not None:
            self.next_validation = done + 1 / self.config.n_validations
            if self.n_stale >= self.config.patience and self.decay_start == 1 and done > self.config.warm_up:
                self.decay_start = done

    def _end(self) -> float:
        """Return the progress at which the training ends: below 1 when the final decay started early."""
        return float(min(1.0, self.decay_start * (1 + self.config.decay_length)))

    def _learn(self) -> float:
        """Update the weights once per batch of an epoch; return the mean loss."""
        size = self.config.batch_size
        if self.position == 0:
            self._order = self._shuffled()
        losses: list[Tensor] = []
        for first in range(self.position, self.n_rows, size * CHUNK):
            if self.progress(first / self.n_rows) >= self._end():
                break
            batches = range(first, min(first + size * CHUNK, self.n_rows), size)
            for found in self._map(partial(self._train_part, batches), range(len(self._parts))):
                losses += found
            if time.perf_counter() - self._notified >= PART_SECONDS:
                self.position = batches.stop
                self._account(losses)
                for callback in self.callbacks:
                    callback.on_part_end(self)
                self._notified = time.perf_counter()
        self._account(losses)
        self.position, (total, count) = 0, self._losses
        self._losses = [0.0, 0.0]
        return total / max(count, 1.0)

    def _train_part(self, batches: range, part: int) -> list[Tensor]:
        """Update the weights of a part once per batch; return the losses."""
        losses = []
        for first in batches:
            if self._set_rate(part, first / self.n_rows) >= self._end():
                break
            losses.append(self._step(part, self._order[..., first : first + self.config.batch_size]))
        return losses

    def _account(self, losses: list[Tensor]) -> None:
        if losses:
            self._losses[0] += float(torch.stack(losses).sum())
            self._losses[1] += len(losses)
            losses.clear()

    def _set_rate(self, part: int, share_of_epoch: float) -> float:
        """Set a part's learning rate: warm-up, cosine decay, a steeper one after `decay_start`; return the progress."""
        done = self.progress(share_of_epoch)
        warm_up, start = self.config.warm_up, self.decay_start
        rate = self.rate * (done / warm_up if done < warm_up else cosine((done - warm_up) / (1 - warm_up)))
        if done > start and self._end() < 1:
            rate = self.rate * cosine((start - warm_up) / (1 - warm_up))
            rate *= cosine((done - start) / (self.config.decay_length * start))
        self.optimisers[part].rate = max(rate, MIN_RATE * self.rate)
        return done

    def _update(self, part: int, loss: Tensor | None, largest: float, n_cells: int = 1) -> Tensor:
        """Take a step of a part along the gradient of a loss, clipped to the norm `largest`; return the loss.

        With several workers, it is the mean of their losses weighted by their cells. The loss is None for no cells.
        """
        self.optimisers[part].zero_grad()
        n_all, learned = float(loss is not None), torch.zeros(())
        if self._together:
            if loss is not None:
                (loss * n_cells).backward()
            share = 0.0 if loss is None else n_cells * float(loss.detach())
            n_all, total, self._passed = self._together[part].average(largest, n_cells, share, self._own_clock())
            learned = torch.tensor(total / n_all) if n_all else learned
        elif loss is not None:
            loss.backward()
            nn.utils.clip_grad_norm_(self._parts[part], largest)
            learned = loss.detach().cpu()
        if n_all:
            self.optimisers[part].step()
        return learned

    def _mean(self, errors: Tensor) -> float | None:
        """Return the mean of the errors over all workers, None if there are none."""
        if self.workers.alone:
            return float(errors.mean()) if len(errors) else None
        sums = torch.tensor([len(errors), float(errors.double().sum()), self._own_clock()], dtype=torch.float64)
        self.workers.add_up(sums)
        n_all, total, self._passed = sums.tolist()
        return total / n_all if n_all else None

    def _validate(self) -> float | None:
        """Measure the validation error and keep the weights if it is the smallest so far; return the error, if any."""
        error = self._validation_error()
        if error is None or error < self.best_error:
            self.best_error, self.n_stale = math.inf if error is None else error, 0
            self.best = copy.deepcopy(self.network.state_dict())
        else:
            self.n_stale += 1
        return error

    def _restart(self, loss: float) -> None:
        """Start again with a lower learning rate."""
        self.restarts += 1
        if self.restarts > MAX_RESTARTS:
            raise TrainingError(
                f"The loss is {loss} at a learning rate of {self.rate:g}, after {MAX_RESTARTS} restarts. "
                "Check for values far outside the rest of their column."
            )
        self.rate /= RESTART_FACTOR
        warnings.warn(
            f"The loss was {loss} in epoch {self.epoch + 1}. Training restarts with a learning rate of {self.rate:g}.",
            McflowWarning,
            stacklevel=2,
        )
        self.network.load_state_dict(self._first)
        self.epoch, self.history = 0, History()
        self._begin()

    def capture(self) -> tuple[Header, dict[str, Array]]:
        """Return the state of the training as a header and arrays."""
        weights = list(self.network.parameters())
        tensors: dict[str, Tensor] = {f"weights.{k}": weight for k, weight in enumerate(weights)}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for part, optimiser in enumerate(self.optimisers):
            for k, state in enumerate(optimiser.state):
                tensors |= {f"adam.{part}.{k}.{name}": tensor for name, tensor in state.items()}
        tensors |= {f"generator.{k}": generator.get_state() for k, generator in enumerate(self.generators)}
        tensors["rows"] = self._order
        header: Header = {name: getattr(self, name) for name in CAPTURED} | {
            "losses": self._losses,
            "best_error": None if math.isinf(self.best_error) else self.best_error,
            "seconds": time.perf_counter() - self._start,
            "history": self.history.to_dict(),
        }
        return header, {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}

    def restore(self, header: Header, arrays: dict[str, Array]) -> None:
        """Restore a captured state of a training with the same table and configuration."""
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.rate = header["rate"]
        self._begin()
        for name in CAPTURED:
            setattr(self, name, header[name])
        self._losses, self._order = header["losses"], tensors["rows"]
        self.best_error = math.inf if header["best_error"] is None else header["best_error"]
        self.best = {name: tensors[f"best.{name}"].to(held.device) for name, held in self.best.items()}
        for k, weight in enumerate(self.network.parameters()):
            with torch.no_grad():
                weight.copy_(tensors[f"weights.{k}"])
        for part, optimiser in enumerate(self.optimisers):
            for k, state in enumerate(optimiser.state):
                for name, held in state.items():
                    held.copy_(tensors[f"adam.{part}.{k}.{name}"].view_as(held))  # files have no scalars
        for k, generator in enumerate(self.generators):
            generator.set_state(tensors[f"generator.{k}"])
        self.history = History.from_dict(header["history"])
        self._start, self._passed = time.perf_counter() - header["seconds"], header["seconds"]


def cosine(done: float) -> float:
    r"""Return :math:`\tfrac12 (1 + \cos \pi s)` for the completed fraction s, clipped to [0, 1]."""
    return 0.5 * (1 + math.cos(math.pi * min(max(done, 0.0), 1.0)))


@contextlib.contextmanager
def closing_all(callbacks: Sequence[Callback]) -> Iterator[None]:
    """Close all callbacks at the end of the block, however it ends."""
    try:
        yield
    finally:
        for callback in callbacks:
            callback.close()


def notify_phase(callbacks: Sequence[Callback], name: str) -> None:
    """Notify all callbacks of a phase."""
    for callback in callbacks:
        callback.on_phase(name)


class AdamW:
    """AdamW by torch's fused kernels, without the second of imports that `torch.optim` costs."""

    def __init__(self, weights: Sequence[Tensor], rate: float, weight_decay: float) -> None:
        self.weights, self.rate, self.weight_decay = list(weights), rate, weight_decay
        self.state = [  # of each weight: the running means of gradients and of their squares, and the number of updates
            {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
            | {"step": torch.zeros((), device=weight.device)}
            for weight in self.weights
        ]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Take one step along the gradients; weights without a gradient stay as they are."""
        with_gradient = [(w, s) for w, s in zip(self.weights, self.state, strict=True) if w.grad is not None]
        if not with_gradient:
            return
        weights = [weight for weight, _ in with_gradient]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        means, squares, steps = ([s[name] for _, s in with_gradient] for name in ("exp_avg", "exp_avg_sq", "step"))
        torch._foreach_add_(steps, 1)
        if weights[0].device.type in ("cpu", "cuda"):
            beta1, beta2 = BETAS
            settings: dict[str, Any] = {"weight_decay": self.weight_decay, "amsgrad": False, "maximize": False}
            settings |= {"lr": self.rate, "beta1": beta1, "beta2": beta2, "eps": EPSILON}
            torch._fused_adamw_(weights, gradients, means, squares, [], steps, **settings)
            return
        for weight, gradient, mean, square, step in zip(weights, gradients, means, squares, steps, strict=True):
            weight.mul_(1 - self.rate * self.weight_decay)
            mean.lerp_(gradient, 1 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            size = square.div(1 - BETAS[1] ** float(step)).sqrt_().add_(EPSILON)
            weight.addcdiv_(mean, size, value=-self.rate / (1 - BETAS[0] ** float(step)))

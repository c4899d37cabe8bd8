"""The frame of a fit that is judged by what was held out of it: rate, looks, restarts, checkpoints."""

from __future__ import annotations

__all__ = ["HeldOutTrainer"]

import abc
import copy
import math
import time
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mcflow.config import Settings
from mcflow.errors import McflowWarning, TrainingError
from mcflow.random import Streams
from mcflow.training.callbacks import Callback
from mcflow.training.history import Epoch, History
from mcflow.training.parallel import ALONE, GradientMean, Workers
from mcflow.training.schedule import cosine
from mcflow.typing import Array, Header

#: How often held-out cells are looked at in a fit.
LOOKS = 40

#: Looks without a better one, in a row, after which the rate begins its last descent, and how long that is as a share
#: of the way so far.
PATIENCE, DESCENT = 8, 0.5

#: The share of a fit in which the rate rises, and how much a restart lowers it.
WARM_UP, LOWER, MOST_RESTARTS = 0.15, 4.0, 3

#: Seconds after which listeners hear of a part of an epoch.
PART_SECONDS = 2.0


class HeldOutTrainer(abc.ABC):
    """Train a mask-aware H by AdamW, with a rate that follows epochs or the clock.

    Parameters
    ----------
    settings : Settings
        With every size as a number.
    mapper : Module
        H, trained in place.
    n_rows : int
        Of the table, or images.
    streams : Streams
        Where every random number comes from.
    callbacks : sequence of Callback
        Told of the beginning, of every epoch and of the end.
    seconds : float, optional
        That it may take, 0 for no limit; the settings' own limit when not given.
    workers : Workers
        The processes that take each step together.

    Attributes
    ----------
    history : History
        The loss of H, epoch by epoch.
    """

    def __init__(
        self,
        settings: Settings,
        mapper: nn.Module,
        n_rows: int,
        streams: Streams,
        *,
        callbacks: Sequence[Callback] = (),
        seconds: float | None = None,
        workers: Workers = ALONE,
    ) -> None:
        self.settings, self.network, self.callbacks, self.streams = settings, mapper, callbacks, streams
        self.n_rows = n_rows
        self.workers = workers
        self._time = workers.from_first(settings.train.max_time if seconds is None else seconds)
        self.history = History()
        self.epoch, self._start, self._told = 0, time.perf_counter(), time.perf_counter()
        self.rate = settings.train.learning_rate
        self.restarts = 0
        self._order = torch.zeros(0, dtype=torch.int64)
        self._first = copy.deepcopy(mapper.state_dict())
        self._together = None if workers.alone else GradientMean(workers, list(mapper.parameters()))
        self._passed = 0.0
        self._begin()

    @abc.abstractmethod
    def _shuffled(self) -> Tensor:
        """Return the order of the rows in the next epoch, rows last."""

    @abc.abstractmethod
    def _step(self, batch: Tensor) -> Tensor:
        """Learn from the rows at `batch`; return the loss."""

    @abc.abstractmethod
    def _held_error(self) -> float | None:
        """Return the error of what was held out; None if that is nothing."""

    def _begin(self) -> None:
        config = self.settings.train
        parameters = list(self.network.parameters())
        fused = parameters[0].device.type in ("cpu", "cuda")
        self.optimiser = torch.optim.AdamW(
            parameters, lr=self.rate, betas=(0.9, 0.99), weight_decay=config.weight_decay, fused=fused
        )
        self.best_error, self.best, self.worse = math.inf, copy.deepcopy(self.network.state_dict()), 0
        self.next_look, self.turn = 1 / LOOKS, 1.0
        self.position, self._losses = 0, [0.0, 0.0]

    def train(self) -> None:
        """Run until the epochs or the time are used up, or the held-out cells get no better; the best weights stay."""
        self._start = self._told = time.perf_counter()
        for callback in self.callbacks:
            callback.on_begin(self)
        self._follow_the_first()
        while not self.history.ending:
            self._run_epoch()
            for callback in self.callbacks:
                callback.on_epoch_end(self)
        self.network.load_state_dict(self.best)
        for callback in self.callbacks:
            callback.on_end(self)

    def _follow_the_first(self) -> None:
        """Begin where the first worker does, which may have gone on from a checkpoint."""
        if not self.workers.alone:
            header, arrays = self.workers.from_first(self.capture())
            if not self.workers.is_first:
                self.restore(header, arrays)
            self._passed = header["seconds"]

    def _seconds(self) -> float:
        """Return the seconds since the fit began, by the clock of the first worker when all last met."""
        return time.perf_counter() - self._start if self.workers.alone else self._passed

    def _own_clock(self) -> float:
        """Return what this worker adds to the seconds that all go by: those of the first one alone count."""
        return time.perf_counter() - self._start if self.workers.is_first else 0.0

    def progress(self, share_of_epoch: float = 0.0) -> float:
        """Return how much of the fit is done, by epochs or by time, whichever is further."""
        config = self.settings.train
        by_epochs = (self.epoch + share_of_epoch) / config.max_epochs
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
        error = self._look() if ends or done >= self.next_look else None
        self.history.epochs.append(Epoch(self.epoch, 0.0, loss, 0, time.perf_counter() - start, error))
        if ends:
            late = self._time > 0 and self._seconds() >= self._time
            self.history.ending = "held_out" if done < 1 else "max_time" if late else "max_epochs"
        elif error is not None:
            self.next_look = done + 1 / LOOKS
            if self.worse >= PATIENCE and self.turn == 1 and done > WARM_UP:
                self.turn = done

    def _end(self) -> float:
        """Return the progress at which the fit ends: earlier than 1 when the last descent has begun early."""
        return min(1.0, self.turn * (1 + DESCENT))

    def _learn(self) -> float:
        """Update H once for every batch of a pass over the rows; return the mean loss."""
        size = self.settings.train.batch_size
        if self.position == 0:
            self._order = self._shuffled()
        losses = []
        for first in range(self.position, self.n_rows, size):
            if self._set_rate(first / self.n_rows) >= self._end():
                break
            losses.append(self._step(self._order[..., first : first + size]))
            if time.perf_counter() - self._told >= PART_SECONDS:
                self.position = first + size
                self._account(losses)
                self._tell()
        self._account(losses)
        self.position, (total, count) = 0, self._losses
        self._losses = [0.0, 0.0]
        return total / max(count, 1.0)

    def _account(self, losses: list[Tensor]) -> None:
        if losses:
            self._losses[0] += float(torch.stack(losses).sum())
            self._losses[1] += len(losses)
            losses.clear()

    def _tell(self) -> None:
        for callback in self.callbacks:
            callback.on_part_end(self)
        self._told = time.perf_counter()

    def _set_rate(self, share_of_epoch: float) -> float:
        """Let the rate rise, then fall along half a cosine, and along a steeper one after the turn; return progress."""
        done = self.progress(share_of_epoch)
        rate = self.rate * (done / WARM_UP if done < WARM_UP else cosine((done - WARM_UP) / (1 - WARM_UP)))
        if done > self.turn and self._end() < 1:
            rate = self.rate * cosine((self.turn - WARM_UP) / (1 - WARM_UP))
            rate *= cosine((done - self.turn) / (DESCENT * self.turn))
        for group in self.optimiser.param_groups:
            group["lr"] = max(rate, 1e-3 * self.rate)
        return done

    def _update(self, loss: Tensor | None, largest: float, n_cells: int = 1) -> Tensor:
        """Move the weights against the gradient of a loss, of which the norm is at most `largest`; return the loss.

        With several workers it is the mean of all their losses by their cells; None is for nothing to learn from.
        """
        self.optimiser.zero_grad(set_to_none=True)
        learned = self._backward(loss, largest, n_cells)
        if learned is None:
            return torch.zeros(())
        self.optimiser.step()
        return learned

    def _backward(self, loss: Tensor | None, largest: float, n_cells: int) -> Tensor | None:
        """Set the gradients; return the loss of all workers, None if none of them has one."""
        if self._together is None:
            if loss is None:
                return None
            loss.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), largest)
            learned: Tensor = loss.detach().cpu()
            return learned
        if loss is not None:
            (loss * n_cells).backward()
        part = 0.0 if loss is None else n_cells * float(loss.detach())
        n_all, total, self._passed = self._together.average(largest, n_cells, part, self._own_clock())
        return torch.tensor(total / n_all) if n_all else None

    def _mean(self, errors: Tensor) -> float | None:
        """Return the mean over the errors of all workers, None if there are none."""
        if self.workers.alone:
            return float(errors.mean()) if len(errors) else None
        sums = torch.tensor([len(errors), float(errors.double().sum()), self._own_clock()], dtype=torch.float64)
        self.workers.add_up(sums)
        n_all, total, self._passed = sums.tolist()
        return total / n_all if n_all else None

    def _look(self) -> float | None:
        """Measure the held-out cells, and keep the weights if they never did better; return the error, if any."""
        error = self._held_error()
        if error is None or error < self.best_error:
            self.best_error, self.worse = math.inf if error is None else error, 0
            self.best = copy.deepcopy(self.network.state_dict())
        else:
            self.worse += 1
        return error

    def _restart(self, loss: float) -> None:
        """Begin anew at a lower rate."""
        self.restarts += 1
        if self.restarts > MOST_RESTARTS:
            raise TrainingError(
                f"The loss is {loss} at a learning rate of {self.rate:g}, after {MOST_RESTARTS} restarts. "
                "Look for values far outside the rest of their column."
            )
        self.rate /= LOWER
        warnings.warn(
            f"The loss was {loss} in epoch {self.epoch + 1}. Training begins anew with a rate of {self.rate:g}.",
            McflowWarning,
            stacklevel=2,
        )
        self.network.load_state_dict(self._first)
        self.epoch, self.history = 0, History()
        self._begin()

    @property
    def at_milestone(self) -> bool:
        """Tell whether there is more to lose than some seconds; there never is."""
        return False

    def capture(self) -> tuple[Header, dict[str, Array]]:
        """Return the whole state of the fit as a header and arrays."""
        weights = list(self.network.parameters())
        tensors: dict[str, Tensor] = {f"weights.{k}": weight for k, weight in enumerate(weights)}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for k, weight in enumerate(weights):
            tensors |= {f"adam.{k}.{name}": tensor for name, tensor in self.optimiser.state[weight].items()}
        tensors |= {"order": self.streams.order.get_state(), "rows": self._order}
        header: Header = {
            "epoch": self.epoch,
            "position": self.position,
            "losses": self._losses,
            "rate": self.rate,
            "restarts": self.restarts,
            "best_error": None if math.isinf(self.best_error) else self.best_error,
            "worse": self.worse,
            "next_look": self.next_look,
            "turn": self.turn,
            "seconds": time.perf_counter() - self._start,
            "history": self.history.to_dict(),
        }
        return header, {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}

    def restore(self, header: Header, arrays: dict[str, Array]) -> None:
        """Take up a captured state of a fit of the same table and settings."""
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.epoch, self.rate, self.restarts = header["epoch"], header["rate"], header["restarts"]
        self._begin()
        self.position, self._losses, self._order = header["position"], header["losses"], tensors["rows"]
        self.worse, self.next_look, self.turn = header["worse"], header["next_look"], header["turn"]
        self.best_error = math.inf if header["best_error"] is None else header["best_error"]
        self.best = {name: tensors[f"best.{name}"].to(held.device) for name, held in self.best.items()}
        for k, weight in enumerate(self.network.parameters()):
            with torch.no_grad():
                weight.copy_(tensors[f"weights.{k}"])
            found = {name.split(".")[2]: tensor for name, tensor in tensors.items() if name.startswith(f"adam.{k}.")}
            self.optimiser.state[weight] = {n: t if n == "step" else t.to(weight.device) for n, t in found.items()}
        self.streams.order.set_state(tensors["order"])
        self.history = History.from_dict(header["history"])
        self._start, self._passed = time.perf_counter() - header["seconds"], header["seconds"]

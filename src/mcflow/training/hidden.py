"""H learns to fill cells that are hidden from it on purpose."""

from __future__ import annotations

__all__ = ["HeldCells", "HiddenTrainer"]

import copy
import math
import time
import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mcflow.config import Settings
from mcflow.errors import McflowWarning, TrainingError
from mcflow.latent.masked import Answer, MaskedMapper, cross_entropy
from mcflow.random import Streams
from mcflow.training.callbacks import Callback
from mcflow.training.history import Epoch, History
from mcflow.typing import Array, Header

#: Rows in which cells are held out, at most, and how often they are looked at in a fit.
HELD_ROWS, LOOKS = 8192, 40

#: Rows that are looked at together.
ROWS_AT_ONCE = 2048

#: Looks without a better one, in a row, after which the rate begins its last descent, and how long that is as a share
#: of the way so far.
PATIENCE, DESCENT = 8, 0.5

#: The share of a fit in which the rate rises, and how much a restart lowers it.
WARM_UP, LOWER, MOST_RESTARTS = 0.15, 4.0, 3

#: Weight of the squared error beside the cross-entropy, and the units at which a cell's part in it ends.
DIRECT_WEIGHT, FAR = 0.5, 10.0


class HeldCells:
    """Observed cells that a member never learns, of some rows.

    Parameters
    ----------
    seen : Tensor of shape (n_rows, n_columns)
        Boolean, True where observed.
    share : float
        Of the observed cells of the rows that are chosen, at most `HELD_ROWS`.
    n_members : int
        Each has cells of its own.
    generator : torch.Generator
        Draws rows and cells.

    Attributes
    ----------
    rows : Tensor of shape (n_held_rows,)
        Which rows.
    cells : Tensor of shape (n_members, n_held_rows, n_columns)
        Which of their cells.
    """

    def __init__(self, seen: Tensor, share: float, n_members: int, generator: torch.Generator) -> None:
        self.rows = torch.randperm(len(seen), generator=generator)[:HELD_ROWS].to(seen.device)
        drawn = torch.rand((n_members, len(self.rows), seen.shape[1]), generator=generator) < share
        self.cells = drawn.to(seen.device) & seen[self.rows]
        self._place = torch.full((len(seen),), -1, device=seen.device)
        self._place[self.rows] = torch.arange(len(self.rows), device=seen.device)

    def of(self, batch: Tensor) -> Tensor:
        """Return the held-out cells of the rows at `batch`, of shape (n_members, n_rows); others have none."""
        place = self._place[batch]
        members = torch.arange(len(batch), device=batch.device)[:, None]
        found: Tensor = self.cells[members, place.clamp(min=0)] & (place >= 0)[..., None]
        return found


class HiddenTrainer:
    """Train a mask-aware H on a table with holes.

    Parameters
    ----------
    settings : Settings
        With every size as a number.
    mapper : MaskedMapper
        H, trained in place.
    units : Tensor of shape (n_rows, n_columns)
        Float32; any number where a cell is missing.
    seen : Tensor of shape (n_rows, n_columns)
        Boolean, True where observed.
    streams : Streams
        Where every random number comes from.
    callbacks : sequence of Callback
        Told of the beginning, of every epoch and of the end.
    seconds : float, optional
        That it may take, 0 for no limit; the settings' own limit when not given.

    Attributes
    ----------
    held : HeldCells
        Cells that were not learned.
    history : History
        The loss of H, epoch by epoch.
    """

    def __init__(
        self,
        settings: Settings,
        mapper: MaskedMapper,
        units: Tensor,
        seen: Tensor,
        streams: Streams,
        *,
        callbacks: Sequence[Callback] = (),
        seconds: float | None = None,
    ) -> None:
        self.settings, self.mapper, self.callbacks = settings, mapper, callbacks
        self.units, self.seen, self.streams = units, seen, streams
        self._time = settings.train.max_time if seconds is None else seconds
        self.held = HeldCells(seen, settings.train.held_share, mapper.n_members, streams.order)
        below, self.share = mapper.targets(units)
        self.below = below.to(torch.int16)
        self.history = History()
        self.epoch = 0
        self.rate = settings.train.learning_rate
        self.restarts = 0
        self._first = copy.deepcopy(mapper.state_dict())
        self._begin()

    def _begin(self) -> None:
        config = self.settings.train
        fused = self.units.device.type in ("cpu", "cuda")
        self.optimiser = torch.optim.AdamW(
            self.mapper.parameters(), lr=self.rate, betas=(0.9, 0.99), weight_decay=config.weight_decay, fused=fused
        )
        self.best_error, self.best, self.worse = math.inf, copy.deepcopy(self.mapper.state_dict()), 0
        self.next_look, self.turn = 1 / LOOKS, 1.0

    def train(self) -> None:
        """Run until the epochs or the time are used up, or the held-out cells get no better; the best weights stay."""
        self._start = time.perf_counter()
        for callback in self.callbacks:
            callback.on_begin(self)
        while not self.history.ending:
            self._run_epoch()
            for callback in self.callbacks:
                callback.on_epoch_end(self)
        self.mapper.load_state_dict(self.best)
        for callback in self.callbacks:
            callback.on_end(self)

    def progress(self, share_of_epoch: float = 0.0) -> float:
        """Return how much of the fit is done, by epochs or by time, whichever is further."""
        config = self.settings.train
        by_epochs = (self.epoch + share_of_epoch) / config.max_epochs
        by_time = (time.perf_counter() - self._start) / self._time if self._time else 0.0
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
            late = self._time > 0 and time.perf_counter() - self._start >= self._time
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
        n_rows, size = len(self.units), self.settings.train.batch_size
        members = range(self.mapper.n_members)
        orders = torch.stack([torch.randperm(n_rows, generator=self.streams.order) for _ in members])
        total, count = torch.zeros(()), 0
        for batch in orders.split(size, dim=1):
            if self._set_rate(count * size / n_rows) >= self._end():
                break
            total += self._step(batch.to(self.units.device)).cpu()
            count += 1
        return float(total / max(count, 1))

    def _set_rate(self, share_of_epoch: float) -> float:
        """Let the rate rise, then fall along half a cosine, and along a steeper one after the turn; return progress."""
        done = self.progress(share_of_epoch)
        rate = self.rate * (done / WARM_UP if done < WARM_UP else _cosine((done - WARM_UP) / (1 - WARM_UP)))
        if done > self.turn and self._end() < 1:
            rate = self.rate * _cosine((self.turn - WARM_UP) / (1 - WARM_UP))
            rate *= _cosine((done - self.turn) / (DESCENT * self.turn))
        for group in self.optimiser.param_groups:
            group["lr"] = max(rate, 1e-3 * self.rate)
        return done

    def _step(self, batch: Tensor) -> Tensor:
        """Hide cells of the rows at `batch`, of shape (n_members, n_rows), and learn them."""
        seen = self.seen[batch] & ~self.held.of(batch)
        hidden, units = self._hidden(seen), self.units[batch]
        shown = (seen & ~hidden).to(units.dtype)
        hidden = hidden if self.settings.train.hide_share else seen
        if not bool(hidden.any()):
            return torch.zeros(())
        answer = self.mapper(units, shown)
        loss = cross_entropy(answer.logits[hidden], self.below[batch][hidden].long(), self.share[batch][hidden])
        missed = answer.direct[hidden] - units[hidden].clamp(-FAR, FAR)
        loss = loss + DIRECT_WEIGHT * missed.square().mean()
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.mapper.parameters(), 1 / math.sqrt(self.mapper.n_members))
        self.optimiser.step()
        learned: Tensor = loss.detach()
        return learned

    def _hidden(self, seen: Tensor) -> Tensor:
        """Choose cells to hide among the seen ones."""
        chances = torch.rand(seen.shape, generator=self.streams.order).to(seen.device)
        return (chances < self.settings.train.hide_share) & seen

    def _look(self) -> float | None:
        """Measure the held-out cells, and keep the weights if they never did better; return the error, if any."""
        histogram, direct, truth = self.held_answers()
        truth = truth.clamp(-FAR, FAR)  # a few cells far out would decide alone
        error = min(float((histogram - truth).square().mean()), float((direct - truth).square().mean()))
        if not len(truth) or error < self.best_error:
            self.best_error, self.worse = error, 0
            self.best = copy.deepcopy(self.mapper.state_dict())
        else:
            self.worse += 1
        return error if len(truth) else None

    def held_answers(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return both estimates of the held-out cells and their truth, each of shape (n_held_cells,)."""
        parts = [
            torch.stack((self.mapper.means(answer.logits), answer.direct, units))
            for answer, units, _ in self._held_looks()
        ]
        histogram, direct, truth = torch.cat(parts, 2)[:, self.held.cells]
        return histogram, direct, truth

    def held_chances(self) -> Tensor:
        """Return the probabilities of the points of the held-out cells, of shape (n_held_cells, n_points)."""
        n_members = self.mapper.n_members
        parts: list[list[Tensor]] = [[] for _ in range(n_members)]
        for answer, _, held in self._held_looks():
            for member in range(n_members):
                parts[member].append(answer.logits[member][held[member]].softmax(-1))
        return torch.cat([part for of_member in parts for part in of_member])

    def _held_looks(self) -> Iterator[tuple[Answer, Tensor, Tensor]]:
        """Ask H of the rows with held-out cells, some at a time; yield its answer, their units and those cells."""
        self.mapper.eval()
        with torch.inference_mode():
            for rows, held in zip(
                self.held.rows.split(ROWS_AT_ONCE), self.held.cells.split(ROWS_AT_ONCE, 1), strict=True
            ):
                units = self.units[rows].expand(self.mapper.n_members, -1, -1)
                yield self.mapper(units, (self.seen[rows] & ~held).to(units.dtype)), units, held
        self.mapper.train()

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
        self.mapper.load_state_dict(self._first)
        self.epoch, self.history = 0, History()
        self._begin()

    @property
    def at_milestone(self) -> bool:
        """Tell whether there is more to lose than some seconds; there never is."""
        return False

    def capture(self) -> tuple[Header, dict[str, Array]]:
        """Return the whole state of the fit as a header and arrays."""
        tensors = {f"weights.{k}": weight for k, weight in enumerate(self.mapper.weights)}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for k, weight in enumerate(self.mapper.weights):
            tensors |= {f"adam.{k}.{name}": tensor for name, tensor in self.optimiser.state[weight].items()}
        tensors["order"] = self.streams.order.get_state()
        header: Header = {
            "epoch": self.epoch,
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
        self.worse, self.next_look, self.turn = header["worse"], header["next_look"], header["turn"]
        self.best_error = math.inf if header["best_error"] is None else header["best_error"]
        self.best = {name: tensors[f"best.{name}"].to(held.device) for name, held in self.best.items()}
        for k, weight in enumerate(self.mapper.weights):
            with torch.no_grad():
                weight.copy_(tensors[f"weights.{k}"])
            found = {name.split(".")[2]: tensor for name, tensor in tensors.items() if name.startswith(f"adam.{k}.")}
            self.optimiser.state[weight] = {n: t if n == "step" else t.to(weight.device) for n, t in found.items()}
        self.streams.order.set_state(tensors["order"])
        self.history = History.from_dict(header["history"])
        self._start = time.perf_counter() - header["seconds"]


def _cosine(done: float) -> float:
    """Fall from 1 at 0 to 0 at 1 along half a cosine."""
    return 0.5 * (1 + math.cos(math.pi * min(max(done, 0.0), 1.0)))

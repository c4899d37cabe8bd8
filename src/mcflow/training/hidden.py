"""H learns to fill cells that are hidden from it on purpose."""

from __future__ import annotations

__all__ = ["HeldCells", "HiddenTrainer"]

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mcflow.config import Settings
from mcflow.latent.masked import TARGETS_AT_ONCE, Answer, MaskedMapper, cross_entropy
from mcflow.random import Streams
from mcflow.training.callbacks import Callback
from mcflow.training.held_out import HeldOutTrainer
from mcflow.training.parallel import ALONE, Workers
from mcflow.training.patterns import patterns_of

#: Rows in which cells are held out, at most.
HELD_ROWS = 8192

#: Rows that are looked at together.
ROWS_AT_ONCE = 2048

#: Cells of a table up to which it is kept in memory between which points they are; found for each batch otherwise.
KNOWN_CELLS = 1 << 26

#: Weight of the squared error beside the cross-entropy, and the units at which a cell's part in it ends.
DIRECT_WEIGHT, FAR = 0.5, 10.0

#: Share of the rows that take the holes of another row where holes go together: in training, and of those held out.
TAKEN, HELD_TAKEN = 0.5, 0.75

#: Patterns may hold out this many times the share that was asked for, at most; fewer rows are chosen otherwise.
MOST_HELD = 2.0

#: In such rows single cells are hidden besides, with this share of their usual chance.
BESIDES = 0.25


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
    among : int, optional
        The rows are chosen from this many first ones; from all when not given.
    patterns : Tensor of shape (n_patterns, n_columns), optional
        Holes of rows; most of the chosen rows take one of them.

    Attributes
    ----------
    rows : Tensor of shape (n_held_rows,)
        Which rows.
    cells : Tensor of shape (n_members, n_held_rows, n_columns)
        Which of their cells.
    """

    def __init__(
        self,
        seen: Tensor,
        share: float,
        n_members: int,
        generator: torch.Generator,
        *,
        among: int | None = None,
        patterns: Tensor | None = None,
    ) -> None:
        among = len(seen) if among is None else among
        self.rows = torch.randperm(among, generator=generator)[:HELD_ROWS].to(seen.device)
        drawn = torch.rand((n_members, len(self.rows), seen.shape[1]), generator=generator) < share
        drawn = drawn.to(seen.device)
        if patterns is not None and share:
            drawn = torch.where(*_taken(patterns, drawn.shape[:2], HELD_TAKEN, generator), drawn)
            held = (drawn & seen[self.rows]).sum() / n_members / seen[:among].sum().clamp(min=1)
            drawn = drawn[:, : max(1, int(len(self.rows) * min(1.0, MOST_HELD * share / max(float(held), 1e-9))))]
            self.rows = self.rows[: drawn.shape[1]]
        self.cells = drawn & seen[self.rows]
        self._place = torch.full((among + 1,), -1, device=seen.device)  # one more, for all rows after them
        self._place[self.rows] = torch.arange(len(self.rows), device=seen.device)

    def of(self, batch: Tensor) -> Tensor:
        """Return the held-out cells of the rows at `batch`, of shape (n_members, n_rows); others have none."""
        place = self._place[batch.clamp(max=len(self._place) - 1)]
        members = torch.arange(len(batch), device=batch.device)[:, None]
        found: Tensor = self.cells[members, place.clamp(min=0)] & (place >= 0)[..., None]
        return found


class HiddenTrainer(HeldOutTrainer):
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
    held_among : int, optional
        Cells are held out of this many first rows; of all when not given.
    workers : Workers
        The processes that take each step together.

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
        held_among: int | None = None,
        workers: Workers = ALONE,
    ) -> None:
        super().__init__(
            *(settings, mapper, len(units), streams), callbacks=callbacks, seconds=seconds, workers=workers
        )
        self.mapper, self.units, self.seen = mapper, units, seen
        self._patterns = patterns_of(seen)
        share, n_members = settings.train.held_share, mapper.n_members
        self.held = HeldCells(seen, share, n_members, streams.order, among=held_among, patterns=self._patterns)
        few = held_among in (None, len(units)) and units.numel() <= KNOWN_CELLS  # rows on disk are to stay there
        self._known = _targets(mapper, units) if few else None

    def _shuffled(self) -> Tensor:
        members = range(self.mapper.n_members)
        return torch.stack([torch.randperm(self.n_rows, generator=self.streams.order) for _ in members])

    def _step(self, batch: Tensor) -> Tensor:
        """Hide cells of the rows at `batch`, of shape (n_members, n_rows), and learn them."""
        n_rows = batch.shape[1]
        batch = batch[:, self.workers.part(n_rows)].to(self.units.device)
        seen = self.seen[batch] & ~self.held.of(batch)
        hidden, units = self._hidden(seen, n_rows), self.units[batch]
        shown = (seen & ~hidden).to(units.dtype)
        hidden = hidden if self.settings.train.hide_share else seen
        largest = 1 / math.sqrt(self.mapper.n_members)
        if not bool(hidden.any()):
            return self._update(None, largest, 0)
        answer = self.mapper(units, shown)
        below, share = self._targets(batch, units)
        loss = cross_entropy(answer.logits[hidden], below[hidden].long(), share[hidden])
        missed = answer.direct[hidden] - units[hidden].clamp(-FAR, FAR)
        loss = loss + DIRECT_WEIGHT * missed.square().mean()
        return self._update(loss, largest, len(missed))

    def _targets(self, batch: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Return between which points the cells of a batch are, and where."""
        if self._known is None:
            return _targets(self.mapper, units)
        return self._known[0][batch], self._known[1][batch]

    def _hidden(self, seen: Tensor, n_rows: int) -> Tensor:
        """Choose cells to hide among the seen ones: single ones, or those that another row has not.

        Numbers are drawn for all rows of the batch, `n_rows`, so that all workers draw the same.
        """
        shape, mine = (len(seen), n_rows), self.workers.part(n_rows)
        chances = torch.rand((*shape, seen.shape[2]), generator=self.streams.order)[:, mine].to(seen.device)
        share = self.settings.train.hide_share
        hidden = (chances < share) & seen
        if self._patterns is None or not share:
            return hidden
        takes, pattern = (drawn[:, mine] for drawn in _taken(self._patterns, shape, TAKEN, self.streams.order))
        other = (pattern | (chances < BESIDES * share)) & seen
        return torch.where(takes & other.any(-1, keepdim=True), other, hidden)

    def _held_error(self) -> float | None:
        *answers, truth = self._answers(self.workers.part(len(self.held.rows)))
        truth = truth.clamp(-FAR, FAR)  # a few cells far out would decide alone
        histogram, direct = (self._mean((answer - truth).square()) for answer in answers)
        return None if histogram is None or direct is None else min(histogram, direct)

    def held_answers(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return both estimates of the held-out cells and their truth, each of shape (n_held_cells,)."""
        return self._answers(slice(None))

    def _answers(self, some: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same of some of the rows."""
        parts = [
            torch.stack((self.mapper.means(answer.logits), answer.direct, units))
            for answer, units, _ in self._held_looks(some)
        ]
        histogram, direct, truth = torch.cat(parts, 2)[:, self.held.cells[:, some]]
        return histogram, direct, truth

    def held_chances(self) -> Tensor:
        """Return the probabilities of the points of the held-out cells, of shape (n_held_cells, n_points)."""
        n_members = self.mapper.n_members
        parts: list[list[Tensor]] = [[] for _ in range(n_members)]
        for answer, _, held in self._held_looks():
            for member in range(n_members):
                parts[member].append(answer.logits[member][held[member]].softmax(-1))
        return torch.cat([part for of_member in parts for part in of_member])

    def _held_looks(self, some: slice = slice(None)) -> Iterator[tuple[Answer, Tensor, Tensor]]:
        """Ask H of the rows with held-out cells, some at a time; yield its answer, their units and those cells."""
        self.mapper.eval()
        with torch.inference_mode():
            for rows, held in zip(
                self.held.rows[some].split(ROWS_AT_ONCE), self.held.cells[:, some].split(ROWS_AT_ONCE, 1), strict=True
            ):
                units = self.units[rows].expand(self.mapper.n_members, -1, -1)
                yield self.mapper(units, (self.seen[rows] & ~held).to(units.dtype)), units, held
        self.mapper.train()


def _taken(patterns: Tensor, shape: Sequence[int], share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw for each row whether it takes a pattern, and which."""
    chosen = torch.randint(len(patterns), shape, generator=generator).to(patterns.device)
    takes = torch.rand((*shape, 1), generator=generator).to(patterns.device) < share
    return takes, patterns[chosen]


def _targets(mapper: MaskedMapper, units: Tensor) -> tuple[Tensor, Tensor]:
    """Return the targets of rows, however many axes they have before that of the columns."""
    rows = units.reshape(-1, units.shape[-1])
    belows, shares = torch.empty_like(rows, dtype=torch.int16), torch.empty_like(rows)
    for some, *found in zip(*(all_rows.split(TARGETS_AT_ONCE) for all_rows in (rows, belows, shares)), strict=True):
        for place, answer in zip(found, mapper.targets(some), strict=True):
            place.copy_(answer)
    return belows.view(units.shape), shares.view(units.shape)

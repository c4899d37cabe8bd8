"""Estimates by boosted trees beside H: on the observed cells alone, and on rows completed by H."""

from __future__ import annotations

__all__ = [
    "COMPLETED_BY",
    "TREE_STREAM",
    "Asked",
    "ColumnCells",
    "Estimates",
    "Inputs",
    "Ladder",
    "Round",
    "TrackAnswers",
    "ask_track",
    "hidden_rounds",
]

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from mcflow.fitting.boosted_trees import (
    BoostedTrees,
    TreeSettings,
    from_tensors,
    load_lightgbm,
    start_boosting,
    to_tensors,
)
from mcflow.fitting.distributed import map_on_threads, n_threads
from mcflow.masked.config import MaskedConfig
from mcflow.masked.encoding import TableGrid
from mcflow.masked.network import MaskedNetwork, tracks_of
from mcflow.typing import Array, BoolArray

#: Rungs in the order in which they are grown, and what completes the rows of each: nothing, H, or an earlier rung.
COMPLETED_BY = {"observed": None, "chained": "observed", "completed": "network", "again": "completed"}

MAX_ONE_HOT = 16  # categories of a column that the trees distinguish; the most frequent ones
MAX_TARGET_UNITS = 10.0  # units at which targets are clipped, as in the training of H
MIN_PROBABILITY = 1e-4  # lower bound of a probability whose logarithm is taken
OUTPUTS_AT_ONCE = 500_000  # outputs of H's last layer computed together: few enough for the processor's caches
LEAVES_EXPONENT = 0.6  # the time of a tree grows with this power of its number of leaves
MIN_TARGETS = 30  # training cells of a column below which it has no trees
MAX_CATEGORIES = 48  # categories of a column above which it has no trees
MIN_ROUNDS = 10  # rounds of trees below which a pass is not worth its time
TREE_STREAM = 0x74726565  # separates the random numbers of the trees from others of the same seed


class Asked(NamedTuple):
    """What H predicts for some cells of one column."""

    estimates: Array  # (n_cells, 1) in units, or (n_cells, n_points) the probabilities of a category
    direct: Array  # (n_cells,) in units; for donors, the Gaussian's estimates if there is a Gaussian


class TrackAnswers(NamedTuple):
    """What one track of H predicts for some cells of a table, in the order of `wanted.nonzero()`."""

    wanted: BoolArray  # (n_rows, n_columns)
    probabilities: Array  # (n_cells, n_points)
    means: Array  # (n_cells,) in units
    direct: Array  # (n_cells,) in units

    def at(self, here: BoolArray, *, category: bool) -> Asked:
        """Return the answers for the cells `here` (n_cells,), which are of one column."""
        return Asked(self.probabilities[here] if category else self.means[here][:, None], self.direct[here])


def ask_track(network: MaskedNetwork, units: Array, shown: BoolArray, wanted: BoolArray) -> TrackAnswers:
    """Ask the members of a track for cells, and average their answers.

    Shapes: `units`, `shown`, `wanted` (n_rows, n_columns).
    """
    device = network.points.device
    at_once = max(1, OUTPUTS_AT_ONCE // (network.n_members * max(network.points.numel(), 1)))
    parts = []
    with torch.inference_mode():
        for first in range(0, max(len(units), 1), at_once):  # no rows give empty answers
            rows = slice(first, first + at_once)
            some, chosen = torch.from_numpy(units[rows]).to(device), torch.from_numpy(wanted[rows]).to(device)
            answer = network(some.nan_to_num()[None], torch.from_numpy(shown[rows]).to(device, some.dtype)[None])
            probabilities = answer.logits[:, chosen].softmax(-1).mean(0)
            means = (probabilities * network.points[chosen.nonzero()[:, 1]]).sum(-1)
            parts.append((probabilities.cpu(), means.cpu(), answer.direct[:, chosen].mean(0).cpu()))
    return TrackAnswers(wanted, *(torch.cat(part).numpy() for part in zip(*parts, strict=True)))


class Estimates(NamedTuple):
    """Estimates of some cells: units of numbers, and probabilities of points of categorical columns."""

    wanted: BoolArray  # (n_rows, n_columns)
    means: Array  # (n_cells,) in units, in the order of `wanted.nonzero()`; NaN for categories
    probabilities: dict[int, Array]  # (n_cells of the column, n_points of the column) by categorical column

    @classmethod
    def average(cls, several: Sequence[Estimates]) -> Estimates:
        """Return the mean over the tracks."""
        first = several[0]
        categories = {k: np.mean([one.probabilities[k] for one in several], axis=0) for k in first.probabilities}
        return cls(first.wanted, np.mean([one.means for one in several], axis=0), categories)


class Inputs:
    """Inputs of the trees: one place for each number, and one for each of the most frequent categories."""

    def __init__(self, grid: TableGrid) -> None:
        self.sizes = [
            min(int(grid.n_points[k]), MAX_ONE_HOT) if k in grid.n_categories else 1 for k in range(len(grid.centre))
        ]
        self.ends = np.cumsum(self.sizes)
        self.grid, self.categories = grid, grid.n_categories
        self.width = int(self.ends[-1]) if len(self.ends) else 0

    def own(self, column: int) -> slice:
        """Return the places of a column."""
        return slice(self.ends[column] - self.sizes[column], self.ends[column])

    def encode(self, units: Array, shown: BoolArray, fill: Estimates | None) -> Array:
        """Return rows (n_rows, width) whose cells that are not shown are filled by estimates, or NaN without them."""
        cells = np.where(shown, units, np.nan).astype(np.float32)
        if fill is not None:
            cells[fill.wanted] = fill.means
        if not self.categories:
            return cells
        found = np.empty((len(units), self.width), dtype=np.float32)
        for k, size in enumerate(self.sizes):
            own = self.own(k)
            if k not in self.categories:
                found[:, own] = cells[:, k, None]
                continue
            found[:, own] = np.where(shown[:, k, None], units[:, k, None] == np.arange(size), np.nan)
            if fill is not None:
                found[fill.wanted[:, k], own] = fill.probabilities[k][:, :size]
        return found

    def of_cells(self, column: int, rows: Array, asked: Asked) -> Array:
        """Return inputs (n_cells, width + 1) of a column's trees: rows with H's estimates in the places of the column.

        The last one is H's direct estimate of a number.
        """
        inputs = np.zeros((len(rows), self.width + 1), dtype=np.float32)
        inputs[:, :-1] = rows
        inputs[:, self.own(column)] = asked.estimates[:, : self.sizes[column]]
        if column not in self.categories:
            inputs[:, -1] = asked.direct
        return inputs

    def start(self, column: int, asked: Asked) -> Array:
        """Return H's scores of cells, to which those of the trees are added: logarithms of probabilities, or units."""
        if column in self.categories:
            own = asked.estimates[:, : int(self.grid.n_points[column])]
            return np.asarray(np.log(np.maximum(own, MIN_PROBABILITY)))
        return np.asarray((asked.estimates[:, 0] + asked.direct) / 2)

    def encode_column(self, column: int, codes: Array) -> Array:
        """Return the places (n_cells, size) of the codes of one column."""
        if column not in self.categories:
            return np.asarray((codes - self.grid.centre[column]) / self.grid.spread[column])[:, None]
        places = self.grid.places[column]
        assert places is not None
        return np.asarray(places[codes.astype(np.int64)][:, None] == np.arange(self.sizes[column]))


class Round:
    """Training cells of a track: completed rows and what H predicts for cells that were hidden from it."""

    def __init__(self, shown: BoolArray, targets: BoolArray, categories: dict[int, int]) -> None:
        self.shown, self.targets = shown, targets  # cells that are not filled, and training cells
        self.missing: TrackAnswers  # H's answers for the cells that are filled
        self._means, self._direct = np.zeros((2, *shown.shape), dtype=np.float32)
        self._probabilities = {k: np.zeros((len(shown), size), np.float32) for k, size in categories.items()}

    def add(self, answers: TrackAnswers) -> None:
        """Record H's answers for some training cells."""
        self._means[answers.wanted], self._direct[answers.wanted] = answers.means, answers.direct
        columns = answers.wanted.nonzero()[1]
        for k, table in self._probabilities.items():
            table[answers.wanted[:, k]] = answers.probabilities[columns == k][:, : table.shape[1]]

    def of(self, column: int) -> tuple[BoolArray, Asked]:
        """Return the rows (n_rows,) that have training cells of a column, and what H predicts for these."""
        here, table = self.targets[:, column], self._probabilities.get(column)
        estimates = self._means[here, column, None] if table is None else table[here]
        return here, Asked(estimates, self._direct[here, column])


class ColumnCells:
    """Cells of one column, with inputs (n_rows, n_inputs), that are scored by trees to which rounds may be added."""

    def __init__(self, column: int, here: BoolArray, trees: BoostedTrees, inputs: Array, scores: Array) -> None:
        self.column, self.here, self.trees, self.inputs = column, here, trees, inputs  # `here` is of the wanted cells
        self._scores, self._done = scores, 0  # after so many rounds

    def write(self, estimates: Estimates) -> None:
        """Replace the estimates of these cells by those of all rounds that the trees have by now."""
        n_rounds = self.trees.n_rounds
        if n_rounds > self._done:
            self._scores = self._scores + self.trees.score(self.inputs, range(self._done, n_rounds))
            self._done = n_rounds
        if self.column in estimates.probabilities:
            estimates.probabilities[self.column] = _softmax(self._scores)
        else:
            estimates.means[self.here] = self._scores[:, 0]


class Ladder:
    """Trees of all columns on the rungs of `COMPLETED_BY`.

    Each track of H has trees of its own, which are not trained on its validation cells. Trees on rows completed by H,
    and those above, are added to H's estimate of the cell, made with the cell hidden; the others do without H.
    `rungs[name][track][column]` are the trees.
    """

    def __init__(self, grid: TableGrid, config: MaskedConfig, seed: int) -> None:
        self.grid, self.config, self.seed = grid, config, seed
        self.inputs = Inputs(grid)
        self.rungs: dict[str, list[list[BoostedTrees | None]]] = {}
        self.seconds_per_cell = 0.0  # of one tree with `observed_leaves`, by the speed of the first rung

    @property
    def columns(self) -> range:
        """Indices of the columns."""
        return range(len(self.grid.centre))

    def estimates(
        self,
        name: str,
        track: int,
        rows: tuple[Array, BoolArray],
        answers: TrackAnswers,
        before: Estimates | None,
        *,
        needs: Callable[[int], bool] | None = None,
    ) -> Estimates:
        """Return a rung's estimates of the cells that H was asked for.

        `before` completes the rows, which are units and the mask of the cells that are shown, each (n_rows, n_columns).
        Columns for which `needs` is false, and those without trees, take H's estimates.
        """
        found = self.of_track(answers)
        for cells in self.cells(name, track, rows, answers, before, needs=needs):
            cells.write(found)
        return found

    def cells(
        self,
        name: str,
        track: int,
        rows: tuple[Array, BoolArray],
        answers: TrackAnswers,
        before: Estimates | None,
        *,
        needs: Callable[[int], bool] | None = None,
    ) -> Iterator[ColumnCells]:
        """Yield the cells that `estimates` predicts, column by column, with the inputs of the rung's trees."""
        completed = self.inputs.encode(*rows, before)
        at_rows, columns = answers.wanted.nonzero()
        for k in self.columns:
            here, trees = columns == k, self.rungs[name][track][k]
            if (needs is not None and not needs(k)) or trees is None or not here.any():
                continue
            inputs, scores = completed[at_rows[here]], np.zeros((1, 1), dtype=np.float32)
            inputs[:, self.inputs.own(k)] = np.nan
            if self.asks_network(name):
                asked = answers.at(here, category=k in self.grid.n_categories)
                inputs, scores = self.inputs.of_cells(k, inputs, asked), self.inputs.start(k, asked)
                scores = scores.reshape(len(inputs), -1)
            yield ColumnCells(k, here, trees, inputs, scores)

    def completes(self, name: str) -> bool:
        """Return whether the estimates of a rung complete the rows of another one."""
        return any(COMPLETED_BY[other] == name for other in self.rungs)

    @staticmethod
    def asks_network(name: str) -> bool:
        """Return whether H's estimates of a cell are inputs of the trees of a rung."""
        return name in ("completed", "again")

    def of_track(self, answers: TrackAnswers) -> Estimates:
        """Return H's own estimates."""
        columns = answers.wanted.nonzero()[1]
        probabilities = {
            k: answers.probabilities[columns == k][:, : int(self.grid.n_points[k])] for k in self.grid.n_categories
        }
        return Estimates(answers.wanted, answers.means.copy(), probabilities)

    def start_observed(self, units: Array, seen: BoolArray, targets: Sequence[BoolArray], seconds: float | None) -> int:
        """Start the first rung: trees whose inputs are the observed cells, NaN where missing; return the most rounds.

        Their number under a time limit follows from the time of a few trees of the column with most cells. Shapes:
        `units`, `seen` (n_rows, n_columns), `targets` (n_rows, n_columns) by track.
        """
        rows, settings = self.inputs.encode(units, seen, None), self._settings("observed")

        def column_trees(track: int, k: int) -> BoostedTrees | None:
            here = targets[track][:, k]
            inputs = rows[here]
            inputs[:, self.inputs.own(k)] = np.nan
            return self._start((0, track, k), inputs, units[here, k], None, settings)

        n_rounds = self._most_rounds
        n_cells = [int(cells[:, k].sum()) for cells in targets for k in self.columns]
        if seconds is not None and any(n_cells):
            largest = int(np.argmax(n_cells))
            load_lightgbm()  # its import is not part of the time of a tree
            start = time.perf_counter()
            trees = column_trees(*divmod(largest, len(self.columns)))
            if trees is not None:
                trees.grow_to(MIN_ROUNDS)
            per_cell = (time.perf_counter() - start) / (MIN_ROUNDS * n_cells[largest])
            n_rounds = int(np.clip(seconds * n_threads() / (per_cell * sum(n_cells)), MIN_ROUNDS, n_rounds))
        self._start_all("observed", len(targets), column_trees)
        return n_rounds

    def start_completed(
        self,
        name: str,
        rounds: Sequence[Sequence[Round]],
        units: Array,
        fills: Sequence[Sequence[Estimates]],
        seconds: float | None,
    ) -> int:
        """Start trees on completed rows; return the most rounds, 0 if there is no time for them.

        `rounds` and `fills`, which complete their rows, are lists by track; `units` (n_rows, n_columns).
        """
        n_cells, n_rounds = sum(int(one.targets.sum()) for of_track in rounds for one in of_track), self._most_rounds
        if seconds is not None and self.seconds_per_cell:
            n_rounds = int(min(n_rounds, n_rounds * seconds / self.seconds(name, max(n_cells, 1))))
        if n_rounds < MIN_ROUNDS:
            return 0
        settings = self._settings(name)
        rows = [
            [self.inputs.encode(units, one.shown, fill) for one, fill in zip(*of_track, strict=True)]
            for of_track in zip(rounds, fills, strict=True)
        ]

        def column_trees(track: int, k: int) -> BoostedTrees | None:
            cells, targets, start = self._training_cells(name, k, rounds[track], rows[track], units)
            return self._start((len(name), track, k), cells, targets, start, settings)

        self._start_all(name, len(rounds), column_trees)
        return n_rounds

    def _training_cells(
        self, name: str, column: int, rounds: Sequence[Round], rows: Sequence[Array], units: Array
    ) -> tuple[Array, Array, Array | None]:
        """Return inputs (n_cells, n_inputs), targets (n_cells,) and starting scores of a column's trees, if any."""
        inputs, targets, starts = [], [], []
        for base, one in zip(rows, rounds, strict=True):
            here, asked = one.of(column)
            targets.append(units[here, column])
            if self.asks_network(name):
                inputs.append(self.inputs.of_cells(column, base[here], asked))
                starts.append(self.inputs.start(column, asked))
            else:
                inputs.append(base[here])
                inputs[-1][:, self.inputs.own(column)] = np.nan
        return np.concatenate(inputs), np.concatenate(targets), np.concatenate(starts) if starts else None

    def _start_all(self, name: str, n_tracks: int, start_one: Callable[[int, int], BoostedTrees | None]) -> None:
        """Start the trees of all tracks and columns of a rung, each on one thread."""
        jobs = [(track, k) for track in range(n_tracks) for k in self.columns]
        trees = map_on_threads(lambda job: start_one(*job), jobs)
        n_columns = len(self.columns)
        self.rungs[name] = [trees[track * n_columns : (track + 1) * n_columns] for track in range(n_tracks)]

    def grow_to(self, name: str, n_rounds: int) -> None:
        """Grow all trees of a rung, each on one thread; columns with categories have a limit of their own."""
        jobs = [(k, trees) for of_track in self.rungs[name] for k, trees in enumerate(of_track) if trees is not None]

        def grow_one(job: tuple[int, BoostedTrees]) -> None:
            n_categories = job[1].n_scores if job[0] in self.grid.n_categories else 1
            limit = max(2, self.config.category_trees // n_categories) if n_categories > 1 else n_rounds
            job[1].grow_to(min(n_rounds, limit))

        map_on_threads(grow_one, jobs)

    def finish(self, name: str, n_rounds: int) -> None:
        """Keep the first rounds of all trees of a rung, and release their training rows."""
        map_on_threads(lambda trees: trees.finish(n_rounds), [t for track in self.rungs[name] for t in track if t])

    def _settings(self, name: str) -> TreeSettings:
        """Return the sizes of the trees of a rung."""
        config = self.config
        n_leaves = config.n_leaves if self.asks_network(name) else config.observed_leaves
        return TreeSettings(n_leaves, config.tree_rate, config.max_bins)

    @property
    def _most_rounds(self) -> int:
        """Maximum number of rounds without a time limit."""
        return min(self.config.n_trees, max(MIN_ROUNDS, self.config.max_trees // max(len(self.columns), 1)))

    def seconds(self, name: str, n_cells: int) -> float:
        """Return the expected time of all trees of a rung on training cells, by the speed of the first rung."""
        larger: float = (self._settings(name).n_leaves / self.config.observed_leaves) ** LEAVES_EXPONENT
        return larger * self.seconds_per_cell * n_cells * self._most_rounds

    def _start(
        self,
        place: tuple[int, int, int],
        inputs: Array,
        targets: Array,
        start: Array | None,
        settings: TreeSettings,
    ) -> BoostedTrees | None:
        """Start the trees of one column, none if it has few training cells or many categories.

        `place` are the numbers of rung, track and column, which decide the random numbers.
        """
        column = place[2]
        n_categories = int(self.grid.n_points[column]) if column in self.grid.n_categories else 0
        if len(targets) < MIN_TARGETS or n_categories > MAX_CATEGORIES:
            return None
        if n_categories:
            settings = replace(settings, n_leaves=self.config.category_leaves)
        else:
            targets = np.clip(targets, -MAX_TARGET_UNITS, MAX_TARGET_UNITS)
            targets, start = (targets, None) if start is None else (targets - start, np.zeros(len(targets)))
        seed = int(np.random.default_rng([self.seed, TREE_STREAM, *place]).integers(2**31))
        return start_boosting(inputs, targets, settings, seed=seed, n_categories=n_categories, start=start)

    def tensors(self) -> dict[str, Array]:
        """Return arrays by name, for a model file."""
        arrays: dict[str, Array] = {}
        for name, tracks in self.rungs.items():
            arrays |= to_tensors(f"trees.{name}", [trees for of_track in tracks for trees in of_track])
        return arrays

    @classmethod
    def from_tensors(cls, arrays: dict[str, Array], grid: TableGrid, config: MaskedConfig, seed: int) -> Ladder:
        """Undo `tensors`."""
        ladder, n_tracks = cls(grid, config, seed), len(tracks_of(config.n_members))
        for name in COMPLETED_BY:
            if f"trees.{name}.n_trees" in arrays:
                n_inputs = ladder.inputs.width + ladder.asks_network(name)
                n_scores = [int(grid.n_points[k]) if k in grid.n_categories else 1 for k in ladder.columns]
                sizes = [(n_inputs, count) for count in n_scores] * n_tracks
                trees = from_tensors(f"trees.{name}", arrays, sizes)
                n_columns = len(ladder.columns)
                ladder.rungs[name] = [trees[k * n_columns : (k + 1) * n_columns] for k in range(n_tracks)]
        return ladder


def hidden_rounds(
    ask: Callable[[BoolArray, BoolArray], TrackAnswers],
    seen: BoolArray,
    targets: BoolArray,
    categories: dict[int, int],
    *,
    n_rounds: int,
    patterns: BoolArray | None,
    rng: np.random.Generator,
) -> list[Round]:
    """Ask for training cells while they are hidden; `ask` is given the cells that are shown and those that are wanted.

    Cells that are missing together are hidden by the patterns of other rows, and rows are completed without them.
    Otherwise each cell is hidden once, with few others of its row, and rows are completed from all observed cells:
    what H fills in then depends on the target too, yet trees on such rows predict new rows better. With no rounds, H is
    asked for the missing cells only.

    Shapes: `seen`, `targets` (n_rows, n_columns), `patterns` (n_patterns, n_columns).
    """
    if patterns is None:
        one, group = Round(seen, targets, categories), rng.integers(max(n_rounds, 1), size=seen.shape)
        for k in range(n_rounds):
            hidden = targets & (group == k)
            one.add(ask(seen & ~hidden, hidden))
        one.missing = ask(seen, ~seen)
        return [one]
    found = []
    for _ in range(n_rounds):
        hidden = targets & patterns[rng.integers(len(patterns), size=len(seen))]
        one = Round(seen & ~hidden, hidden, categories)
        one.missing = ask(one.shown, ~one.shown)
        one.add(one.missing)
        found.append(one)
    return found


def _softmax(scores: Array) -> Array:
    found = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Array = found / found.sum(axis=1, keepdims=True)
    return probabilities

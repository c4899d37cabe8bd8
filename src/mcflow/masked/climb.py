"""Fit of the ladder: which trees are grown beside H, in which order and for how long, judged by validation cells."""

from __future__ import annotations

__all__ = ["Climb"]

import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch

from mcflow.fitting.calibration import Calibration, column_errors
from mcflow.fitting.distributed import map_on_threads
from mcflow.masked.blend import Blend
from mcflow.masked.ladder import (
    COMPLETED_BY,
    TREE_STREAM,
    ColumnCells,
    Estimates,
    Ladder,
    Round,
    TrackAnswers,
    ask_track,
    hidden_rounds,
)
from mcflow.masked.network import MaskedNetwork, MaskedTrainer
from mcflow.masked.predictor import Predictive
from mcflow.typing import Array, BoolArray, FloatArray

Asking = Callable[[MaskedNetwork, Array, BoolArray, BoolArray], TrackAnswers]  # `ask_track` or a substitute

ASKED_ROWS = 1024  # rows by which the speed of H is measured
STAGES = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0)  # fractions of the rounds after which trees are validated
MAX_STALE = 2  # stages in a row without a lower validation error after which trees stop growing
TREES_MARGIN = 1.3  # time reserved for the trees, as a multiple of what they are expected to take


class _Group(NamedTuple):
    """Validation cells of a track that are hidden together, and H's answers for all cells that are not shown."""

    track: int
    hidden: BoolArray  # (n_validation_rows, n_columns)
    rows: Array  # (n_rows,) indices of the validation rows that have such cells
    cells: BoolArray  # (n_rows, n_columns) the hidden cells of these rows
    units: Array  # (n_rows, n_columns)
    shown: BoolArray  # (n_rows, n_columns)
    answers: TrackAnswers

    @property
    def places(self) -> tuple[int, Array, Array]:
        """Indices of the hidden cells in a table (n_tracks, n_validation_rows, n_columns)."""
        rows, columns = self.cells.nonzero()
        return self.track, self.rows[rows], columns


class Climb:
    """Grow the rungs of the ladder from the bottom up, and weigh them on the validation cells of the training of H.

    1. Trees on the observed cells (`start`), before H is trained.
    2. Trees on rows completed by the first rung, unless H is clearly better than that, and trees on rows completed by
       H, unless it is clearly worse for lack of time (`climb`).
    3. Trees on rows completed by the latter, if they lowered the squared error of the blend by `min_gain`.

    Each rung grows until the validation error stops falling, and keeps the number of rounds where it was lowest.

    Under a time limit, the number of trees follows from the time that a tree took on the first rung, and rungs for
    which there is no time are left out. `calibrate` fits the weights of the blend; a rung that no column uses is
    removed.

    Shapes: `values` (n_rows, n_columns), codes.
    """

    def __init__(
        self, ladder: Ladder, blend: Blend, trainer: MaskedTrainer, values: FloatArray, deadline: float | None
    ) -> None:
        self.ladder, self.blend, self.trainer, self.values = ladder, blend, trainer, values
        self.config, self.grid, self.deadline = ladder.config, ladder.grid, deadline
        self.rng = np.random.default_rng([ladder.seed, TREE_STREAM])
        n_rows = min(len(values), self.config.tree_rows)
        self.rows = np.sort(self.rng.choice(len(values), n_rows, replace=False))
        self.found: dict[str, list[Estimates]] = {}
        self.groups: list[_Group] = []  # validation cells, with H's answers once it is trained

    @cached_property
    def units(self) -> Array:
        """Rows that trees are grown on, in units."""
        return self.grid.units(self.values[self.rows]).astype(np.float32)

    @cached_property
    def seen(self) -> BoolArray:
        """Mask of the observed cells of these rows."""
        return ~np.isnan(self.units)

    @cached_property
    def targets(self) -> list[BoolArray]:
        """Masks of the cells that each track may learn, which are not its validation cells."""
        validation, n_tracks = self.trainer.validation, len(self.trainer.tracks)
        device = validation.rows.device
        rows = torch.from_numpy(self.rows).to(device).expand(n_tracks, -1)
        hidden = validation.of(torch.arange(n_tracks, device=device), rows).cpu().numpy()
        return [self.seen & ~of_track for of_track in hidden]

    def start(self, seed: int | None) -> None:
        """Grow the first rung, and fit the factored density with a seed; without one this is a bootstrap copy."""
        limit = self.config.max_time
        if self.config.trees and self.config.observed_trees:
            self.groups = self._ask_groups(_ask_nothing)
            share, start = self.config.observed_time_share, time.perf_counter()
            most = self.ladder.start_observed(self.units, self.seen, self.targets, share * limit if limit else None)
            n_rounds = self._grow_rounds("observed", most)
            n_cells = sum(int(cells.sum()) for cells in self.targets)
            self.ladder.seconds_per_cell = (time.perf_counter() - start) / max(n_rounds * n_cells, 1)
        if seed is not None:
            latest = None if self.deadline is None else self.deadline - (1 - self.config.factored_time_share) * limit
            self.blend.fit_factored(self.values, seed, latest)

    def reserved_seconds(self) -> float:
        """Return the time to reserve for trees on completed rows."""
        if not self.config.trees:
            return 0.0
        longest = self.config.trees_time_share * self.config.max_time
        return min(self.expected_seconds, longest) if self.config.observed_trees else longest

    @cached_property
    def expected_seconds(self) -> float:
        """Time that trees on completed rows are expected to take at most, estimated from smaller tasks."""
        if not self.config.trees:
            return 0.0
        n_cells = sum(int(cells.sum()) for cells in self.targets)
        names = [name for name in COMPLETED_BY if name != "observed"]
        trees = sum(self.ladder.seconds(name, n_cells) for name in names)
        return TREES_MARGIN * trees + (self._n_rounds + 2) * self._asking_seconds()

    @property
    def _n_rounds(self) -> int:
        """Number of rounds in which H is asked for its training cells."""
        return self.config.hidden_rounds if self.trainer.patterns is None else self.config.pattern_rounds

    def _asking_seconds(self) -> float:
        """Return the time that all tracks of H are expected to take to predict all rows once, by that for a few."""
        some, start = slice(0, ASKED_ROWS), time.perf_counter()
        ask_track(self.trainer.tracks[0], self.units[some], self.seen[some], ~self.seen[some])
        return (time.perf_counter() - start) * len(self.units) / max(len(self.units[some]), 1)

    def climb(self) -> None:
        """Grow trees on completed rows, once or twice."""
        self.groups = self._ask_groups(ask_track)
        if not self.config.trees:
            return
        if "observed" in self.ladder.rungs:
            self.found["observed"] = self._estimates(self._validation_cells("observed"))
        ratio = self._network_error()
        useful = ratio <= self.config.max_network_error
        rounds = map_on_threads(partial(self._rounds, targets=useful), range(len(self.trainer.tracks)))
        self.fills = {"network": [[self.ladder.of_track(one.missing) for one in of_track] for of_track in rounds]}
        if ratio > self.config.min_network_error:
            self._complete("observed", rounds)
            self._grow("chained", rounds, 3 if useful else 1)
        before = self._error()
        if useful and self._grow("completed", rounds, 2) and self._error() <= (1 - self.config.min_gain) * before:
            self._complete("completed", rounds)
            self._grow("again", rounds, 1)

    def _network_error(self) -> float:
        """Return the validation error of H relative to that of the first rung, 0 if there is no such rung."""
        if "observed" not in self.found:
            return 0.0
        own = [self.ladder.of_track(group.answers) for group in self.groups]
        others = self._own_error("observed", self.found["observed"])
        return self._own_error("mean", own) / max(others, 1e-12)

    def _complete(self, name: str, rounds: list[list[Round]]) -> None:
        """Complete the rows of all tracks with the estimates of a rung."""
        before = self.fills.get(COMPLETED_BY[name] or "")
        self.fills[name] = [
            [
                self.ladder.estimates(
                    name, track, (self.units, one.shown), one.missing, None if before is None else before[track][k]
                )
                for k, one in enumerate(of_track)
            ]
            for track, of_track in enumerate(rounds)
        ]

    def _grow(self, name: str, rounds: list[list[Round]], n_passes: int) -> bool:
        """Grow the first of some rungs on completed rows that are left; return False if there is no time for it."""
        fills = self.fills[COMPLETED_BY[name] or ""]
        most = self.ladder.start_completed(name, rounds, self.units, fills, self._seconds_left(n_passes))
        return bool(most and self._grow_rounds(name, most))

    def _rounds(self, track: int, *, targets: bool) -> list[Round]:
        """Ask a track for the missing cells, and for its training cells while they are hidden if these are wanted."""
        patterns = self.trainer.patterns
        return hidden_rounds(
            partial(ask_track, self.trainer.tracks[track], self.units),
            self.seen,
            self.targets[track],
            {k: int(self.grid.n_points[k]) for k in self.grid.n_categories},
            n_rounds=self._n_rounds if targets or patterns is not None else 0,
            patterns=None if patterns is None else patterns.cpu().numpy(),
            rng=np.random.default_rng([self.ladder.seed, TREE_STREAM, track]),
        )

    def _seconds_left(self, n_passes: int) -> float | None:
        """Return the time for the next of some passes, None without a limit."""
        if self.deadline is None:
            return None
        reserved = self.config.calibration_time_share * self.config.max_time
        return max(self.deadline - time.perf_counter() - reserved, 0.0) / n_passes

    def _ask_groups(self, ask: Asking) -> list[_Group]:
        """Return the validation cells of all tracks with H's answers."""
        by_track = map_on_threads(partial(self._groups_of, ask), range(len(self.trainer.tracks)))
        return [group for of_track in by_track for group in of_track]

    def _groups_of(self, ask: Asking, track: int) -> list[_Group]:
        """Ask a track for its validation cells, group by group."""
        validation, network = self.trainer.validation, self.trainer.tracks[track]
        units = self.grid.units(self.values[validation.rows.cpu().numpy()]).astype(np.float32)
        seen = ~np.isnan(units)
        found = []
        for cells in validation.groups(track):
            hidden = cells.cpu().numpy()
            rows = np.flatnonzero(hidden.any(axis=1))
            own, shown = units[rows], (seen & ~hidden)[rows]
            found.append(_Group(track, hidden, rows, hidden[rows], own, shown, ask(network, own, shown, ~shown)))
        return found

    def _grow_rounds(self, name: str, most: int) -> int:
        """Grow a rung that has been started until validation cells show no more gain; return the rounds grown.

        The number of rounds with the lowest error is kept.
        """
        cells = self._validation_cells(name)
        best, kept, n_stale, n_rounds = np.inf, 1, 0, 0
        for share in STAGES:
            n_rounds = max(1, round(share * most))
            self.ladder.grow_to(name, n_rounds)
            found = self._estimates(cells)
            error, n_stale = self._own_error(name, found), n_stale + 1
            if error < best or share == STAGES[0]:
                best, kept, n_stale, self.found[name] = error, n_rounds, 0, found
            if n_stale == MAX_STALE:
                break
        self.ladder.finish(name, kept)
        return n_rounds

    def _validation_cells(self, name: str) -> list[list[ColumnCells]]:
        """Return the cells of each group by column, to be scored by the trees of a rung."""
        source = COMPLETED_BY[name]

        def of_group(k: int) -> list[ColumnCells]:
            group, fill = self.groups[k], None
            if source is not None:
                fill = self.ladder.of_track(group.answers) if source == "network" else self.found[source][k]
            return list(self.ladder.cells(name, group.track, (group.units, group.shown), group.answers, fill))

        return map_on_threads(of_group, range(len(self.groups)))

    def _estimates(self, cells: list[list[ColumnCells]]) -> list[Estimates]:
        """Return the estimates of each group by the trees as they are now."""

        def of_group(k: int) -> Estimates:
            found = self.ladder.of_track(self.groups[k].answers)
            for of_column in cells[k]:
                of_column.write(found)
            return found

        return map_on_threads(of_group, range(len(self.groups)))

    def _cells_of(self, estimates: list[Estimates]) -> FloatArray:
        """Return the means (n_cells,) of the validation cells, track by track."""
        tables = np.full(self.validation.shape, np.nan)
        for group, found in zip(self.groups, estimates, strict=True):
            of_group = np.full(group.cells.shape, np.nan)
            of_group[found.wanted] = found.means
            tables[group.places] = of_group[group.cells]
        return tables[self.validation]

    @cached_property
    def validation(self) -> BoolArray:
        """Masks (n_tracks, n_validation_rows, n_columns) of all validation cells."""
        cells: BoolArray = self.trainer.validation.cells.cpu().numpy()
        return cells

    @cached_property
    def columns(self) -> Array:
        """Columns (n_cells,) of the validation cells."""
        return self.validation.nonzero()[2]

    @cached_property
    def numbers(self) -> BoolArray:
        """Which of them (n_cells,) are numbers."""
        return ~np.isin(self.columns, list(self.grid.n_categories))

    @cached_property
    def truth(self) -> FloatArray:
        """Units (n_cells,) of the validation cells."""
        units = self.grid.units(self.values[self.trainer.validation.rows.cpu().numpy()])
        return np.broadcast_to(units, self.validation.shape)[self.validation]

    def _numbers(self) -> dict[str, FloatArray]:
        """Return all estimates (n_cells,) of the validation cells by name."""
        own = [self.ladder.of_track(group.answers) for group in self.groups]
        direct = [Estimates(group.answers.wanted, group.answers.direct, {}) for group in self.groups]
        found = {"mean": self._cells_of(own), "direct": self._cells_of(direct)}
        return found | {name: self._cells_of(estimates) for name, estimates in self.found.items()}

    def _categories(
        self, estimates: dict[str, list[Estimates]] | None = None
    ) -> tuple[dict[str, dict[int, FloatArray]], dict[int, Array]]:
        """Return the probabilities of the validation cells by name and column, and their true points by column.

        They are those of some estimates by name, by default of H and of all rungs.
        """
        own = [self.ladder.of_track(group.answers) for group in self.groups]
        estimates = {"mean": own} | self.found if estimates is None else estimates
        by_name: dict[str, dict[int, FloatArray]] = {}
        truth: dict[int, Array] = {}
        for k in self.grid.n_categories:
            for name, by_group in estimates.items():
                parts = [
                    found.probabilities[k][group.cells[found.wanted[:, k], k]]
                    for group, found in zip(self.groups, by_group, strict=True)
                ]
                by_name.setdefault(name, {})[k] = np.concatenate(parts)
            truth[k] = np.concatenate([group.units[group.cells[:, k], k] for group in self.groups]).astype(np.int64)
        return by_name, {k: points for k, points in truth.items() if len(points)}

    def _own_error(self, name: str, estimates: list[Estimates]) -> float:
        """Return the error of a rung's estimates on validation cells: squares of numbers, and 1 - p of categories."""
        squares = (self._cells_of(estimates) - self.truth)[self.numbers] ** 2
        by_name, truth = self._categories({name: estimates})
        missed = [1 - by_name[name][k][np.arange(len(points)), points] for k, points in truth.items()]
        errors = np.concatenate([squares, *missed])
        return float(errors.mean()) if len(errors) else 0.0

    def _error(self) -> float:
        """Return the same error of the blend of all estimates so far."""
        by_name, truth = self._categories()
        total, count = 0.0, int(self.numbers.sum())
        if count:
            total = self.blend.fit_weights(self._numbers(), self.truth, self.columns, self.numbers)[1] * count
        self.blend.fit_pool(by_name, truth)
        for k, points in truth.items():
            pooled = self.blend.pool({name: of_name[k] for name, of_name in by_name.items()}, k)
            total, count = total + float((1 - pooled[np.arange(len(points)), points]).sum()), count + len(points)
        return total / max(count, 1)

    def _column_errors(
        self, blended: FloatArray, by_name: dict[str, dict[int, FloatArray]], truth: dict[int, Array]
    ) -> list[tuple[int, int, float]]:
        """Return the errors on validation cells relative to the mean's or the most frequent category's, by column."""
        found, losses = [self.columns[self.numbers]], [(blended - self.truth)[self.numbers] ** 2]
        reference = [(self.blend.means[self.columns] - self.truth)[self.numbers] ** 2]
        for k, points in truth.items():
            pooled = self.blend.pool({name: of_name[k] for name, of_name in by_name.items()}, k)
            seen = self.units[self.seen[:, k], k].astype(np.int64)
            found.append(np.full(len(points), k))
            losses.append((pooled.argmax(axis=1) != points).astype(np.float64))
            reference.append((points != np.bincount(seen).argmax()).astype(np.float64))
        squared = ~np.isin(np.arange(self.values.shape[1]), list(self.grid.n_categories))
        return column_errors(np.concatenate(found), np.concatenate(losses), np.concatenate(reference), squared)

    def calibrate(self, rng: np.random.Generator) -> Calibration:
        """Fit the weights of the blend; return the calibration of H's distributions, centred on the blend."""
        by_name, truth = self._categories()
        self.blend.fit_pool(by_name, truth)
        probabilities = np.zeros((*self.validation.shape, self.grid.points.shape[1]), dtype=np.float32)
        groups: list[list[BoolArray]] = [[] for _ in self.trainer.tracks]
        for group in self.groups:
            groups[group.track].append(group.hidden)
            probabilities[group.places] = group.answers.probabilities[group.cells[group.answers.wanted]]
        marginals = self.grid.marginals(torch.device("cpu"))
        cells = Predictive(marginals, self.columns, torch.from_numpy(probabilities[self.validation]))
        rows = self.trainer.validation.rows.cpu().numpy()
        blended = self.blend.fit(self.values, rows, groups, self._numbers(), self.truth)
        self.trainer.history.column_errors = self._column_errors(blended, by_name, truth)
        centred = cells.with_means(blended, self.numbers)
        self.blend.choose_factored(self.values, rows, self.validation, centred.log_density(self.truth), rng)
        for name in reversed(list(self.ladder.rungs)):  # a rung may be kept only to complete the rows of the next
            if not self.ladder.completes(name) and not any(self.blend.needs(name, k) for k in self.ladder.columns):
                del self.ladder.rungs[name]
        return cells.calibration(blended, self.truth, self.grid.n_categories)


def _ask_nothing(network: MaskedNetwork, units: Array, shown: BoolArray, wanted: BoolArray) -> TrackAnswers:
    """Return zeros in place of the answers of H, for trees that are grown before H is trained."""
    n_cells = int(wanted.sum())
    probabilities = np.zeros((n_cells, network.n_points), dtype=np.float32)
    return TrackAnswers(wanted, probabilities, *np.zeros((2, n_cells), dtype=np.float32))

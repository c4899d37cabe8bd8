"""Predictions of missing cells: distributions by H, and estimates blended from H, trees and a Gaussian."""

from __future__ import annotations

__all__ = ["Predictive", "Predictor"]

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mcflow.config import BATCH_ROWS
from mcflow.fitting.calibration import Calibration
from mcflow.fitting.distributed import kernels_on_one_thread, map_on_threads, n_threads
from mcflow.masked.blend import Blend
from mcflow.masked.encoding import PointMarginals
from mcflow.masked.ladder import COMPLETED_BY, Estimates, Ladder, TrackAnswers, ask_track
from mcflow.masked.network import MaskedNetwork, tracks_of
from mcflow.typing import Array, BoolArray, FloatArray

TILT_STEPS = 16  # Newton steps that tilt a distribution to a given mean
MAX_TILT = 30.0  # bound of the tilt
LOGITS_AT_ONCE = 500_000  # outputs of the last layer computed together: few enough for the processor's caches
MIN_THREAD_ROWS = 256  # minimum number of rows per thread
MAX_THREAD_ROWS = 16_384  # maximum number of rows that a thread fills at a time


class Predictive(NamedTuple):
    """Predictive distributions of some cells."""

    marginals: PointMarginals  # of all columns of the table
    columns: Array  # (n_cells,) the column of each cell
    probabilities: Tensor  # (n_cells, n_points) probabilities of the points

    def _own(self) -> PointMarginals:
        return self.marginals.at(torch.from_numpy(self.columns).to(self.marginals.points.device))

    def with_means(self, means: FloatArray, numbers: Array) -> Predictive:
        r"""Return distributions with given means.

        Probabilities are tilted along the ranks of the points, :math:`p'_k \propto p_k e^{\lambda k / n}`, where
        Newton's method within a shrinking bracket finds the :math:`\lambda` that gives the mean. The points stay where
        they are, so bounds and point masses are respected.

        Shapes: `means` (n_cells,), `numbers` (n_cells,).
        """
        own = self._own()
        places = own.means()
        ranks = torch.arange(places.shape[1], device=places.device) / own.n_points[:, None]
        change = numbers & np.isfinite(means)
        target = torch.from_numpy(np.where(change, means, 0.0)).to(self.probabilities)
        log_p = self.probabilities.clamp(min=1e-12).log()
        tilt, low, high = torch.zeros_like(target), *torch.full((2, *target.shape), MAX_TILT).to(target)
        low = -low
        for _ in range(TILT_STEPS):
            now = (log_p + tilt[..., None] * ranks).softmax(-1)
            mean, rank = (now * places).sum(-1), (now * ranks).sum(-1)
            slope = (now * places * ranks).sum(-1) - mean * rank
            low, high = torch.where(mean < target, tilt, low), torch.where(mean > target, tilt, high)
            newton = tilt + (target - mean) / slope.clamp(min=1e-12)
            tilt = torch.where((newton > low) & (newton < high), newton, (low + high) / 2)
        tilted = (log_p + tilt[..., None] * ranks).softmax(-1)
        chosen = torch.from_numpy(change).to(tilted.device)[..., None]
        return self._replace(probabilities=torch.where(chosen, tilted, self.probabilities))

    def log_density(self, truth: FloatArray) -> FloatArray:
        """Return the log-density or log-probability (n_cells,) of the cells at given units (n_cells,)."""
        units = torch.from_numpy(truth).to(self.probabilities)
        found = self._own().log_density(units[None], self.probabilities[None])[0]
        return found.cpu().numpy().astype(np.float64)

    def calibration(self, means: FloatArray, truth: FloatArray, categories: Collection[int]) -> Calibration:
        """Fit the calibration to the true units of validation cells.

        Shapes: `means` (n_cells,), `truth` (n_cells,).
        """
        of_categories = np.isin(self.columns, list(categories))
        kept = of_categories | ~np.isnan(means)
        cells = self._replace(columns=self.columns[kept], probabilities=self.probabilities[torch.from_numpy(kept)])
        cells = cells.with_means(means[kept], ~of_categories[kept])
        own, units = cells._own(), torch.from_numpy(truth[kept]).to(self.probabilities)[None]
        ends = []
        for place, sign in ((1.0, 1), (0.0, -1)):
            scores, _ = own.scores(units, cells.probabilities[None], torch.full_like(units, place))
            ends.append(torch.special.ndtr(sign * scores)[0].cpu().numpy().astype(np.float64))
        found = Calibration.from_scores(ends[0], ends[1], cells.columns, len(self.marginals.points))
        for k in categories:
            found.scale[k] = 1.0
        return found

    def at(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cells at normal scores (n_scores, n_cells): the index of the point or -1, and the units."""
        return self._own().places_at(scores, self.probabilities.expand(len(scores), -1, -1))


class Predictor:
    """Predict cells with H, the trees and the blend, and convert predictions to codes."""

    def __init__(
        self, box: tuple[FloatArray, FloatArray], network: MaskedNetwork, blend: Blend, ladder: Ladder
    ) -> None:
        self.columns, self.grid, self.box = blend.columns, blend.grid, box
        self.network, self.blend, self.ladder, self.categories = network, blend, ladder, blend.grid.n_categories
        self.tracks = [network.members(some) for some in tracks_of(network.n_members)]

    @property
    def rows_at_once(self) -> int:
        """Number of rows that go through H together."""
        return max(1, LOGITS_AT_ONCE // (self.network.n_members * max(self.network.points.numel(), 1)))

    def tables(self, values: FloatArray, cells_of: Callable[[Array], FloatArray], count: int) -> Iterator[FloatArray]:
        """Yield `count` completed copies of a table; `cells_of` gives (count, n_cells) codes for some of its rows."""
        missing = np.isnan(values)
        with kernels_on_one_thread():
            parts = map_on_threads(cells_of, self._parts(values)) if missing.any() else []
        cells = np.concatenate(parts, axis=1) if parts else np.empty((count, 0))
        for of_table in cells:
            filled = values.copy()
            filled[missing] = of_table
            yield filled

    def _parts(self, values: FloatArray) -> list[Array]:
        """Return the incomplete rows in parts for the threads, none of which crosses a block of `BATCH_ROWS`."""
        parts = []
        for begin in range(0, len(values), BATCH_ROWS):
            incomplete = begin + np.flatnonzero(np.isnan(values[begin : begin + BATCH_ROWS]).any(axis=1))
            per_thread = math.ceil(len(incomplete) / n_threads())
            size = max(1, min(MAX_THREAD_ROWS, max(per_thread, MIN_THREAD_ROWS)))
            parts += [incomplete[first : first + size] for first in range(0, len(incomplete), size)]
        return parts

    def ask_all(self, values: FloatArray, shown: BoolArray, wanted: BoolArray) -> TrackAnswers:
        """Return what all members of H together predict for some cells, given others.

        The Gaussian's estimates take the place of the direct ones, if there is a Gaussian. Shapes: `values`, `shown`,
        `wanted` (n_rows, n_columns).
        """
        answers = ask_track(self.network, self.grid.units(values).astype(np.float32), shown, wanted)
        found = self.blend.gaussian_estimates(np.where(shown, values, np.nan), wanted)
        return answers._replace(direct=found["gaussian"].astype(np.float32)) if found else answers

    def answers(self, values: FloatArray) -> tuple[list[TrackAnswers], dict[str, Estimates]]:
        """Return what each track of H predicts for the missing cells, and the estimates of the rungs in use."""
        units, shown = self.grid.units(values).astype(np.float32), ~np.isnan(values)
        by_track = [ask_track(track, units, shown, ~shown) for track in self.tracks]
        fills = {"network": [self.ladder.of_track(answers) for answers in by_track]}
        for name in self.ladder.rungs:
            needs = None if self.ladder.completes(name) else partial(self.blend.needs, name)
            before = fills.get(COMPLETED_BY[name] or "", [None] * len(by_track))
            fills[name] = [
                self.ladder.estimates(name, track, (units, shown), answers, fill, needs=needs)
                for track, (answers, fill) in enumerate(zip(by_track, before, strict=True))
            ]
        return by_track, {name: Estimates.average(fills[name]) for name in self.ladder.rungs}

    def fill(self, values: FloatArray) -> FloatArray:
        """Return codes of the missing cells of some rows: blended means of numbers, the most probable categories."""
        missing = np.isnan(values)
        columns = missing.nonzero()[1]
        by_track, rungs = self.answers(values)
        means, direct, probabilities = self._averaged(by_track)
        units = self.blended(values, missing, means, direct, rungs)
        numbers = units * self.grid.spread[columns] + self.grid.centre[columns]
        cells: FloatArray = np.clip(numbers, *(bound[columns] for bound in self.box))
        for k in self.categories:
            here = columns == k
            cells[here] = self.by_category(k, self._pooled(k, here, probabilities, rungs)).argmax(axis=1)
        return cells

    def _averaged(self, by_track: Sequence[TrackAnswers]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return means, direct estimates and probabilities averaged over all members."""
        n_members = [track.n_members for track in self.tracks]
        parts = zip(*((one.means, one.direct, one.probabilities) for one in by_track), strict=True)
        means, direct, probabilities = (np.average(part, axis=0, weights=n_members) for part in parts)
        return means, direct, probabilities

    def _pooled(
        self, column: int, here: BoolArray, probabilities: FloatArray, rungs: dict[str, Estimates]
    ) -> FloatArray:
        """Return the pooled probabilities (n_cells, n_points) of the points of a categorical column."""
        found = {"mean": probabilities[here][:, : int(self.grid.n_points[column])]}
        return self.blend.pool(found | {name: rung.probabilities[column] for name, rung in rungs.items()}, column)

    def probabilities(self, values: FloatArray) -> dict[int, FloatArray]:
        """Return the probabilities (n_cells, n_categories) of the missing cells by categorical column."""
        by_track, rungs = self.answers(values)
        columns, probabilities = np.isnan(values).nonzero()[1], self._averaged(by_track)[2]
        return {k: self.by_category(k, self._pooled(k, columns == k, probabilities, rungs)) for k in self.categories}

    def by_category(self, column: int, probabilities: FloatArray) -> FloatArray:
        """Convert probabilities of points (n_cells, n_points) to those of a column's categories."""
        places, shares = self.grid.places[column], self.grid.shares[column]
        assert places is not None
        assert shares is not None
        found = probabilities[:, places] * shares
        by_category: FloatArray = found / found.sum(axis=1, keepdims=True)
        return by_category

    def predict(self, values: FloatArray) -> Predictive:
        """Return the distribution of every missing cell: H's, with the means of the blend and pooled probabilities."""
        missing = np.isnan(values)
        by_track, rungs = self.answers(values)
        means, direct, probabilities = self._averaged(by_track)
        blended = self.blended(values, missing, means, direct, rungs)
        columns = missing.nonzero()[1]
        for k in self.categories:
            here = columns == k
            probabilities[here, : int(self.grid.n_points[k])] = self._pooled(k, here, probabilities, rungs)
        device = self.network.points.device
        there = torch.from_numpy(probabilities.astype(np.float32)).to(device)
        cells = Predictive(self.grid.marginals(device), columns, there)
        return cells.with_means(blended, ~np.isin(columns, list(self.categories)))

    def blended(
        self,
        values: FloatArray,
        wanted: BoolArray,
        means: FloatArray,
        direct: FloatArray,
        rungs: dict[str, Estimates],
    ) -> FloatArray:
        """Return the blended estimates (n_cells,) of some cells in units; `means`, `direct` (n_cells,) are H's."""
        columns = wanted.nonzero()[1]
        low, high = (((bound - self.grid.centre) / self.grid.spread)[columns] for bound in self.box)
        found = {"direct": direct, "column": self.blend.means[columns]} | {name: rungs[name].means for name in rungs}
        found |= self.blend.gaussian_estimates(values, wanted)
        found = {"mean": means} | {name: np.clip(estimate, low, high) for name, estimate in found.items()}
        units = self.blend.blended(found, columns)
        # Clipping would accumulate estimates at a bound; the means over the points are within it.
        inside: FloatArray = np.where((low < units) & (units < high), units, means)
        return inside

    def codes_at(self, columns: Array, places: Tensor, units: Tensor) -> FloatArray:
        """Convert cells (n_answers, n_cells) to codes: the code of their point, or their units between points."""
        at = places.cpu().numpy()
        numbers = units.cpu().numpy().astype(np.float64) * self.grid.spread[columns] + self.grid.centre[columns]
        codes: FloatArray = np.where(at >= 0, self.grid.codes[columns, at], numbers)
        for k in self.categories:
            answers, here = self.grid.answers[k], columns == k
            assert answers is not None
            codes[:, here] = answers[at[:, here]]
        low, high = (bound[columns] for bound in self.box)
        return np.clip(codes, low, high)

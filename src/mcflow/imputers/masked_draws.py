"""Draws and quantiles of the default preset's model, cell by cell or of all cells of a row at once."""

from __future__ import annotations

__all__ = ["MaskedDraws"]

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from mcflow.config import BATCH_ROWS
from mcflow.data.constraints import fold
from mcflow.data.grids import TableGrid
from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.flows.marginals import FARTHEST, PointMarginals
from mcflow.imputers.blending import Blend
from mcflow.random import cell_uniforms, hash_rows
from mcflow.training.calibration import Calibration, masses_beyond
from mcflow.training.predictive import Predictive
from mcflow.training.threads import map_on_threads
from mcflow.typing import Array, BoolArray, FloatArray

if TYPE_CHECKING:
    from mcflow.imputers.masked_model import MaskedStage

#: Numbers that the last layer gives at once when nothing is learned: few enough for the caches.
LOGITS_AT_ONCE = 500_000

#: Rows that are not worth a thread of their own.
FEW_ROWS = 256

#: Bytes of drawn cells that are kept at a time, at most, and tables.
DRAW_BYTES, MOST_DRAWS = 1 << 28, 32

#: Draws by which the chances of levels are told where they are not stated.
CHANCE_DRAWS = 20


class MaskedDraws:
    """What can be asked of H, G and the blend about missing cells, beyond one value for each.

    Notes
    -----
    The distribution of a single cell is H's, moved to the blend's mean. How the cells of a row go together is known to
    G, which gives all of them in one pass. For small tables, where there is little for G to learn from, they are drawn
    one after the other instead, each given those before it (the chain rule), in an order that changes from draw to
    draw; then a normal that is in the blend has its say at every step. With several members of H, the draws take turns
    with them, so that draws also differ by what is not known of the networks.
    """

    columns: tuple[Column, ...]
    grid: TableGrid
    box: tuple[FloatArray, FloatArray]
    blend: Blend
    seed: int
    calibration: Calibration | None
    stages: list[MaskedStage]

    @property
    def levels(self) -> dict[int, int]:
        """The columns of levels, with how many they have."""
        return {k: len(column.levels) for k, column in enumerate(self.columns) if column.kind in LEVEL_KINDS}

    def marginals(self, device: torch.device) -> PointMarginals:
        """Return the cells' own distributions, for G."""
        points, n_points = torch.from_numpy(self.grid.points), torch.from_numpy(self.grid.n_points)
        return PointMarginals(points, n_points, torch.from_numpy(self.grid.atoms)).to(device)

    def draws(self, values: FloatArray, m: int, seed: int, ids: FloatArray | None = None) -> Iterator[FloatArray]:
        """Draw completed tables.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing.
        m : int
            Tables to draw; they are made some at a time.
        seed : int
            Together with a row it decides the row's draws.
        ids : ndarray of shape (n_rows,), optional
            Tells equal rows apart.

        Yields
        ------
        ndarray of shape (n_rows, n_columns)
        """
        hashes = hash_rows(values if ids is None else np.column_stack([values, ids]), seed)
        at_once = int(np.clip(DRAW_BYTES // (8 * max(int(np.isnan(values).sum()), 1)), 1, MOST_DRAWS))
        for first in range(0, m, at_once):
            yield from self._numbered(values, hashes, np.arange(first, min(first + at_once, m)))

    def redraw(self, values: FloatArray, hashes: Array, number: int) -> FloatArray:
        """Return rows completed as draw `number` of a series has them, with random numbers that the hashes decide."""
        (table,) = self._numbered(values, hashes, np.array([number]))
        return table

    def _numbered(self, values: FloatArray, hashes: Array, numbers: Array) -> Iterator[FloatArray]:
        """Yield the draws of a series that have some numbers."""
        drawn = self._drawn_in_turn if self.blend.resampled else self._drawn_together
        yield from self._tables(values, lambda rows: drawn(values[rows], hashes[rows], numbers), len(numbers))

    def quantiles(self, values: FloatArray, probabilities: FloatArray) -> Iterator[FloatArray]:
        """Fill holes with quantiles of what they may be: a table for each probability.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing.
        probabilities : ndarray of shape (n_quantiles,)
            In [0, 1].

        Yields
        ------
        ndarray of shape (n_rows, n_columns)
            NaN stays in columns of levels without an order.
        """
        tails = np.stack([self._tail(q) for q in probabilities])
        yield from self._tables(values, lambda rows: self._quantile_cells(values[rows], tails), len(tails))

    def _tail(self, probability: float) -> FloatArray:
        """Return the normal score at which the quantile of each column is read."""
        upper, masses = masses_beyond(probability, self.calibration, len(self.columns))
        scores: FloatArray = -ndtri(masses) if upper else ndtri(masses)
        return np.clip(scores, -FARTHEST, FARTHEST)

    def _parts(self, values: FloatArray) -> list[Array]:
        """Return the rows with holes, in parts for the threads; none of a part is in another block than the others."""
        parts = []
        for begin in range(0, len(values), BATCH_ROWS):
            holed = begin + np.flatnonzero(np.isnan(values[begin : begin + BATCH_ROWS]).any(axis=1))
            shared_out = math.ceil(len(holed) / torch.get_num_threads())
            size = max(1, min(self._rows_at_once(), max(shared_out, FEW_ROWS)))
            parts += [holed[first : first + size] for first in range(0, len(holed), size)]
        return parts

    def _rows_at_once(self) -> int:
        mapper = self.stages[0].mapper
        return max(1, LOGITS_AT_ONCE // (mapper.n_members * max(mapper.points.numel(), 1)))

    def _tables(self, values: FloatArray, cells_of: Callable[[Array], FloatArray], count: int) -> Iterator[FloatArray]:
        """Yield tables, the missing cells of which are found for some rows at a time, several answers each."""
        missing = np.isnan(values)
        parts = map_on_threads(cells_of, self._parts(values)) if missing.any() else []
        cells = np.concatenate(parts, axis=1) if parts else np.empty((count, 0))
        for of_table in cells:
            filled = values.copy()
            filled[missing] = of_table
            yield filled

    def _asked(self, values: FloatArray, wanted: BoolArray) -> tuple[Tensor, Tensor, Tensor]:
        """Return each member's probabilities and estimates of the wanted cells, and the first one's view of the rows.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns) or (n_members, n_rows, n_columns)
            Rows for all members, or for each its own.
        wanted : ndarray of bool of the shape of `values`
            Cells of each member's own rows are given together, as those of one member.
        """
        mapper = self.stages[0].mapper
        device = mapper.points.device
        units = torch.from_numpy(self.grid.units(values.reshape(-1, values.shape[-1]))).float().to(device)
        units = units.reshape(-1, *values.shape[-2:])
        shown = units.isnan().logical_not_().float()
        units.nan_to_num_()
        chosen = torch.from_numpy(wanted).to(device)
        with torch.inference_mode():
            answer = mapper(units, shown)
            if wanted.ndim == 2:
                return answer.logits[:, chosen].softmax(-1), answer.direct[:, chosen], answer.context[0]
            return answer.logits[chosen].softmax(-1)[None], answer.direct[chosen][None], answer.context[0]

    def _box_in_units(self) -> tuple[FloatArray, FloatArray]:
        low, high = ((bound - self.grid.centre) / self.grid.spread for bound in self.box)
        return low, high

    def _predictive(self, values: FloatArray, *, together: bool) -> tuple[Predictive, Tensor]:
        """Return the distribution of every missing cell, by member or of all together, and H's view of the rows."""
        missing = np.isnan(values)
        chances, direct, context = self._asked(values, missing)
        if together:
            chances, direct = chances.mean(0, keepdim=True), direct.mean(0, keepdim=True)
        return self._moved(values, missing, chances, direct), context

    def _moved(
        self, values: FloatArray, wanted: BoolArray, chances: Tensor, direct: Tensor, *, normal: bool = True
    ) -> Predictive:
        """Return H's distributions of some cells, of shape (n_members, n_cells), with the means of the blend."""
        columns = wanted.nonzero()[1]
        points = self.stages[0].mapper.points[torch.from_numpy(columns).to(chances.device)]
        means = (chances * points).sum(-1).cpu().numpy().astype(np.float64)
        blended = self.blend.units(values, wanted, means, direct.cpu().numpy(), self._box_in_units(), normal=normal)
        cells = Predictive(self.marginals(chances.device), columns, chances)
        return cells.with_means(blended, ~np.isin(columns, list(self.levels)))

    def _drawn_together(self, values: FloatArray, hashes: Array, numbers: Array) -> FloatArray:
        """Return draws of the missing cells of some rows, of shape (n_numbers, n_cells), by one pass through G."""
        missing = np.isnan(values)
        rows, columns = missing.nonzero()
        with torch.inference_mode():
            cells, context = self._predictive(values, together=False)
            there = torch.from_numpy(missing).to(context.device)
            normals = torch.from_numpy(ndtri(cell_uniforms(hashes[rows], columns, numbers))).to(context)
            z = context.new_zeros(len(numbers), *missing.shape)
            z[:, there] = normals
            many = (part.expand(len(numbers), *part.shape).flatten(0, 1) for part in (there, context))
            scores = self.stages[0].flow.inverse(z.flatten(0, 1), *many).unflatten(0, (len(numbers), -1))[:, there]
            members = torch.from_numpy(numbers % len(cells.chances)).to(context.device)
            return self._codes_at(columns, *cells.at(scores, members))

    def _drawn_in_turn(self, values: FloatArray, hashes: Array, numbers: Array) -> FloatArray:
        """Return the same by the chain rule: a cell of every row at a time, given all before it."""
        missing = np.isnan(values)
        n_members = self.stages[0].mapper.n_members
        # As many draws for every member, sorted by member; those that were not asked for are thrown away.
        first = int(numbers[0]) // n_members * n_members
        n_draws = math.ceil((int(numbers[-1]) + 1 - first) / n_members) * n_members
        series = np.arange(first, first + n_draws).reshape(-1, n_members).T.ravel()
        state, left = self._begun(values, hashes, series, np.isin(series, numbers))
        rows, columns = left.nonzero()
        numbered = np.full((3, n_draws, *missing.shape), np.inf)
        for k, of_cells in enumerate(numbered):
            of_cells[:, left] = cell_uniforms(hashes[rows], columns + k * len(self.columns), series)
        normals, turns, votes = ndtri(np.minimum(numbered[0], 1)), numbered[1], numbered[2]
        turns = turns.argsort(axis=2).argsort(axis=2)
        for turn in range(int(left.sum(axis=1).max())):
            self._draw_turn(state, left & (turns == turn), normals, votes)
        order = np.argsort(series)[numbers - first]
        drawn: FloatArray = state[:, missing][order]
        return drawn

    def drawn_chances(self, values: FloatArray, column: int, stated: FloatArray) -> FloatArray:
        """Return how often each level of a column is drawn, where that is not what H states.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing, as all cells of the column are.
        column : int
            Of levels.
        stated : ndarray of shape (n_rows, n_levels)
            Probabilities by H.

        Returns
        -------
        ndarray of shape (n_rows, n_levels)
            Shares of `CHANCE_DRAWS` draws, with what is stated counted as one more.
        """
        factored = self.blend.factored
        if factored is None or not factored.used[column]:
            return stated
        counts, hashes, rows = stated.copy(), hash_rows(values, self.seed), np.arange(len(values))
        for number in range(CHANCE_DRAWS):
            counts[rows, factored.complete(values, hashes, number, self.box)[:, column].astype(np.int64)] += 1
        return counts / (CHANCE_DRAWS + 1)

    def _begun(
        self, values: FloatArray, hashes: Array, series: Array, asked: BoolArray
    ) -> tuple[FloatArray, BoolArray]:
        """Return a table for each draw, with the cells that a factored density gives, and which cells are left.

        Draws that were not asked for begin as one of the others.
        """
        missing, factored = np.isnan(values), self.blend.factored
        if factored is None:
            return np.tile(values, (len(series), 1, 1)), missing
        tables = np.stack([factored.complete(values, hashes, int(number), self.box) for number in series[asked]])
        return tables[np.maximum(np.cumsum(asked) - 1, 0)], missing & ~factored.used

    def _draw_turn(self, state: FloatArray, wanted: BoolArray, normals: FloatArray, votes: FloatArray) -> None:
        """Draw the wanted cells, one at most in a row, of tables that are sorted by the member that is asked."""
        n_members, n_columns = self.stages[0].mapper.n_members, state.shape[2]
        active = wanted[0].any(axis=1)
        values, now = state[:, active].reshape(n_members, -1, n_columns), wanted[:, active]
        with torch.inference_mode():
            chances, direct, _ = self._asked(values, now.reshape(values.shape))
            flat, cells = values.reshape(-1, n_columns), now.reshape(-1, n_columns)
            stated = self._moved(flat, cells, chances, direct, normal=False)
            drawn = normals[:, active][now]
            scores = torch.from_numpy(drawn).to(chances)
            if self.calibration is not None:
                scores = scores * torch.from_numpy(self.calibration.scale[stated.columns]).to(scores)
            found = self._codes_at(stated.columns, *stated.at(scores[None], scores.new_zeros(1).long()))[0]
        by_normal = votes[:, active][now] < self.blend.votes[stated.columns]
        found = np.where(by_normal, self._drawn_by_normal(values, now, drawn), found)
        flat[cells] = found
        state[:, active] = flat.reshape(len(state), -1, n_columns)

    def _drawn_by_normal(self, values: FloatArray, wanted: BoolArray, normals: FloatArray) -> FloatArray:
        """Return what the blend's normals, one a member, say of cells at some normal scores, as codes."""
        parts = [
            self.blend.normal_units(rows, cells, member)
            for member, (rows, cells) in enumerate(zip(values, wanted.reshape(values.shape), strict=True))
        ]
        centre, deviation = (np.concatenate(part) for part in zip(*parts, strict=True))
        columns = wanted.reshape(-1, wanted.shape[-1]).nonzero()[1]
        codes = (centre + deviation * normals) * self.grid.spread[columns] + self.grid.centre[columns]
        return fold(codes, *(bound[columns] for bound in self.box))

    def _codes_at(self, columns: Array, places: Tensor, units: Tensor) -> FloatArray:
        """Turn cells, of shape (n_answers, n_cells), into codes: at a point by its code, else by their units."""
        at = places.cpu().numpy()
        numbers = units.cpu().numpy().astype(np.float64) * self.grid.spread[columns] + self.grid.centre[columns]
        codes: FloatArray = np.where(at >= 0, self.grid.codes[columns, at], numbers)
        for k in self.levels:
            answers, here = self.grid.answers[k], columns == k
            assert answers is not None
            codes[:, here] = answers[at[:, here]]
        low, high = (bound[columns] for bound in self.box)
        return np.clip(codes, low, high)

    def _quantile_cells(self, values: FloatArray, tails: FloatArray) -> FloatArray:
        """Return quantiles of the missing cells of some rows, of shape (n_quantiles, n_cells)."""
        columns = np.isnan(values).nonzero()[1]
        with torch.inference_mode():
            cells, _ = self._predictive(values, together=True)
            scores = torch.from_numpy(tails[:, columns]).to(cells.chances)
            members = torch.zeros(len(tails), dtype=torch.long, device=scores.device)
            found = self._codes_at(columns, *cells.at(scores, members))
        unordered = [k for k, column in enumerate(self.columns) if column.kind in ("boolean", "category")]
        found[:, np.isin(columns, unordered)] = np.nan
        return found

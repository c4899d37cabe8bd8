"""Chained regressions: every column drawn from its regression on the others, round after round."""

from __future__ import annotations

__all__ = ["Chain", "Design", "fit_chain", "replay"]

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mcflow.baselines.regressions import LevelRegression, NumberRegression
from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.masks.initial import Marginals
from mcflow.random import row_uniforms
from mcflow.typing import FloatArray

#: Levels of a column that are told apart in a regression, the rarest ones as a single group.
MAX_GROUPS = 32

#: Rows in the bootstrap sample of a regression of levels, at most.
MAX_BOOTSTRAP = 5_000


@dataclass(frozen=True)
class _Numbers:
    """Numbers less their mean, by their deviation.

    Parameters
    ----------
    mean, scale : float
        Of the observed codes.
    reach : tuple of float
        As far as a cell is believed: one range outside the observed one.
    bounds : tuple of float
        Codes that may be filled in.
    """

    mean: float
    scale: float
    reach: tuple[float, float]
    bounds: tuple[float, float]
    width: int = 1

    @classmethod
    def fitting(cls, codes: FloatArray, low: float, high: float) -> _Numbers:
        """Read mean and deviation off observed codes."""
        first, last = codes.min(), codes.max()
        span = (last - first) or 1.0
        share = (codes - first) / span
        mean, scale = first + share.mean() * span, (share.std() or 1.0) * span
        reach = (float((first - mean) / scale - span / scale), float((last - mean) / scale + span / scale))
        return cls(float(mean), float(scale), reach, (low, high))

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest cell that is drawn."""
        low, high = np.clip((np.array(self.bounds) - self.mean) / self.scale, *self.reach)
        return float(low), float(high)

    def read(self, codes: FloatArray) -> FloatArray:
        return np.clip((codes - self.mean) / self.scale, *self.reach)

    def write(self, cells: FloatArray) -> FloatArray:
        return np.clip(cells * self.scale + self.mean, *self.bounds)

    def places(self, cells: FloatArray) -> FloatArray:
        return cells[:, None]


@dataclass(frozen=True)
class _Levels:
    """Levels as zeros and ones of their groups, the commonest group left out.

    Parameters
    ----------
    group : ndarray of shape (n_levels,)
        The group of each level, in order of frequency.
    share : ndarray of shape (n_levels,)
        The level's share of its group.
    """

    group: npt.NDArray[np.int64]
    share: FloatArray

    @classmethod
    def fitting(cls, codes: FloatArray, n_levels: int) -> _Levels:
        counts = np.bincount(codes.astype(np.int64), minlength=n_levels).astype(np.float64)
        rank = np.empty(n_levels, dtype=np.int64)
        rank[np.argsort(-counts, kind="stable")] = np.arange(n_levels)
        group = np.minimum(rank, MAX_GROUPS - 1)
        size = np.bincount(group, weights=counts)[group]
        return cls(group, np.where(size > 0, counts / np.where(size > 0, size, 1), 1.0))

    @property
    def n_groups(self) -> int:
        """Groups, at most `MAX_GROUPS`."""
        return int(self.group.max()) + 1

    @property
    def width(self) -> int:
        """Predictors that the column makes."""
        return self.n_groups - 1

    def read(self, codes: FloatArray) -> FloatArray:
        return codes

    def write(self, cells: FloatArray) -> FloatArray:
        return cells

    def places(self, cells: FloatArray) -> FloatArray:
        ones: FloatArray = np.eye(self.n_groups)[:, 1:]
        return ones[self.group[cells.astype(np.int64)]]


class Design:
    """The predictors of all columns side by side, after a column of ones.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        Codes, NaN where missing.
    columns : sequence of Column
        Theirs.
    low, high : ndarray of shape (n_columns,)
        Bounds of what may be filled in.

    Attributes
    ----------
    blocks : list of slice
        The places of each column.
    uses : ndarray of shape (n_columns, n_places)
        Whether a column's regression reads a place: not its own, nor those of columns that are targets only.

    Examples
    --------
    >>> import numpy as np
    >>> columns = [Column("a", "double", "continuous"), Column("b", "string", "category", levels=("p", "q", "r"))]
    >>> design = Design(np.array([[1.0, 2.0], [3.0, 2.0], [np.nan, 0.0]]), columns, np.zeros(2), np.full(2, 9.0))
    >>> design.places(np.array([[-1.0, 2.0], [1.0, 0.0]]))
    array([[ 1., -1.,  0.,  0.],
           [ 1.,  1.,  1.,  0.]])
    """

    def __init__(self, values: FloatArray, columns: Sequence[Column], low: FloatArray, high: FloatArray) -> None:
        self.parts: list[_Numbers | _Levels] = []
        for k, column in enumerate(columns):
            seen = values[~np.isnan(values[:, k]), k]
            if column.kind in LEVEL_KINDS:
                self.parts.append(_Levels.fitting(seen, len(column.levels)))
            else:
                self.parts.append(_Numbers.fitting(seen, float(low[k]), float(high[k])))
        ends = np.cumsum([1, *(part.width for part in self.parts)])
        self.n_places = int(ends[-1])
        self.blocks = [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]
        self.uses = np.ones((len(columns), self.n_places), dtype=bool)
        for k, (column, block) in enumerate(zip(columns, self.blocks, strict=True)):
            self.uses[k, block] = False
            if column.role == "targets_only":
                self.uses[:, block] = False
        cells = self.read(values)
        self.marginals = Marginals.from_values(cells)
        self.order = np.argsort(np.isnan(cells).sum(axis=0), kind="stable").tolist()

    def read(self, values: FloatArray) -> FloatArray:
        """Turn codes into cells, NaN where missing."""
        return _beside([part.read(values[:, k]) for k, part in enumerate(self.parts)], len(values))

    def write(self, cells: FloatArray) -> FloatArray:
        """Turn cells into codes."""
        return _beside([part.write(cells[:, k]) for k, part in enumerate(self.parts)], len(cells))

    def places(self, cells: FloatArray) -> FloatArray:
        """Return the predictors of complete cells, of shape (n_rows, n_places)."""
        blocks = [part.places(cells[:, k]) for k, part in enumerate(self.parts)]
        return np.hstack([np.ones((len(cells), 1)), *blocks])


def _beside(columns: list[FloatArray], n_rows: int) -> FloatArray:
    return np.array(columns).reshape(len(columns), n_rows).T.copy()


#: One regression a column.
Chain = list[NumberRegression | LevelRegression]


class _Filling:
    """The fit of one chain: cells, their predictors and the products of these, kept in step."""

    def __init__(self, design: Design, values: FloatArray, ridge: float, rng: np.random.Generator) -> None:
        self.design, self.ridge, self.rng = design, ridge, rng
        cells = design.read(values)
        missing = np.isnan(cells)
        self.holes = [np.flatnonzero(column) for column in missing.T]
        self.seen = [np.flatnonzero(~column) for column in missing.T]
        self.cells = design.marginals.fill(cells, rng.random(cells.shape))
        self.places = design.places(self.cells)
        self.gram = self.places.T @ self.places
        self.chain: dict[int, NumberRegression | LevelRegression] = {}

    def round(self, *, last: bool) -> None:
        """Draw a regression for each column and refill its holes; columns without one wait for the last round."""
        self.gram = self.places.T @ self.places
        for k in self.design.order:
            holes = self.holes[k]
            if len(holes) or last:
                hidden = self.places[holes]
                part = self.design.parts[k]
                found = self._number(k, part, hidden) if isinstance(part, _Numbers) else self._level(k, part)
                self.chain[k] = found
                self._refill(k, hidden, found.draw(found.expect(hidden), self.rng.random(len(holes))))

    def _number(self, k: int, part: _Numbers, hidden: FloatArray) -> NumberRegression:
        if len(self.seen[k]) < len(hidden):
            seen = self.places[self.seen[k]]
            gram = seen.T @ seen
        else:
            gram = self.gram - hidden.T @ hidden
        target = self.design.blocks[k].start
        beta, sigma = NumberRegression.sample(gram, target, self.design.uses[k], self.ridge, self.rng)
        return NumberRegression(beta, sigma, part.ends)

    def _level(self, k: int, part: _Levels) -> LevelRegression:
        seen = self.seen[k]
        sample = self.rng.choice(seen, min(len(seen), MAX_BOOTSTRAP))
        groups = part.group[self.cells[sample, k].astype(np.int64)]
        before = self.chain.get(k)
        known = before.weight if isinstance(before, LevelRegression) else None
        start = np.zeros((self.design.n_places, part.n_groups)) if known is None else known
        weight = LevelRegression.fit(self.places[sample], groups, self.design.uses[k], start)
        return LevelRegression(weight, part.group, part.share)

    def _refill(self, k: int, hidden: FloatArray, drawn: FloatArray) -> None:
        holes, block = self.holes[k], self.design.blocks[k]
        change = self.design.parts[k].places(drawn) - hidden[:, block]
        cross = hidden.T @ change
        self.gram[:, block] += cross
        self.gram[block] += cross.T
        self.gram[block, block] += change.T @ change
        self.cells[holes, k] = drawn
        self.places[holes, block] += change


def fit_chain(design: Design, values: FloatArray, n_rounds: int, ridge: float, rng: np.random.Generator) -> Chain:
    """Run one chain over the rows of the fit.

    Parameters
    ----------
    design : Design
        Of the same rows.
    values : ndarray of shape (n_rows, n_columns)
        Codes, NaN where missing.
    n_rounds : int
        Times that every column is refilled.
    ridge : float
        Prior precision of the coefficients.
    rng : numpy Generator
        Decides all draws.

    Returns
    -------
    list of NumberRegression or LevelRegression
        Those of the last round, one a column.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(500, 1)) * [1.0, -1.0] + 0.1 * rng.normal(size=(500, 2))
    >>> columns = [Column(name, "double", "continuous") for name in "ab"]
    >>> design = Design(rows, columns, rows.min(axis=0), rows.max(axis=0))
    >>> [round(float(regression.beta.sum()), 1) for regression in fit_chain(design, rows, 2, 0.005, rng)]
    [-1.0, -1.0]
    """
    filling = _Filling(design, values, ridge, rng)
    for number in range(n_rounds):
        filling.round(last=number == n_rounds - 1)
    return [filling.chain[k] for k in range(len(design.parts))]


def replay(
    design: Design, chain: Chain, values: FloatArray, n_rounds: int, seed: int
) -> tuple[FloatArray, list[FloatArray]]:
    """Draw the missing cells of new rows by the regressions of a chain.

    Parameters
    ----------
    design : Design
        Of the fit.
    chain : list of NumberRegression or LevelRegression
        One a column.
    values : ndarray of shape (n_rows, n_columns)
        Codes, NaN where missing.
    n_rounds : int
        Times that every column is refilled.
    seed : int
        Decides the draws, each row's together with the row itself.

    Returns
    -------
    drawn : ndarray of shape (n_rows, n_columns)
        Codes of the last round.
    expected : list of ndarray of shape (n_holes, n_expected)
        For each column, what its regression expected in its missing cells, the average over the second half of the
        rounds: means of numbers, probabilities of levels.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0], [2.0], [np.nan]])
    >>> design = Design(rows, [Column("a", "double", "continuous")], np.zeros(1), np.full(1, 2.0))
    >>> drawn, expected = replay(design, [NumberRegression(np.array([0.5, 0.0]), 0.0, (-1.0, 1.0))], rows, 3, seed=0)
    >>> drawn.ravel(), expected[0]
    (array([0. , 2. , 1.5]), array([[0.5]]))
    """
    cells = design.read(values)
    holes = [np.flatnonzero(column) for column in np.isnan(cells).T]
    cells = design.marginals.fill_rows(cells, seed)
    places = design.places(cells)
    burn_in = n_rounds // 2
    expected: list[FloatArray] = [np.zeros((0, 1))] * len(chain)
    for number in range(n_rounds):
        uniforms = row_uniforms(values, seed + number + 1)
        for k in (k for k in design.order if len(holes[k])):
            now = chain[k].expect(places[holes[k]])
            cells[holes[k], k] = chain[k].draw(now, uniforms[holes[k], k])
            places[holes[k], design.blocks[k]] = design.parts[k].places(cells[holes[k], k])
            if number >= burn_in:
                share = now / (n_rounds - burn_in)
                expected[k] = share if number == burn_in else expected[k] + share
    return design.write(cells), expected

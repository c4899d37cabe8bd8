"""A joint density of a small table, as factors with products and levels, learned by data augmentation."""

from __future__ import annotations

__all__ = ["FactoredModel"]

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from mcflow.training.factored_sweeps import Parameters, Sweeps
from mcflow.training.factors import Factors, Layout, choose_factors
from mcflow.typing import Array, BoolArray, FloatArray

#: Sweeps before the factors are chosen again, how often they are, and the first of them that count.
CHOICE_SWEEPS, N_CHOICES, CHOICE_START = 15, 2, 3

#: Sweeps from the last choice to the first member, members, and sweeps from one to the next.
SETTLING, N_MEMBERS, APART = 20, 20, 6

#: Sweeps by which cells are judged, after those of settling, and by which a member of other rows is found.
JUDGING, SETTLED = 30, 15

#: Complete rows a column from which the first choice is made by these alone.
COMPLETE_ROWS = 25

#: Precision of the slopes of numbers and of levels before anything is seen, and the variance that none is below.
RIDGE, LEVEL_RIDGE, LEAST_VARIANCE = 0.1, 0.1, 1e-8

#: Steps of Newton's method for levels, from nothing and from the last sweep, and the longest.
FIRST_STEPS, STEPS, LONGEST_STEP = 8, 2, 2.0

#: Standard deviations beyond the observed range in which numbers are looked for.
BEYOND = 1.5


@dataclass(frozen=True)
class FactoredModel:
    r"""A density of rows that is a product of regressions, with several draws of its parameters.

    Parameters
    ----------
    layout : Layout
        Of the columns.
    factors : Factors
        Their order and terms.
    centre, spread : ndarray of shape (n_columns,)
        Units of numbers; 0 and 1 for levels.
    box : ndarray of shape (2, n_columns)
        Where numbers are looked for, in units.
    members : tuple of Parameters
        Draws of the parameters, far enough from one another to take turns in an analysis that is pooled.

    Notes
    -----
    .. math:: p(x) = \prod_k p(x_k \mid x_{<k})

    with the columns in an order that the data choose (`choose_factors`). Columns of levels come first, as multinomial
    logits. Numbers are linear in all columns before them, and in the squares and products of these that the data ask
    for, with normal noise. A missing cell is then drawn in agreement with a regression that has such products, which
    chained regressions and a multivariate normal are not [1]_.

    The fit takes turns with two draws [2]_: of the parameters given complete rows, slopes and variances from their
    normal-inverse-gamma posterior and logits from its normal approximation; and of the missing cells given the
    parameters, by `Sweeps`. The factors are chosen by complete rows if there are enough, and again by the moments of
    the rows as completed so far.

    References
    ----------
    .. [1] Bartlett, J. W., Seaman, S. R., White, I. R., & Carpenter, J. R. (2015). Multiple imputation of covariates by
       fully conditional specification: accommodating the substantive model. Statistical Methods in Medical Research,
       24(4).
    .. [2] Tanner, M. A., & Wong, W. H. (1987). The calculation of posterior distributions by data augmentation. Journal
       of the American Statistical Association, 82(398).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 2))
    >>> rows = np.column_stack([x, x.prod(axis=1) + 0.5 * rng.normal(size=300)])
    >>> rows[:100, 2] = np.nan
    >>> model = FactoredModel.fit(rows, np.nan_to_num(rows), (0, 0, 0), rng)
    >>> model.factors.n_products, model.factors.order[-1]
    (1, 2)
    >>> drawn = model.draw(rows, np.nan_to_num(rows), 0, (rng.random(rows.shape) for _ in range(5)))
    >>> bool(np.corrcoef(drawn[:100, 2], rows[:100, :2].prod(axis=1))[0, 1] > 0.7)
    True
    """

    layout: Layout
    factors: Factors
    centre: FloatArray
    spread: FloatArray
    box: FloatArray
    members: tuple[Parameters, ...] = ()

    @classmethod
    def fit(
        cls,
        values: FloatArray,
        start: FloatArray,
        sizes: tuple[int, ...],
        rng: np.random.Generator,
        *,
        deadline: float | None = None,
    ) -> FactoredModel | None:
        """Choose the factors, and draw their parameters.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing; every column varies.
        start : ndarray of shape (n_rows, n_columns)
            The same, completed somehow.
        sizes : tuple of int
            Levels of each column, 0 for a number.
        rng : numpy Generator
            Draws cells and parameters.
        deadline : float, optional
            On the clock of `time.perf_counter`.

        Returns
        -------
        FactoredModel or None
            Nothing when there are neither levels nor products, so that it would be a multivariate normal, or when the
            time does not suffice.
        """
        model = cls._units_of(values, Layout(sizes))
        chain = _Chain(model, values, start, rng)
        chain.choose_by_complete_rows()
        for _ in range(N_CHOICES):
            if not chain.run(CHOICE_SWEEPS, deadline, counted_from=CHOICE_START):
                return None
            chain.choose()
        if not (chain.factors.n_products or model.layout.levels) or not chain.run(SETTLING, deadline):
            return None
        members: list[Parameters] = []
        while len(members) < N_MEMBERS and chain.run(APART, deadline):
            members.append(chain.parameters)
        return replace(model, factors=chain.factors, members=tuple(members)) if len(members) == N_MEMBERS else None

    @classmethod
    def _units_of(cls, values: FloatArray, layout: Layout) -> FactoredModel:
        levels = np.array(layout.sizes) > 0
        centre = np.where(levels, 0.0, np.nanmean(values, axis=0))
        size = np.nanmax(np.abs(values), axis=0)  # squares of very large or small numbers would not be numbers
        spread = np.where(levels, 1.0, size * np.nanstd(values / np.where(size > 0, size, 1.0), axis=0))
        spread = np.where(spread > 0, spread, 1.0)
        units = (values - centre) / spread
        box = np.stack([np.nanmin(units, axis=0) - BEYOND, np.nanmax(units, axis=0) + BEYOND])
        return cls(layout, Factors((), ()), centre, spread, box)

    def again(self, values: FloatArray, start: FloatArray, rng: np.random.Generator) -> FactoredModel:
        """Return a model of other rows of the same table, with the same factors and the likeliest parameters.

        Parameters
        ----------
        values, start : ndarray of shape (n_rows, n_columns)
            As for `fit`.
        rng : numpy Generator
            Draws cells.

        Returns
        -------
        FactoredModel
            With one member: that rows were drawn with replacement says how else it might have come out.
        """
        chain = _Chain(self, values, start, rng, likeliest=True)
        chain.run(SETTLING)
        found = []
        for _ in range(SETTLED):
            chain.run(1)
            found.append(chain.parameters)
        slopes = tuple(np.mean(parts, axis=0) for parts in zip(*(each.slopes for each in found), strict=True))
        return replace(self, members=(Parameters(slopes, np.mean([each.deviations for each in found], axis=0)),))

    def judge(
        self,
        values: FloatArray,
        start: FloatArray,
        held: BoolArray,
        rng: np.random.Generator,
    ) -> FloatArray:
        """Return the log-density of observed cells that are held out, by parameters that did not see them.

        Parameters
        ----------
        values, start : ndarray of shape (n_rows, n_columns)
            As for `fit`, where `start` does not know of the held-out cells.
        held : ndarray of bool of shape (n_rows, n_columns)
            Which cells.
        rng : numpy Generator
            Draws cells and parameters.

        Returns
        -------
        ndarray of shape (n_held_cells,)
            In the units of the codes, by the mean density over sweeps.
        """
        chain = _Chain(self, np.where(held, np.nan, values), start, rng)
        chain.run(SETTLING)
        truth = (values - self.centre) / self.spread
        total = np.full(int(held.sum()), -np.inf)
        for _ in range(JUDGING):
            chain.run(1, truth=truth)
            total = np.logaddexp(total, chain.stated[held])
        logs: FloatArray = total - np.log(JUDGING) - np.log(self.spread)[held.nonzero()[1]]
        return logs

    def draw(self, values: FloatArray, start: FloatArray, number: int, uniforms: Iterable[FloatArray]) -> FloatArray:
        """Complete rows by sweeps.

        Parameters
        ----------
        values, start : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing, and the same completed somehow.
        number : int
            Of the draw; members take turns.
        uniforms : iterable of ndarray of shape (n_rows, n_columns)
            Numbers in (0, 1), for each sweep; at least for one.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            Observed cells as they were.
        """
        missing, parameters = np.isnan(values), self.members[number % len(self.members)]
        rows = (start - self.centre) / self.spread
        sweeps, several, numbers = Sweeps(self.layout, self.factors, self.box), missing.sum(axis=1) > 1, iter(uniforms)
        sweeps.sweep(rows, missing, parameters, next(numbers))
        some = rows[several]  # a single missing cell is drawn exactly by the first sweep
        for others in numbers if len(some) else ():
            sweeps.sweep(some, missing[several], parameters, others[several])
        rows[several] = some
        return np.where(missing, rows * self.spread + self.centre, values)

    def tensors(self) -> dict[str, Array]:
        """Return arrays by name, for a file."""
        terms = [np.column_stack([np.full(len(of), k), of]) for k, of in enumerate(self.factors.terms)]
        flat = [np.concatenate([*(part.ravel() for part in each.slopes), each.deviations]) for each in self.members]
        return {
            "factored.sizes": np.array(self.layout.sizes, dtype=np.int64),
            "factored.order": np.array(self.factors.order, dtype=np.int64),
            "factored.terms": np.concatenate(terms).astype(np.int64),
            "factored.units": np.stack([self.centre, self.spread, *self.box]),
            "factored.members": np.stack(flat),
        }

    @classmethod
    def from_tensors(cls, arrays: dict[str, Array]) -> FactoredModel | None:
        """Undo `tensors`; None when there is nothing."""
        if "factored.sizes" not in arrays:
            return None
        layout = Layout(tuple(int(size) for size in arrays["factored.sizes"]))
        table = arrays["factored.terms"]
        terms = tuple(table[table[:, 0] == k, 1:] for k in range(len(layout.sizes)))
        shapes = [(len(of), max(size - 1, 1)) for of, size in zip(terms, layout.sizes, strict=True)]
        ends = np.cumsum([a * b for a, b in shapes])
        members = []
        for flat in arrays["factored.members"]:
            *parts, deviations = np.split(flat, ends)
            slopes = tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
            members.append(Parameters(slopes, deviations))
        centre, spread, low, high = arrays["factored.units"]
        order = tuple(int(k) for k in arrays["factored.order"])
        return cls(layout, Factors(order, terms), centre, spread, np.stack([low, high]), tuple(members))


class _Chain:
    """Data augmentation: parameters and missing cells, drawn in turn."""

    def __init__(
        self,
        model: FactoredModel,
        values: FloatArray,
        start: FloatArray,
        rng: np.random.Generator,
        *,
        likeliest: bool = False,
    ) -> None:
        self.layout, self.box, self.rng, self.likeliest = model.layout, model.box, rng, likeliest
        self.missing = np.isnan(values)
        self.rows = (np.where(self.missing, start, values) - model.centre) / model.spread
        self.stated = np.zeros(values.shape)
        self._moments: list[FloatArray] = []
        if model.factors.order:
            self._take(model.factors)

    def _take(self, factors: Factors) -> None:
        self.factors, self._sweeps = factors, Sweeps(self.layout, factors, self.box)
        self._logits: dict[int, FloatArray] = {}

    def choose_by_complete_rows(self) -> None:
        """Choose the factors by rows without a hole if there are enough of them, else by all."""
        complete = ~self.missing.any(axis=1)
        enough = complete.sum() >= COMPLETE_ROWS * len(self.layout.sizes)
        rows = self.rows[complete] if enough else self.rows
        moments = self.layout.moments(self.layout.features(rows))
        self._take(choose_factors(self.layout, moments, len(rows)))

    def choose(self) -> None:
        """Choose the factors by the moments of the sweeps that were counted since the last choice."""
        moments: FloatArray = np.mean(self._moments, axis=0)
        self._moments = []
        self._take(choose_factors(self.layout, moments, len(self.rows)))

    def run(
        self,
        n_sweeps: int,
        deadline: float | None = None,
        *,
        counted_from: int | None = None,
        truth: FloatArray | None = None,
    ) -> bool:
        """Draw parameters and cells some times; False if the time is up before."""
        for k in range(n_sweeps):
            if deadline is not None and time.perf_counter() > deadline:
                return False
            features = self.layout.features(self.rows)
            self.parameters = self._drawn_parameters(features)
            uniforms = np.clip(self.rng.random(self.rows.shape), 1e-12, 1 - 1e-12)
            self.stated = self._sweeps.sweep(self.rows, self.missing, self.parameters, uniforms, truth)
            if counted_from is not None and k >= counted_from:
                self._moments.append(self.layout.moments(self.layout.features(self.rows)))
        return True

    def _drawn_parameters(self, features: FloatArray) -> Parameters:
        slopes, deviations = [], np.ones(len(self.layout.sizes))
        for k, n_levels in enumerate(self.layout.sizes):
            design = self.factors.design(k, features)
            if n_levels:
                slopes.append(self._drawn_logits(k, design, self.rows[:, k].astype(np.int64)))
            else:
                found, deviations[k] = self._drawn_slopes(design, self.rows[:, k])
                slopes.append(found)
        return Parameters(tuple(slopes), deviations)

    def _normals(self, count: int) -> FloatArray:
        return np.zeros(count) if self.likeliest else self.rng.normal(size=count)

    def _drawn_slopes(self, design: FloatArray, target: FloatArray) -> tuple[FloatArray, float]:
        """Draw slopes, of shape (n_terms, 1), and the deviation of a regression."""
        n_rows, n_terms = design.shape
        precision = design.T @ design + RIDGE * np.eye(n_terms)
        centre = np.linalg.solve(precision, design.T @ target)
        squares = float(((target - design @ centre) ** 2).sum())
        freedom = max(n_rows - n_terms, 2) + 1
        variance = squares / (freedom if self.likeliest else self.rng.chisquare(freedom)) + LEAST_VARIANCE
        factor = np.linalg.cholesky(precision).T
        moved = centre + np.sqrt(variance) * np.linalg.solve(factor, self._normals(n_terms))
        return moved[:, None], float(np.sqrt(variance))

    def _drawn_logits(self, column: int, design: FloatArray, codes: Array) -> FloatArray:
        """Draw slopes, of shape (n_terms, n_levels - 1), from the normal around their mode."""
        n_levels, n_terms = self.layout.sizes[column], design.shape[1]
        kinds, kind = _kinds(design)
        cells = np.bincount(kind * n_levels + codes, minlength=len(kinds) * n_levels)
        counts = cells.reshape(-1, n_levels).astype(np.float64)
        known = column in self._logits
        slopes = self._logits.get(column, np.zeros((n_terms, n_levels - 1)))
        for _ in range(STEPS if known else FIRST_STEPS):
            slope, curvature = _newton(kinds, counts, slopes)
            step = np.linalg.solve(curvature, slope).reshape(slopes.shape)
            slopes = slopes + np.clip(step, -LONGEST_STEP, LONGEST_STEP)
        self._logits[column] = slopes
        factor = np.linalg.cholesky(_newton(kinds, counts, slopes)[1]).T
        return slopes + np.linalg.solve(factor, self._normals(slopes.size)).reshape(slopes.shape)


def _kinds(design: FloatArray) -> tuple[FloatArray, Array]:
    """Return the different rows of zeros and ones, and which of them each row is."""
    words = design @ 2.0 ** np.arange(design.shape[1])  # exact: far fewer terms than a float has bits
    _, first, kind = np.unique(words, return_index=True, return_inverse=True)
    return design[first], kind.ravel()


def _newton(kinds: FloatArray, counts: FloatArray, slopes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return gradient and negative Hessian of the log-posterior of logits, for kinds of rows with counts of levels."""
    scores = np.column_stack([np.zeros(len(kinds)), kinds @ slopes])
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares = (shares / shares.sum(axis=1, keepdims=True))[:, 1:]
    totals = counts.sum(axis=1)
    slope = kinds.T @ (counts[:, 1:] - totals[:, None] * shares) - LEVEL_RIDGE * slopes
    spread = shares[:, :, None] * (np.eye(shares.shape[1]) - shares[:, None, :]) * totals[:, None, None]
    weighted = (kinds[:, :, None, None] * spread[:, None]).reshape(len(kinds), -1)
    curvature = (weighted.T @ kinds).reshape(*slopes.shape, slopes.shape[1], slopes.shape[0]).swapaxes(2, 3)
    return slope.ravel(), curvature.reshape(slopes.size, -1) + LEVEL_RIDGE * np.eye(slopes.size)

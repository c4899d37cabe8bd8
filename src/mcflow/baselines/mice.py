"""Multiple imputation by chained equations (MICE) with Bayesian linear and multinomial logistic regressions."""

from __future__ import annotations

__all__ = ["CategoryRegression", "Design", "MiceImputer", "NumberRegression", "fit_chain", "replay"]

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import log_softmax, ndtri, softmax

from mcflow.baselines.base import Baseline, DrawsMixin
from mcflow.columns.constraints import Constraints
from mcflow.columns.marginals import Marginals
from mcflow.columns.schema import CATEGORY_KINDS, Column, TableSchema
from mcflow.config import Interval
from mcflow.errors import ParameterError, did_you_mean
from mcflow.random import row_uniforms, seed_from
from mcflow.typing import BoolArray, FloatArray

MAX_GROUPS = 32  #: Maximum number of groups of categories in a regression; the rarest categories form the last group.
MAX_BOOTSTRAP = 5_000  #: Maximum number of rows in the bootstrap sample of a logistic regression.
MAX_STEPS = 30  #: L-BFGS steps of a logistic regression, which starts from the weights of the round before.
TOLERANCE = 3e-5  #: Relative decrease of the loss below which L-BFGS stops; the error is far below the sampling noise.
BATCH_ROWS = 8192  #: Rows that are filled at a time.


class NumberRegression(NamedTuple):
    """One draw from the posterior of a Bayesian linear regression."""

    beta: FloatArray  # (n_predictors,) coefficients, 0 for unused predictors
    sigma: float  # standard deviation of the noise
    ends: tuple[float, float]  # smallest and largest value to draw

    @staticmethod
    def sample(
        gram: FloatArray, target: int, uses: BoolArray, ridge: float, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        """Draw coefficients and noise as in the notes of `MiceImputer`, given the Gram matrix of the observed rows."""
        used = np.flatnonzero(uses)
        products, cross = gram[np.ix_(used, used)], gram[used, target]
        penalty = np.where(used == 0, 0.0, ridge * gram[0, 0])
        lower = np.linalg.cholesky(products + np.diag(penalty + 1e-10 * np.diag(products)))
        inverse = solve_triangular(lower, np.eye(len(used)), lower=True)
        best = inverse.T @ (inverse @ cross)
        residual = max(float(gram[target, target] - 2 * best @ cross + best @ products @ best), 0.0)
        # n - tr(A⁻¹ XᵀX) degrees of freedom
        freedom = gram[0, 0] - (len(used) - float(((inverse**2).sum(axis=0) * penalty).sum()))
        sigma = float(np.sqrt(residual / max(rng.chisquare(max(freedom, 1.0)), 1e-12)))
        beta = np.zeros(len(gram))
        beta[used] = best + sigma * (inverse.T @ rng.standard_normal(len(used)))
        return beta, sigma

    def expect(self, predictors: FloatArray) -> FloatArray:
        """Return the conditional means, (n_rows, 1)."""
        return np.asarray(predictors @ self.beta)[:, None]

    def draw(self, expected: FloatArray, uniforms: FloatArray) -> FloatArray:
        """Draw values around the expected ones with uniform numbers in [0, 1)."""
        drawn = expected[:, 0] + self.sigma * ndtri(uniforms + 2.0**-54)
        return np.asarray(np.clip(drawn, *self.ends))

    def best(self, expected: FloatArray) -> FloatArray:
        """Return the point predictions: the conditional means."""
        return expected[:, 0]


class _Categories(NamedTuple):
    """A categorical column, one-hot encoded by groups of categories without the most frequent one."""

    group: npt.NDArray[np.int64]  # (n_categories,) group of each category, most frequent first
    share: FloatArray  # (n_categories,) relative frequency of each category in its group

    @classmethod
    def fitting(cls, codes: FloatArray, n_categories: int) -> _Categories:
        counts = np.bincount(codes.astype(np.int64), minlength=n_categories).astype(np.float64)
        rank = np.empty(n_categories, dtype=np.int64)
        rank[np.argsort(-counts, kind="stable")] = np.arange(n_categories)
        group = np.minimum(rank, MAX_GROUPS - 1)
        size = np.bincount(group, weights=counts)[group]
        return cls(group, np.where(size > 0, counts / np.where(size > 0, size, 1), 1.0))

    @property
    def n_groups(self) -> int:
        """Number of groups, at most `MAX_GROUPS`."""
        return int(self.group.max()) + 1


class CategoryRegression(NamedTuple):
    """A multinomial logistic regression of groups of categories, fitted to a bootstrap sample."""

    weight: FloatArray  # (n_predictors, n_groups) coefficients, 0 for unused predictors
    categories: _Categories

    @staticmethod
    def fit(predictors: FloatArray, groups: npt.NDArray[np.int64], uses: BoolArray, start: FloatArray) -> FloatArray:
        """Return the weights (n_predictors, n_groups) with the highest likelihood, penalised by a Gaussian prior.

        Its centre is the log-frequency of each group for intercepts, else 0, so that absent groups keep finite odds.
        """
        rows = predictors[:, uses]
        shape = (rows.shape[1], start.shape[1])
        prior = np.zeros(shape)
        counts = np.bincount(groups, minlength=shape[1])
        prior[0] = np.log((counts + 1) / (counts + 1).sum())
        labels = np.arange(len(rows)), groups

        def loss(flat: FloatArray) -> tuple[float, FloatArray]:
            weight = flat.reshape(shape)
            logs = log_softmax(rows @ weight, axis=1)
            residuals = np.exp(logs)
            residuals[labels] -= 1
            shift = weight - prior
            value = -logs[labels].sum() + (shift**2).sum() / 2
            return float(value) / len(rows), ((rows.T @ residuals + shift) / len(rows)).ravel()

        first = start[uses] if start.any() else prior
        options = {"maxiter": MAX_STEPS, "ftol": TOLERANCE}
        found = minimize(loss, first.ravel(), jac=True, method="L-BFGS-B", options=options)
        weight = np.zeros(start.shape)
        weight[uses] = found.x.reshape(shape)
        return weight

    def expect(self, predictors: FloatArray) -> FloatArray:
        """Return the probabilities of the categories, (n_rows, n_categories)."""
        return np.asarray(softmax(predictors @ self.weight, axis=1)[:, self.categories.group] * self.categories.share)

    def draw(self, expected: FloatArray, uniforms: FloatArray) -> FloatArray:
        """Draw codes from the probabilities with uniform numbers in [0, 1)."""
        steps = expected.cumsum(axis=1)
        drawn = (steps <= uniforms[:, None] * steps[:, -1:]).sum(axis=1)
        return np.asarray(np.minimum(drawn, expected.shape[1] - 1), dtype=np.float64)

    def best(self, expected: FloatArray) -> FloatArray:
        """Return the point predictions: the most probable codes."""
        return np.asarray(expected.argmax(axis=1), dtype=np.float64)


def _moments(codes: FloatArray) -> tuple[float, float, float, float]:
    """Return mean and deviation of numbers, and the ends of standardised ones: one range beyond the observed range."""
    first, last = codes.min(), codes.max()
    span = (last - first) or 1.0
    share = (codes - first) / span
    mean, scale = first + share.mean() * span, (share.std() or 1.0) * span
    return mean, scale, (first - mean) / scale - span / scale, (last - mean) / scale + span / scale


class Design:
    """The design matrix of all columns, with an intercept first."""

    def __init__(
        self,
        values: FloatArray,
        columns: Sequence[Column],
        low: FloatArray,
        high: FloatArray,
        predictors: Mapping[Any, Sequence[Any]] | None = None,
    ) -> None:
        seen = [column[~np.isnan(column)] for column in values.T]
        self.categories = {
            k: _Categories.fitting(seen[k], len(column.categories))
            for k, column in enumerate(columns)
            if column.kind in CATEGORY_KINDS
        }
        kept = (0.0, 1.0, -np.inf, np.inf)  # codes of categories are not standardised
        moments = [kept if k in self.categories else _moments(codes) for k, codes in enumerate(seen)]
        self.mean, self.scale, *self.reach = np.array(moments, dtype=np.float64).reshape(-1, 4).T
        numbers = np.array([k not in self.categories for k in range(len(columns))], dtype=bool)
        self.bounds = np.where(numbers, low, -np.inf), np.where(numbers, high, np.inf)
        widths = [self.categories[k].n_groups - 1 if k in self.categories else 1 for k in range(len(columns))]
        ends = np.cumsum([1, *widths])
        self.n_predictors = int(ends[-1])
        self.blocks = [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]
        self.uses = np.ones((len(columns), self.n_predictors), dtype=bool)  # predictors that each column is filled from
        for k, (column, block) in enumerate(zip(columns, self.blocks, strict=True)):
            self.uses[k, block] = False
            if column.role == "targets_only":
                self.uses[:, block] = False
            for target, other in enumerate(columns):
                self.uses[target, block] &= column.name in (predictors or {}).get(other.name, [column.name])
        cells = self.read(values)
        self.marginals = Marginals.from_values(cells)
        self.order = np.argsort(np.isnan(cells).sum(axis=0), kind="stable").tolist()

    def read(self, values: FloatArray) -> FloatArray:
        """Standardise numeric codes, NaN where missing."""
        return np.clip((values - self.mean) / self.scale, *self.reach)

    def write(self, cells: FloatArray) -> FloatArray:
        """Invert `read`."""
        return np.clip(cells * self.scale + self.mean, *self.bounds)

    def ends(self, k: int) -> tuple[float, float]:
        """Return the smallest and largest standardised value to draw of a numeric column."""
        bounds = np.array([bound[k] for bound in self.bounds])
        low, high = np.clip((bounds - self.mean[k]) / self.scale[k], *(end[k] for end in self.reach))
        return float(low), float(high)

    def block(self, k: int, cells: FloatArray) -> FloatArray:
        """Return the predictors (n_rows, n_predictors_of_column) of complete cells of one column."""
        if k not in self.categories:
            return cells[:, None]
        part = self.categories[k]
        return np.eye(part.n_groups)[part.group[cells.astype(np.int64)], 1:]

    def predictors(self, cells: FloatArray) -> FloatArray:
        """Return the predictors of complete cells, (n_rows, n_predictors)."""
        return np.hstack([np.ones((len(cells), 1)), *(self.block(k, column) for k, column in enumerate(cells.T))])


#: One regression per column.
Chain = list[NumberRegression | CategoryRegression]


class _Filling:
    """State of one chain during the fit: cells, their predictors, and the Gram matrix of the predictors."""

    def __init__(self, design: Design, values: FloatArray, ridge: float, rng: np.random.Generator) -> None:
        self.design, self.ridge, self.rng = design, ridge, rng
        cells = design.read(values)
        missing = np.isnan(cells)
        self.missing = [np.flatnonzero(column) for column in missing.T]
        self.seen = [np.flatnonzero(~column) for column in missing.T]
        self.cells = design.marginals.fill(cells, rng.random(cells.shape))
        self.predictors = design.predictors(self.cells)
        self.chain: dict[int, NumberRegression | CategoryRegression] = {}

    def round(self, *, last: bool) -> None:
        """Draw a regression for each incomplete column and refill it; complete columns get theirs in the last round."""
        self.gram = self.predictors.T @ self.predictors
        for k in self.design.order:
            missing = self.missing[k]
            if len(missing) or last:
                hidden = self.predictors[missing]
                found = self._category(k) if k in self.design.categories else self._number(k, hidden)
                self.chain[k] = found
                self._refill(k, hidden, found.draw(found.expect(hidden), self.rng.random(len(missing))))

    def _number(self, k: int, hidden: FloatArray) -> NumberRegression:
        if len(self.seen[k]) < len(hidden):
            seen = self.predictors[self.seen[k]]
            gram = seen.T @ seen
        else:
            gram = self.gram - hidden.T @ hidden
        target = self.design.blocks[k].start
        beta, sigma = NumberRegression.sample(gram, target, self.design.uses[k], self.ridge, self.rng)
        return NumberRegression(beta, sigma, self.design.ends(k))

    def _category(self, k: int) -> CategoryRegression:
        part, seen = self.design.categories[k], self.seen[k]
        sample = self.rng.choice(seen, min(len(seen), MAX_BOOTSTRAP))
        groups = part.group[self.cells[sample, k].astype(np.int64)]
        before = self.chain.get(k)
        cold = np.zeros((self.design.n_predictors, part.n_groups))
        start = before.weight if isinstance(before, CategoryRegression) else cold
        weight = CategoryRegression.fit(self.predictors[sample], groups, self.design.uses[k], start)
        return CategoryRegression(weight, part)

    def _refill(self, k: int, hidden: FloatArray, drawn: FloatArray) -> None:
        missing, block = self.missing[k], self.design.blocks[k]
        change = self.design.block(k, drawn) - hidden[:, block]
        cross = hidden.T @ change
        self.gram[:, block] += cross
        self.gram[block] += cross.T
        self.gram[block, block] += change.T @ change
        self.cells[missing, k] = drawn
        self.predictors[missing, block] += change


def fit_chain(design: Design, values: FloatArray, n_rounds: int, ridge: float, rng: np.random.Generator) -> Chain:
    """Run one chain over the rows of the fit (n_rows, n_columns) and return the regressions of its last round."""
    filling = _Filling(design, values, ridge, rng)
    for number in range(n_rounds):
        filling.round(last=number == n_rounds - 1)
    return [filling.chain[k] for k in range(len(design.blocks))]


def replay(
    design: Design, chain: Chain, values: FloatArray, n_rounds: int, seed: int
) -> tuple[FloatArray, list[FloatArray]]:
    """Draw the missing cells of new rows; also return their average expectations by column, (n_missing, n_expected)."""
    cells = design.read(values)
    missing = [np.flatnonzero(column) for column in np.isnan(cells).T]
    cells = design.marginals.fill_rows(cells, seed)
    predictors = design.predictors(cells)
    burn_in = n_rounds // 2
    expected: list[FloatArray] = [np.zeros((0, 1))] * len(chain)
    for number in range(n_rounds):
        uniforms = row_uniforms(values, seed + number + 1)
        for k in (k for k in design.order if len(missing[k])):
            now = chain[k].expect(predictors[missing[k]])
            cells[missing[k], k] = chain[k].draw(now, uniforms[missing[k], k])
            predictors[missing[k], design.blocks[k]] = design.block(k, cells[missing[k], k])
            if number >= burn_in:
                share = now / (n_rounds - burn_in)
                expected[k] = share if number == burn_in else expected[k] + share
    return design.write(cells), expected


@dataclass(kw_only=True, eq=False, repr=False)
class MiceImputer(DrawsMixin, Baseline):
    r"""Imputer by chained Bayesian regressions (MICE).

    The other parameters are those of `Baseline`.

    Parameters
    ----------
    n_chains : int, default=10
        Number of chains, each with its own draw of all regressions.
    n_rounds : int, default=10
        Number of rounds over the columns, at fit and for new rows.
    predictors : dict, optional
        Columns that may be used to fill a column, such as ``{"bmi": ["age", "sex"]}``. Columns that it does not name
        are filled from all others.
    ridge : float, default=0.005
        Prior precision of the coefficients, as a fraction of the information of the rows for standardised, uncorrelated
        columns. It keeps chains with nearly collinear columns from diverging.

    Attributes
    ----------
    chains_ : list of list
        The regressions of the last round of each chain, one per column.

    Notes
    -----
    A numeric column is regressed on all others over the rows where it is observed. Noise and coefficients are drawn
    from their posterior, and the missing cells from the regression:

    .. math::

        \sigma^2 = \frac{\|y - X \hat\beta\|^2}{g},\quad \beta = \hat\beta + \sigma A^{-1/2} w,\quad
        y^\mathrm{mis} = X^\mathrm{mis} \beta + \sigma e,

    with :math:`A = X^\top X + \lambda n I` for n rows and the ridge λ, a chi-squared g, and standard Gaussian w and e.
    Categories follow a multinomial logistic regression that is fitted to a bootstrap sample of at most 5,000 rows. In a
    column with more than 32 categories, the rarest form one group, in which categories are drawn by frequency. Draws
    stay within the bounds of the column, or within one range of the observed values where there is no bound, so that a
    single bad draw does not make the chain diverge.

    New rows are filled with the stored regressions: a chain starts from draws of the observed values of each column and
    goes through all columns `n_rounds` times. `draw` returns the draws of the last round; table k uses chain k modulo
    `n_chains`. `transform` averages over the chains and the second half of the rounds, without the noise e of the last
    step: numbers are the average of the regressions' means, and categories those with the highest average probability.

    References
    ----------
    S. van Buuren and K. Groothuis-Oudshoorn, "mice: Multivariate Imputation by Chained Equations in R", Journal of
    Statistical Software 45(3), 2011. S. van Buuren, "Flexible Imputation of Missing Data", 2nd edition, 2018,
    algorithm 3.1.

    Examples
    --------
    >>> from mcflow.baselines.mice import MiceImputer
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(200, 1)) + 0.1 * rng.normal(size=(200, 3))
    >>> rows[0, 2] = np.nan
    >>> imputer = MiceImputer(n_chains=5, random_state=0).fit(rows)
    >>> bool(abs(imputer.transform(rows)[0, 2] - rows[0, :2].mean()) < 0.2)
    True
    >>> len({float(table[0, 2]) for table in imputer.draw(rows, m=3, random_state=0)})
    3
    """

    constraints: ClassVar = {
        "n_chains": Interval(int, 1),
        "n_rounds": Interval(int, 1),
        "ridge": Interval(float, 0, low_open=True),
    }
    n_chains: int = 10
    n_rounds: int = 10
    predictors: Mapping[Any, Sequence[Any]] | None = None
    ridge: float = 0.005

    def _planned(self, X: Any) -> tuple[TableSchema, Constraints, FloatArray]:
        """Also check that `predictors` names columns of the table."""
        planned = super()._planned(X)
        names = [column.name for column in planned[0].columns]
        for target, given in (self.predictors or {}).items():
            if isinstance(given, str):
                raise ParameterError(f"predictors[{target!r}] is {given!r}, but has to be a list such as [{given!r}].")
            unknown = next((name for name in (target, *given) if name not in names), None)
            if unknown is not None:
                hint = did_you_mean(unknown, map(str, names))
                raise ParameterError(f"predictors names the column {unknown!r}, which the table lacks.{hint}")
        return planned

    def _fit_values(self, values: FloatArray, columns: list[Column], low: FloatArray, high: FloatArray) -> None:
        seed = seed_from(self.random_state)
        design = Design(values, columns, low, high, self.predictors)
        streams = [np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(self.n_chains)]
        chains = [fit_chain(design, values, self.n_rounds, self.ridge, rng) for rng in streams if columns]
        self.seed_, self.design_, self.chains_ = seed, design, chains

    def _fill_values(self, values: FloatArray) -> FloatArray:
        return self._by_parts(values, self._average)

    def _draw_values(self, values: FloatArray, number: int, seed: int) -> FloatArray:
        chain = self.chains_[number % len(self.chains_)]
        return self._by_parts(values, lambda part: replay(self.design_, chain, part, self.n_rounds, seed)[0])

    def _by_parts(self, values: FloatArray, fill: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Fill the incomplete rows in batches."""
        filled = values.copy()
        incomplete = np.flatnonzero(np.isnan(values).any(axis=1))
        for start in range(0, len(incomplete), BATCH_ROWS):
            part = incomplete[start : start + BATCH_ROWS]
            filled[part] = fill(values[part])
        return filled

    def _average(self, values: FloatArray) -> FloatArray:
        """Fill missing cells with the average prediction of the chains."""
        missing = np.isnan(values)
        seeds = np.random.SeedSequence(self.seed_).generate_state(len(self.chains_), np.uint64)
        runs = [
            replay(self.design_, chain, values, self.n_rounds, int(seed))[1]
            for chain, seed in zip(self.chains_, seeds, strict=True)
        ]
        cells = np.zeros(values.shape)
        for k, regression in enumerate(self.chains_[0]):
            if missing[:, k].any():
                cells[missing[:, k], k] = regression.best(np.mean([run[k] for run in runs], axis=0))
        return np.where(missing, self.design_.write(cells), values)

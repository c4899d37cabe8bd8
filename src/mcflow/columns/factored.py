"""A factored density for draws of small tables: regressions with products and categories, by data augmentation.

Read `choose_factors` (order of the columns and their terms), `Sweeps` (draws given parameters), `FactoredModel` (draws
of the parameters) and `FactoredCells` (use of the density where it is better on validation cells).
"""

from __future__ import annotations

__all__ = ["FactoredCells", "FactoredModel", "Factors", "Layout", "Parameters", "Sweeps", "choose_factors"]

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from scipy.special import ndtr, ndtri, softmax

from mcflow.columns.codecs import TableCodec
from mcflow.columns.constraints import fold
from mcflow.columns.gaussian import GaussianModel
from mcflow.columns.schema import CATEGORY_KINDS
from mcflow.random import cell_uniforms
from mcflow.typing import Array, BoolArray, FloatArray

MAX_COMPARED = 7  # numeric columns up to which all orders are compared; with more, the order is chosen greedily
MAX_PRODUCTS = 12  # maximum number of products and squares of a factor
ROWS_PER_PRODUCT = 20  # rows required per product or square
COLLINEAR = 1e-6  # residual fraction of its sum of squares below which a term counts as collinear
N_POINTS = 64  # grid points at which a density that is not Gaussian is evaluated
N_REFINEMENTS = 3  # evaluations of such a density, each on a narrower grid
NO_MASS = -20.0  # log-density relative to the maximum below which the density counts as zero
CHOICE_SWEEPS = 15  # sweeps before the factors are chosen again
N_CHOICES = 2  # number of times the factors are chosen again
CHOICE_START = 3  # sweeps before each choice that are not used for it
BURN_IN = 20  # sweeps from the last choice to the first draw of the parameters
N_MEMBERS = 20  # draws of the parameters that are kept
THINNING = 6  # sweeps between two kept draws
VALIDATION_SWEEPS = 30  # sweeps over which the density of validation cells is averaged
REFIT_SWEEPS = 15  # sweeps over which the parameters of a bootstrap copy are averaged
COMPLETE_ROWS = 25  # complete rows per column from which the first choice uses complete rows only
RIDGE = 0.1  # prior precision of the slopes of numbers
CATEGORY_RIDGE = 0.1  # prior precision of the slopes of categories
MIN_VARIANCE = 1e-8  # lower bound of a residual variance
FIRST_NEWTON_STEPS = 8  # Newton steps for categories when they start from zero
NEWTON_STEPS = 2  # Newton steps for categories when they start from the last sweep
MAX_NEWTON_STEP = 2.0  # upper bound of a Newton step
RANGE_MARGIN = 1.5  # standard deviations by which drawn numbers may exceed the observed range
MIN_ROWS = 50  # minimum number of rows of a table with a factored density
MAX_COLUMNS = 12  # maximum number of columns of such a table
MAX_CATEGORIES = 30  # maximum number of categories of one of its columns
MAX_TOTAL_CATEGORIES = 60  # maximum number of categories of all its columns together
DRAW_SWEEPS = 25  # sweeps per draw
VALIDATION_MEMBERS = 3  # members of H whose validation cells are used
MAX_LOG_ODDS = 10.0  # bound of the log-odds that a single validation cell contributes for or against a density
MIN_PROBABILITY = 0.5  # probability of being the better density from which the density is used
MIN_COLUMN_PROBABILITY = 0.001  # the same probability for a single column
SWEEP_STREAM = 3  # first index of the random streams of sweeps; smaller ones are used by other draws
START_STREAM = 1 << 20  # first index of the random streams of the starting values


@dataclass(frozen=True)
class Layout:
    """Features of a row: a constant one, each number, and an indicator of every category but the first of a column."""

    sizes: tuple[int, ...]  # number of categories of each column, 0 for a number

    @cached_property
    def own(self) -> list[Array]:
        """Indices of the features of each column."""
        ends = np.cumsum([1, *(max(size - 1, 1) for size in self.sizes)])
        return [np.arange(a, b) for a, b in itertools.pairwise(ends)]

    @cached_property
    def owner(self) -> Array:
        """Column of each feature, -1 for the constant."""
        counts = [len(features) for features in self.own]
        return np.concatenate([[-1], np.repeat(np.arange(len(counts)), counts)]).astype(np.int64)

    @property
    def numbers(self) -> list[int]:
        """Indices of the numeric columns."""
        return [k for k, size in enumerate(self.sizes) if not size]

    @property
    def categories(self) -> list[int]:
        """Indices of the categorical columns."""
        return [k for k, size in enumerate(self.sizes) if size]

    @cached_property
    def pairs(self) -> Array:
        """Pairs of features (n_pairs, 2) whose products may be terms; a product with the constant is a feature."""
        first, second = np.triu_indices(len(self.owner))
        of_categories = np.isin(self.owner, self.categories)
        # Indicators of the same column equal their squares, and their products are zero.
        kept = ~(of_categories[second] & (self.owner[first] == self.owner[second]))
        return np.column_stack([first[kept], second[kept]])

    def features(self, rows: FloatArray) -> FloatArray:
        """Return the features (n_rows, n_features) of complete rows."""
        found = np.ones((len(rows), len(self.owner)))
        for k, own in enumerate(self.own):
            found[:, own] = rows[:, k, None] == np.arange(1, self.sizes[k]) if self.sizes[k] else rows[:, k, None]
        return found

    def moments(self, features: FloatArray) -> FloatArray:
        """Return the second moments (n_pairs, n_pairs) of the products of all pairs."""
        terms = features[:, self.pairs[:, 0]] * features[:, self.pairs[:, 1]]
        return terms.T @ terms / max(len(terms), 1)


class Factors(NamedTuple):
    """An order of the columns, and the terms on which each depends."""

    order: tuple[int, ...]  # indices of the columns, categorical ones first
    terms: tuple[Array, ...]  # (n_terms, 2) by column: pairs of features of earlier columns, whose products regress it

    @property
    def n_products(self) -> int:
        """Number of terms that are products or squares."""
        return sum(int((terms[:, 0] > 0).sum()) for terms in self.terms)

    def design(self, column: int, features: FloatArray) -> FloatArray:
        """Return the regressors (n_rows, n_terms) of a column."""
        terms = self.terms[column]
        return features[:, terms[:, 0]] * features[:, terms[:, 1]]


def choose_factors(layout: Layout, moments: FloatArray, n_rows: int) -> Factors:
    r"""Choose an order of the columns and the products on which they depend, by second `moments` (n_pairs, n_pairs).

    Categorical columns come first and depend on the categorical columns before them. A number depends on all columns
    before it, and on products of two of their features. Products are added one at a time while

    .. math:: n \log(\mathrm{RSS} / \mathrm{RSS}') > \log n + 2 \log C

    with C products to choose from (the extended BIC). Without products, all orders of the numbers give the same
    Gaussian, so the best order is the one with the largest total gain of products.
    """
    search = _Search(layout, moments, n_rows)
    order = search.best() if len(layout.numbers) <= MAX_COMPARED else search.greedy()
    terms: list[Array] = [np.empty((0, 2), dtype=np.int64)] * len(layout.sizes)
    for place, k in enumerate(layout.categories):
        terms[k] = layout.pairs[search.mains(layout.categories[:place])]
    for place, k in enumerate(order):
        before = frozenset(order[:place])
        chosen = [*search.mains([*layout.categories, *before]), *search.products(k, before)[1]]
        terms[k] = layout.pairs[chosen]
    return Factors((*layout.categories, *order), tuple(terms))


class _Search:
    """Search for the order of the numeric columns in which products gain most."""

    def __init__(self, layout: Layout, moments: FloatArray, n_rows: int) -> None:
        self.layout, self.moments, self.n_rows = layout, moments, n_rows
        self._owners = layout.owner[layout.pairs]
        self._found: dict[tuple[int, frozenset[int]], tuple[float, list[int]]] = {}

    def mains(self, before: Sequence[int]) -> Array:
        """Return the indices of the pairs that are the constant or a feature of some columns."""
        plain = self.layout.pairs[:, 0] == 0
        return np.flatnonzero(plain & np.isin(self._owners[:, 1], [-1, *before]))

    def products(self, column: int, before: frozenset[int]) -> tuple[float, list[int]]:
        """Return the penalised gain of the products chosen for a column, and their indices."""
        if (column, before) not in self._found:
            earlier = [*self.layout.categories, *before]
            allowed = np.isin(self._owners, earlier).all(axis=1)
            target = np.flatnonzero((self.layout.pairs == [0, self.layout.own[column][0]]).all(axis=1))
            found = _selected(self.moments, self.mains(earlier), np.flatnonzero(allowed), int(target[0]), self.n_rows)
            self._found[column, before] = found
        return self._found[column, before]

    def best(self) -> list[int]:
        """Return the best of all orders by dynamic programming over sets of columns."""
        orders: dict[frozenset[int], tuple[float, list[int]]] = {frozenset(): (0.0, [])}
        for size in range(1, len(self.layout.numbers) + 1):
            for some in map(frozenset, itertools.combinations(self.layout.numbers, size)):
                ends = [(orders[some - {k}][0] + self.products(k, some - {k})[0], k) for k in sorted(some)]
                gain, last = max(ends)
                orders[some] = (gain, [*orders[some - {last}][1], last])
        return orders[frozenset(self.layout.numbers)][1]

    def greedy(self) -> list[int]:
        """Return an order chosen greedily from the last column to the first."""
        rest, order = frozenset(self.layout.numbers), list[int]()
        while rest:
            _, last = max((self.products(k, rest - {k})[0], k) for k in sorted(rest))
            order, rest = [last, *order], rest - {last}
        return order


def _selected(moments: FloatArray, base: Array, candidates: Array, target: int, n_rows: int) -> tuple[float, list[int]]:
    """Add candidates to a regression on the base while their gain exceeds the penalty; return the gain and which."""
    every = np.append(candidates, target)
    inner = moments[np.ix_(base, base)] + 1e-9 * np.eye(len(base))
    cross = moments[np.ix_(base, every)]
    left = moments[np.ix_(every, every)] - cross.T @ np.linalg.solve(inner, cross)
    least = COLLINEAR * np.maximum(np.diag(moments)[candidates], 1e-12)
    penalty = np.log(n_rows) + 2 * np.log(max(len(candidates), 1))
    gain, chosen = 0.0, list[int]()
    while len(candidates) and len(chosen) < min(MAX_PRODUCTS, n_rows // ROWS_PER_PRODUCT):
        own = np.diag(left)[:-1]
        new = own > least
        falls = np.where(new, left[:-1, -1] ** 2 / np.where(new, own, 1.0), 0.0) / max(left[-1, -1], 1e-12)
        k = int(np.argmax(falls))
        more = -n_rows * np.log(max(1 - falls[k], 1e-9)) - penalty
        if more <= 0:
            break
        gain, chosen = gain + float(more), [*chosen, int(candidates[k])]
        left = left - np.outer(left[:, k], left[k]) / left[k, k]
    return gain, chosen


class Parameters(NamedTuple):
    """Parameters of a factored density; a number has one output, a category one logit for all but its first value."""

    slopes: tuple[FloatArray, ...]  # (n_terms, n_outputs) by column
    deviations: FloatArray  # (n_columns,) residual standard deviations of numbers


class _State(NamedTuple):
    """Complete rows with their features, the means of all columns, and the parameters."""

    rows: FloatArray
    features: FloatArray
    means: list[FloatArray]
    parameters: Parameters


class _Link(NamedTuple):
    """Dependence of a later column's mean on a feature: its terms, the other features in them, and its square."""

    column: int
    feature: int
    terms: Array
    partners: Array
    square: Array


class Sweeps:
    """Gibbs sweeps through the missing cells of rows.

    The mean of every later column is quadratic in a number, so the log-density of the number given the rest of the row
    is a polynomial of degree four. Without squares it is Gaussian and drawn exactly. Otherwise the density is evaluated
    on a grid inside `box` (2, n_columns) that is narrowed to the region with probability, and interpolated linearly.
    """

    def __init__(self, layout: Layout, factors: Factors, box: FloatArray) -> None:
        self.layout, self.factors, self.box = layout, factors, box
        self._links = [self._links_of(k) for k in range(len(layout.sizes))]

    def _links_of(self, column: int) -> list[_Link]:
        links = []
        for k in self.factors.order:
            first, second = self.factors.terms[k].T
            for feature in self.layout.own[column]:
                terms = np.flatnonzero((first == feature) ^ (second == feature))
                square = np.flatnonzero((first == feature) & (second == feature))
                if len(terms) + len(square):
                    partners = (first + second)[terms] - feature
                    links.append(_Link(k, int(feature), terms, partners, square))
        return links

    def sweep(
        self,
        rows: FloatArray,
        missing: BoolArray,
        parameters: Parameters,
        uniforms: FloatArray,
        truth: FloatArray | None = None,
    ) -> FloatArray:
        """Draw every missing cell once, in place; return log-densities at `truth`; all arrays (n_rows, n_columns)."""
        features = self.layout.features(rows)
        means = [self.factors.design(k, features) @ slopes for k, slopes in enumerate(parameters.slopes)]
        state = _State(rows, features, means, parameters)
        log_densities = np.zeros(rows.shape)
        for k in self.factors.order:
            here = np.flatnonzero(missing[:, k])
            if len(here):
                draw = self._draw_categories if self.layout.sizes[k] else self._draw_numbers
                wanted = None if truth is None else truth[here, k]
                log_densities[here, k] = draw(state, k, here, uniforms[here, k], wanted)
        return log_densities

    def _draw_numbers(
        self, state: _State, column: int, here: Array, uniforms: FloatArray, truth: FloatArray | None
    ) -> FloatArray:
        rows, features, means, parameters = state
        was, known, own = rows[here, column], features[here], parameters.deviations[column] ** -2
        linear, precision, children = own * means[column][here, 0], np.full(len(here), own), []
        for link in self._links[column]:  # a later column deviates by residual - slope * x - curve * x² from its mean
            slopes = parameters.slopes[link.column][:, 0]
            slope, curve = known[:, link.partners] @ slopes[link.terms], float(slopes[link.square].sum())
            residual = rows[here, link.column] - means[link.column][here, 0] + slope * was + curve * was**2
            weight = float(parameters.deviations[link.column] ** -2)
            linear += weight * slope * residual
            precision += weight * slope**2
            children.append((link.column, residual, slope, curve, weight))
        if any(curve for *_, curve, _ in children):
            powers = np.stack([linear, -precision / 2, *np.zeros((2, len(here)))])
            for _, residual, slope, curve, weight in children:
                powers[1] += weight * curve * residual
                powers[2] -= weight * curve * slope
                powers[3] -= weight * curve**2 / 2
            drawn, log_densities = _drawn_at_points(powers, self.box[:, column], uniforms, truth)
        else:
            centre = linear / precision
            drawn, log_densities = centre + ndtri(uniforms) / np.sqrt(precision), np.zeros(len(here))
            if truth is not None:
                log_densities = (np.log(precision / (2 * np.pi)) - precision * (truth - centre) ** 2) / 2
        for k, _, slope, curve, _ in children:
            means[k][here, 0] += slope * (drawn - was) + curve * (drawn**2 - was**2)
        rows[here, column] = features[here, self.layout.own[column][0]] = drawn
        return log_densities

    def _draw_categories(
        self, state: _State, column: int, here: Array, uniforms: FloatArray, truth: FloatArray | None
    ) -> FloatArray:
        rows, features, means, parameters = state
        n_categories, first = self.layout.sizes[column], self.layout.own[column][0]
        was, places, known = rows[here, column].astype(np.int64), np.arange(len(here)), features[here]
        moves: dict[int, FloatArray] = {}  # change of the means of later columns (n_rows, n_categories, n_outputs)
        for link in self._links[column]:
            slopes = parameters.slopes[link.column]
            move = moves.setdefault(link.column, np.zeros((len(here), n_categories, slopes.shape[1])))
            move[:, link.feature - first + 1] = known[:, link.partners] @ slopes[link.terms]
        scores = _log_shares(means[column][here])
        for k, move in moves.items():
            before = (means[k][here] - move[places, was])[:, None]
            scores += self._log_density(k, rows[here, k], before + move, parameters)
        scores -= _log_total(scores)
        upto = np.cumsum(np.exp(scores), axis=1)
        drawn = np.minimum((uniforms[:, None] > upto).sum(axis=1), n_categories - 1)
        for k, move in moves.items():
            means[k][here] += move[places, drawn] - move[places, was]
        rows[here, column] = drawn
        features[np.ix_(here, self.layout.own[column])] = drawn[:, None] == np.arange(1, n_categories)
        return np.zeros(len(here)) if truth is None else scores[places, np.nan_to_num(truth).astype(np.int64)]

    def _log_density(self, column: int, cells: FloatArray, means: FloatArray, parameters: Parameters) -> FloatArray:
        """Return log-densities of cells for means (n_rows, n_categories, n_outputs), up to a constant."""
        if not self.layout.sizes[column]:
            return np.asarray(-0.5 * ((cells[:, None] - means[:, :, 0]) / parameters.deviations[column]) ** 2)
        at = cells.astype(np.int64)[:, None, None]
        return np.take_along_axis(_log_shares(means), at, axis=2)[:, :, 0]


def _log_shares(scores: FloatArray) -> FloatArray:
    """Return the log-probabilities of all categories, given the logits of all but the first."""
    full = np.concatenate([np.zeros((*scores.shape[:-1], 1)), scores], axis=-1)
    return full - _log_total(full)


def _log_total(logs: FloatArray) -> FloatArray:
    top = logs.max(axis=-1, keepdims=True)
    return np.asarray(top + np.log(np.exp(logs - top).sum(axis=-1, keepdims=True)))


def _drawn_at_points(
    powers: FloatArray, box: FloatArray, uniforms: FloatArray, truth: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Draw from densities whose logarithms are polynomials with coefficients of x to x⁴, inside a box."""
    rows, steps = np.arange(len(uniforms)), np.linspace(0, 1, N_POINTS)
    low, high = np.tile(box[:, None], (1, len(rows)))
    for refinement in range(N_REFINEMENTS):
        points = low[:, None] + (high - low)[:, None] * steps
        heights = _polynomial(powers[:, :, None], points)
        top = heights.max(axis=1)
        there = heights - top[:, None] > NO_MASS
        if refinement < N_REFINEMENTS - 1:
            first, last = there.argmax(axis=1) - 1, N_POINTS - there[:, ::-1].argmax(axis=1)
            low, high = points[rows, np.maximum(first, 0)], points[rows, np.minimum(last, N_POINTS - 1)]
    density, width = np.exp(heights - top[:, None]), (high - low) / (N_POINTS - 1)
    masses = (density[:, 1:] + density[:, :-1]) / 2
    upto = np.cumsum(masses, axis=1)
    wanted = uniforms * upto[:, -1]
    piece = np.minimum((wanted[:, None] > upto).sum(axis=1), N_POINTS - 2)
    # The quantile in [0, 1] of a density that is linear from `start` to `end`, at an unnormalised mass.
    start, end, mass = density[rows, piece], density[rows, piece + 1], wanted - (upto - masses)[rows, piece]
    root = np.sqrt(np.maximum(start**2 + 2 * (end - start) * mass, 0.0))
    share = 2 * mass / np.maximum(start + root, 1e-300)  # equals (root - start) / (end - start), without 0 / 0
    drawn = points[rows, piece] + width * np.where(start + end > 0, np.clip(share, 0.0, 1.0), 0.5)
    if truth is None:
        return drawn, np.zeros(len(rows))
    return drawn, _polynomial(powers, truth) - top - np.log(upto[:, -1] * width)


def _polynomial(powers: FloatArray, x: FloatArray) -> FloatArray:
    return np.asarray((((powers[3] * x + powers[2]) * x + powers[1]) * x + powers[0]) * x)


@dataclass(frozen=True)
class FactoredModel:
    r"""A density of rows that is a product of regressions, with several draws of its parameters.

    .. math:: p(x) = \prod_k p(x_k \mid x_{<k})

    Categorical columns come first, as multinomial logits. Numbers are linear in all columns before them and in the
    chosen squares and products of these, with Gaussian noise. Draws of missing cells are therefore compatible with
    regressions that have such products, unlike draws from chained regressions or from a multivariate Gaussian.

    The fit is data augmentation: it alternates between drawing the parameters given complete rows, slopes and variances
    from their normal-inverse-gamma posterior and logits from its Gaussian approximation, and drawing the missing cells.
    """

    layout: Layout  # features of the columns
    factors: Factors  # their order and terms
    centre: FloatArray  # (n_columns,) the unit of a number is (code - centre) / spread; 0 for categories
    spread: FloatArray  # (n_columns,) 1 for categories
    box: FloatArray  # (2, n_columns) range of drawn numbers, in units
    members: tuple[Parameters, ...] = ()  # nearly independent draws of the parameters, used in turn

    @classmethod
    def fit(
        cls,
        values: FloatArray,
        start: FloatArray,
        sizes: tuple[int, ...],
        rng: Generator,
        *,
        deadline: float | None = None,
    ) -> FactoredModel | None:
        """Choose the factors and draw their parameters; return None if the time is up.

        `values` and `start`, the initial values of missing cells, are (n_rows, n_columns).
        """
        categories = np.array(sizes) > 0
        centre = np.where(categories, 0.0, np.nanmean(values, axis=0))
        size = np.nanmax(np.abs(values), axis=0)  # squares of very large or small numbers would overflow or underflow
        spread = np.where(categories, 1.0, size * np.nanstd(values / np.where(size > 0, size, 1.0), axis=0))
        spread = np.where(spread > 0, spread, 1.0)
        units = (values - centre) / spread
        box = np.stack([np.nanmin(units, axis=0) - RANGE_MARGIN, np.nanmax(units, axis=0) + RANGE_MARGIN])
        model = cls(Layout(sizes), Factors((), ()), centre, spread, box)
        chain = _Chain(model, values, start, rng)
        chain.choose_by_complete_rows()
        for _ in range(N_CHOICES):
            if not chain.run(CHOICE_SWEEPS, deadline, counted_from=CHOICE_START):
                return None
            chain.choose()
        if not chain.run(BURN_IN, deadline):
            return None
        members: list[Parameters] = []
        while len(members) < N_MEMBERS and chain.run(THINNING, deadline):
            members.append(chain.parameters)
        return replace(model, factors=chain.factors, members=tuple(members)) if len(members) == N_MEMBERS else None

    def refit_on(self, values: FloatArray, start: FloatArray, rng: Generator) -> FactoredModel:
        """Return the model of other rows of the table, with the same factors and parameters at the posterior mode."""
        chain = _Chain(self, values, start, rng, at_mode=True)
        chain.run(BURN_IN)
        found: list[Parameters] = []
        while len(found) < REFIT_SWEEPS and chain.run(1):
            found.append(chain.parameters)
        slopes = tuple(np.mean(parts, axis=0) for parts in zip(*(each.slopes for each in found), strict=True))
        return replace(self, members=(Parameters(slopes, np.mean([each.deviations for each in found], axis=0)),))

    def log_scores(self, values: FloatArray, start: FloatArray, validation: BoolArray, rng: Generator) -> FloatArray:
        """Return the log-density (n_cells,) of validation cells, under parameters fitted without them."""
        chain = _Chain(self, np.where(validation, np.nan, values), start, rng)
        chain.run(BURN_IN)
        truth = (values - self.centre) / self.spread
        total = np.full(int(validation.sum()), -np.inf)
        for _ in range(VALIDATION_SWEEPS):
            chain.run(1, truth=truth)
            total = np.logaddexp(total, chain.log_densities[validation])
        return np.asarray(total - np.log(VALIDATION_SWEEPS) - np.log(self.spread)[validation.nonzero()[1]])

    def draw(self, values: FloatArray, start: FloatArray, number: int, uniforms: Iterable[FloatArray]) -> FloatArray:
        """Complete rows by one sweep per array of `uniforms`; all arrays have the shape (n_rows, n_columns)."""
        missing, parameters = np.isnan(values), self.members[number % len(self.members)]
        rows = (start - self.centre) / self.spread
        sweeps, several, numbers = Sweeps(self.layout, self.factors, self.box), missing.sum(axis=1) > 1, iter(uniforms)
        sweeps.sweep(rows, missing, parameters, next(numbers))
        some = rows[several]  # the first sweep draws a single missing cell exactly
        for others in numbers if len(some) else ():
            sweeps.sweep(some, missing[several], parameters, others[several])
        rows[several] = some
        return np.where(missing, rows * self.spread + self.centre, values)

    def tensors(self) -> dict[str, Array]:
        """Return arrays by name, for a model file."""
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
        """Undo `tensors`; return None if there is no such density."""
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
    """Data augmentation: draw parameters and missing cells alternately."""

    def __init__(
        self, model: FactoredModel, values: FloatArray, start: FloatArray, rng: Generator, *, at_mode: bool = False
    ) -> None:
        self.layout, self.box, self.rng, self.at_mode = model.layout, model.box, rng, at_mode
        self.missing = np.isnan(values)
        self.rows = (np.where(self.missing, start, values) - model.centre) / model.spread
        self.log_densities = np.zeros(values.shape)
        self._moments: list[FloatArray] = []
        self.use(model.factors)

    def use(self, factors: Factors) -> None:
        """Use other factors."""
        self.factors, self._sweeps = factors, Sweeps(self.layout, factors, self.box)
        self._logits: dict[int, FloatArray] = {}

    def choose_by_complete_rows(self) -> None:
        """Choose the factors by complete rows if there are enough of them, else by all rows."""
        complete = ~self.missing.any(axis=1)
        enough = complete.sum() >= COMPLETE_ROWS * len(self.layout.sizes)
        rows = self.rows[complete] if enough else self.rows
        self.use(choose_factors(self.layout, self.layout.moments(self.layout.features(rows)), len(rows)))

    def choose(self) -> None:
        """Choose the factors by the moments counted since the last choice."""
        self.use(choose_factors(self.layout, np.mean(self._moments, axis=0), len(self.rows)))
        self._moments = []

    def run(
        self,
        n_sweeps: int,
        deadline: float | None = None,
        *,
        counted_from: int | None = None,
        truth: FloatArray | None = None,
    ) -> bool:
        """Draw parameters and cells `n_sweeps` times; return False if the time is up before."""
        for k in range(n_sweeps):
            if deadline is not None and time.perf_counter() > deadline:
                return False
            self.parameters = self._drawn_parameters(self.layout.features(self.rows))
            uniforms = np.clip(self.rng.random(self.rows.shape), 1e-12, 1 - 1e-12)
            self.log_densities = self._sweeps.sweep(self.rows, self.missing, self.parameters, uniforms, truth)
            if counted_from is not None and k >= counted_from:
                self._moments.append(self.layout.moments(self.layout.features(self.rows)))
        return True

    def _drawn_parameters(self, features: FloatArray) -> Parameters:
        slopes, deviations = [], np.ones(len(self.layout.sizes))
        for k, n_categories in enumerate(self.layout.sizes):
            design = self.factors.design(k, features)
            if n_categories:
                slopes.append(self._drawn_logits(k, design, self.rows[:, k].astype(np.int64)))
            else:
                found, deviations[k] = self._drawn_slopes(design, self.rows[:, k])
                slopes.append(found)
        return Parameters(tuple(slopes), deviations)

    def _normals(self, count: int) -> FloatArray:
        return np.zeros(count) if self.at_mode else self.rng.normal(size=count)

    def _drawn_slopes(self, design: FloatArray, target: FloatArray) -> tuple[FloatArray, float]:
        """Draw slopes (n_terms, 1) and the residual standard deviation of a regression."""
        n_rows, n_terms = design.shape
        precision = design.T @ design + RIDGE * np.eye(n_terms)
        centre = np.linalg.solve(precision, design.T @ target)
        squares = float(((target - design @ centre) ** 2).sum())
        freedom = max(n_rows - n_terms, 2) + 1
        variance = squares / (freedom if self.at_mode else self.rng.chisquare(freedom)) + MIN_VARIANCE
        factor = np.linalg.cholesky(precision).T
        drawn = centre + np.sqrt(variance) * np.linalg.solve(factor, self._normals(n_terms))
        return drawn[:, None], float(np.sqrt(variance))

    def _drawn_logits(self, column: int, design: FloatArray, codes: Array) -> FloatArray:
        """Draw slopes (n_terms, n_categories - 1) from the Gaussian approximation around their mode."""
        n_categories, n_terms = self.layout.sizes[column], design.shape[1]
        keys = design @ 2.0 ** np.arange(n_terms)  # of zeros and ones; exact, as a float has more bits than terms
        _, first, kind = np.unique(keys, return_index=True, return_inverse=True)
        kinds = design[first]
        cells = np.bincount(kind * n_categories + codes, minlength=len(kinds) * n_categories)
        counts = cells.reshape(-1, n_categories).astype(np.float64)
        known = column in self._logits
        slopes = self._logits.get(column, np.zeros((n_terms, n_categories - 1)))
        for _ in range(NEWTON_STEPS if known else FIRST_NEWTON_STEPS):
            slope, curvature = _newton(kinds, counts, slopes)
            step = np.linalg.solve(curvature, slope).reshape(slopes.shape)
            slopes = slopes + np.clip(step, -MAX_NEWTON_STEP, MAX_NEWTON_STEP)
        self._logits[column] = slopes
        factor = np.linalg.cholesky(_newton(kinds, counts, slopes)[1]).T
        return slopes + np.linalg.solve(factor, self._normals(slopes.size)).reshape(slopes.shape)


def _newton(kinds: FloatArray, counts: FloatArray, slopes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return gradient and negative Hessian of the log-posterior of logits, for distinct rows with category counts."""
    scores = np.column_stack([np.zeros(len(kinds)), kinds @ slopes])
    shares = softmax(scores, axis=1)[:, 1:]
    totals = counts.sum(axis=1)
    slope = kinds.T @ (counts[:, 1:] - totals[:, None] * shares) - CATEGORY_RIDGE * slopes
    spread = shares[:, :, None] * (np.eye(shares.shape[1]) - shares[:, None, :]) * totals[:, None, None]
    weighted = (kinds[:, :, None, None] * spread[:, None]).reshape(len(kinds), -1)
    curvature = (weighted.T @ kinds).reshape(*slopes.shape, slopes.shape[1], slopes.shape[0]).swapaxes(2, 3)
    return slope.ravel(), curvature.reshape(slopes.size, -1) + CATEGORY_RIDGE * np.eye(slopes.size)


class FactoredCells:
    """A factored density, the Gaussian that starts its sweeps, and the columns `used` (n_columns,) drawn from it."""

    def __init__(self, model: FactoredModel, codec: TableCodec, gaussian: GaussianModel, used: BoolArray) -> None:
        self.model, self.codec, self.gaussian, self.used = model, codec, gaussian, used

    @classmethod
    def fit(
        cls, values: FloatArray, codec: TableCodec, rng: Generator, deadline: float | None = None
    ) -> FactoredCells | None:
        """Fit the density of a table (n_rows, n_columns); None if the table is unsuitable or the time is up."""
        sizes = tuple(len(column.categories) if column.kind in CATEGORY_KINDS else 0 for column in codec.columns)
        values = values[~np.isnan(values).all(axis=1)]
        small = len(values) >= MIN_ROWS and 2 <= len(sizes) <= MAX_COLUMNS and sum(sizes) <= MAX_TOTAL_CATEGORIES
        if not small or max(sizes) > MAX_CATEGORIES or 1 in sizes:
            return None
        gaussian = GaussianModel.fit(codec.encode(values))
        start = _started(values, codec, gaussian, rng)
        try:
            model = FactoredModel.fit(values, start, sizes, rng, deadline=deadline)
        except np.linalg.LinAlgError:  # collinear columns; the Gaussian of the blend handles these
            return None
        return None if model is None else cls(model, codec, gaussian, np.ones(len(sizes), dtype=bool))

    def choose(
        self, values: FloatArray, validation: BoolArray, others: Sequence[FloatArray], plain: BoolArray, rng: Generator
    ) -> bool:
        """Decide on `validation` cells (n_members, n_rows, n_columns) whether to use the density for all missing cells.

        `plain` (n_columns,) are the columns for which it may be used, and `others` by member the log-densities of the
        validation cells by the other models. Used for some of the incomplete columns, it would tear the joint
        distribution apart.
        """
        ahead, columns = [], []
        for cells, by_others in zip(validation[:VALIDATION_MEMBERS], others, strict=False):
            start = _started(np.where(cells, np.nan, values), self.codec, self.gaussian, rng)
            found = self.model.log_scores(values, start, cells, rng)
            ahead.append(np.clip(found - by_others, -MAX_LOG_ODDS, MAX_LOG_ODDS))
            columns.append(cells.nonzero()[1])
        odds, of = np.concatenate(ahead), np.concatenate(columns)
        worse = [_probability_ahead(odds[of == k]) < MIN_COLUMN_PROBABILITY for k in range(len(plain))]
        self.used = plain & ~np.array(worse)
        incomplete: BoolArray = np.asarray(np.isnan(values).any(axis=0))
        everywhere = bool(incomplete.any()) and bool(self.used[incomplete].all())
        return everywhere and _probability_ahead(odds[incomplete[of]]) > MIN_PROBABILITY

    def refit_on(self, values: FloatArray, seed: int) -> FactoredCells | None:
        """Return the density refitted to other rows of the same table, None if they are collinear."""
        rng = np.random.default_rng(seed)
        values = values[~np.isnan(values).all(axis=1)]
        gaussian = GaussianModel.fit(self.codec.encode(values))
        start = _started(values, self.codec, gaussian, rng)
        try:
            return FactoredCells(self.model.refit_on(values, start, rng), self.codec, gaussian, self.used)
        except np.linalg.LinAlgError:
            return None

    def complete(
        self, values: FloatArray, hashes: Array, number: int, box: tuple[FloatArray, FloatArray]
    ) -> FloatArray:
        """Draw the missing cells of the `used` columns, inside `box`, with random numbers by `hashes` (n_rows,)."""
        wanted = np.isnan(values) & self.used
        places = np.arange(self.codec.n_places)
        each = np.repeat(hashes, len(places)), np.tile(places + START_STREAM, len(hashes))
        normals = ndtri(cell_uniforms(*each, np.array([number]))).reshape(len(values), len(places))
        start = _completed(values, self.codec, self.gaussian, normals)
        drawn = self.model.draw(values, start, number, self._uniforms(values, hashes, number))
        numbers = wanted.nonzero()[1]
        found = values.copy()
        found[wanted] = fold(drawn[wanted], *(bound[numbers] for bound in box))
        return found

    def _uniforms(self, values: FloatArray, hashes: Array, number: int) -> Iterator[FloatArray]:
        missing = np.isnan(values)
        rows, columns = missing.nonzero()
        for sweep in range(DRAW_SWEEPS):
            uniforms = np.full(values.shape, 0.5)
            place = columns + (SWEEP_STREAM + sweep) * values.shape[1]
            uniforms[missing] = cell_uniforms(hashes[rows], place, np.array([number]))[0]
            yield uniforms

    def tensors(self) -> dict[str, Array]:
        """Return arrays by name, for a model file, without those of the Gaussian and its codec."""
        return self.model.tensors() | {"factored.used": self.used}

    @classmethod
    def from_tensors(cls, arrays: dict[str, Array], codec: TableCodec, gaussian: GaussianModel) -> FactoredCells | None:
        """Undo `tensors`; return None if there is no such density."""
        model = FactoredModel.from_tensors(arrays)
        return None if model is None else cls(model, codec, gaussian, arrays["factored.used"].astype(bool))


def _started(values: FloatArray, codec: TableCodec, gaussian: GaussianModel, rng: Generator) -> FloatArray:
    return _completed(values, codec, gaussian, rng.normal(size=(len(values), codec.n_places)))


def _completed(values: FloatArray, codec: TableCodec, gaussian: GaussianModel, normals: FloatArray) -> FloatArray:
    """Return codes whose missing cells are drawn from the Gaussian."""
    drawn = codec.decode(gaussian.draw(codec.encode(values), normals))
    return np.where(np.isnan(values), drawn, values)


def _probability_ahead(odds: FloatArray) -> float:
    """Return the probability that the mean of the log-odds is above 0; one half without any."""
    return float(ndtr(odds.sum() / math.sqrt(max(float((odds**2).sum()), 1e-12))))

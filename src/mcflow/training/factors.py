"""The factors of a joint density: an order of the columns, and the terms by which each depends on those before it."""

from __future__ import annotations

__all__ = ["Factors", "Layout", "choose_factors"]

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mcflow.typing import Array, FloatArray

#: Numbers up to which all orders are compared; with more, the last column is chosen first, then the one before it.
MOST_COMPARED = 7

#: Products and squares of a factor, at most, and rows for each of them.
MOST_PRODUCTS, ROWS_A_PRODUCT = 12, 20

#: Share of its sum of squares below which a term counts as known from the others.
NEARLY_KNOWN = 1e-6


@dataclass(frozen=True)
class Layout:
    """The features of a row: a one, each number, and zeros and ones for all levels of a column but its first.

    Parameters
    ----------
    sizes : tuple of int
        Levels of each column, 0 for a number.

    Examples
    --------
    >>> Layout((0, 3)).features(np.array([[0.5, 2.0], [-1.0, 0.0]]))
    array([[ 1. ,  0.5,  0. ,  1. ],
           [ 1. , -1. ,  0. ,  0. ]])
    """

    sizes: tuple[int, ...]

    @cached_property
    def own(self) -> list[Array]:
        """The features of each column."""
        ends = np.cumsum([1, *(max(size - 1, 1) for size in self.sizes)])
        return [np.arange(a, b) for a, b in itertools.pairwise(ends)]

    @cached_property
    def owner(self) -> Array:
        """The column of each feature, -1 for the one."""
        counts = [len(features) for features in self.own]
        return np.concatenate([[-1], np.repeat(np.arange(len(counts)), counts)]).astype(np.int64)

    @property
    def numbers(self) -> list[int]:
        """The columns of numbers."""
        return [k for k, size in enumerate(self.sizes) if not size]

    @property
    def levels(self) -> list[int]:
        """The columns of levels."""
        return [k for k, size in enumerate(self.sizes) if size]

    @cached_property
    def pairs(self) -> Array:
        """Products of two features that may be terms, of shape (n_pairs, 2): those with the one are features."""
        first, second = np.triu_indices(len(self.owner))
        of_levels = np.isin(self.owner, self.levels)
        # Zeros and ones of the same column are their own squares, and their products are zero.
        kept = ~(of_levels[second] & (self.owner[first] == self.owner[second]))
        return np.column_stack([first[kept], second[kept]])

    def features(self, rows: FloatArray) -> FloatArray:
        """Return the features of complete rows, of shape (n_rows, n_features)."""
        found = np.ones((len(rows), len(self.owner)))
        for k, own in enumerate(self.own):
            found[:, own] = rows[:, k, None] == np.arange(1, self.sizes[k]) if self.sizes[k] else rows[:, k, None]
        return found

    def moments(self, features: FloatArray) -> FloatArray:
        """Return the mean products of all pairs with one another: what `choose_factors` goes by."""
        terms = features[:, self.pairs[:, 0]] * features[:, self.pairs[:, 1]]
        found: FloatArray = terms.T @ terms / max(len(terms), 1)
        return found


class Factors(NamedTuple):
    """An order of columns, and what each depends on.

    Parameters
    ----------
    order : tuple of int
        The columns, levels first.
    terms : tuple of ndarray of shape (n_terms, 2)
        By column: pairs of features of earlier columns whose products are its regressors.
    """

    order: tuple[int, ...]
    terms: tuple[Array, ...]

    @property
    def n_products(self) -> int:
        """How many terms are products or squares."""
        return sum(int((terms[:, 0] > 0).sum()) for terms in self.terms)

    def design(self, column: int, features: FloatArray) -> FloatArray:
        """Return the regressors of a column, of shape (n_rows, n_terms)."""
        terms = self.terms[column]
        found: FloatArray = features[:, terms[:, 0]] * features[:, terms[:, 1]]
        return found


def choose_factors(layout: Layout, moments: FloatArray, n_rows: int) -> Factors:
    r"""Choose an order of the columns and the products that they depend on.

    Parameters
    ----------
    layout : Layout
        Of the columns.
    moments : ndarray of shape (n_pairs, n_pairs)
        What `Layout.moments` returned, or a mean of several.
    n_rows : int
        Of the table.

    Returns
    -------
    Factors

    Notes
    -----
    Levels come first and depend on the levels before them. A number depends on all columns before it, and on products
    of two of their features as far as these are wanted: they are added one at a time while

    .. math:: n \log(\mathrm{RSS} / \mathrm{RSS}') > \log n + 2 \log C

    with C products to choose from (the extended BIC [1]_). Without products, all orders of the numbers are the same
    normal, so that the best order is the one in which products gain most.

    References
    ----------
    .. [1] Chen, J., & Chen, Z. (2008). Extended Bayesian information criteria for model selection with large model
       spaces. Biometrika, 95(3).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(400, 2))
    >>> y = x.sum(axis=1) + x.prod(axis=1) + rng.normal(size=400)
    >>> layout = Layout((0, 0, 0))
    >>> found = choose_factors(layout, layout.moments(layout.features(np.column_stack([y, x]))), 400)
    >>> found.order[-1], found.terms[0][-1]  # the outcome is last, with the product of the two others
    (0, array([2, 3]))
    """
    search = _Search(layout, moments, n_rows)
    order = search.best() if len(layout.numbers) <= MOST_COMPARED else search.greedy()
    terms: list[Array] = [np.empty((0, 2), dtype=np.int64)] * len(layout.sizes)
    for place, k in enumerate(layout.levels):
        terms[k] = layout.pairs[search.mains(layout.levels[:place])]
    for place, k in enumerate(order):
        before = frozenset(order[:place])
        chosen = [*search.mains([*layout.levels, *before]), *search.products(k, before)[1]]
        terms[k] = layout.pairs[chosen]
    return Factors((*layout.levels, *order), tuple(terms))


class _Search:
    """Orders of the columns of numbers, with what products gain in each."""

    def __init__(self, layout: Layout, moments: FloatArray, n_rows: int) -> None:
        self.layout, self.moments, self.n_rows = layout, moments, n_rows
        self._owners = layout.owner[layout.pairs]
        self._found: dict[tuple[int, frozenset[int]], tuple[float, list[int]]] = {}

    def mains(self, before: Sequence[int]) -> Array:
        """Return the pairs that are the one and features of some columns."""
        plain = self.layout.pairs[:, 0] == 0
        return np.flatnonzero(plain & np.isin(self._owners[:, 1], [-1, *before]))

    def products(self, column: int, before: frozenset[int]) -> tuple[float, list[int]]:
        """Return what products of earlier features gain for a column, less their penalty, and which."""
        if (column, before) not in self._found:
            earlier = [*self.layout.levels, *before]
            allowed = np.isin(self._owners, earlier).all(axis=1)
            target = np.flatnonzero((self.layout.pairs == [0, self.layout.own[column][0]]).all(axis=1))
            found = _selected(self.moments, self.mains(earlier), np.flatnonzero(allowed), int(target[0]), self.n_rows)
            self._found[column, before] = found
        return self._found[column, before]

    def best(self) -> list[int]:
        """Return the best of all orders: that of a set of columns ends with one of them, after the best of the rest."""
        orders: dict[frozenset[int], tuple[float, list[int]]] = {frozenset(): (0.0, [])}
        for size in range(1, len(self.layout.numbers) + 1):
            for some in map(frozenset, itertools.combinations(self.layout.numbers, size)):
                ends = [(orders[some - {k}][0] + self.products(k, some - {k})[0], k) for k in sorted(some)]
                gain, last = max(ends)
                orders[some] = (gain, [*orders[some - {last}][1], last])
        return orders[frozenset(self.layout.numbers)][1]

    def greedy(self) -> list[int]:
        """Return an order whose last column gains most by products, and so on towards the first."""
        rest, order = frozenset(self.layout.numbers), list[int]()
        while rest:
            _, last = max((self.products(k, rest - {k})[0], k) for k in sorted(rest))
            order, rest = [last, *order], rest - {last}
        return order


def _selected(moments: FloatArray, base: Array, candidates: Array, target: int, n_rows: int) -> tuple[float, list[int]]:
    """Add candidates to a regression on the base while they are worth their penalty; return the gain, and which."""
    every = np.append(candidates, target)
    inner = moments[np.ix_(base, base)] + 1e-9 * np.eye(len(base))
    cross = moments[np.ix_(base, every)]
    left = moments[np.ix_(every, every)] - cross.T @ np.linalg.solve(inner, cross)
    least = NEARLY_KNOWN * np.maximum(np.diag(moments)[candidates], 1e-12)
    penalty = np.log(n_rows) + 2 * np.log(max(len(candidates), 1))
    gain, chosen = 0.0, list[int]()
    while len(candidates) and len(chosen) < min(MOST_PRODUCTS, n_rows // ROWS_A_PRODUCT):
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

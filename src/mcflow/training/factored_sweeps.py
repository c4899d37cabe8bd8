"""Missing cells drawn from a factored density, one column after the other, each given the rest of its row."""

from __future__ import annotations

__all__ = ["Parameters", "Sweeps"]

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from mcflow.training.factors import Factors, Layout
from mcflow.typing import Array, BoolArray, FloatArray

#: Points at which a density is read where squares make it another than a normal, and how often they close in on it.
N_POINTS, N_LOOKS = 64, 3

#: Logarithm of the density, less that of the largest, beyond which there is nothing.
NOTHING = -20.0


class Parameters(NamedTuple):
    """The numbers of a factored density.

    Parameters
    ----------
    slopes : tuple of ndarray of shape (n_terms, n_outputs)
        By column: one output for a number, one for every level but the first, on the logit scale.
    deviations : ndarray of shape (n_columns,)
        Of numbers, given the columns before them.
    """

    slopes: tuple[FloatArray, ...]
    deviations: FloatArray


class _State(NamedTuple):
    """Complete rows, their features, the means of all columns there, and the numbers behind these."""

    rows: FloatArray
    features: FloatArray
    means: list[FloatArray]
    parameters: Parameters


class _Link(NamedTuple):
    """How a feature moves the mean of a later column: the terms it is in, its partners there, and its square."""

    column: int
    feature: int
    terms: Array
    partners: Array
    square: Array


class _Child(NamedTuple):
    """A later column as a function of a cell x: it lies at residual - slope · x - curve · x² from its mean."""

    column: int
    residual: FloatArray
    slope: FloatArray
    curve: float
    weight: float


class Sweeps:
    """Gibbs sweeps through the missing cells of rows.

    Parameters
    ----------
    layout : Layout
        Of the columns.
    factors : Factors
        Their order and terms.
    box : ndarray of shape (2, n_columns)
        Where numbers are looked for.

    Notes
    -----
    The mean of every later column is a polynomial of degree two in a cell, so that the logarithm of its density given
    the rest of the row is one of degree four; without the square it is that of a normal and drawn exactly. Otherwise
    it is read at points that close in on where its mass is, and drawn from the straight lines between them. Levels are
    tried one by one.
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
        """Draw every missing cell once, in place.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_columns)
            Complete; what stands in missing cells is where the sweep begins.
        missing : ndarray of bool of shape (n_rows, n_columns)
            The cells to draw.
        parameters : Parameters
            Of the density.
        uniforms : ndarray of shape (n_rows, n_columns)
            In (0, 1); a row's draws depend on its own alone.
        truth : ndarray of shape (n_rows, n_columns), optional
            Values of which the density is wanted.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            The logarithm of the density, or probability, of the truth in missing cells, given the rest of the row as it
            was at their turn; 0 elsewhere and without a truth.
        """
        features = self.layout.features(rows)
        means = [self.factors.design(k, features) @ slopes for k, slopes in enumerate(parameters.slopes)]
        state = _State(rows, features, means, parameters)
        stated = np.zeros(rows.shape)
        for k in self.factors.order:
            here = np.flatnonzero(missing[:, k])
            if len(here):
                draw = self._draw_levels if self.layout.sizes[k] else self._draw_numbers
                wanted = None if truth is None else truth[here, k]
                stated[here, k] = draw(state, k, here, uniforms[here, k], wanted)
        return stated

    def _draw_numbers(
        self, state: _State, column: int, here: Array, uniforms: FloatArray, truth: FloatArray | None
    ) -> FloatArray:
        children = self._children(state, column, here)
        own = state.parameters.deviations[column] ** -2
        linear, precision = own * state.means[column][here, 0], np.full(len(here), own)
        for child in children:
            linear += child.weight * child.slope * child.residual
            precision += child.weight * child.slope**2
        if any(child.curve for child in children):
            powers = np.stack([linear, -precision / 2, *np.zeros((2, len(here)))])
            for child in children:
                powers[1] += child.weight * child.curve * child.residual
                powers[2] -= child.weight * child.curve * child.slope
                powers[3] -= child.weight * child.curve**2 / 2
            drawn, stated = _drawn_at_points(powers, self.box[:, column], uniforms, truth)
        else:
            centre = linear / precision
            drawn, stated = centre + ndtri(uniforms) / np.sqrt(precision), np.zeros(len(here))
            if truth is not None:
                stated = (np.log(precision / (2 * np.pi)) - precision * (truth - centre) ** 2) / 2
        was = state.rows[here, column]
        for child in children:
            state.means[child.column][here, 0] += child.slope * (drawn - was) + child.curve * (drawn**2 - was**2)
        state.rows[here, column] = state.features[here, self.layout.own[column][0]] = drawn
        return stated

    def _children(self, state: _State, column: int, here: Array) -> list[_Child]:
        rows, features, means, parameters = state
        now, known, children = rows[here, column], features[here], []
        for link in self._links[column]:
            slopes = parameters.slopes[link.column][:, 0]
            slope, curve = known[:, link.partners] @ slopes[link.terms], float(slopes[link.square].sum())
            residual = rows[here, link.column] - means[link.column][here, 0] + slope * now + curve * now**2
            weight = float(parameters.deviations[link.column] ** -2)
            children.append(_Child(link.column, residual, slope, curve, weight))
        return children

    def _draw_levels(
        self, state: _State, column: int, here: Array, uniforms: FloatArray, truth: FloatArray | None
    ) -> FloatArray:
        rows, features, means, parameters = state
        n_levels, first = self.layout.sizes[column], self.layout.own[column][0]
        was, places, known = rows[here, column].astype(np.int64), np.arange(len(here)), features[here]
        moves: dict[int, FloatArray] = {}  # of the means of later columns, of shape (n_rows, n_levels, n_outputs)
        for link in self._links[column]:
            slopes = parameters.slopes[link.column]
            move = moves.setdefault(link.column, np.zeros((len(here), n_levels, slopes.shape[1])))
            move[:, link.feature - first + 1] = known[:, link.partners] @ slopes[link.terms]
        scores = _log_shares(means[column][here])
        for k, move in moves.items():
            before = (means[k][here] - move[places, was])[:, None]
            scores += self._log_density(k, rows[here, k], before + move, parameters)
        scores -= _log_total(scores)
        upto = np.cumsum(np.exp(scores), axis=1)
        drawn = np.minimum((uniforms[:, None] > upto).sum(axis=1), n_levels - 1)
        for k, move in moves.items():
            means[k][here] += move[places, drawn] - move[places, was]
        rows[here, column] = drawn
        features[np.ix_(here, self.layout.own[column])] = drawn[:, None] == np.arange(1, n_levels)
        return np.zeros(len(here)) if truth is None else scores[places, np.nan_to_num(truth).astype(np.int64)]

    def _log_density(self, column: int, cells: FloatArray, means: FloatArray, parameters: Parameters) -> FloatArray:
        """Return that of cells for means of shape (n_rows, n_levels, n_outputs), up to a constant."""
        if not self.layout.sizes[column]:
            found: FloatArray = -0.5 * ((cells[:, None] - means[:, :, 0]) / parameters.deviations[column]) ** 2
            return found
        at = cells.astype(np.int64)[:, None, None]
        return np.take_along_axis(_log_shares(means), at, axis=2)[:, :, 0]


def _log_shares(scores: FloatArray) -> FloatArray:
    """Return the logarithms of the probabilities of all levels, by the scores of all but the first."""
    full = np.concatenate([np.zeros((*scores.shape[:-1], 1)), scores], axis=-1)
    found: FloatArray = full - _log_total(full)
    return found


def _log_total(logs: FloatArray) -> FloatArray:
    top = logs.max(axis=-1, keepdims=True)
    found: FloatArray = top + np.log(np.exp(logs - top).sum(axis=-1, keepdims=True))
    return found


def _drawn_at_points(
    powers: FloatArray, box: FloatArray, uniforms: FloatArray, truth: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Draw from densities whose logarithms are polynomials, with the coefficients of x to x⁴, inside a box."""
    rows, steps = np.arange(len(uniforms)), np.linspace(0, 1, N_POINTS)
    low, high = np.tile(box[:, None], (1, len(rows)))
    for look in range(N_LOOKS):
        points = low[:, None] + (high - low)[:, None] * steps
        heights = _polynomial(powers[:, :, None], points)
        top = heights.max(axis=1)
        there = heights - top[:, None] > NOTHING
        if look < N_LOOKS - 1:
            first, last = there.argmax(axis=1) - 1, N_POINTS - there[:, ::-1].argmax(axis=1)
            low, high = points[rows, np.maximum(first, 0)], points[rows, np.minimum(last, N_POINTS - 1)]
    density, width = np.exp(heights - top[:, None]), (high - low) / (N_POINTS - 1)
    masses = (density[:, 1:] + density[:, :-1]) / 2
    upto = np.cumsum(masses, axis=1)
    wanted = uniforms * upto[:, -1]
    piece = np.minimum((wanted[:, None] > upto).sum(axis=1), N_POINTS - 2)
    share = _place_on_slope(density[rows, piece], density[rows, piece + 1], wanted - (upto - masses)[rows, piece])
    drawn = points[rows, piece] + width * share
    if truth is None:
        return drawn, np.zeros(len(rows))
    return drawn, _polynomial(powers, truth) - top - np.log(upto[:, -1] * width)


def _polynomial(powers: FloatArray, x: FloatArray) -> FloatArray:
    found: FloatArray = (((powers[3] * x + powers[2]) * x + powers[1]) * x + powers[0]) * x
    return found


def _place_on_slope(start: FloatArray, end: FloatArray, mass: FloatArray) -> FloatArray:
    """Return how far along a piece of width 1, with a density that goes straight from start to end, a mass is."""
    rise, total = end - start, start + end
    root = np.sqrt(np.maximum(start**2 + 2 * rise * mass, 0.0))
    share: FloatArray = 2 * mass / np.maximum(start + root, 1e-300)  # the same as (root - start) / rise, without 0 / 0
    return np.where(total > 0, np.clip(share, 0.0, 1.0), 0.5)

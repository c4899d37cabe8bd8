"""Draws and quantiles of missing pixels by the flow of the last stage."""

from __future__ import annotations

__all__ = ["FlowImageDraws", "likely_steps"]

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch

from mcflow.random import hash_rows
from mcflow.training.calibration import Calibration, masses_beyond
from mcflow.training.chain import N_PUSHES, Chain, Density, Jumps
from mcflow.training.flow_density import FlowDensity, doubled
from mcflow.training.ladder import height_of, rung
from mcflow.training.stages import Box, Stage, complete
from mcflow.training.threads import map_on_threads, share_out
from mcflow.typing import Array, BoolArray, FloatArray

#: Moves before the first draw, after which the density of digits of MNIST has settled, and from each draw to the next.
BURN_IN, THINNING = 40, 5

#: States of a chain that stand for a pixel's distribution, and moves from one to the next.
N_STATES, STATE_EVERY = 39, 1

#: Images whose chains run together.
IMAGES_TOGETHER = 64

#: Steps of a place, at least and at most.
SMALLEST_STEP, LARGEST_STEP = 1e-3, 0.5


def likely_steps(density: Density, rows: FloatArray) -> FloatArray:
    r"""Return how far each place may move while all others stay.

    Parameters
    ----------
    density : Density
        The law of rows.
    rows : ndarray of shape (n_rows, n_places)
        Some that the law was learned from.

    Returns
    -------
    ndarray of shape (n_places,)
        :math:`E[(\partial \log p / \partial x_i)^2]^{-1/2}`, which for a normal law is the deviation of a place given
        all the others.

    Examples
    --------
    >>> from mcflow.flows.realnvp import RealNVP
    >>> normal = FlowDensity(RealNVP(torch.tensor([[True, False], [False, True]])))
    >>> likely_steps(normal, np.array([[2.5, 0.0], [0.0, 5.0]])).round(3).tolist()
    [0.5, 0.283]
    """
    squares = np.square(density.slope(rows)[1]).mean(axis=0)
    steps: FloatArray = np.clip(1 / np.sqrt(np.maximum(squares, 1e-12)), SMALLEST_STEP, LARGEST_STEP)
    return steps


class FlowImageDraws:
    r"""Chains over the missing pixels of flattened images.

    Parameters
    ----------
    stages : sequence of Stage
        All of them give a chain its start; the last one's flow is its law.
    steps : ndarray of shape (n_numbers,)
        From `likely_steps`.
    seed : int
        Of the fit, for quantiles.

    Notes
    -----
    The law is :math:`p(x_{mis} \mid x_{obs}) \propto p(x_{mis}, x_{obs})` on [0, 1], p being the flow's density. As an
    image has hundreds of missing pixels, moves of a single one would lead nowhere: all moves are glides of all missing
    pixels at once, see `Chain`, each pixel's step in proportion to its own deviation given the others.

    Few moves are made, as each costs eight passes through the flow. Draws therefore lie in the region that the
    filled image is in: a chain does not travel from one shape that would fit the observed pixels to quite another.
    """

    #: Slopes of the density that quantiles take.
    n_slopes: ClassVar[int] = (N_PUSHES + 1) * (BURN_IN + N_STATES * STATE_EVERY)

    def __init__(self, stages: Sequence[Stage], steps: FloatArray, seed: int) -> None:
        self.stages, self.seed = stages, seed
        self.density = FlowDensity(stages[-1].flow)
        self.jumps = Jumps.even(steps)

    def start(self, first: FloatArray, missing: BoolArray) -> FloatArray:
        """Complete images in float64: what chains begin with.

        Parameters
        ----------
        first : ndarray of shape (n_images, n_numbers)
            After the first fill.
        missing : ndarray of bool of shape (n_images, n_numbers)

        Returns
        -------
        ndarray of shape (n_images, n_numbers)

        Notes
        -----
        Stages are large: each is held in float64 only while it is used.
        """
        device = self.density.flow.theta.device
        rows, marks = torch.from_numpy(first).to(device, torch.float64), torch.from_numpy(missing).to(device)
        for stage in self.stages:
            rows = complete(Stage(doubled(stage.flow), doubled(stage.mapper)), rows, marks)
        done: FloatArray = rows.cpu().numpy()
        return done

    def _warm(self, rows: FloatArray, missing: BoolArray, hashes: Array) -> Chain:
        box = Box.unit(rows.shape[1])
        chain = Chain(
            self.density, rows, missing, jumps=self.jumps, box=box, hashes=hashes, burn_in=BURN_IN, moves=("glide",)
        )
        chain.advance(BURN_IN)
        return chain

    def draws(self, first: FloatArray, missing: BoolArray, m: int, hashes: Array) -> Iterator[FloatArray]:
        """Draw completed images; see `FlowImageModel.draws`.

        Parameters
        ----------
        first : ndarray of shape (n_images, n_numbers)
            After the first fill; each has a hole.
        missing : ndarray of bool of shape (n_images, n_numbers)
        m : int
            How often.
        hashes : ndarray of shape (n_images,)
            What each image's random numbers come from.

        Yields
        ------
        ndarray of shape (n_images, n_numbers)
        """
        start = self.start(first, missing)
        parts = share_out(np.arange(len(first)), IMAGES_TOGETHER)
        chains = map_on_threads(lambda rows: self._warm(start[rows], missing[rows], hashes[rows]), parts)
        for _ in range(m):
            map_on_threads(lambda chain: chain.advance(THINNING), chains)
            yield np.concatenate([chain.rows for chain in chains]) if chains else start

    def quantiles(
        self, first: FloatArray, missing: BoolArray, probabilities: Sequence[float], calibration: Calibration | None
    ) -> list[FloatArray]:
        """Fill holes with quantiles; see `FlowImageModel.quantiles`.

        Parameters
        ----------
        first, missing
            As for `draws`.
        probabilities : sequence of float
            In [0, 1].
        calibration : Calibration or None
            What moves them.

        Returns
        -------
        list of ndarray of shape (n_images, n_numbers)
        """
        heights = []
        for upper, mass in (masses_beyond(q, calibration, 1) for q in probabilities):
            heights.append((1 - mass[0] if upper else mass[0]) * (N_STATES + 1))
        start, filled = self.start(first, missing), [first.copy() for _ in probabilities]

        def read(rows: Array) -> list[FloatArray]:
            ladder = self._ladder(start[rows], first[rows], missing[rows])
            return [rung(ladder, np.full(ladder.shape[1], height)) for height in heights]

        parts = share_out(np.arange(len(first)), IMAGES_TOGETHER)
        for rows, found in zip(parts, map_on_threads(read, parts), strict=True):
            for whole, values in zip(filled, found, strict=True):
                some = whole[rows]
                some[missing[rows]] = values
                whole[rows] = some
        return filled

    def _ladder(self, start: FloatArray, first: FloatArray, missing: BoolArray) -> FloatArray:
        """Return the states of each missing pixel in rising order, between 0 and 1."""
        chain = self._warm(start, missing, hash_rows(np.where(missing, np.nan, first), self.seed))
        states = np.zeros((N_STATES + 2, int(missing.sum())))
        for state in states[1:-1]:
            chain.advance(STATE_EVERY)
            state[:] = chain.rows[missing]
        states[-1] = 1.0
        states[1:-1].sort(axis=0)
        return states

    def calibration(self, first: FloatArray, holes: BoolArray, truth: FloatArray, hidden: BoolArray) -> Calibration:
        """See where among their states the truths of hidden pixels are.

        Parameters
        ----------
        first : ndarray of shape (n_images, n_numbers)
            After a first fill that did not see the hidden pixels.
        holes : ndarray of bool of shape (n_images, n_numbers)
            What is missing or hidden.
        truth : ndarray of shape (n_images, n_numbers)
            The images as they came.
        hidden : ndarray of bool of shape (n_images, n_numbers)
            What was observed, and hidden; at least one number.

        Returns
        -------
        Calibration
            Of all pixels together.
        """
        start = self.start(first, holes)

        def heights(rows: Array) -> FloatArray:
            ladder = self._ladder(start[rows], first[rows], holes[rows])
            return height_of(ladder[:, hidden[rows][holes[rows]]], truth[rows][hidden[rows]])

        parts = share_out(np.arange(len(first)), IMAGES_TOGETHER)
        below = np.concatenate(map_on_threads(heights, parts)) / (N_STATES + 1)
        return Calibration.from_scores(below, 1 - below, np.zeros(len(below), dtype=np.int64), 1)

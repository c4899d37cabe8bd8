"""The distribution of single cells, as H and the blend together state it: quantiles, draws and how right they are."""

from __future__ import annotations

__all__ = ["Predictive"]

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mcflow.flows.marginals import PointMarginals
from mcflow.training.calibration import Calibration
from mcflow.typing import Array, FloatArray

#: Steps of the search for a mean, and how far it goes on either side.
N_STEPS, FARTHEST_TILT = 16, 30.0

#: The least probability of a point, and the least slope, of which a step is made.
LEAST_CHANCE, LEAST_SLOPE = 1e-12, 1e-12


class Predictive(NamedTuple):
    """What is known of some cells.

    Parameters
    ----------
    marginals : PointMarginals
        Of the table's columns.
    columns : ndarray of shape (n_cells,)
        Each cell's column.
    chances : Tensor of shape (n_members, n_cells, n_points)
        Probabilities of the points.

    Examples
    --------
    >>> points = torch.tensor([[0.0, 1.0, 2.0]])
    >>> marginals = PointMarginals(points, torch.tensor([3]), torch.tensor([True]))
    >>> cells = Predictive(marginals, np.array([0]), torch.tensor([[[0.5, 0.3, 0.2]]]))
    >>> there = cells.with_means(np.array([[1.0]]), np.array([True]))
    >>> round(float((there.chances * points).sum()), 4)
    1.0
    """

    marginals: PointMarginals
    columns: Array
    chances: Tensor

    def _own(self) -> PointMarginals:
        return self.marginals.at(torch.from_numpy(self.columns).to(self.marginals.points.device))

    def with_means(self, means: FloatArray, numbers: Array) -> Predictive:
        r"""Return distributions that have given means.

        Parameters
        ----------
        means : ndarray of shape (n_members, n_cells)
            In units; NaN leaves a cell as it is.
        numbers : ndarray of bool of shape (n_cells,)
            Cells that have a mean; levels have none.

        Returns
        -------
        Predictive

        Notes
        -----
        Probabilities are tilted along the ranks of the points, :math:`p'_k \propto p_k e^{\lambda k / n}`, with the
        :math:`\lambda` that gives the mean. Bounds and atoms stay as they are, and a tail that reaches far moves the
        mean by its own small mass, not by moving all others. The search is Newton's, inside a bracket that shrinks.
        """
        own = self._own()
        places = own.means()
        ranks = torch.arange(places.shape[1], device=places.device) / own.n_points[:, None]
        change = numbers & np.isfinite(means)
        target = torch.from_numpy(np.where(change, means, 0.0)).to(self.chances)
        log_p = self.chances.clamp(min=LEAST_CHANCE).log()
        tilt, low, high = torch.zeros_like(target), *torch.full((2, *target.shape), FARTHEST_TILT).to(target)
        low = -low
        for _ in range(N_STEPS):
            now = (log_p + tilt[..., None] * ranks).softmax(-1)
            mean, rank = (now * places).sum(-1), (now * ranks).sum(-1)
            slope = (now * places * ranks).sum(-1) - mean * rank
            low, high = torch.where(mean < target, tilt, low), torch.where(mean > target, tilt, high)
            newton = tilt + (target - mean) / slope.clamp(min=LEAST_SLOPE)
            tilt = torch.where((newton > low) & (newton < high), newton, (low + high) / 2)
        tilted = (log_p + tilt[..., None] * ranks).softmax(-1)
        chosen = torch.from_numpy(change).to(tilted.device)[..., None]
        return self._replace(chances=torch.where(chosen, tilted, self.chances))

    def log_density(self, truth: FloatArray) -> FloatArray:
        """Return the log-density or log-mass of the cells at given units, by the first member."""
        units = torch.from_numpy(truth).to(self.chances)[None]
        found: FloatArray = self._own().log_density(units, self.chances[:1])[0].cpu().numpy().astype(np.float64)
        return found

    def judged(self, means: FloatArray, truth: FloatArray, levels: Collection[int]) -> Calibration:
        """Compare with the truth.

        Parameters
        ----------
        means : ndarray of shape (n_cells,)
            The blend's estimates; cells of numbers without one are left out.
        truth : ndarray of shape (n_cells,)
            In units.
        levels : collection of int
            Columns of levels, whose draws are left as they are.

        Returns
        -------
        Calibration
        """
        of_levels = np.isin(self.columns, list(levels))
        kept = of_levels | ~np.isnan(means)
        cells = self._replace(columns=self.columns[kept], chances=self.chances[:, torch.from_numpy(kept)])
        cells = cells.with_means(means[None, kept], ~of_levels[kept])
        own, units = cells._own(), torch.from_numpy(truth[kept]).to(self.chances)[None]
        ends = []
        for place, sign in ((1.0, 1), (0.0, -1)):
            scores, _ = own.scores(units, cells.chances, torch.full_like(units, place))
            ends.append(torch.special.ndtr(sign * scores)[0].cpu().numpy().astype(np.float64))
        found = Calibration.from_scores(ends[0], ends[1], cells.columns, len(self.marginals.points))
        for k in levels:
            found.scale[k] = 1.0
        return found

    def at(self, scores: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """Return where normal scores of the cells are: the number of the point at or before each, and the units.

        Parameters
        ----------
        scores : Tensor of shape (n_scores, n_cells)
        members : Tensor of shape (n_scores,)
            Whose distributions each row of scores is read by.

        Returns
        -------
        tuple of Tensor of shape (n_scores, n_cells)
        """
        chances = self.chances.expand(len(scores), -1, -1) if len(self.chances) == 1 else self.chances[members]
        return self._own().places_at(scores, chances)

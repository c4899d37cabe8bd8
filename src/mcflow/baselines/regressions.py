"""The two regressions of a chain: a linear one for numbers, a logistic one for levels."""

from __future__ import annotations

__all__ = ["LevelRegression", "NumberRegression"]

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import log_softmax, ndtri, softmax

from mcflow.typing import BoolArray, FloatArray

#: Steps of L-BFGS for a regression of levels, which starts from that of the round before.
MAX_STEPS = 30

#: Share of the loss below which a step of L-BFGS is the last; what is left is far less than the sample's own noise.
TOLERANCE = 3e-5


@dataclass(frozen=True)
class NumberRegression:
    r"""A draw from the posterior of a linear regression.

    Parameters
    ----------
    beta : ndarray of shape (n_places,)
        Coefficients, zero for places that are not used.
    sigma : float
        Deviation of the noise.
    ends : tuple of float
        Smallest and largest cell that is drawn.

    Examples
    --------
    >>> import numpy as np
    >>> regression = NumberRegression(np.array([1.0, 2.0]), 0.5, (-3.0, 3.0))
    >>> expected = regression.expect(np.array([[1.0, 0.25], [1.0, 9.0]]))
    >>> regression.draw(expected, np.array([0.5, 0.5]))
    array([1.5, 3. ])
    """

    beta: FloatArray
    sigma: float
    ends: tuple[float, float]

    @classmethod
    def sample(
        cls, gram: FloatArray, target: int, uses: BoolArray, ridge: float, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        r"""Draw coefficients and noise given the products of all places over the rows that have the target.

        Parameters
        ----------
        gram : ndarray of shape (n_places, n_places)
            :math:`Z^\top Z`; place 0 is one in every row.
        target : int
            The place that is explained.
        uses : ndarray of shape (n_places,)
            The places that explain it.
        ridge : float
            Prior precision of the coefficients, as a share of the rows'; the intercept has none.
        rng : numpy Generator
            Draws.

        Returns
        -------
        beta : ndarray of shape (n_places,)
        sigma : float

        Notes
        -----
        With :math:`A = X^\top X + \lambda n I` and :math:`\hat\beta = A^{-1} X^\top y`,

        .. math::

            \sigma^2 = \frac{\|y - X \hat\beta\|^2}{g},\quad g \sim \chi^2_{n - \mathrm{tr}(A^{-1} X^\top X)},
            \qquad \beta = \hat\beta + \sigma A^{-1/2} w,\quad w \sim N(0, I).
        """
        used = np.flatnonzero(uses)
        products, cross = gram[np.ix_(used, used)], gram[used, target]
        penalty = np.where(used == 0, 0.0, ridge * gram[0, 0])
        lower = np.linalg.cholesky(products + np.diag(penalty + 1e-10 * np.diag(products)))
        inverse = solve_triangular(lower, np.eye(len(used)), lower=True)
        best = inverse.T @ (inverse @ cross)
        residual = max(float(gram[target, target] - 2 * best @ cross + best @ products @ best), 0.0)
        freedom = gram[0, 0] - (len(used) - float(((inverse**2).sum(axis=0) * penalty).sum()))
        sigma = float(np.sqrt(residual / max(rng.chisquare(max(freedom, 1.0)), 1e-12)))
        beta = np.zeros(len(gram))
        beta[used] = best + sigma * (inverse.T @ rng.standard_normal(len(used)))
        return beta, sigma

    def expect(self, places: FloatArray) -> FloatArray:
        """Return the conditional means, of shape (n_rows, 1)."""
        means: FloatArray = places @ self.beta
        return means[:, None]

    def draw(self, expected: FloatArray, uniforms: FloatArray) -> FloatArray:
        """Draw cells given what `expect` returned, by uniform numbers in [0, 1)."""
        drawn = expected[:, 0] + self.sigma * ndtri(uniforms + 2.0**-54)
        inside: FloatArray = np.clip(drawn, *self.ends)
        return inside

    def best(self, expected: FloatArray) -> FloatArray:
        """Return the cells with the smallest squared error."""
        return expected[:, 0]


@dataclass(frozen=True)
class LevelRegression:
    r"""A multinomial logistic regression of the groups of a column's levels, fitted to a bootstrap sample.

    Parameters
    ----------
    weight : ndarray of shape (n_places, n_groups)
        Log-odds, zero for places that are not used.
    group : ndarray of shape (n_levels,)
        The group of each level.
    share : ndarray of shape (n_levels,)
        The level's share of its group.

    Examples
    --------
    >>> import numpy as np
    >>> regression = LevelRegression(np.log([[0.25, 0.75]]), np.array([0, 1, 1]), np.array([1.0, 0.5, 0.5]))
    >>> regression.expect(np.ones((1, 1)))
    array([[0.25 , 0.375, 0.375]])
    """

    weight: FloatArray
    group: npt.NDArray[np.int64]
    share: FloatArray

    @staticmethod
    def fit(places: FloatArray, groups: npt.NDArray[np.int64], uses: BoolArray, start: FloatArray) -> FloatArray:
        r"""Return the weights with the highest penalised likelihood.

        Parameters
        ----------
        places : ndarray of shape (n_rows, n_places)
            The predictors; place 0 is one in every row.
        groups : ndarray of shape (n_rows,)
            What is explained.
        uses : ndarray of shape (n_places,)
            The places that explain it.
        start : ndarray of shape (n_places, n_groups)
            Where L-BFGS starts; from the groups' frequencies when all are zero.

        Returns
        -------
        ndarray of shape (n_places, n_groups)

        Notes
        -----
        Weights have a standard normal prior around the groups' log-frequencies in the intercepts and 0 elsewhere, so
        that groups that are perfectly told apart, or not in the sample, keep finite odds.
        """
        rows = places[:, uses]
        shape = (rows.shape[1], start.shape[1])
        prior = np.zeros(shape)
        counts = np.bincount(groups, minlength=shape[1])
        prior[0] = np.log((counts + 1) / (counts + 1).sum())
        one = np.arange(len(rows)), groups

        def loss(flat: FloatArray) -> tuple[float, FloatArray]:
            weight = flat.reshape(shape)
            logs = log_softmax(rows @ weight, axis=1)
            away = np.exp(logs)
            away[one] -= 1
            apart = weight - prior
            value = -logs[one].sum() + (apart**2).sum() / 2
            return float(value) / len(rows), ((rows.T @ away + apart) / len(rows)).ravel()

        first = start[uses] if start.any() else prior
        options = {"maxiter": MAX_STEPS, "ftol": TOLERANCE}
        found = minimize(loss, first.ravel(), jac=True, method="L-BFGS-B", options=options)
        weight = np.zeros(start.shape)
        weight[uses] = found.x.reshape(shape)
        return weight

    def expect(self, places: FloatArray) -> FloatArray:
        """Return each level's probability, of shape (n_rows, n_levels)."""
        odds: FloatArray = softmax(places @ self.weight, axis=1)[:, self.group]
        return odds * self.share

    def draw(self, expected: FloatArray, uniforms: FloatArray) -> FloatArray:
        """Draw codes given what `expect` returned, by uniform numbers in [0, 1)."""
        steps = expected.cumsum(axis=1)
        drawn = (steps <= uniforms[:, None] * steps[:, -1:]).sum(axis=1)
        codes: FloatArray = np.minimum(drawn, expected.shape[1] - 1).astype(np.float64)
        return codes

    def best(self, expected: FloatArray) -> FloatArray:
        """Return the likeliest codes."""
        codes: FloatArray = expected.argmax(axis=1).astype(np.float64)
        return codes

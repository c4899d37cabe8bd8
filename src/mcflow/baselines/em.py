"""Imputation with a multivariate Gaussian fitted by EM: exact conditional means and exact draws."""

from __future__ import annotations

__all__ = ["GaussianImputer"]

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from mcflow.baselines.base import CodedBaseline, DrawsMixin
from mcflow.columns.gaussian import FIT_LIMITS, GaussianModel
from mcflow.config import Interval
from mcflow.random import row_uniforms, seed_from
from mcflow.typing import Array, FloatArray


@dataclass(kw_only=True, eq=False, repr=False)
class GaussianImputer(DrawsMixin, CodedBaseline):
    """Imputer by conditional means of a multivariate Gaussian fitted by EM.

    The other parameters are those of `Baseline`.

    Parameters
    ----------
    max_steps : int, default=100
        Maximum number of EM steps.
    tolerance : float, default=1e-3
        EM stops when no mean or covariance changes by more, with columns in units of their standard deviations.
    shrinkage : float, optional
        Weight, in rows, of the prior that columns are uncorrelated; by default the squared number of columns divided by
        the number of rows.
    max_rows : int, default=200_000
        Maximum number of rows to fit to; a random sample is taken from larger tables.

    Attributes
    ----------
    model_ : GaussianModel
        Mean and covariance of the encoded columns, with categories one-hot encoded.

    Notes
    -----
    `transform` fills with :math:`E[x_m | x_o]`, and `draw` with joint draws from the distribution of
    :math:`x_m | x_o`. Categories are decoded to the nearest one-hot vector, and draws are clipped to the bounds of the
    column. Mean and covariance are the same for all draws, so the variance of the draws is too small for few rows.

    References
    ----------
    A. P. Dempster, N. M. Laird and D. B. Rubin, "Maximum Likelihood from Incomplete Data via the EM Algorithm", JRSS B,
    1977.

    Examples
    --------
    >>> from mcflow.baselines import make
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(500, 1)) * [1.0, 2.0] + 0.1 * rng.normal(size=(500, 2))
    >>> imputer = make("em", random_state=0).fit(rows)
    >>> imputer.transform(np.array([[1.0, np.nan]])).round(1)
    array([[1., 2.]])
    """

    constraints: ClassVar = FIT_LIMITS | {"max_rows": Interval(int, 1)}
    max_steps: int = 100
    tolerance: float = 1e-3
    shrinkage: float | None = None
    max_rows: int = 200_000

    def _fit_rows(self, rows: FloatArray, owner: Array) -> None:
        settings = {name: getattr(self, name) for name in self.constraints}
        self.model_ = GaussianModel.fit(rows, **settings, seed=seed_from(self.random_state))

    def _fill_rows(self, rows: FloatArray) -> FloatArray:
        return self.model_.conditional(rows)

    def _draw_values(self, values: FloatArray, number: int, seed: int) -> FloatArray:
        def draw(rows: FloatArray) -> FloatArray:
            # Zero is replaced by half the smallest positive uniform number, because its quantile is infinite.
            return self.model_.draw(rows, ndtri(np.maximum(row_uniforms(rows, seed), 2.0**-54)))

        return self._filled_by(draw, values)

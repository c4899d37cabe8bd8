"""The multivariate normal as a baseline: exact conditional means and exact draws."""

from __future__ import annotations

__all__ = ["NormalImputer"]

from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri

from mcflow.baselines.base import CodedBaseline
from mcflow.config import Interval
from mcflow.imputers.draws import DrawsMixin
from mcflow.masks.normal import NormalModel
from mcflow.random import row_uniforms, seed_from
from mcflow.typing import Array, FloatArray

#: Half the smallest uniform number above 0; the normal of 0 itself would be infinite.
SMALLEST_UNIFORM = 2.0**-54


class NormalImputer(DrawsMixin, CodedBaseline):
    """Fill holes with their conditional mean under a multivariate normal that EM learned.

    Parameters
    ----------
    max_steps : int, default=100
        Steps of EM, at most.
    tolerance : float, default=1e-3
        EM ends when no mean and no covariance moves by more than this, columns in units of their standard deviation.
    shrinkage : float, optional
        How many rows the belief that columns are unrelated counts for; the square of the number of columns over the
        number of rows when not given.
    max_rows : int, default=200_000
        Learn from a random sample of this many rows when there are more.
    **table : object
        As for every baseline: `kinds`, `roles`, `bounds`, `random_state` and the others.

    Attributes
    ----------
    model_ : NormalModel
        Mean and covariance of the scaled columns, levels being zeros and ones.

    Notes
    -----
    `transform` fills with :math:`E[x_m | x_o]`, and `draw` with joint draws from the normal of :math:`x_m | x_o`. A
    level is the one whose word of zeros and ones is nearest. Draws end at the bounds of a column. Mean and
    covariance are the same for all draws, whose spread is therefore too small when there are few rows.

    References
    ----------
    A. P. Dempster, N. M. Laird and D. B. Rubin, "Maximum Likelihood from Incomplete Data via the EM Algorithm", JRSS B,
    1977.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.baselines import make
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(500, 1)) * [1.0, 2.0] + 0.1 * rng.normal(size=(500, 2))
    >>> imputer = make("em", random_state=0).fit(rows)
    >>> imputer.transform(np.array([[1.0, np.nan]])).round(1)
    array([[1., 2.]])
    """

    constraints: ClassVar = {
        "max_steps": Interval(int, 1),
        "tolerance": Interval(float, 0),
        "shrinkage": Interval(float, 0, optional=True),
        "max_rows": Interval(int, 1),
    }
    model_: NormalModel

    def __init__(
        self,
        *,
        max_steps: int = 100,
        tolerance: float = 1e-3,
        shrinkage: float | None = None,
        max_rows: int = 200_000,
        **table: Any,
    ) -> None:
        super().__init__(**table)
        self.max_steps = max_steps
        self.tolerance = tolerance
        self.shrinkage = shrinkage
        self.max_rows = max_rows

    def _fit_rows(self, rows: FloatArray, owner: Array) -> None:
        self.model_ = NormalModel.fit(
            rows,
            max_steps=self.max_steps,
            tolerance=self.tolerance,
            shrinkage=self.shrinkage,
            max_rows=self.max_rows,
            seed=seed_from(self.random_state),
        )

    def _fill_rows(self, rows: FloatArray) -> FloatArray:
        return self.model_.conditional(rows)

    def _draw_values(self, values: FloatArray, number: int, seed: int) -> FloatArray:
        rows = self.codec_.encode(values)
        normals = ndtri(np.maximum(row_uniforms(rows, seed), SMALLEST_UNIFORM))
        return self._decoded(values, np.clip(self.model_.draw(rows, normals), *self.box_))

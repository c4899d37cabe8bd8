"""From a table's units to the network's and back."""

from __future__ import annotations

__all__ = ["RangeCodec"]

from dataclasses import dataclass

import numpy as np

from mcflow.errors import DataError
from mcflow.typing import FloatArray


@dataclass(frozen=True)
class RangeCodec:
    """Scale each column to [0, 1] by the minimum and maximum of its observed values.

    Parameters
    ----------
    low : ndarray of shape (n_columns,)
        Observed minima.
    span : ndarray of shape (n_columns,)
        Observed maxima less minima; one where they are equal.

    Examples
    --------
    >>> import numpy as np
    >>> codec = RangeCodec.from_values(np.array([[2.0], [np.nan], [6.0]]))
    >>> codec.encode(np.array([[3.0]]))
    array([[0.25]])
    """

    low: FloatArray
    span: FloatArray

    @classmethod
    def from_values(cls, values: FloatArray) -> RangeCodec:
        """Read minima and maxima off a table in which every column has an observed value.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            NaN where missing.

        Returns
        -------
        RangeCodec

        Raises
        ------
        DataError
            When a column spans more than a float64 can hold.
        """
        low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        with np.errstate(over="ignore"):
            span = high - low
        if not np.isfinite(span).all():
            worst = int(np.flatnonzero(~np.isfinite(span))[0])
            raise DataError(
                f"Numeric column {worst} runs from {low[worst]:g} to {high[worst]:g}, a range that no float64 can "
                "hold. Divide the column by a constant first."
            )
        return cls(low, np.where(span > 0, span, 1.0))

    def encode(self, values: FloatArray) -> FloatArray:
        """Scale values; NaN stays NaN."""
        return (values - self.low) / self.span

    def decode(self, scaled: FloatArray) -> FloatArray:
        """Undo `encode`."""
        return scaled * self.span + self.low

    def log_volume(self) -> float:
        """Return the logarithm of the volume of one unit of scaled space, in the table's units."""
        return float(np.log(self.span).sum())

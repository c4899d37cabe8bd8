"""Measures of imputation quality for point fills, draws and intervals.

Tables are arrays of numbers, with categories as codes. `mask` is a boolean array of the table's shape that is True in
the cells to score; other cells may be NaN. Every table measure returns a `Score`, whose error treats rows as
independent and allows for dependence between the cells of a row. `span` is the range (maximum minus minimum) of each
column in the complete data; it is the unit of the errors, and 1 keeps the units of the columns.
"""

from __future__ import annotations

from mcflow.metrics.distribution import (
    correlation_error,
    coverage,
    crps,
    energy_by_column,
    energy_distance,
    energy_i_score,
    width,
)
from mcflow.metrics.pointwise import Score, by_column, category_error, mae, rmse, standardised_rmse

__all__ = [
    "Score",
    "by_column",
    "category_error",
    "correlation_error",
    "coverage",
    "crps",
    "energy_by_column",
    "energy_distance",
    "energy_i_score",
    "mae",
    "rmse",
    "standardised_rmse",
    "width",
]

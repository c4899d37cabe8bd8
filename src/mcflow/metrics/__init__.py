"""How good a fill is: cell by cell, as a distribution, for the model that is fitted next, and of images."""

from __future__ import annotations

from mcflow.metrics.distribution import (
    correlation_error,
    coverage,
    coverage_by_column,
    crps,
    crps_by_column,
    energy_distance,
    pinball,
    sliced_wasserstein,
    width,
)
from mcflow.metrics.downstream import DownstreamScores, downstream_score
from mcflow.metrics.images import frechet_distance, image_rmse, psnr
from mcflow.metrics.pointwise import (
    Score,
    by_column,
    category_error,
    category_error_by_column,
    mae,
    rmse,
    rmse_by_column,
    standardised_rmse,
)

__all__ = [
    "DownstreamScores",
    "Score",
    "by_column",
    "category_error",
    "category_error_by_column",
    "correlation_error",
    "coverage",
    "coverage_by_column",
    "crps",
    "crps_by_column",
    "downstream_score",
    "energy_distance",
    "frechet_distance",
    "image_rmse",
    "mae",
    "pinball",
    "psnr",
    "rmse",
    "rmse_by_column",
    "sliced_wasserstein",
    "standardised_rmse",
    "width",
]

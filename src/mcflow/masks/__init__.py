"""What is missing, how it came to be, and what stands there first."""

from __future__ import annotations

from mcflow.masks.hiding import hide
from mcflow.masks.initial import Marginals
from mcflow.masks.mechanisms import mar, mcar, mnar_logistic, mnar_quantile, mnar_self, probabilities
from mcflow.masks.nearest import fill_nearest
from mcflow.masks.patches import hide_blocks, hide_halves, hide_pixels, mask_images

__all__ = [
    "Marginals",
    "fill_nearest",
    "hide",
    "hide_blocks",
    "hide_halves",
    "hide_pixels",
    "mar",
    "mask_images",
    "mcar",
    "mnar_logistic",
    "mnar_quantile",
    "mnar_self",
    "probabilities",
]

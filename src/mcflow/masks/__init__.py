"""What is missing, how it came to be, and what stands there first."""

from __future__ import annotations

from mcflow.masks.hiding import hide
from mcflow.masks.initial import Marginals
from mcflow.masks.mechanisms import mar, mcar, mnar_logistic, mnar_quantile, mnar_self, probabilities

__all__ = ["Marginals", "hide", "mar", "mcar", "mnar_logistic", "mnar_quantile", "mnar_self", "probabilities"]

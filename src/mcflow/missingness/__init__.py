"""Missing-data mechanisms (MCAR, MAR, MNAR) and hiding of cells in any kind of table."""

from __future__ import annotations

from mcflow.missingness.hiding import hide
from mcflow.missingness.mechanisms import mar, mcar, mnar_logistic, mnar_quantile, mnar_self, probabilities

__all__ = ["hide", "mar", "mcar", "mnar_logistic", "mnar_quantile", "mnar_self", "probabilities"]

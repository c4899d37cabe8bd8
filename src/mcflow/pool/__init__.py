"""From many completed tables to one answer: Rubin's rules, pooled fits and pooled predictions."""

from __future__ import annotations

from mcflow.pool.fits import PooledFit, fit_pooled
from mcflow.pool.predictions import pool_predictions
from mcflow.pool.rules import PooledResult, WaldTest, pool

__all__ = ["PooledFit", "PooledResult", "WaldTest", "fit_pooled", "pool", "pool_predictions"]

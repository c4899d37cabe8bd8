"""Multiple imputation analysis: Rubin's rules, pooled fits and pooled predictions."""

from mcflow.pool.fits import PooledFit, fit_pooled, pool_predictions
from mcflow.pool.rules import PooledResult, WaldTest, pool

__all__ = ["PooledFit", "PooledResult", "WaldTest", "fit_pooled", "pool", "pool_predictions"]

"""mcflow: missing-data imputation with neural networks, boosted trees and Monte Carlo flow models."""

from __future__ import annotations

__all__ = ["MCFlowImageImputer", "MCFlowImputer", "__version__", "evaluate", "fit_pooled", "load"]

from typing import TYPE_CHECKING

from mcflow.lazy import lazily

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mcflow.evaluation import evaluate
    from mcflow.imputers import MCFlowImageImputer, MCFlowImputer, load
    from mcflow.pool import fit_pooled

__getattr__, __dir__ = lazily(
    __name__,
    __all__,
    {"evaluation": "evaluate", "imputers": "MCFlowImageImputer MCFlowImputer load", "pool": "fit_pooled"},
)

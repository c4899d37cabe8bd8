"""mcflow: missing-data imputation with Monte Carlo flow models."""

from __future__ import annotations

__all__ = ["MCFlowImageImputer", "MCFlowImputer", "__version__", "evaluate", "fit_pooled", "load"]

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Where each name is.
_PLACES = {
    "MCFlowImageImputer": "mcflow.imputers",
    "MCFlowImputer": "mcflow.imputers",
    "evaluate": "mcflow.evaluation",
    "load": "mcflow.imputers",
    "fit_pooled": "mcflow.pool",
}

if TYPE_CHECKING:
    from mcflow.evaluation import evaluate
    from mcflow.imputers import MCFlowImageImputer, MCFlowImputer, load
    from mcflow.pool import fit_pooled


def __getattr__(name: str) -> Any:
    """Import the heavy parts when they are first asked for, so that `mcflow --help` stays quick."""
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'mcflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)

"""mcflow: missing-data imputation with Monte Carlo flow models."""

from __future__ import annotations

__all__ = ["MCFlowImputer", "__version__", "load"]

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mcflow.imputers import MCFlowImputer, load


def __getattr__(name: str) -> Any:
    """Import the heavy parts when they are first asked for, so that `mcflow --help` stays quick."""
    if name in {"MCFlowImputer", "load"}:
        import mcflow.imputers

        return getattr(mcflow.imputers, name)
    raise AttributeError(f"module 'mcflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)

"""Imputers of tables and images with the scikit-learn interface."""

__all__ = ["ImageImputer", "MCFlowImageImputer", "MCFlowImputer", "TableImputer", "load"]

from typing import TYPE_CHECKING

from mcflow.lazy import lazily

if TYPE_CHECKING:
    from mcflow.imputers.base import TableImputer
    from mcflow.imputers.image import ImageImputer, MCFlowImageImputer
    from mcflow.imputers.persistence import load
    from mcflow.imputers.table import MCFlowImputer

__getattr__, __dir__ = lazily(
    __name__,
    __all__,
    {
        "base": "TableImputer",
        "image": "ImageImputer MCFlowImageImputer",
        "persistence": "load",
        "table": "MCFlowImputer",
    },
)

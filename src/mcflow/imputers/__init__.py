"""The imputers: what users fit and call."""

from __future__ import annotations

__all__ = ["ImageImputer", "MCFlowImageImputer", "MCFlowImputer", "TableImputer", "load"]

from typing import TYPE_CHECKING

from mcflow.lazy import lazily

if TYPE_CHECKING:
    from mcflow.imputers.base import TableImputer
    from mcflow.imputers.image import MCFlowImageImputer
    from mcflow.imputers.image_base import ImageImputer
    from mcflow.imputers.persistence import load
    from mcflow.imputers.table import MCFlowImputer

__getattr__ = lazily(
    __name__,
    {
        "ImageImputer": "mcflow.imputers.image_base",
        "MCFlowImageImputer": "mcflow.imputers.image",
        "MCFlowImputer": "mcflow.imputers.table",
        "TableImputer": "mcflow.imputers.base",
        "load": "mcflow.imputers.persistence",
    },
)


def __dir__() -> list[str]:
    return list(__all__)

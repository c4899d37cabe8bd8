"""The imputers: what users fit and call."""

from __future__ import annotations

from mcflow.imputers.base import TableImputer
from mcflow.imputers.image import MCFlowImageImputer
from mcflow.imputers.image_base import ImageImputer
from mcflow.imputers.persistence import load
from mcflow.imputers.table import MCFlowImputer

__all__ = ["ImageImputer", "MCFlowImageImputer", "MCFlowImputer", "TableImputer", "load"]

"""Baseline imputers by name, with the same interface as `MCFlowImputer`."""

__all__ = ["NAMES", "Baseline", "make"]

from mcflow.baselines.base import Baseline
from mcflow.baselines.registry import NAMES, make

"""The methods to compare with, each an imputer under one contract, by name."""

__all__ = ["NAMES", "Baseline", "make"]

from mcflow.baselines.base import Baseline
from mcflow.baselines.registry import NAMES, make

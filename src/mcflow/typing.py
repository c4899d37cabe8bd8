"""Names for the types that cross more than one layer."""

from __future__ import annotations

__all__ = ["Array", "BoolArray", "Device", "FloatArray", "Header", "RandomState"]

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]
Device: TypeAlias = str
Header: TypeAlias = dict[str, Any]
RandomState: TypeAlias = "int | np.integer[Any] | np.random.Generator | np.random.RandomState | None"

"""Type aliases shared by several packages."""

from __future__ import annotations

__all__ = ["Array", "BoolArray", "FloatArray", "Header", "RandomState", "TableT"]

from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]
Header: TypeAlias = dict[str, Any]
RandomState: TypeAlias = "int | np.integer[Any] | np.random.Generator | np.random.RandomState | None"

#: A numpy array or a pandas, polars or pyarrow table; results have the type of the argument.
TableT = TypeVar("TableT")

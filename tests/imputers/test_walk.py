"""A fit of the default preset can be read: it enters few files."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import mcflow
from mcflow import MCFlowImputer

#: Maximum number of source files in which `fit_transform` enters a function.
MAX_FILES = 24


def test_fit_transform_of_a_numeric_array_enters_few_files() -> None:
    rows = np.random.default_rng(0).normal(size=(300, 4))
    rows[::3, 1] = rows[1::4, 2] = np.nan
    imputer = MCFlowImputer(max_epochs=2, random_state=0)
    imputer.fit_transform(rows)  # imports happen here, as they are not part of the walk
    root, entered = str(Path(mcflow.__file__).parent), set()

    def trace(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and code.co_name != "<module>":
            entered.add(code.co_filename[len(root) + 1 :])

    before = sys.getprofile()
    sys.setprofile(trace)
    try:
        imputer.fit_transform(rows)
    finally:
        sys.setprofile(before)
    assert len(entered) <= MAX_FILES, f"{len(entered)} files: {', '.join(sorted(entered))}"

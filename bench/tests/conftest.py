"""Fixtures that more than one test of the benchmarks needs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def table() -> np.ndarray:
    """300 rows of 4 related columns, a fifth of the cells missing."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 4))
    values[:, 1] += 2 * values[:, 0]
    values[:, 2] = np.exp(values[:, 2])
    values[rng.random(values.shape) < 0.2] = np.nan
    return values


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Path:
    """A folder with small.csv, 80 rows of 3 columns."""
    folder = tmp_path_factory.mktemp("small")
    values = np.random.default_rng(3).normal(size=(80, 3))
    lines = [",".join(map(repr, map(float, row))) for row in values]
    (folder / "small.csv").write_text("a,b,c\n" + "\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with the real data sets."""
    folder = os.environ.get("MCFLOW_DATA")
    if not folder:
        pytest.skip("MCFLOW_DATA does not name a folder with the real data sets")
    return Path(folder)

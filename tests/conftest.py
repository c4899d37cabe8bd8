"""What more than one test needs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from mcflow import MCFlowImputer
from mcflow.masked.config import MaskedConfig

#: What `quick` fits for each preset: the default one with small networks and without its slower candidates.
QUICK_PRESETS = {
    "default": MaskedConfig(width=16, n_members=2, n_knots=8, n_points=12, factored=False),
    "paper": "paper",
}

# A busy machine must not fail a test, and continuous integration tries the same examples every time.
# `make test-slow` runs the same properties with the examples of the profile "thorough".
settings.register_profile("mcflow", deadline=None, derandomize=bool(os.environ.get("CI")), max_examples=25)
settings.register_profile("thorough", deadline=None, max_examples=200)
settings.load_profile("mcflow")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow_for_paper") and item.callspec.params["preset"] == "paper":  # type: ignore[attr-defined]
            item.add_marker("slow")


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def table() -> np.ndarray:
    """300 rows of 4 related columns, a fifth of the cells missing."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 4))
    values[:, 1] += 2 * values[:, 0]
    values[:, 2] = np.exp(values[:, 2])
    values[rng.random(values.shape) < 0.2] = np.nan
    return values


@pytest.fixture(scope="session", params=["default", "paper"])
def preset(request: pytest.FixtureRequest) -> str:
    """Every preset in turn: a test that asks for it is part of the contract of all of them."""
    return str(request.param)


@pytest.fixture(scope="session")
def quick(preset: str) -> Callable[..., MCFlowImputer]:
    """Make an imputer that takes little time to fit: the one place that says how small the fits of most tests are."""
    return partial(MCFlowImputer, preset=QUICK_PRESETS[preset], max_epochs=2, calibrate=False, random_state=0)


@pytest.fixture(scope="session")
def fitted(table: np.ndarray, preset: str) -> MCFlowImputer:
    """An imputer of `table`; tests must not change it."""
    return MCFlowImputer(preset=preset, max_epochs=9, random_state=0).fit(table)


@pytest.fixture(scope="session")
def fitted_paper(table: np.ndarray) -> MCFlowImputer:
    """An imputer of `table` by the paper's method, for what only that one has; tests must not change it."""
    return MCFlowImputer(preset="paper", max_epochs=9, random_state=0).fit(table)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium; of a module, as its event loop would be in the way of other tests."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((found for name in names if (found := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    folder = os.environ.get("MCFLOW_DATA")
    if not folder:
        pytest.skip("MCFLOW_DATA does not name a folder with the real data sets")
    return Path(folder)

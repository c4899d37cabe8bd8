"""Fixtures of the tests of plots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def labelled() -> Callable[[Any, str], list[Any]]:
    """Return the artists of some axes that have a label."""
    return lambda axes, label: [artist for artist in axes.get_children() if artist.get_label() == label]

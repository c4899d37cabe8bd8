"""What tests of more than one engine need."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """A small Ray cluster of this test process; starting one takes several seconds."""
    # No statistics, workers that do not wait for all others on a busy machine, and no log of the core on the terminal.
    wanted = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
    with warnings.catch_warnings(), mock.patch.dict(os.environ, wanted):
        warnings.simplefilter("ignore")
        ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'mcflow[ray]'")
        pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'mcflow[ray]'")
        ray.init(
            address="local",
            num_cpus=2,
            object_store_memory=200 * 2**20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
    yield ray
    ray.shutdown()

"""Levels of a real table are filled better than by the commonest level."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import adult


@pytest.mark.slow
def test_levels_of_adult_are_filled_better_than_by_the_commonest(data_folder) -> None:
    frame = pd.read_parquet(data_folder / "adult.parquet").drop(columns="split")
    columns = adult.measure(frame, epochs=16)["columns"]
    ratios = [found["error"] / found["commonest_level_error"] for found in columns.values()]
    assert len(ratios) == 9
    assert max(ratios) <= 1
    assert np.mean(ratios) <= 0.8

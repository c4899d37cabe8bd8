"""Categories of a real table are filled better than by the most frequent category."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import adult


@pytest.mark.slow
def test_categories_of_adult_are_filled_better_than_by_the_most_frequent(data_folder) -> None:
    frame = pd.read_parquet(data_folder / "adult.parquet").drop(columns="split")
    columns = adult.measure_frame(frame, epochs=16)["columns"]
    ratios = [found["error"] / found["commonest_level_error"] for found in columns.values()]
    assert len(ratios) == 9
    assert max(ratios) <= 1
    assert np.mean(ratios) <= 0.8

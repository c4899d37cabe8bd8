"""Categories of a real table are filled better than by the most frequent category."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mcflow import MCFlowImputer


@pytest.mark.slow
def test_categories_of_adult_are_filled_better_by_the_paper_s_preset_than_by_the_most_frequent(data_folder) -> None:
    frame = pd.read_parquet(data_folder / "adult.parquet").drop(columns="split")
    rng = np.random.default_rng(0)
    frame = frame.iloc[rng.permutation(len(frame))].reset_index(drop=True)
    hidden = rng.random(frame.shape) < 0.2
    incomplete, n_test = frame.mask(hidden), len(frame) // 5
    # The 99999 of capital_gain is a cap, which is kept as a value.
    imputer = MCFlowImputer(preset="paper", max_epochs=16, missing_values={"capital_gain": []}, random_state=0)
    filled = imputer.fit(incomplete[n_test:]).transform(incomplete[:n_test])
    ratios = []
    for k, name in enumerate(frame.columns):
        if frame[name].dtype.kind not in "iuf":
            known = hidden[:n_test, k] & frame[name][:n_test].notna().to_numpy()
            truth, most_frequent = frame[name][:n_test][known], incomplete[name][n_test:].mode()[0]
            ratios.append((filled[name][known] != truth).mean() / (truth != most_frequent).mean())
    assert len(ratios) == 9
    assert max(ratios) <= 1
    assert np.mean(ratios) <= 0.8

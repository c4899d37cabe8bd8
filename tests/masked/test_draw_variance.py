"""Draws of real tables vary as much as a Bayesian bootstrap of the data would make them vary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mcflow import MCFlowImputer

N_DRAWS = 50
MIN_EXPECTED = 5  # drawn cells of a category below which its count is too small to compare


def indicators(frame: pd.DataFrame, tables: list[pd.DataFrame], name: str, missing: np.ndarray) -> Iterator[np.ndarray]:
    """Yield drawn cells (n_draws, n_cells): numbers, or 1 for one category and 0 for others."""
    drawn = np.stack([table[name].to_numpy()[missing] for table in tables])
    if not isinstance(frame[name].dtype, pd.CategoricalDtype):
        yield drawn.astype(float)
        return
    for category in frame[name].cat.categories:
        cells = (drawn == category).astype(float)
        if cells.sum() / len(tables) >= MIN_EXPECTED:
            yield cells


@pytest.mark.filterwarnings("ignore:Column .* holds 0 in:mcflow.errors.McflowWarning")
@pytest.mark.parametrize("name", ["PimaIndiansDiabetes", pytest.param("german", marks=pytest.mark.slow)])
def test_totals_of_draws_vary_as_much_as_those_of_a_bootstrap(data_folder: Path, name: str) -> None:
    """Let o cells of a column be observed and m missing.

    If draws were independent given the data, the variance of their total would be the sum of the variances of the
    cells. The mean of a bootstrap sample of o cells varies by 1 / o of the variance of a cell and shifts all m cells
    alike, so the variance of the total is (1 + m / o) times that sum.
    """
    path = data_folder / "energy" / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"MCFLOW_DATA has no energy/{name}.parquet")
    frame = pd.read_parquet(path)
    missing = np.random.default_rng(1000).random(frame.shape) < 0.2
    incomplete = frame.astype(dict.fromkeys(frame.select_dtypes("number"), "float64")).mask(missing)
    imputer = MCFlowImputer(random_state=0, restore_integers=False).fit(incomplete)
    tables = list(imputer.draw(incomplete, m=N_DRAWS, random_state=0))
    ratios = []
    for column, here in zip(frame.columns, missing.T, strict=True):
        for cells in indicators(frame, tables, column, here):
            expected = cells.var(axis=0, ddof=1).sum() * (1 + here.sum() / (~here).sum())
            ratios.append(cells.sum(axis=1).var(ddof=1) / expected)
    assert len(ratios) >= len(frame.columns)
    assert 0.9 <= np.mean(ratios) <= 1.3

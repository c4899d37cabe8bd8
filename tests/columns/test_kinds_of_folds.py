"""Kinds do not change from fold to fold by chance."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold

from mcflow.columns.frames import read_frame
from mcflow.columns.inspection import inspect_columns

RNG = np.random.default_rng(0)
N = 500

#: Columns near a limit, and the kind that the table and all of its folds have.
COLUMNS = {
    "half of the texts differ": (RNG.integers(0, int(0.63 * N), N).astype(str), "text"),
    "half of the cells are one text": (np.where(np.arange(N) % 2, "a", np.arange(N).astype(str)), "category"),
    "rows in order": (np.arange(N), "identifier"),
    "rows in another order": (RNG.permutation(N), "identifier"),
    "numbers with gaps": (np.sort(RNG.choice(4 * N, N, replace=False)), "identifier"),
    "account id": (RNG.choice(10**9, N, replace=False), "identifier"),
    "income": (RNG.choice(10**6, N, replace=False), "integer"),
    "age": (RNG.integers(18, 99, N), "integer"),
}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_kind_near_a_limit_is_the_same_in_all_folds(name, shuffle) -> None:
    cells, kind = COLUMNS[name]
    table = pd.DataFrame({name: cells, "x": 0.5})
    folds = KFold(5, shuffle=shuffle, random_state=0 if shuffle else None).split(table)
    tables = [table, *(table.iloc[rows] for rows, _ in folds)]
    assert {inspect_columns(read_frame(one))[0]["kind"] for one in tables} == {kind}


def test_warning_of_an_unused_column_has_the_same_text_in_all_folds() -> None:
    from mcflow.baselines import make

    table = pd.DataFrame({"note": [f"text {k % 400}" for k in range(N)], "x": RNG.normal(size=N)})
    texts = set()
    for rows, _ in KFold(5).split(table):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make("mean").fit(table.iloc[rows])
        texts |= {str(one.message) for one in caught}
    assert len(texts) <= 2, "an identifier or a text, each in one wording"


def test_distinct_numbers_without_a_telling_name_are_shown() -> None:
    facts = inspect_columns(read_frame(pd.DataFrame({"acct_x": COLUMNS["income"][0], "income": COLUMNS["income"][0]})))
    assert [one["kind"] for one in facts] == ["identifier", "integer"]
    assert "all different" in facts[1]["why"]

"""Filling some of the missing cells, and choosing the predictors of a column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from mcflow import MCFlowImputer
from mcflow.baselines import make
from mcflow.errors import ParameterError


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=120)
    frame = pd.DataFrame({"x": x, "n": (3 * x).round(), "word": np.where(x > 0, "up", "down"), "same": 1.0})
    frame["none"] = np.nan
    hidden = rng.random(frame.shape) < 0.25
    return frame.mask(hidden)


METHODS = {
    "default": lambda: MCFlowImputer(max_epochs=1, random_state=0, keep_empty_features=True),
    "mice": lambda: make("mice", n_chains=2, n_rounds=2, random_state=0, keep_empty_features=True),
}
CONTAINERS = {"pandas": lambda frame: frame, "polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}


@pytest.mark.filterwarnings("ignore:.*equal to another one")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("container", CONTAINERS)
def test_only_cells_of_where_are_filled(method: str, container: str) -> None:
    frame = table()
    given: Any = CONTAINERS[container](frame)
    imputer = METHODS[method]().fit(given)
    where = pd.DataFrame(np.random.default_rng(1).random(frame.shape) < 0.5, columns=frame.columns)
    plain = pd.DataFrame(imputer.transform(given).to_pandas() if container != "pandas" else imputer.transform(given))
    tables = [imputer.transform(given, where=where), *imputer.draw(given, m=2, random_state=0, where=where)]
    for filled in tables:
        found = filled if container == "pandas" else filled.to_pandas()
        assert (found.isna() == (frame.isna() & ~where)).all(axis=None)
        kept = frame.notna()
        assert found.where(kept).equals(frame.where(kept)) or container != "pandas"
    first = tables[0] if container == "pandas" else tables[0].to_pandas()
    pd.testing.assert_frame_equal(first.where(first.notna()), plain.where(first.notna()), check_dtype=False)


@pytest.mark.parametrize("method", METHODS)
def test_columns_that_a_frame_of_where_lacks_are_not_filled(method: str) -> None:
    frame = table()
    filled = METHODS[method]().fit(frame).transform(frame, where=frame[["word", "x"]].isna())
    assert filled[["word", "x"]].notna().all(axis=None)
    assert filled[["n", "same", "none"]].equals(frame[["n", "same", "none"]])


def test_array_is_filled_where_asked() -> None:
    rows = table()[["x", "n", "none"]].to_numpy()
    where = np.isnan(rows) & (np.arange(len(rows)) % 2 == 0)[:, None]
    filled = (
        MCFlowImputer(max_epochs=1, random_state=0, keep_empty_features=True).fit(rows).transform(rows, where=where)
    )
    assert (np.isnan(filled) == (np.isnan(rows) & ~where)).all()


def test_column_without_observed_cells_is_partly_filled() -> None:
    frame = table()
    imputer = MCFlowImputer(max_epochs=1, random_state=0).fit(frame.drop(columns="none"))
    new = pl.from_pandas(frame.drop(columns="none")).with_columns(word=None)
    where = np.zeros(new.shape, dtype=bool)
    where[:3, 2] = True
    assert imputer.transform(new, where=where)["word"].is_null().sum() == len(frame) - 3


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (np.ones((3, 3), dtype=bool), "shape"),
        (np.ones((120, 5)), "float64"),
        (pd.DataFrame({"y": [True] * 120}), "'y'"),
        (pd.DataFrame({"x": [True] * 3}), "120 booleans"),
        (pd.DataFrame({"x": [1] * 120}), "int64"),
    ],
)
def test_wrong_where_is_refused(where: Any, words: str) -> None:
    frame = table()
    imputer = make("mean", keep_empty_features=True).fit(frame)
    with pytest.raises(ParameterError, match=words):
        imputer.transform(frame, where=where)


def test_column_is_filled_from_its_predictors_only() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 500))
    frame = pd.DataFrame({"a": a, "b": b, "y": a + b})
    hidden = np.arange(500) % 5 == 0
    truth, frame.loc[hidden, "y"] = frame["y"][hidden], np.nan
    errors = {}
    for name, predictors in {"both": None, "a": {"y": ["a"]}, "none": {"y": []}}.items():
        imputer = make("mice", predictors=predictors, random_state=0).fit(frame)
        filled = imputer.transform(frame)["y"][hidden]
        errors[name] = float(((filled - truth) ** 2).mean())
        if name == "a":  # another column may hold anything
            other = imputer.transform(frame.assign(b=frame["b"].sample(frac=1, random_state=0).to_numpy()))
            np.testing.assert_allclose(other["y"][hidden], filled)
    assert errors["both"] < 0.01
    assert 0.7 < errors["a"] < 1.3
    assert 1.5 < errors["none"] < 2.6


@pytest.mark.parametrize(
    ("predictors", "words"),
    [({"y": ["a"]}, "'y'"), ({"x": ["word", "m"]}, "'m'"), ({"x": "word"}, "has to be a list")],
)
def test_wrong_predictors_are_refused(predictors: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        make("mice", predictors=predictors, keep_empty_features=True).fit(table())

"""The summary of a fit, as a data frame and in notebooks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from mcflow import MCFlowImputer
from mcflow.baselines import make
from mcflow.files.datasets import nhanes_path


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return pd.read_parquet(nhanes_path())[["age", "gender", "bmi", "waist_cm"]].head(400)


@pytest.fixture(scope="module")
def imputer(frame) -> MCFlowImputer:
    return MCFlowImputer(max_epochs=2, random_state=0).fit(frame)


def test_summary_has_a_row_for_each_column_with_its_missing_share(imputer, frame) -> None:
    found = imputer.summary()
    assert list(found.index) == list(frame.columns)
    assert list(found.columns) == ["kind", "role", "missing", "error"]
    assert dict(found["kind"]) == {
        "age": "integer",
        "gender": "category",
        "bmi": "continuous",
        "waist_cm": "continuous",
    }
    np.testing.assert_allclose(found["missing"], frame.isna().mean())


def test_summary_shows_errors_of_the_columns_of_the_model(imputer) -> None:
    before = imputer.history_.column_errors
    imputer.history_.column_errors = [(0, 20, 0.25), (3, 20, 0.5)]
    assert imputer.summary()["error"].dropna().to_dict() == {"age": 0.25, "waist_cm": 0.5}
    imputer.history_.column_errors = before


def test_notebook_shows_the_diagram_and_after_the_fit_the_summary(imputer) -> None:
    unfitted = MCFlowImputer()._repr_mimebundle_()["text/html"]
    assert "sk-container" in unfitted
    assert "waist_cm" not in unfitted
    html = imputer._repr_mimebundle_()["text/html"]
    assert "sk-container" in html
    assert "<th>waist_cm</th>" in html
    assert html.count("%</td>") == 4
    assert "waist_cm" in imputer._repr_html_()


def test_names_of_columns_are_escaped(frame) -> None:
    odd = make("mean").fit(frame.rename(columns={"bmi": "<script>"}))
    assert "<th><script>" not in odd._repr_html_()
    assert "<th>&lt;script&gt;</th>" in odd._repr_html_()


def test_summary_of_an_unfitted_imputer_is_refused() -> None:
    with pytest.raises(NotFittedError):
        MCFlowImputer().summary()

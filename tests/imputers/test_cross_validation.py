"""Cross-validation and grid search of pipelines on real tables give no NaN score."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from mcflow import MCFlowImputer
from mcflow.columns.frames import read_frame
from mcflow.columns.planning import ColumnSettings, plan_table
from mcflow.columns.schema_file import read_schema, schema_text

#: Name of the file and of the target, and columns that are left out.
TABLES = {
    "adult": ("income", ["split"]),
    "titanic": ("survived", []),
    "nhanes_2017_2018": ("diabetes", []),
}


def table(folder, name: str, n_rows: int = 260) -> tuple[pd.DataFrame, pd.Series]:
    """Return a sample of the rows of a table that have a target, and the target."""
    target, left = TABLES[name]
    frame = pd.read_parquet(folder / f"{name}.parquet")
    frame = frame[frame[target].notna()].sample(n_rows, random_state=0).drop(columns=left, errors="ignore")
    common = frame[target].value_counts().index[:2]
    frame = frame[frame[target].isin(common)]
    return frame.drop(columns=target), (frame[target] == common[0]).astype(int)


def pipeline(**given: object) -> object:
    encoder = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="number")),
        (encoder, make_column_selector(dtype_exclude="number")),
    )
    imputer = MCFlowImputer(max_time=0.5, random_state=0, **given)
    return make_pipeline(imputer, columns, LogisticRegression(max_iter=500))


@pytest.mark.filterwarnings("ignore::mcflow.errors.McflowWarning", "ignore:Found unknown categories")
@pytest.mark.parametrize("name", TABLES)
def test_scores_when_folds_lack_categories_are_never_nan(data_folder, name) -> None:
    rows, target = table(data_folder, name)
    assert np.isfinite(cross_val_score(pipeline(), rows, target, cv=5, error_score="raise")).all()


@pytest.mark.filterwarnings("ignore::mcflow.errors.McflowWarning", "ignore:Found unknown categories")
@pytest.mark.parametrize("name", TABLES)
def test_grid_search_with_a_schema_gives_the_kinds_of_the_whole_table(data_folder, tmp_path, name) -> None:
    rows, target = table(data_folder, name)
    whole, _ = plan_table(read_frame(rows), ColumnSettings())
    (tmp_path / "schema.toml").write_text(schema_text(whole), encoding="utf-8")
    schema = str(tmp_path / "schema.toml")
    search = GridSearchCV(
        pipeline(schema=schema), {"logisticregression__C": [0.1, 1.0]}, cv=3, error_score="raise", refit=True
    ).fit(rows, target)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    found = search.best_estimator_[0].schema_.columns
    assert [column.kind for column in found] == [column.kind for column in whole.columns]
    assert set(read_schema(schema).columns) == set(rows.columns)

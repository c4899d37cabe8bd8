"""The contract of an imputer: observed cells, seeds, rows, frames, and scikit-learn's own checks."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from mcflow import MCFlowImputer
from mcflow.imputers.presets import PRESETS


@parametrize_with_checks([MCFlowImputer(preset=preset, max_epochs=2, calibrate=False) for preset in PRESETS])
def test_scikit_learn_s_checks_pass(estimator, check) -> None:
    check(estimator)


def test_observed_cells_keep_their_bits_and_no_hole_is_left(fitted, table) -> None:
    for dtype in (np.float64, np.float32):
        rows = table.astype(dtype)
        filled = fitted.transform(rows)
        seen = ~np.isnan(rows)
        assert filled.dtype == dtype
        assert filled[seen].tobytes() == rows[seen].tobytes()
        assert not np.isnan(filled).any()


def test_given_table_is_not_changed(table, quick) -> None:
    before = table.copy()
    quick().fit_transform(table)
    np.testing.assert_array_equal(table, before)


def test_filled_values_stay_within_the_observed_range(fitted, table) -> None:
    filled = fitted.transform(table)
    assert (filled >= np.nanmin(table, axis=0)).all()
    assert (filled <= np.nanmax(table, axis=0)).all()


def test_same_seed_gives_the_same_bits_whatever_the_global_state(table, fitted, preset) -> None:
    import torch

    np.random.seed(9)
    torch.manual_seed(9)
    again = MCFlowImputer(preset=preset, max_epochs=9, random_state=0).fit(table)
    assert (again.transform(table) == fitted.transform(table)).all()
    other = MCFlowImputer(preset=preset, max_epochs=9, random_state=1).fit(table)
    assert (other.transform(table) != fitted.transform(table)).any()


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_generators_are_accepted_as_random_state(table, make, quick) -> None:
    one, two = (quick(random_state=make(3)).fit_transform(table) for _ in range(2))
    assert (one == two).all()


def test_no_seed_gives_different_fits(table, quick) -> None:
    one, two = (quick(random_state=None).fit_transform(table) for _ in range(2))
    assert (one != two).any()


def test_row_s_answer_does_not_depend_on_its_neighbours(fitted, table) -> None:
    whole = fitted.transform(table)
    alone = np.vstack([fitted.transform(row[None]) for row in table])
    np.testing.assert_allclose(alone, whole, rtol=0, atol=1e-5)
    order = np.random.default_rng(0).permutation(len(table))
    np.testing.assert_allclose(fitted.transform(table[order]), whole[order], rtol=0, atol=1e-5)
    some = fitted.transform(table[50:150])
    np.testing.assert_allclose(some, whole[50:150], rtol=0, atol=1e-5)


def test_equal_batches_give_equal_bits(fitted, table) -> None:
    assert (fitted.transform(table[:100]) == fitted.transform(table[:100].copy())).all()


def test_batches_within_transform_do_not_change_the_answer(fitted, table, monkeypatch) -> None:
    whole = fitted.transform(table)
    monkeypatch.setattr("mcflow.paper.algorithm.ROWS_AT_ONCE", 7)
    monkeypatch.setattr("mcflow.masked.predictor.LOGITS_AT_ONCE", 8 * 4 * 32 * 7)
    np.testing.assert_allclose(fitted.transform(table), whole, rtol=0, atol=1e-5)


def test_equal_rows_get_equal_answers(fitted) -> None:
    missing = fitted.transform(np.full((2, 4), np.nan))
    assert (missing[0] == missing[1]).all()


def test_first_fill_of_a_row_is_seeded_by_the_row(fitted_paper) -> None:
    rows = np.array([[0.1, np.nan, np.nan, np.nan], [0.1000001, np.nan, np.nan, np.nan]])
    first = fitted_paper.model_.marginals.fill_rows(rows, fitted_paper.seed_)
    assert (first[0, 1:] != first[1, 1:]).any(), "other rows start from other draws"


def test_transform_never_refits(fitted, table) -> None:
    before = {name: array.copy() for name, array in fitted.model_.tensors().items()}
    fitted.transform(table[::-1] * 3)
    after = fitted.model_.tensors()
    assert before.keys() == after.keys()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_epochs": 20},
        pytest.param(
            {"preset": "paper", "max_epochs": 256, "tolerance": 0, "learning_rate": 1e-3}, marks=pytest.mark.slow
        ),
    ],
)
def test_fill_is_better_than_the_mean_on_a_learnable_table(parameters) -> None:
    rng = np.random.default_rng(0)
    base = rng.random((2000, 1))
    rows = base @ np.array([[1.0, -2.0, 3.0, 0.5]]) + 0.02 * rng.normal(size=(2000, 4))
    missing = rng.random(rows.shape) < 0.2
    incomplete = np.where(missing, np.nan, rows)
    filled = MCFlowImputer(random_state=0, **parameters).fit(incomplete[:1500]).transform(incomplete[1500:])
    mean = SimpleImputer().fit(incomplete[:1500]).transform(incomplete[1500:])
    error, baseline = (np.sqrt(((f - rows[1500:])[missing[1500:]] ** 2).mean()) for f in (filled, mean))
    assert error < 0.4 * baseline


FRAMES = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


@pytest.fixture
def mixed(table) -> pd.DataFrame:
    """Columns of every type that can have missing, and some that are left alone."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(table[:120], columns=["a", "b", "c", "d"])
    frame["text"] = pd.Series(["x", None, "z"] * 40)
    frame["whole"] = pd.array(rng.integers(0, 9, 120), dtype="Int64")
    frame.loc[::11, "whole"] = pd.NA
    frame["big"] = pd.array(2**62 + rng.integers(0, 9, 120), dtype="Int64")
    frame.loc[::13, "big"] = pd.NA
    frame["single"] = frame["a"].astype("float32")
    frame["yes"] = pd.array(rng.random(120) < 0.5, dtype="boolean")
    frame.loc[::17, "yes"] = pd.NA
    frame["day"] = pd.Timestamp("2020-02-01") + pd.to_timedelta(rng.integers(0, 400, 120), unit="D")
    frame.loc[::19, "day"] = pd.NaT
    return frame


@pytest.mark.parametrize("kind", FRAMES)
def test_frame_comes_back_as_the_same_kind_with_names_order_and_types(mixed, kind, quick) -> None:
    import narwhals as nw

    frame = FRAMES[kind](mixed)
    filled = quick().fit_transform(frame)
    assert type(filled) is type(frame)
    before, after = nw.from_native(frame, eager_only=True), nw.from_native(filled, eager_only=True)
    assert before.schema == after.schema
    for name in before.columns:
        seen = ~before[name].is_null().to_numpy().astype(bool)
        if before[name].dtype.is_float():
            seen &= ~before[name].is_nan().fill_null(True).to_numpy().astype(bool)
        old, new = before[name].to_list(), after[name].to_list()
        assert all(o == n for o, n, s in zip(old, new, seen, strict=True) if s), name
        assert after[name].null_count() == 0


def test_pandas_index_is_kept(mixed, quick) -> None:
    mixed.index = pd.Index(np.arange(120)[::-1] * 3, name="key")
    filled = quick().fit_transform(mixed)
    pd.testing.assert_index_equal(filled.index, mixed.index)
    assert filled["text"][mixed["text"].notna()].equals(mixed["text"].dropna())


def test_pandas_without_names_keeps_its_columns(table, quick) -> None:
    filled = quick().fit_transform(pd.DataFrame(table))
    assert list(filled.columns) == [0, 1, 2, 3]
    assert not filled.isna().any().any()
    np.testing.assert_array_equal(filled.to_numpy(), quick().fit_transform(table))


def test_every_kind_of_frame_gets_the_same_answer(table, quick) -> None:
    plain = quick().fit_transform(table)
    for make in FRAMES.values():
        frame = make(pd.DataFrame(table, columns=list("abcd")))
        filled = quick().fit_transform(frame)
        np.testing.assert_array_equal(np.column_stack([np.asarray(filled[c]) for c in "abcd"]), plain)


@pytest.mark.parametrize("wanted", ["pandas", "polars"])
def test_set_output_decides_the_kind(mixed, table, wanted, quick) -> None:
    expected = {"pandas": pd.DataFrame, "polars": pl.DataFrame}[wanted]
    for given in (table, mixed, pl.from_pandas(mixed)):
        filled = quick().set_output(transform=wanted).fit_transform(given)
        assert isinstance(filled, expected)
    assert list(filled.columns) == list(mixed.columns)


def test_pipeline_clone_and_grid_search_work(table, quick) -> None:
    target = np.nansum(table, axis=1)
    pipeline = make_pipeline(quick(), Ridge())
    search = GridSearchCV(pipeline, {"mcflowimputer__learning_rate": [0.001, 0.01]}, cv=2)
    search.fit(table, target)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    copied = clone(quick(learning_rate=0.01))
    assert copied.get_params()["learning_rate"] == 0.01
    assert not hasattr(copied, "model_")


def test_indicator_equals_scikit_learn_s(table, quick) -> None:
    table = table.copy()
    table[:, 3] = np.nan_to_num(table[:, 3])
    ours = quick(add_indicator=True).fit(table)
    theirs = SimpleImputer(add_indicator=True).fit(table)
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())
    np.testing.assert_array_equal(ours.transform(table)[:, 4:], theirs.transform(table)[:, 4:])
    frame = pd.DataFrame(table, columns=list("abcd"), index=np.arange(300) + 7)
    filled = quick(add_indicator=True).fit_transform(frame)
    assert list(filled.columns) == [*"abcd", *(f"missingindicator_{c}" for c in "abc")]
    np.testing.assert_array_equal(filled.iloc[:, 4:].to_numpy(), np.isnan(table[:, :3]))
    assert (filled.index == frame.index).all()


@pytest.mark.parametrize("keep", [False, True])
def test_empty_column_is_dropped_or_kept_as_scikit_learn_does(table, keep, quick) -> None:
    table = table.copy()
    table[:, 1] = np.nan
    ours = quick(keep_empty_features=keep, add_indicator=True)
    theirs = SimpleImputer(keep_empty_features=keep, add_indicator=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        filled, expected = ours.fit_transform(table), theirs.fit_transform(table)
    said = [str(w.message) for w in caught]
    assert any("without any observed values: [1]" in text for text in said) != keep
    assert filled.shape == expected.shape
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())
    if keep:
        assert (filled[:, 1] == 0).all()
    assert ours.transform(np.ones((2, 4))).shape[1] == filled.shape[1]


@pytest.mark.parametrize("kind", FRAMES)
def test_empty_column_of_a_frame_is_dropped_with_a_warning(table, kind, quick) -> None:
    frame = pd.DataFrame(table, columns=list("abcd")).assign(empty=np.nan)
    with pytest.warns(UserWarning, match="empty"):
        filled = quick().fit_transform(FRAMES[kind](frame))
    assert list(getattr(filled, "column_names", None) or filled.columns) == list("abcd")


@pytest.mark.parametrize("kind", FRAMES)
def test_empty_columns_of_numbers_are_kept_as_zeros_of_their_type(table, kind, quick) -> None:
    import narwhals as nw

    frame = pd.DataFrame(table, columns=list("abcd"), index=np.arange(300) + 5)
    frame["real"], frame["whole"] = np.nan, pd.array([pd.NA] * 300, dtype="Int64")
    given = FRAMES[kind](frame)
    filled = nw.from_native(quick(keep_empty_features=True).fit_transform(given), eager_only=True)
    assert filled.schema == nw.from_native(given, eager_only=True).schema
    assert filled["real"].to_list() == filled["whole"].to_list() == [0] * 300


def test_constant_column_is_filled_with_its_value(table, quick) -> None:
    rows = np.column_stack([table, np.where(np.isnan(table[:, 0]), np.nan, 7.0)])
    assert (quick().fit_transform(rows)[:, 4] == 7).all()


def test_single_row_and_all_constant_tables_work(quick) -> None:
    row = np.array([[1.0, 2.0, 3.0]])
    imputer = quick().fit(row)
    np.testing.assert_array_equal(imputer.transform(np.array([[np.nan, 5.0, np.nan]])), [[1, 5, 3]])


def test_single_column_works(table, quick) -> None:
    filled = quick().fit_transform(table[:, :1])
    assert not np.isnan(filled).any()
    assert len(np.unique(filled)) > 200


def test_table_without_holes_comes_back_and_later_holes_are_filled(quick) -> None:
    rows = np.random.default_rng(0).normal(size=(80, 3))
    imputer = quick().fit(rows)
    assert (imputer.transform(rows) == rows).all()
    rows[3, 1] = np.nan
    filled = imputer.transform(rows)
    assert np.isfinite(filled[3, 1])
    assert (np.delete(filled, 3, 0) == np.delete(rows, 3, 0)).all()


def test_integer_array_comes_back_as_it_is(table, quick) -> None:
    rows = np.arange(12).reshape(4, 3)
    imputer = quick().fit(rows)
    filled = imputer.transform(rows)
    assert filled.dtype == rows.dtype
    assert (filled == rows).all()


def test_column_of_nulls_in_new_rows_is_filled(mixed, quick) -> None:
    imputer = quick().fit(mixed)
    new = mixed.head(3).assign(a=None)
    assert new["a"].dtype == object
    filled = imputer.transform(new)
    assert filled["a"].notna().all()


def test_rows_without_one_observed_cell_are_filled(fitted, table) -> None:
    filled = fitted.transform(np.full((3, 4), np.nan))
    assert np.isfinite(filled).all()


def test_columns_on_very_different_scales_are_filled(table, quick) -> None:
    rows = table * np.array([1e-9, 1e9, 1.0, 1e-200])
    filled = quick().fit_transform(rows)
    assert np.isfinite(filled).all()
    assert np.nanmin(np.abs(filled[:, 0])) < 1e-8


def test_refit_on_another_kind_forgets_the_names(table, quick) -> None:
    imputer = quick().fit(pd.DataFrame(table, columns=list("abcd")))
    assert list(imputer.feature_names_in_) == list("abcd")
    imputer.fit(table[:, :3])
    assert not hasattr(imputer, "feature_names_in_")
    assert imputer.n_features_in_ == 3


@pytest.mark.slow
def test_letter_is_filled_as_well_as_the_paper_s_method_can(data_folder) -> None:
    """One fold, a fifth of the cells hidden, 64 epochs: the plain method had .1325."""
    frame = pd.read_parquet(data_folder / "letter.parquet").drop(columns="lettr").astype("float64")
    rng = np.random.default_rng(0)
    order = rng.permutation(len(frame))
    hidden = rng.random(frame.shape) < 0.2
    rows = frame.to_numpy()[order]
    span = rows.max(axis=0) - rows.min(axis=0)
    incomplete = np.where(hidden, np.nan, rows)
    imputer = MCFlowImputer(preset="paper", max_epochs=64, random_state=0).fit(incomplete[4000:])
    error = ((imputer.transform(incomplete[:4000]) - rows[:4000]) / span)[hidden[:4000]]
    assert np.sqrt((error**2).mean()) <= 0.135


def test_counter_without_a_name_is_a_number_like_any_other(quick) -> None:
    rows = np.arange(60.0)[:, None]
    rows[5] = np.nan
    assert quick().fit_transform(rows)[5, 0] in np.arange(60)
    full = np.arange(60.0)[:, None]
    assert (quick().fit_transform(full) == full).all()

"""Bad input gets an error that says what was given, what is allowed and what to do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from mcflow.errors import DataError, McflowError, ParameterError

PARAMETERS = {
    "preset": ("papr", "Did you mean 'paper'"),
    "max_epochs": (0, "whole number of at least 1"),
    "batch_size": (2.5, "batch_size is 2.5"),
    "learning_rate": (0.0, "above 0"),
    "likelihood_weight": (-1.0, "at least 0"),
    "tolerance": (2.0, "at most 1"),
    "n_couplings": (0, "n_couplings is 0"),
    "max_time": (0, "max_time is 0, but has to be a number above 0"),
    "warm_start": ("yes", "one of True, False"),
    "add_indicator": ("yes", "one of True, False"),
    "keep_empty_features": (2, "keep_empty_features is 2"),
    "device": ("gpu", "'auto', 'cpu', 'cuda', 'mps'"),
    "verbose": ("loud", "verbose is 'loud'"),
    "random_state": (-1, "at least 0"),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_out_of_range_is_named_with_what_is_allowed(table, name, quick) -> None:
    value, words = PARAMETERS[name]
    with pytest.raises(ParameterError) as caught:
        quick(**{name: value}).fit(table)
    assert name in str(caught.value)
    assert words in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("value", [True, float("nan"), float("inf"), "8", None])
def test_numbers_have_to_be_numbers(table, value, quick) -> None:
    imputer = quick(learning_rate=value)
    if value is None:
        imputer.fit(table)
    else:
        with pytest.raises(ParameterError, match="learning_rate"):
            imputer.fit(table)


def test_device_that_is_not_there_is_refused(table, quick) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(ParameterError, match="does not have"):
        quick(device="cuda:7").fit(table)


@pytest.mark.parametrize("make", [np.asarray, lambda rows: pd.DataFrame(rows, columns=list("abcd")), pl.DataFrame])
def test_infinities_are_counted_by_column(table, make, quick) -> None:
    rows = table.copy()
    rows[[1, 2, 5], 2] = [np.inf, -np.inf, np.inf]
    with pytest.raises(DataError, match=r"\(3\).*replace infinities by NaN"):
        quick().fit(make(rows))


def test_infinities_at_transform_are_refused(fitted) -> None:
    with pytest.raises(DataError, match="inf"):
        fitted.transform(np.full((1, 4), np.inf))


def test_no_rows_are_refused(table, quick) -> None:
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        quick().fit(table[:0])
    with pytest.raises(DataError, match=r"0 row\(s\)"):
        quick().fit(pd.DataFrame(table, columns=list("abcd"))[:0])


def test_frame_without_a_column_to_learn_from_is_refused(quick) -> None:
    frame = pd.DataFrame({"a": [[1], [2]], "b": [{"u": 1}, None]})
    with pytest.raises(DataError, match="None of the 2 columns can be filled"):
        quick().fit(frame)
    with pytest.raises(DataError, match="None of the 1 columns can be filled"):
        quick(roles={"y": "outcome"}).fit(pd.DataFrame({"y": [1.0, 2.0]}))


def test_text_array_that_is_no_table_is_refused(quick) -> None:
    with pytest.raises(DataError, match="not compatible with arrays of bytes/strings"):
        quick().fit(np.array([["x", "y"]]))
    with pytest.raises(DataError, match="1D array"):
        quick().fit(np.array([1.0, 2.0]))


@pytest.mark.filterwarnings("ignore:Skipping features")
def test_table_without_an_observed_number_is_refused(quick) -> None:
    with pytest.raises(DataError, match="nothing to learn"):
        quick().fit(np.full((5, 2), np.nan))


def test_column_names_that_stand_twice_are_refused(table, quick) -> None:
    with pytest.raises(McflowError, match="more than once"):
        quick().fit(pd.DataFrame(table, columns=["a", "b", "a", "c"]))


def test_range_that_no_float_can_hold_is_refused(quick) -> None:
    with pytest.raises(DataError, match="Divide the column"):
        quick().fit(np.array([[1e308, 1.0], [-1e308, 2.0]]))


def test_other_columns_are_listed_missing_and_new(table, quick) -> None:
    frame = pd.DataFrame(table, columns=list("abcd"))
    imputer = quick().fit(frame)
    with pytest.raises(DataError) as caught:
        imputer.transform(frame.rename(columns={"c": "other"}))
    text = str(caught.value)
    assert "unseen at fit time:\n- other" in text
    assert "yet now missing:\n- c" in text
    with pytest.raises(DataError, match="yet now missing:\n- d"):
        imputer.transform(frame.drop(columns="d"))
    with pytest.raises(DataError, match="unseen at fit time:\n- more"):
        imputer.transform(frame.assign(more=1.0))
    with pytest.raises(DataError, match="same order"):
        imputer.transform(frame[list("dcba")])


def test_long_lists_of_columns_are_cut(table, quick) -> None:
    wide = pd.DataFrame(np.hstack([table] * 3), columns=[f"c{k}" for k in range(12)])
    imputer = quick().fit(wide)
    with pytest.raises(DataError, match="and 4 more"):
        imputer.transform(wide.iloc[:, :3])


def test_other_number_of_columns_is_refused(fitted, table) -> None:
    with pytest.raises(DataError, match="X has 3 features, but MCFlowImputer is expecting 4"):
        fitted.transform(table[:, :3])


def test_number_column_that_became_text_is_named(table, quick) -> None:
    frame = pd.DataFrame(table, columns=list("abcd"))
    imputer = quick().fit(frame)
    with pytest.raises(DataError, match="'b' had the type double at fit, and has the type large_string now"):
        imputer.transform(frame.assign(b="x"))


def test_not_fitted_is_said(quick) -> None:
    from sklearn.exceptions import NotFittedError

    for call in ("transform", "score_samples"):
        with pytest.raises(NotFittedError):
            getattr(quick(), call)(np.ones((2, 2)))
    with pytest.raises(NotFittedError):
        quick().sample(2)
    with pytest.raises(NotFittedError):
        quick().save("model.mcflow")


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "3"])
def test_number_of_samples_is_checked(fitted, count) -> None:
    with pytest.raises(ParameterError, match="n_samples"):
        fitted.sample(count)


@pytest.mark.parametrize("label", [None, np.nan, pd.NA, pd.NaT])
def test_label_that_is_a_missing_value_is_refused(quick, label) -> None:
    frame = pd.DataFrame({"a": ["u", None, "v"] * 9, "b": [1, 2, 3] * 9})
    frame.columns = pd.Index([label, "b"], dtype=object)
    with pytest.raises(DataError, match=r"Column 0 has the label .* Rename it"):
        quick().fit(frame)
    imputer = quick().fit(frame.set_axis(["a", "b"], axis=1))
    with pytest.raises(DataError, match="Rename it"):
        imputer.transform(frame)


def test_label_that_a_file_cannot_hold_is_refused_by_save(quick, tmp_path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2))).set_axis([("x", 1), ("x", 2)], axis=1)
    frame.iloc[::4, 0] = np.nan
    imputer = quick().fit(frame)
    assert not imputer.transform(frame).isna().any().any()
    with pytest.raises(DataError, match=r"\('x', 1\).*Rename"):
        imputer.save(tmp_path / "m.mcflow")


def test_series_is_refused_in_words(quick) -> None:
    with pytest.raises(DataError, match="Pass a DataFrame"):
        quick().fit(pd.Series([1.0, None, 2.0]))


@pytest.mark.parametrize("scale", [1e308, 9e300])
def test_numbers_whose_sums_overflow_are_refused_without_warnings(quick, scale) -> None:
    rows = np.random.default_rng(0).uniform(0.5, 1, size=(60, 2))
    rows[:, 0] *= scale
    rows[::5, 0] = np.nan
    with pytest.raises(DataError, match="Divide the column by a constant"):
        quick().fit(rows)


def test_numbers_just_below_the_limit_are_filled_without_warnings(quick) -> None:
    rows = np.random.default_rng(0).uniform(0.5, 1, size=(60, 2))
    rows[:, 0] *= 9.9e299
    rows[::5, 0] = np.nan
    imputer = quick().fit(rows)
    assert np.isfinite(imputer.transform(rows)).all()
    assert np.isfinite(np.stack(imputer.interval(rows))).all()

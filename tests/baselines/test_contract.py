"""The contract that every baseline keeps: scikit-learn's checks, frames, seeds, rows, categories and observed cells."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from mcflow.baselines import NAMES, Baseline, make
from mcflow.errors import DataError, ParameterError

#: Arguments under which a fit takes no time.
QUICK = {
    "mice": {"n_chains": 2, "n_rounds": 2},
    "missforest": {"n_trees": 5, "max_rounds": 2},
    "boosted": {"n_iter": 5, "max_rounds": 2},
    "softimpute": {"n_penalties": 4, "max_steps": 5},
    "autoencoder": {"max_steps": 30},
    "gain": {"max_steps": 30},
    "misgan": {"max_steps": 20},
}
#: Methods whose answer does not depend on the seed.
CERTAIN = ("mean", "median", "knn", "em", "boosted")
DRAWERS = ("mice", "em", "missforest", "gain", "misgan")


def quick(name: str, **parameters) -> Baseline:
    return make(name, **{"random_state": 0} | QUICK.get(name, {}) | parameters)


@parametrize_with_checks([quick(name) for name in NAMES])
def test_scikit_learn_s_checks_pass(estimator, check) -> None:
    check(estimator)


@pytest.fixture(scope="module", params=NAMES)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def imputer(name, table) -> Baseline:
    return quick(name).fit(table)


def test_observed_cells_keep_their_bits_and_no_hole_is_left(imputer, table) -> None:
    for dtype in (np.float64, np.float32):
        rows = table.astype(dtype)
        filled = imputer.transform(rows)
        seen = ~np.isnan(rows)
        assert filled.dtype == dtype
        assert filled[seen].tobytes() == rows[seen].tobytes()
        assert not np.isnan(filled).any()


def test_filled_values_stay_within_the_observed_range(imputer, table) -> None:
    filled = imputer.transform(table)
    assert (filled >= np.nanmin(table, axis=0)).all()
    assert (filled <= np.nanmax(table, axis=0)).all()


def test_result_for_a_row_does_not_depend_on_other_rows(imputer, table) -> None:
    whole = imputer.transform(table)
    order = np.random.default_rng(0).permutation(len(table))
    np.testing.assert_allclose(imputer.transform(table[order]), whole[order], rtol=0, atol=1e-5)
    alone = np.vstack([imputer.transform(row[None]) for row in table[:12]])
    np.testing.assert_allclose(alone, whole[:12], rtol=0, atol=1e-5)


def test_same_seed_gives_the_same_bits_whatever_the_global_state(name, imputer, table) -> None:
    import torch

    np.random.seed(9)
    torch.manual_seed(9)
    again = clone(imputer).fit(table).transform(table)
    assert (again == imputer.transform(table)).all()
    other = quick(name, random_state=1).fit(table).transform(table)
    if name in CERTAIN:
        np.testing.assert_allclose(other, again, rtol=0, atol=1e-9)
    else:
        assert (other != again).any()


def test_generator_is_accepted_as_random_state(name, table) -> None:
    one, two = (quick(name, random_state=np.random.default_rng(3)).fit_transform(table[:60]) for _ in range(2))
    assert (one == two).all()


@pytest.fixture(scope="module")
def mixed() -> pd.DataFrame:
    """Related numbers, whole numbers, categories and booleans, with missing cells."""
    rng = np.random.default_rng(1)
    group = rng.integers(0, 3, 240)
    size = rng.normal(size=240) + 3 * group
    frame = pd.DataFrame(
        {
            "size": size,
            "count": pd.array(np.rint(4 * size + 20).astype(int), dtype="Int64"),
            "group": pd.Categorical(np.array(["low", "middle", "high"])[group]),
            "tall": pd.array(size > 3, dtype="boolean"),
            "name": [f"row {k}" for k in range(240)],
        },
        index=pd.RangeIndex(100, 340),
    )
    for k, column in enumerate(frame.columns[:4]):
        frame.loc[frame.index[k::6], column] = None
    return frame


FRAMES = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frame_of_mixed_kinds_comes_back_with_only_missing_cells_filled(name, mixed, kind) -> None:
    import narwhals as nw

    given = FRAMES[kind](mixed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the names are left alone, with a warning
        filled = quick(name).fit_transform(given)
    assert type(filled) is type(given)
    before, after = (nw.from_native(f, eager_only=True) for f in (given, filled))
    assert before.schema == after.schema
    for column in ("size", "count", "group", "tall"):
        assert not after[column].is_null().any()
        seen = ~before[column].is_null().to_numpy().astype(bool)
        assert (after[column].to_numpy()[seen] == before[column].to_numpy()[seen]).all()
    if kind == "pandas":
        assert filled.index.equals(mixed.index)


def test_categories_are_better_than_the_most_frequent_one(name) -> None:
    if name in ("mean", "median", "misgan", "gain", "autoencoder"):
        pytest.skip("the constant fills are what is compared with; the networks need more epochs than a quick test has")
    rng = np.random.default_rng(2)
    group = rng.integers(0, 3, 900)
    frame = pd.DataFrame({f"x{k}": rng.normal(size=900) + 4 * (group == k) for k in range(3)})
    frame["group"] = pd.Categorical(np.array(["a", "b", "c"])[group])
    holed = frame.copy()
    holed.loc[600:, "group"] = None
    filled = quick(name).fit(holed.iloc[:600]).transform(holed.iloc[600:])
    assert (filled["group"].to_numpy() == frame["group"].to_numpy()[600:]).mean() > 0.8


def test_column_complete_at_fit_is_filled_in_new_rows(name, table) -> None:
    complete = table[~np.isnan(table[:, 0])]
    imputer = quick(name).fit(complete)
    rows = complete[:20].copy()
    rows[:, 0] = np.nan
    filled = imputer.transform(rows)
    assert np.isfinite(filled).all()


@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (5, 1)])
def test_tiny_tables_are_filled(name, shape) -> None:
    rows = np.random.default_rng(0).normal(size=shape)
    rows[0, 0] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a column may be empty
        filled = quick(name, keep_empty_features=True).fit_transform(rows)
    assert filled.shape == shape
    assert np.isfinite(filled).all()


def test_row_without_any_observed_cell_is_filled(imputer) -> None:
    assert np.isfinite(imputer.transform(np.full((3, 4), np.nan))).all()


def test_constant_table_is_filled_with_the_constant(name) -> None:
    rows = np.full((6, 2), 4.0)
    rows[1, 1] = np.nan
    assert (quick(name).fit_transform(rows) == 4.0).all()


def test_scales_far_apart_do_not_matter(name, table) -> None:
    if name == "mice":
        pytest.skip("its chains draw numbers that are seeded by the cells, so that other cells have other draws")
    scales = np.array([1e-9, 1.0, 1e9, 1e3])
    plain = quick(name).fit_transform(table)
    scaled = quick(name).fit_transform(table * scales)
    span = np.nanmax(table, axis=0) - np.nanmin(table, axis=0)
    # A tree or network may split a tie the other way after rescaling, which must stay rare.
    difference = np.abs(scaled / scales - plain) / span
    assert np.quantile(difference, 0.98) < 1e-3


def test_roles_and_bounds_work_as_for_the_main_imputer(name, table) -> None:
    frame = pd.DataFrame(table, columns=list("abcd"))
    frame["a"] = frame["a"].where(frame["a"].abs() < 0.5)
    imputer = quick(name, roles={"d": "predictors_only"}, bounds={"a": (-0.5, 0.5)})
    filled = imputer.fit_transform(frame)
    missing = frame["a"].isna()
    assert filled["a"][missing].between(-0.5, 0.5).all()
    assert filled["d"].isna().equals(frame["d"].isna())


def test_other_columns_than_at_fit_are_refused(imputer, table) -> None:
    with pytest.raises(DataError, match="expecting 4 features"):
        imputer.transform(table[:, :3])


@pytest.mark.parametrize("drawer", DRAWERS)
def test_draws_are_seeded_by_row_and_number(drawer, table) -> None:
    imputer = quick(drawer).fit(table)
    assert isinstance(imputer.draw(table, m=10**9), type(x for x in ())), "draws are made one at a time"
    one, two = imputer.draw(table, m=2, random_state=5)
    again = next(iter(imputer.draw(table[::-1], m=1, random_state=5)))[::-1]
    seen = ~np.isnan(table)
    assert (one[seen] == table[seen]).all()
    assert (one != two).any()
    np.testing.assert_allclose(again, one, rtol=0, atol=1e-5)
    with pytest.raises(ParameterError, match="m is 0"):
        imputer.draw(table, m=0)


@pytest.mark.parametrize("drawer", DRAWERS)
def test_draws_of_mixed_frames_keep_kinds_and_bounds(drawer, mixed) -> None:
    frame = mixed[["size", "count", "group", "tall"]].copy()
    frame["size"] = frame["size"].where(frame["size"].between(0, 5))
    imputer = quick(drawer, bounds={"size": (0, 5)}).fit(frame)
    for drawn in imputer.draw(frame, m=2, random_state=0):
        assert drawn.dtypes.equals(frame.dtypes)
        assert not drawn.isna().any(axis=None)
        assert drawn["size"][frame["size"].isna()].between(0, 5).all()


def test_unknown_name_and_argument_are_answered_with_the_closest() -> None:
    with pytest.raises(ParameterError, match=r"no baseline 'mise'.*Did you mean 'mice'"):
        make("mise")
    with pytest.raises(ParameterError, match=r"'knn' has no argument 'n_neighbours'.*Did you mean 'n_neighbors'"):
        make("knn", n_neighbours=3)


def test_every_parameter_is_known_to_get_params(name) -> None:
    known = make(name).get_params()
    assert {"kinds", "bounds", "random_state", "add_indicator"} <= set(known)
    assert clone(quick(name)).get_params() == quick(name).get_params()

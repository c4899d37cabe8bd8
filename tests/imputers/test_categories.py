"""Categorical columns: probabilities, the likeliest level, categories that are new, many categories, and files."""

from __future__ import annotations

from copy import copy

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.exceptions import NotFittedError

from mcflow import MCFlowImputer, load
from mcflow.errors import DataError, McflowWarning
from mcflow.paper.model import CategoryHead

FRAMES = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}
CATEGORIES = {"band": ["low", "mid", "high"], "sign": [False, True], "town": ["Bern", "Bonn", "Graz", "Wien"]}


def whole(n_rows: int = 1500) -> pd.DataFrame:
    """Numbers, an ordered band and a sign that they decide, and a town that the band and the sign decide."""
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, n_rows))
    band = np.digitize(one + two, [-0.8, 0.8])
    town = np.where(band == 1, 0, np.where(one > 0, 1, 2 + (band == 0)))
    return pd.DataFrame(
        {
            "one": one,
            "two": two,
            "three": one - two + 0.1 * rng.normal(size=n_rows),
            "band": pd.Categorical.from_codes(band, CATEGORIES["band"], ordered=True),
            "sign": pd.array(one > 0, dtype="boolean"),
            "town": np.array(CATEGORIES["town"])[town],
        },
        index=pd.Index(np.arange(n_rows) * 7, name="key"),
    )


def missing_of(frame: pd.DataFrame) -> np.ndarray:
    return np.random.default_rng(1).random(frame.shape) < 0.15


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    full = whole()
    return full.mask(missing_of(full))


@pytest.fixture(scope="module")
def imputer(frame, preset) -> MCFlowImputer:
    """Learned from the first 1200 rows; tests must not change it."""
    more = {"max_epochs": 32, "learning_rate": 5e-3} if preset == "paper" else {"max_epochs": 30}
    return MCFlowImputer(preset=preset, random_state=0, **more).fit(frame[:1200])


def matrix(table: object) -> np.ndarray:
    """Return a table of probabilities as an array."""
    return np.column_stack([np.asarray(table[name]) for name in columns_of(table)])


def columns_of(table: object) -> list:
    return list(getattr(table, "column_names", None) or table.columns)


# --- probabilities


@pytest.mark.parametrize("kind", FRAMES)
def test_probabilities_come_as_one_table_a_column_of_categories(imputer, frame, kind) -> None:
    given = FRAMES[kind](frame[1200:])
    tables = imputer.predict_proba(given)
    assert list(tables) == ["band", "sign", "town"]
    for name, table in tables.items():
        assert type(table) is type(given)
        wanted = CATEGORIES[name] if kind == "pandas" else list(map(str, CATEGORIES[name]))
        assert columns_of(table) == wanted
        probabilities = matrix(table)
        assert probabilities.shape == (300, len(wanted))
        assert probabilities.min() >= 0
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)


def test_probabilities_keep_the_index_and_the_order_of_rows(imputer, frame) -> None:
    rows = frame[1200:]
    tables = imputer.predict_proba(rows)
    turned = imputer.predict_proba(rows[::-1])
    for name, table in tables.items():
        pd.testing.assert_index_equal(table.index, rows.index)
        np.testing.assert_allclose(turned[name].to_numpy()[::-1], table.to_numpy(), atol=1e-4)


def test_observed_categories_have_probability_one(imputer, frame) -> None:
    rows = frame[1200:]
    for name, table in imputer.predict_proba(rows).items():
        seen = rows[name].notna()
        assert seen.any()
        expected = rows[name][seen].to_numpy(dtype=object)[:, None] == np.array(CATEGORIES[name], dtype=object)
        np.testing.assert_array_equal(table[seen].to_numpy(), expected.astype(float))


@pytest.mark.parametrize("kind", FRAMES)
def test_likeliest_level_is_the_one_that_is_filled_in(imputer, frame, kind) -> None:
    rows = frame[1200:]
    given = FRAMES[kind](rows)
    filled = imputer.transform(given)
    for name, table in imputer.predict_proba(given).items():
        best = np.array(CATEGORIES[name], dtype=object)[matrix(table).argmax(axis=1)]
        cells = filled[name].to_pylist() if kind == "pyarrow" else list(filled[name])
        assert cells == best.tolist()


def test_categories_that_numbers_decide_are_learned(imputer, frame) -> None:
    full, missing = whole()[1200:], missing_of(frame)[1200:]
    filled = imputer.transform(frame[1200:])
    for k, name in enumerate(frame.columns):
        if name in CATEGORIES:
            truth = full[name][missing[:, k]]
            wrong = (filled[name][missing[:, k]] != truth).mean()
            mode = (frame[name][:1200].mode()[0] != truth).mean()
            assert wrong < mode / 2, name


def test_probabilities_are_those_of_hidden_cells(imputer, frame) -> None:
    """Categories that are called 80 % likely are right in about 80 % of the cells."""
    full, missing = whole(), missing_of(frame)
    confidence, right = [], []
    for name, table in imputer.predict_proba(frame).items():
        hole = missing[:, frame.columns.get_loc(name)]
        probabilities = table[hole].to_numpy()
        confidence.append(probabilities.max(axis=1))
        right.append(
            np.array(CATEGORIES[name], dtype=object)[probabilities.argmax(axis=1)] == full[name][hole].to_numpy(object)
        )
    assert np.mean(np.concatenate(confidence)) == pytest.approx(np.mean(np.concatenate(right)), abs=0.1)
    sure = np.concatenate(confidence) > 0.9
    assert np.concatenate(right)[sure].mean() > np.concatenate(right)[~sure].mean()


def test_array_of_objects_has_categories_too(quick) -> None:
    rows = np.array([["x", 1.0], ["y", 2.0], [None, 1.1], ["x", 0.9], ["y", np.nan]] * 10, dtype=object)
    imputer = quick().fit(rows)
    probabilities = imputer.predict_proba(rows)[0]
    assert isinstance(probabilities, np.ndarray)
    assert probabilities.shape == (50, 2)
    filled = imputer.transform(rows)
    assert set(filled[:, 0]) == {"x", "y"}


def test_probabilities_when_no_column_has_categories_are_not_offered(fitted, table) -> None:
    assert not hasattr(fitted, "predict_proba")
    with pytest.raises(AttributeError) as caught:
        fitted.predict_proba(table)
    texts = f"{caught.value} {caught.value.__cause__}"
    assert "predict_proba" in texts
    assert "no categorical column" in texts


def test_probabilities_before_a_fit_say_so(frame) -> None:
    with pytest.raises(NotFittedError):
        MCFlowImputer().predict_proba(frame)


# --- kinds of categories


def test_booleans_are_filled_with_booleans(imputer, frame) -> None:
    filled = imputer.transform(frame)
    assert filled["sign"].dtype == frame["sign"].dtype
    assert filled["sign"].notna().all()


@pytest.mark.parametrize("kind", FRAMES)
def test_categories_come_back_as_they_were(imputer, frame, kind) -> None:
    given = FRAMES[kind](frame[1200:])
    filled = imputer.transform(given)
    if kind == "pandas":
        assert filled["band"].dtype == frame["band"].dtype
    elif kind == "polars":
        assert filled.schema == given.schema
    else:
        assert filled.schema.field("band").type.value_type == given.schema.field("band").type.value_type


def test_ordered_categories_take_one_place_in_the_paper_s_codec(frame) -> None:
    codec = MCFlowImputer(preset="paper", max_epochs=1, random_state=0).fit(frame[:200]).model_.codec
    places = dict(zip([c.name for c in codec.columns], codec.places, strict=True))
    assert places["band"].stop - places["band"].start == 1
    assert places["town"].stop - places["town"].start == 4


def test_ordered_categories_lie_in_their_order(imputer) -> None:
    column = next(c for c in imputer.schema_.columns if c.name == "band")
    assert column.categories == ("low", "mid", "high"), "the order of the categories, not of the alphabet"


def test_categories_that_no_row_has_are_never_filled_in(frame, quick) -> None:
    rows = frame.assign(band=frame["band"].cat.add_categories("never"))[:200]
    imputer = quick().fit(rows)
    assert list(imputer.predict_proba(rows)["band"].columns) == CATEGORIES["band"]
    filled = imputer.transform(rows)
    assert "never" not in set(filled["band"])
    assert filled["band"].dtype == rows["band"].dtype


# --- categories that are new


def test_new_level_is_refused_by_column_and_level(imputer, frame) -> None:
    rows, imputer = frame[:50].assign(town="Rom"), copy(imputer).set_params(unseen="error")
    for call in (imputer.transform, imputer.predict_proba, imputer.score_samples):
        with pytest.raises(
            DataError, match=r"'town' holds categories that the fit did not see: 'Rom'.*unseen='missing'"
        ):
            call(rows)


def test_new_level_when_it_counts_as_missing_tells_nothing_and_stays(frame, quick) -> None:
    imputer = quick().fit(frame[:300])
    rows = frame[:300].copy()
    rows.loc[rows.index[:20], "town"] = "Rom"
    hidden = frame[:300].copy()
    hidden.loc[hidden.index[:20], "town"] = None
    with pytest.warns(McflowWarning, match="Categories that the fit did not see in: 'town'") as caught:
        filled = imputer.transform(rows)
    assert len(caught) == 1
    assert (filled["town"][:20] == "Rom").all(), "an observed cell is never changed"
    others = imputer.transform(hidden)
    pd.testing.assert_frame_equal(filled.drop(columns="town"), others.drop(columns="town"))
    pd.testing.assert_series_equal(filled["town"][20:], others["town"][20:])
    with pytest.warns(McflowWarning, match="did not see"):
        found = imputer.predict_proba(rows)["town"]
    pd.testing.assert_frame_equal(found, imputer.predict_proba(hidden)["town"])


# --- many categories


@pytest.mark.slow_for_paper
def test_column_of_300_categories_is_learned_in_little_space(quick, preset) -> None:
    resource = pytest.importorskip("resource")
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 300, 6000)
    names = np.array([f"town {k:03d}" for k in range(300)])
    rows = pd.DataFrame({"town": names[codes], "x": codes + rng.normal(size=6000), "y": rng.normal(size=6000)})
    rows["town"] = rows["town"].mask(rng.random(6000) < 0.2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    imputer = quick(preset=preset, max_epochs=2 if preset == "paper" else 8, batch_size=128).fit(rows)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 300, f"{grown:.0f} MB"
    if preset == "paper":
        assert imputer.model_.codec.n_places == 2 + 9
    probabilities = imputer.predict_proba(rows)["town"]
    assert probabilities.shape == (6000, 300)
    filled = imputer.transform(rows)
    hole = rows["town"].isna()
    assert filled["town"].isin(names).all()
    error = np.abs(filled["town"][hole].str[5:].astype(int) - codes[hole])
    assert error.mean() < 70, "a level at random is 100 off"


# --- heads


def test_head_without_examples_follows_the_counts() -> None:
    counts = torch.tensor([5.0, 2.0, 0.0])
    head = CategoryHead.fit(torch.empty(0, 4), torch.empty(0, dtype=torch.long), counts)
    expected = (counts + 1) / (counts + 1).sum()
    torch.testing.assert_close(head.probabilities(torch.randn(3, 4)), expected.expand(3, 3))


def test_head_with_examples_separates_what_a_line_separates() -> None:
    rows = torch.rand(2000, 3, generator=torch.Generator().manual_seed(0))
    categories = (3 * rows[:, 0]).long()
    head = CategoryHead.fit(rows, categories, categories.bincount().float())
    assert (head.probabilities(rows).argmax(1) == categories).float().mean() > 0.9
    assert not head.weight.requires_grad


def test_head_fitted_twice_has_the_same_bits_and_leaves_the_mode_alone() -> None:
    rows = torch.rand(300, 5, generator=torch.Generator().manual_seed(0))
    categories = (4 * rows[:, 1]).long()
    with torch.inference_mode():
        kept = rows.clone()
        one = CategoryHead.fit(kept, categories, categories.bincount().float())
        assert torch.is_inference_mode_enabled()
    two = CategoryHead.fit(rows, categories, categories.bincount().float())
    assert torch.equal(one.weight, two.weight)
    assert torch.equal(one.bias, two.bias)


# --- files


@pytest.mark.filterwarnings("ignore:Categories that the fit did not see")
def test_saved_model_with_all_kinds_and_wishes_gives_the_same_bits(frame, tmp_path, preset, quick) -> None:
    rng = np.random.default_rng(2)
    rows = frame[:300].copy()
    rows["start"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 90, 300), unit="D")
    rows["end"] = rows["start"] + pd.to_timedelta(rng.integers(1, 90_000, 300), unit="s")
    rows["zip"] = pd.array(rng.choice([10_115, 20_095], 300), dtype="Int64")
    rows["count"] = rng.poisson(2, 300).astype("float64")
    rows["y"] = rng.normal(size=300)
    for name in ("start", "end", "zip", "count"):
        rows.loc[rng.random(300) < 0.2, name] = None
    imputer = quick(
        kinds={"zip": "category"},
        roles={"y": "outcome", "three": "targets_only"},
        bounds={"one": (-9, None), "end": ("2019-12-31", "2021-01-01")},
        allowed={"count": [0, 1, 2, 5]},
        rules=["start <= end"],
        scaling="auto" if preset == "paper" else None,
    ).fit(rows)
    imputer.save(tmp_path / "m.mcflow")
    loaded = load(tmp_path / "m.mcflow")
    new = rows.assign(town="Rom")
    for given in (rows, new):
        filled = imputer.transform(given)
        pd.testing.assert_frame_equal(loaded.transform(given), filled)
        one, two = imputer.predict_proba(given), loaded.predict_proba(given)
        assert list(one) == list(two) == ["band", "sign", "town", "zip"]
        for name, probabilities in one.items():
            pd.testing.assert_frame_equal(two[name], probabilities)
    assert loaded.schema_ == imputer.schema_
    assert loaded.constraints_.to_dict() == imputer.constraints_.to_dict()
    assert loaded.check(new).to_dict() == imputer.check(new).to_dict()
    assert (filled["start"] <= filled["end"]).all()
    assert filled["count"][rows["count"].isna()].isin([0, 1, 2, 5]).all()

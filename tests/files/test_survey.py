"""Surveys: a uniform sample, exact extremes and categories, and no dependence on batches."""

from __future__ import annotations

import datetime
import pickle

import numpy as np
import pyarrow as pa
import pytest

from mcflow.columns.frames import read_frame
from mcflow.columns.planning import ColumnSettings, plan_table
from mcflow.errors import DataError
from mcflow.files.survey import Survey


def rows(n: int = 3000) -> pa.Table:
    rng = np.random.default_rng(0)
    base = rng.normal(size=n)
    whole = np.rint(100 * base)
    whole[1234] = 0.5
    words = np.array(["often", "seldom"])[(base > 2).astype(int)].astype(object)
    words[77] = "once"
    return pa.table(
        {
            "x": pa.array(base, mask=rng.random(n) < 0.1),
            "w": pa.array(whole),
            "word": pa.array(words, mask=rng.random(n) < 0.05).dictionary_encode(),
            "day": pa.array([datetime.date(2020, 1, 1) + datetime.timedelta(int(d)) for d in 50 * base]),
            "yes": pa.array(base > 0),
        }
    )


def surveyed(table: pa.Table, size: int, n_rows: int = 200) -> Survey:
    survey = Survey(n_rows=n_rows, seed=3)
    for first in range(0, table.num_rows, size):
        survey.add(table.slice(first, size), first)
    return survey


def test_survey_does_not_depend_on_batches_or_merges() -> None:
    table = rows()
    whole, cut = surveyed(table, 3000), surveyed(table, 170)
    assert whole.table().to_pylist() == cut.table().to_pylist()
    assert (whole.total, whole.missing) == (cut.total, cut.missing) == (3000, cut.missing)
    left, right = Survey(n_rows=200, seed=3), Survey(n_rows=200, seed=3)
    left.add(table.slice(0, 1100), 0)
    right.add(table.slice(1100), 1100)
    right.merge(left)
    assert right.table().to_pylist() == whole.table().to_pylist()
    assert right.missing == whole.missing


def test_sample_is_uniform_over_the_rows() -> None:
    positions = np.concatenate([Survey(seed=s).priorities(np.arange(1000)).argsort()[:50] for s in range(40)])
    counts = np.bincount(positions // 100, minlength=10)
    assert abs(counts - 200).max() < 4 * np.sqrt(200 * 0.9)


def test_rows_are_those_of_their_positions() -> None:
    table = rows()
    survey = surveyed(table, 400)
    assert survey.table().to_pylist() == table.take(survey.positions).to_pylist()
    assert len(survey.positions) == len(set(survey.positions.tolist()))
    assert (survey.positions[:200] == np.sort(survey.positions[:200])).all()


def test_schema_of_the_survey_is_that_of_the_whole_table() -> None:
    table = rows()
    found = plan_table(read_frame(surveyed(table, 250).table()), ColumnSettings())[0]
    wanted = plan_table(read_frame(table), ColumnSettings())[0]
    for ours, theirs in zip(found.columns, wanted.columns, strict=True):
        assert (ours.name, ours.kind, ours.low, ours.high) == (theirs.name, theirs.kind, theirs.low, theirs.high)
        assert ours.whole == theirs.whole
        assert set(ours.categories) == set(theirs.categories)


def test_short_tables_are_sampled_whole_and_none_is_an_error() -> None:
    table = rows().slice(0, 60)
    assert surveyed(table, 25).table().to_pylist() == table.to_pylist()
    with pytest.raises(DataError, match="no rows"):
        Survey().table()
    other = Survey(n_rows=200, seed=3)
    other.add(pa.table({"z": [1.0]}), 0)
    with pytest.raises(DataError, match="other columns"):
        surveyed(table, 25).merge(other)


def test_part_of_a_known_total_keeps_little_and_gives_the_same_sample() -> None:
    table = rows()
    whole = surveyed(table, 3000, n_rows=50)
    merged = Survey(n_rows=50, seed=3)
    for first in range(0, 3000, 500):
        part = Survey(n_rows=50, seed=3)
        part.expect(3000)
        part.add(table.slice(first, 500), first)
        assert part._sample is not None
        assert part._sample.num_rows < 60
        merged.merge(pickle.loads(pickle.dumps(part)))
    assert merged.table().to_pylist() == whole.table().to_pylist()
    assert merged.positions.tolist() == whole.positions.tolist()


def test_categories_of_a_column_with_very_many_do_not_depend_on_batches_or_parts(monkeypatch) -> None:
    monkeypatch.setattr("mcflow.files.survey.MAX_CATEGORIES", 20)
    table = pa.table({"name": [f"name {k % 70}" for k in np.random.default_rng(0).permutation(400)]})
    whole, cut = surveyed(table, 400, n_rows=5), surveyed(table, 30, n_rows=5)
    left, right = Survey(n_rows=5, seed=3), Survey(n_rows=5, seed=3)
    left.add(table.slice(0, 90), 0)
    right.add(table.slice(90), 90)
    right.merge(left)
    for other in (cut, right):
        assert other.positions.tolist() == whole.positions.tolist()
        assert other.table().to_pylist() == whole.table().to_pylist()
    assert 21 <= whole.table().num_rows <= 26


def test_nested_columns_are_sampled_and_have_no_categories() -> None:
    survey = Survey(n_rows=10)
    survey.add(pa.table({"tags": [[1, 2], None, [3]]}), 0)
    assert survey.missing == {"tags": 1}
    assert survey.table().num_rows == 3

"""Fits on Parquet files: in memory when small, and about as good when most rows are on disk."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcflow import MCFlowImputer
from mcflow.engines import Scorer, fit_dataset, impute_dataset
from mcflow.errors import DataError, ParameterError
from mcflow.files import partitioned
from mcflow.fitting.out_of_core import RestOfRows
from mcflow.masked.config import MaskedConfig


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Four columns that go together, though not along lines, and which cells are missing."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, size=(2, n))
    values = np.column_stack([a, b, np.sin(4 * a), 2 * a * b]) + 0.05 * rng.normal(size=(n, 4))
    return values, rng.random(values.shape) < 0.2


def write(path, values, missing) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = {f"c{k}": pa.array(values[:, k], mask=missing[:, k]) for k in range(values.shape[1])}
    pq.write_table(pa.table(table), path, row_group_size=700)


def error(imputer: MCFlowImputer) -> float:
    values, missing = rows(1000, 9)
    table = pa.table({f"c{k}": pa.array(values[:, k], mask=missing[:, k]) for k in range(4)})
    filled = np.column_stack([column.to_numpy() for column in imputer.transform(table).columns])
    return float(np.sqrt(np.mean((filled - values)[missing] ** 2)))


def test_table_that_fits_in_the_sample_is_fitted_as_in_memory_bit_for_bit(tmp_path) -> None:
    values, missing = rows(300, 0)
    write(tmp_path / "a.parquet", values, missing)
    streamed = fit_dataset(tmp_path / "a.parquet", MCFlowImputer(max_epochs=2, random_state=0))
    whole = MCFlowImputer(max_epochs=2, random_state=0).fit(pq.read_table(tmp_path / "a.parquet"))
    first, second = streamed.model_.tensors(), whole.model_.tensors()
    assert all((first[name] == second[name]).all() for name in second)


def test_rows_on_disk_are_used_for_training(tmp_path) -> None:
    """Trees are grown on the rows in memory alone, so that H is compared without them."""
    values, missing = rows(2400, 1)
    config = MaskedConfig(trees=False)
    for k in range(2):
        part = slice(1200 * k, 1200 * (k + 1))
        write(tmp_path / "in" / f"{k}.parquet", values[part], missing[part])
    heard = []
    streamed = MCFlowImputer(preset=config, max_epochs=8, random_state=0)
    fit_dataset(tmp_path / "in", streamed, sample_rows=250, folder=tmp_path, listen=lambda *d: heard.append(d))
    assert heard[-1] == (2400, 2400)
    assert [p.name for p in tmp_path.iterdir()] == ["in"], "the rows on disk are gone"
    whole = MCFlowImputer(preset=config, max_epochs=8, random_state=0).fit(pq.read_table(tmp_path / "in"))
    few = MCFlowImputer(preset=config, max_epochs=8, random_state=0).fit(pq.read_table(tmp_path / "in").slice(0, 250))
    assert streamed.config_.max_epochs == 8
    assert error(streamed) < 1.1 * error(whole)
    assert error(streamed) < 0.9 * error(few)


def test_partition_columns_are_fitted_too(tmp_path) -> None:
    values, missing = rows(600, 2)
    for k in range(2):
        write(tmp_path / "in" / f"half={k}" / "x.parquet", values[k::2], missing[k::2])
    imputer = fit_dataset(tmp_path / "in", MCFlowImputer(max_epochs=1, random_state=0), sample_rows=100)
    assert list(imputer.feature_names_in_) == ["c0", "c1", "c2", "c3", "half"]


def test_folders_without_a_value_are_missing_cells_of_their_column(tmp_path) -> None:
    values, missing = rows(300, 7)
    for k, name in enumerate(("1", "2", partitioned.NO_KEY)):
        write(tmp_path / "in" / f"third={name}" / "x.parquet", values[k::3], missing[k::3])
    imputer = fit_dataset(tmp_path / "in", MCFlowImputer(max_epochs=1, random_state=0), sample_rows=100)
    (column,) = [column for column in imputer.schema_.columns if column.name == "third"]
    assert column.dtype == "int64"
    impute_dataset(tmp_path / "in", tmp_path / "out", Scorer(imputer))
    for folder in (tmp_path / "out").iterdir():
        if folder.is_dir():
            found = pq.read_table(folder / "x.parquet", partitioning=None)
            assert (found.num_rows, found.column_names) == (100, ["c0", "c1", "c2", "c3"])


def test_limit_of_time_begins_when_all_rows_are_read(tmp_path) -> None:
    values, missing = rows(400, 8)
    table = pa.table({f"c{k}": pa.array(values[:, k], mask=missing[:, k]) for k in range(4)})
    read = []

    def rest():
        yield table.slice(100)
        read.append(time.perf_counter())

    imputer = MCFlowImputer(max_epochs=1, max_time=5, random_state=0)
    imputer.fit_stream(table.slice(0, 100), rest, 300, folder=tmp_path)
    assert imputer.model_.start >= read[0]


def test_paper_preset_is_refused_when_rows_are_on_disk(tmp_path) -> None:
    write(tmp_path / "a.parquet", *rows(400, 3))
    with pytest.raises(ParameterError, match="cannot train on a stream"):
        fit_dataset(tmp_path / "a.parquet", MCFlowImputer(preset="paper"), sample_rows=100)


def test_table_that_changed_between_the_passes_is_an_error(tmp_path) -> None:
    values, missing = rows(50, 4)
    incomplete = np.where(missing, np.nan, values)
    imputer = MCFlowImputer(max_epochs=1, random_state=0).fit(incomplete)
    for said, word in ((40, "fewer"), (20, "more")):
        rest = RestOfRows(lambda: iter([incomplete[:30]]), said, tmp_path)
        with pytest.raises(DataError, match=f"{word} than the"), rest.encoded(incomplete, imputer.model_):
            pass


def test_encoded_rows_are_the_units_of_all_rows_in_order(tmp_path) -> None:
    values, missing = rows(80, 5)
    incomplete = np.where(missing, np.nan, values)
    imputer = MCFlowImputer(max_epochs=1, random_state=0).fit(incomplete)
    model, batches = imputer.model_, [incomplete[50:65], incomplete[65:]]
    with RestOfRows(lambda: batches, 30, tmp_path).encoded(incomplete[:50], model) as found:
        assert (found.seen.numpy() == ~missing).all()
        np.testing.assert_allclose(found.units.numpy(), np.nan_to_num(model.grid.units(incomplete)), rtol=1e-6)


def test_batches_are_small_parts_of_groups(tmp_path, monkeypatch) -> None:
    write(tmp_path / "a.parquet", *rows(2000, 6))
    (part,) = partitioned.parquet_parts(tmp_path, [tmp_path / "a.parquet"])
    found = [(table.num_rows, last) for table, last in partitioned.read_batches(part, 300)]
    assert found == [(300, False), (300, False), (100, True)] * 2 + [(300, False), (300, True)]

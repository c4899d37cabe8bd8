"""Parquet files that are filled in parts: the same cells as in memory, layout kept, on again after a kill."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from mcflow import MCFlowImputer
from mcflow.engines import Scorer, impute_dataset
from mcflow.errors import DataError, OutputError
from mcflow.files import partitioned


def rows(n: int, seed: int = 0) -> pa.Table:
    """Numbers, integers, categories and dates that depend on each other, with missing cells."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=n)
    missing = rng.random((n, 4)) < 0.2
    words = np.where(base > 0, "high", "low")
    return pa.table(
        {
            "x": pa.array(base.astype(np.float32), mask=missing[:, 0]),
            "n": pa.array(np.rint(10 * base).astype(np.int16), mask=missing[:, 1]),
            "word": pa.array(words, mask=missing[:, 2]).dictionary_encode(),
            "day": pa.array((18000 + 100 * base).astype(np.int32), pa.date32(), mask=missing[:, 3]),
        }
    ).replace_schema_metadata({"origin": "test"})


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return Scorer(MCFlowImputer(max_epochs=3, random_state=0).fit(rows(400)))


@pytest.fixture
def small_parts(monkeypatch) -> None:
    monkeypatch.setattr(partitioned, "BATCH_ROWS", 50)
    monkeypatch.setattr(partitioned.read_batches, "__defaults__", (50,))


def write(path: Path, table: pa.Table, group: int = 120) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group, compression="zstd")
    return path


def near(found: pa.Table, wanted: pa.Table) -> None:
    """The same cells, to the rounding of float32."""
    assert found.schema.remove_metadata() == wanted.schema.remove_metadata()
    for name in wanted.column_names:
        ours, theirs = (t.column(name).combine_chunks() for t in (found, wanted))
        if name == "x":
            np.testing.assert_allclose(ours.to_numpy(), theirs.to_numpy(), rtol=1e-5, atol=1e-5)
        else:
            assert ours.to_pylist() == theirs.to_pylist(), name


def test_file_is_filled_as_in_memory_with_its_types_groups_and_metadata(scorer, small_parts, tmp_path) -> None:
    table = rows(700, 1)
    source = write(tmp_path / "big.parquet", table)
    outcome = impute_dataset(source, tmp_path / "out", scorer, part_rows=200)
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert [f.name for f in files] == [f"big-{k:05d}.parquet" for k in range(6)]
    assert (outcome.parts, outcome.found, outcome.rows) == (6, 0, 700)
    found = pa.concat_tables([pq.read_table(f) for f in files])
    near(found.unify_dictionaries(), scorer.fill(table))
    assert found.schema.metadata[b"origin"] == b"test"
    observed = pc.is_valid(table["n"])
    assert found["n"].filter(observed).to_pylist() == table["n"].drop_null().to_pylist()
    groups = [
        pq.read_metadata(f).row_group(g).num_rows for f in files for g in range(pq.read_metadata(f).num_row_groups)
    ]
    assert groups == [120] * 5 + [100]
    assert pq.read_metadata(files[0]).row_group(0).column(0).compression == "ZSTD"


def test_folders_keep_their_layout_and_keys_that_the_model_knows_are_used(small_parts, tmp_path) -> None:
    table = rows(400).append_column("year", pa.array([2020, 2021] * 200, pa.int64()))
    scorer = Scorer(MCFlowImputer(max_epochs=2, random_state=0).fit(table))
    for year in (2020, 2021):
        some = table.filter(pc.equal(table["year"], year)).drop(["year"])
        write(tmp_path / "in" / f"year={year}" / "a.parquet", some.slice(0, 90))
        write(tmp_path / "in" / f"year={year}" / "b.parquet", some.slice(90))
    (tmp_path / "in" / "_SUCCESS").touch()
    impute_dataset(tmp_path / "in", tmp_path / "out", scorer, part_rows=200)
    names = sorted(p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*.parquet"))
    assert names == [f"year={y}/{f}.parquet" for y in (2020, 2021) for f in "ab"]
    found = ds.dataset(tmp_path / "out", partitioning="hive").to_table()
    assert found.num_rows == 400
    first = pq.read_table(tmp_path / "out" / "year=2020" / "a.parquet", partitioning=None)
    assert first.column_names == ["x", "n", "word", "day"]
    wanted = scorer.fill(table.filter(pc.equal(table["year"], 2020)).slice(0, 90)).drop(["year"])
    near(first, wanted)


def test_files_whose_columns_stand_in_another_order_keep_it(scorer, tmp_path) -> None:
    table = rows(60, 3)
    source = write(tmp_path / "a.parquet", table.select(["day", "x", "word", "n"]))
    impute_dataset(source, tmp_path / "out", scorer)
    found = pq.read_table(tmp_path / "out" / "a.parquet")
    assert found.column_names == ["day", "x", "word", "n"]
    near(found.select(table.column_names), scorer.fill(table))


def test_pattern_takes_some_files_and_an_empty_one_gives_an_empty_one(scorer, tmp_path) -> None:
    write(tmp_path / "in" / "a1.parquet", rows(30))
    write(tmp_path / "in" / "a2.parquet", rows(30).slice(0, 0))
    pq.ParquetWriter(tmp_path / "in" / "a3.parquet", rows(1).schema).close()
    write(tmp_path / "in" / "b.parquet", rows(30))
    outcome = impute_dataset(str(tmp_path / "in" / "a*.parquet"), tmp_path / "out", scorer)
    assert outcome.parts == 3
    assert pq.read_table(tmp_path / "out" / "a2.parquet").num_rows == 0
    assert pq.read_table(tmp_path / "out" / "a3.parquet").num_rows == 0
    assert pq.read_table(tmp_path / "out" / "a1.parquet").num_rows == 30


def test_draws_are_those_of_the_whole_table_whatever_the_batches(scorer, small_parts, tmp_path) -> None:
    table = rows(330, 2)
    source = write(tmp_path / "big.parquet", table)
    impute_dataset(source, tmp_path / "out", scorer, part_rows=200, draws=2, seed=5)
    for number, wanted in enumerate(scorer.draw(table, 2, 5), start=1):
        files = sorted((tmp_path / "out" / f"draw={number}").glob("*.parquet"))
        near(pa.concat_tables([pq.read_table(f, partitioning=None) for f in files]).unify_dictionaries(), wanted)


def test_second_run_does_nothing_and_a_lost_part_is_done_again(scorer, small_parts, tmp_path) -> None:
    source = write(tmp_path / "big.parquet", rows(500))
    impute_dataset(source, tmp_path / "out", scorer, part_rows=200)
    files = sorted((tmp_path / "out").glob("*.parquet"))
    before = {f.name: (f.stat().st_mtime_ns, f.read_bytes()) for f in files}
    assert impute_dataset(source, tmp_path / "out", scorer, part_rows=200).found == len(files)
    files[1].unlink()
    outcome = impute_dataset(source, tmp_path / "out", scorer, part_rows=200)
    assert (outcome.found, outcome.rows) == (len(files) - 1, 120)
    assert files[1].read_bytes() == before[files[1].name][1]
    assert files[0].stat().st_mtime_ns == before[files[0].name][0]


def test_folder_of_another_result_is_refused(scorer, tmp_path) -> None:
    source = write(tmp_path / "a.parquet", rows(50))
    impute_dataset(source, tmp_path / "out", scorer)
    with pytest.raises(OutputError, match="holds the result of another model"):
        impute_dataset(source, tmp_path / "out", scorer, draws=2)
    with pytest.raises(OutputError, match="do not belong to this result"):
        impute_dataset(source, tmp_path, scorer)
    with pytest.raises(OutputError, match="is a file"):
        impute_dataset(source, source, scorer)


def test_files_that_do_not_go_together_are_named(scorer, tmp_path) -> None:
    write(tmp_path / "in" / "a.parquet", rows(20))
    write(tmp_path / "in" / "b.parquet", rows(20).drop(["n"]))
    with pytest.raises(DataError, match=r"b\.parquet has other columns or types than .*'n' is not there instead"):
        impute_dataset(tmp_path / "in", tmp_path / "out", scorer)
    (tmp_path / "in" / "b.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(DataError, match=r"b\.parquet cannot be read as Parquet"):
        impute_dataset(tmp_path / "in", tmp_path / "out", scorer)
    with pytest.raises(FileNotFoundError, match="neither a Parquet file"):
        impute_dataset(tmp_path / "none", tmp_path / "out", scorer)


def test_progress_counts_rows_of_earlier_runs_too(scorer, small_parts, tmp_path) -> None:
    source, heard = write(tmp_path / "big.parquet", rows(360)), []
    impute_dataset(source, tmp_path / "out", scorer, part_rows=200, listen=lambda *both: heard.append(both))
    assert heard[-1] == (360, 360)
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kill -9 is of POSIX")
def test_killed_run_leaves_no_half_part_and_goes_on_to_the_same_bytes(scorer, tmp_path, killed_run) -> None:
    killed_run(scorer, write(tmp_path / "big.parquet", rows(1200)), part_rows=200)

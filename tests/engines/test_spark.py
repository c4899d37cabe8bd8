"""Spark: the same cells and draws as on one machine, types kept, and the same files."""

from __future__ import annotations

import datetime
import decimal
import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from mcflow import MCFlowImputer
from mcflow.engines import Scorer, fit_dataset, impute_dataset
from mcflow.engines import spark as engine
from mcflow.engines.spark_survey import fit, survey
from mcflow.errors import DataError
from mcflow.files.survey import Survey

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed: mcflow-impute[spark]"
    ),
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java, which Spark needs"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed.*socket:ResourceWarning"),
]

ROW = "row"


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator:
    from pyspark.sql import SparkSession

    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",
    }
    # A task that fails is tried up to four times.
    builder = SparkSession.builder.master("local[2,4]").appName("mcflow tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def rows(n: int, seed: int = 0) -> pa.Table:
    """Numbers, integers, categories, days and times that depend on each other, with missing cells."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=n)
    missing = rng.random((n, 6)) < 0.2
    words = np.where(base > 0, "high", "low")
    return pa.table(
        {
            "x": pa.array(base.astype(np.float32), mask=missing[:, 0]),
            "n": pa.array(np.rint(10 * base).astype(np.int16), mask=missing[:, 1]),
            "word": pa.array(words, mask=missing[:, 2]),
            "day": pa.array((18000 + 100 * base).astype(np.int32), pa.date32(), mask=missing[:, 3]),
            "when": pa.array((10**15 + 10**12 * base).astype(np.int64), pa.timestamp("us", "UTC"), mask=missing[:, 4]),
            "yes": pa.array(base > 0.5, mask=missing[:, 5]),
        }
    )


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return Scorer(MCFlowImputer(max_epochs=2, calibrate=False, unseen="error", random_state=0).fit(rows(300)))


def with_missing(path: Path, n: int, drop: list[str]) -> pa.Table:
    """Rows of a real table with a fifth of its cells taken out, in types that Spark has."""
    table = pq.read_table(path).slice(0, n).drop(drop)
    rng = np.random.default_rng(0)
    plain = {name: c.cast(pa.string()) if pa.types.is_large_string(c.type) else c for name, c in columns(table)}
    return pa.table({name: pc.if_else(pa.array(rng.random(n) < 0.2), None, c) for name, c in plain.items()})


def columns(table: pa.Table) -> list[tuple[str, pa.ChunkedArray]]:
    return list(zip(table.column_names, table.columns, strict=True))


@pytest.fixture(scope="module", params=["adult", "credit"])
def real(request, data_folder, tmp_path_factory) -> tuple[pa.Table, Scorer, Path]:
    """A real table with missing cells, a model of it, and the table as a file with the number of each row."""
    path = data_folder / f"{request.param}.parquet"
    if not path.is_file():
        pytest.skip(f"MCFLOW_DATA has no {request.param}.parquet")
    table = with_missing(path, 600, ["split"] if request.param == "adult" else [])
    imputer = MCFlowImputer(max_epochs=1, calibrate=False, random_state=0).fit(table)
    file = tmp_path_factory.mktemp(request.param) / "rows.parquet"
    pq.write_table(table.add_column(0, ROW, pa.array(range(table.num_rows))), file)
    return table, Scorer(imputer), file


def in_order(frame) -> pa.Table:
    """Rows of a frame in the order of their numbers, which the model does not know."""
    return frame.toArrow().sort_by(ROW).drop([ROW])


def near(found: pa.Table, wanted: pa.Table, few: float = 0.0) -> None:
    """Cells are as near as the rounding of float32 lets them be, but for a few that it takes to the next choice."""
    assert found.column_names == wanted.column_names
    for name, column in columns(wanted):
        ours, theirs = found[name].to_numpy(), column.to_numpy()
        if theirs.dtype.kind in "if":
            far = ~np.isclose(ours, theirs, rtol=1e-4, atol=1e-5 if theirs.dtype.kind == "f" else 1)
        else:
            far = ours != theirs
        assert far.mean() <= few, name


def test_cells_of_real_tables_are_those_of_one_machine_whatever_the_partitions(spark, real) -> None:
    table, scorer, file = real
    wanted = scorer.fill(table)
    df = spark.read.parquet(str(file))
    filled = engine.impute(df.coalesce(1), scorer)
    assert filled.schema == df.schema
    assert in_order(filled).equals(wanted)  # one batch there and here: the same bits
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "300")
    try:
        cut = in_order(engine.impute(df.repartition(3), scorer))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    near(cut, wanted, few=1e-3)
    for name, column in columns(table):
        assert cut[name].filter(column.is_valid()).equals(column.drop_null()), "an observed cell was changed"


def test_draws_of_real_tables_are_those_of_one_machine_as_rows_with_a_number(spark, real) -> None:
    table, scorer, file = real
    table = table.slice(0, 200)
    df = spark.read.parquet(str(file)).where(f"{ROW} < 200")
    drawn = engine.impute(df.repartition(3), scorer, draws=2, seed=7)
    assert drawn.schema[:-1] == df.schema
    assert (drawn.schema["draw"].dataType.typeName(), drawn.schema["draw"].nullable) == ("integer", False)
    found = drawn.toArrow()
    for number, wanted in enumerate(scorer.draw(table, 2, 7), start=1):
        near(found.filter(pc.equal(found["draw"], number)).sort_by(ROW).drop([ROW, "draw"]), wanted, few=5e-3)
    assert found.num_rows == 400


def test_types_order_and_unknown_columns_are_kept(spark, scorer) -> None:
    from pyspark.sql.types import StructType

    schema = (
        "row bigint not null, yes boolean, price decimal(10,2), word string, tags array<int>, when timestamp, "
        "local timestamp_ntz, day date, n smallint, small tinyint, pair struct<a:int,b:string>, raw binary, x float"
    )
    day, time = datetime.date(2019, 4, 1), datetime.datetime(2001, 9, 9, 1, 46)
    full = (0, True, decimal.Decimal("2.50"), "high", [1, 2], time, time, day, 3, 1, (1, "b"), b"raw", 0.25)
    empty = (1, *[None] * 12)
    df = spark.createDataFrame([full, empty], StructType.fromDDL(schema))
    filled = engine.impute(df, scorer)
    assert filled.schema == df.schema
    first, second = filled.sort("row").collect()
    assert first == df.sort("row").first()
    known = {"yes", "word", "when", "day", "n", "x"}
    for name, cell in second.asDict().items():
        assert (cell is not None) == (name in known or name == "row"), name


def test_null_and_nan_are_both_filled_and_alike(spark, scorer) -> None:
    table = rows(40, 1)
    nan = pc.fill_null(table["x"], float("nan"))
    df = spark.createDataFrame(table.set_column(0, "x", nan).append_column(ROW, pa.array(range(40))))
    assert in_order(engine.impute(df.coalesce(1), scorer)).equals(scorer.fill(table))


def test_whole_numbers_where_the_model_fills_fractions_become_doubles(spark) -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=200)
    model = MCFlowImputer(max_epochs=1, calibrate=False).fit(pa.table({"a": base, "b": base + 0.1}))
    df = spark.createDataFrame(pa.table({"b": pa.array([0.5, 1.0]), "a": pa.array([None, 1], pa.int32())}))
    filled = engine.impute(df, model)
    assert filled.dtypes == [("b", "double"), ("a", "double")]
    cells = {row["b"]: row["a"] for row in filled.collect()}
    assert cells[1.0] == 1.0
    assert cells[0.5] is not None


def test_columns_that_do_not_fit_are_refused_before_any_row_is_read(spark, scorer) -> None:
    df = spark.createDataFrame(rows(5))
    with pytest.raises(DataError, match=r"absent: word\. The rows have: x, n, day"):
        engine.impute(df.drop("word"), scorer)
    for name, other in (("word", "x"), ("x", "word")):
        with pytest.raises(DataError, match=f"Column '{name}' has type (string|float), but the model fills it with"):
            engine.impute(df.withColumn(name, df[other]), scorer)
    with pytest.raises(DataError, match="more than once: x"):
        engine.impute(df.select("*", "x"), scorer)
    with pytest.raises(DataError, match="a column 'draw'"):
        engine.impute(df.withColumn("draw", df["n"]), scorer, draws=2)


def test_model_is_sent_once_in_a_session_and_again_when_its_settings_change(spark, scorer, tmp_path) -> None:
    from mcflow.engines.spark import broadcast

    scorer.imputer.save(tmp_path / "model.mcflow")
    context = spark.sparkContext
    same = Scorer.from_file(tmp_path / "model.mcflow")
    again = Scorer.from_file(tmp_path / "model.mcflow")
    assert broadcast(context, same) is broadcast(context, again)
    again.imputer.set_params(unseen="missing")
    assert broadcast(context, again) is not broadcast(context, same)


# ---------------------------------------------------------------- files


def write(path: Path, table: pa.Table, group: int = 100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.parquet")}


@pytest.mark.parametrize("draws", [None, 2])
def test_files_are_those_of_one_machine_byte_for_byte_and_each_goes_on_after_the_other(
    spark, scorer, draws, tmp_path
) -> None:
    write(tmp_path / "in" / "year=2020" / "a.parquet", rows(500, 2))
    write(tmp_path / "in" / "b.parquet", rows(90, 3))
    said = {"draws": draws, "seed": 3, "part_rows": 200}
    impute_dataset(tmp_path / "in", tmp_path / "here", scorer, **said)
    wanted, heard = contents(tmp_path / "here"), []
    outcome = engine.impute_dataset(
        tmp_path / "in", tmp_path / "there", scorer, listen=lambda *told: heard.append(told), **said
    )
    assert (outcome.parts, outcome.found, outcome.rows) == (4, 0, 590)
    assert heard[-1] == (590, 590)
    assert contents(tmp_path / "there") == wanted
    lost = next((tmp_path / "here").rglob("a-00001.parquet"))
    lost.unlink()
    outcome = engine.impute_dataset(tmp_path / "in", tmp_path / "here", scorer, **said)
    assert (outcome.found, outcome.rows) == (3, 200)
    assert contents(tmp_path / "here") == wanted


def test_python_worker_that_is_killed_at_work_changes_nothing(spark, scorer, tmp_path) -> None:
    source = write(tmp_path / "rows.parquet", rows(9_000, 4), group=300)
    impute_dataset(source, tmp_path / "here", scorer, part_rows=300)
    killed = []

    def kill(done: int, total: int) -> None:
        if not killed and done < total:
            killed.append(workers(spark.sparkContext._gateway.proc.pid)[0])
            os.kill(killed[0], signal.SIGKILL)

    engine.POLL_SECONDS, before = 0.02, engine.POLL_SECONDS
    try:
        engine.impute_dataset(source, tmp_path / "there", scorer, part_rows=300, listen=kill)
    finally:
        engine.POLL_SECONDS = before
    assert killed
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert not list((tmp_path / "there").glob(".*.tmp*")), "a part is half there"


def workers(java: int) -> list[int]:
    """Return the processes of Python workers: children of the daemon that Java has started."""
    if not Path("/proc").is_dir():
        pytest.skip("there is no /proc to find the worker in")
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(path.parent.name)] = int(fields[1])
    daemons = [pid for pid, parent in parents.items() if parent == java]
    return [pid for pid, parent in parents.items() if parent in daemons]


def test_error_of_a_worker_comes_out_as_the_error_of_mcflow_and_other_parts_are_done(spark, scorer, tmp_path) -> None:
    table = rows(40, 5)
    write(tmp_path / "in" / "bad.parquet", table.set_column(2, "word", pa.array(["elsewhere"] * 40)))
    write(tmp_path / "in" / "good.parquet", table)
    with pytest.raises(DataError, match=r"bad\.parquet: Column 'word' .*elsewhere"):
        engine.impute_dataset(tmp_path / "in", tmp_path / "out", scorer)
    assert [path.name for path in (tmp_path / "out").glob("*.parquet")] == ["good.parquet"]


# ---------------------------------------------------------------- survey and fit


def test_survey_of_a_frame_is_that_of_its_rows_in_their_order(spark) -> None:
    df = spark.createDataFrame(rows(3000, 6)).repartition(3).persist()
    table = df.toArrow()
    wanted = Survey(n_rows=100, seed=4)
    wanted.add(table, 0)
    found = survey(df, n_rows=100, seed=4)
    df.unpersist()
    assert (found.total, found.missing) == (wanted.total, wanted.missing)
    assert found.positions.tolist() == wanted.positions.tolist()
    assert found.table().to_pylist() == wanted.table().to_pylist()


def test_frame_without_rows_cannot_be_surveyed(spark) -> None:
    with pytest.raises(DataError, match="no rows"):
        survey(spark.createDataFrame(rows(4)).where("x > 1e9"))


@pytest.mark.slow
def test_fit_on_a_frame_is_the_fit_on_its_files(spark, tmp_path) -> None:
    source = write(tmp_path / "rows.parquet", rows(400, 7), group=150)
    df = spark.read.parquet(str(source))

    def new() -> MCFlowImputer:
        return MCFlowImputer(max_epochs=1, calibrate=False, random_state=0)

    wanted = fit_dataset(source, new(), sample_rows=60)
    assert Scorer(fit(df, new(), sample_rows=60, all_rows=True)).fingerprint() == Scorer(wanted).fingerprint()
    sample = survey(df, n_rows=60).table()
    assert Scorer(fit(df, new(), sample_rows=60)).fingerprint() == Scorer(new().fit(sample)).fingerprint()

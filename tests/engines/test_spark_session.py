"""What mcflow says when Spark is not there, is of the wrong kind, or fails; none of it starts Spark."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest

from mcflow.engines import spark, spark_survey
from mcflow.engines.spark import _own_python, _reason, _translated
from mcflow.errors import DataError, EngineError, MissingExtraError, OutputError, ParameterError

TRACEBACK = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "spark.py", line 3, in _filled
{last}"""


@pytest.mark.parametrize(
    ("last", "kind", "words"),
    [
        ("mcflow.errors.DataError: Column 'x' is new.\nRename it.", DataError, "Column 'x' is new.\nRename it."),
        ("mcflow.errors.OutputError: a is full.\n SQLSTATE: 38000\n\tat Java", OutputError, "a is full."),
        ("ModuleNotFoundError: No module named 'mcflow'", MissingExtraError, "has no module 'mcflow'. Install mcflow"),
        ("ZeroDivisionError: division by zero", EngineError, "could not fill: ZeroDivisionError: division by zero"),
    ],
)
def test_error_of_a_worker_keeps_its_class_and_words(last, kind, words) -> None:
    error = _translated(TRACEBACK.format(last=last), "fill")
    assert type(error) is kind
    assert words in str(error)


def test_reason_is_the_line_of_java_or_the_first() -> None:
    text = "An error occurred while calling None.Session.\n: java.lang.IllegalStateException: It is closed.\n\tat a.b\n"
    assert _reason(text) == "java.lang.IllegalStateException: It is closed"
    assert (
        _reason("[JAVA_GATEWAY_EXITED] Java gateway process exited.")
        == "[JAVA_GATEWAY_EXITED] Java gateway process exited"
    )
    assert _reason("") == "no reason was given"


def test_absence_of_pyspark_is_answered_with_the_line_that_installs_it(monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    for call in (
        lambda: spark.impute(None, "model"),
        lambda: spark.impute_dataset(tmp_path, tmp_path / "out", "model"),
        lambda: spark_survey.survey(None),
    ):
        with pytest.raises(MissingExtraError, match=r"pip install '.*\[spark\]'"):
            call()


def test_frame_of_spark_connect_is_refused() -> None:
    pytest.importorskip("pyspark")
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(ParameterError, match="Spark Connect"):
        spark.impute(frame, "model")


@pytest.mark.parametrize(("master", "said", "wanted"), [
    (None, None, sys.executable),
    ("local[2]", None, sys.executable),
    ("local[2]", "elsewhere", "elsewhere"),
    ("spark://host:7077", None, None),
])  # fmt: skip
def test_workers_of_this_machine_run_our_python_unless_another_is_said(master, said, wanted, monkeypatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    if said:
        monkeypatch.setenv("PYSPARK_PYTHON", said)
    with _own_python(master):
        assert os.environ.get("PYSPARK_PYTHON") == wanted
    assert os.environ.get("PYSPARK_PYTHON") == said


def test_batches_of_a_partition_are_put_together_and_none_is_lost() -> None:
    batches = [pa.record_batch({"a": [k] * n}) for k, n in enumerate([3, 3, 9, 1, 4])]
    tables = list(spark._gathered(iter(batches), n_rows=6))
    assert [table.num_rows for table in tables] == [6, 9, 5]
    assert pa.concat_tables(tables).equals(pa.Table.from_batches(batches))
    assert list(spark._gathered(iter([]))) == []


def test_error_in_the_rows_is_returned_and_one_of_the_storage_is_raised() -> None:
    def job(error: Exception) -> SimpleNamespace:
        def do(part, scorer) -> None:
            raise error

        return SimpleNamespace(is_done=lambda part: False, do=do)

    part, content = SimpleNamespace(output="a.parquet"), SimpleNamespace(scorer=lambda: None)
    model = spark.BroadcastModel("a model", SimpleNamespace(value=content))
    found = spark._do(job(DataError("is bad.")), model, part)
    assert (type(found), str(found)) == (DataError, "a.parquet: is bad.")
    with pytest.raises(OutputError):
        spark._do(job(OutputError("is full.")), model, part)

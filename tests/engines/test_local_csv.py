"""CSV files that are filled in parts: the bytes that are written in memory, on again after a kill, little memory."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from mcflow import MCFlowImputer
from mcflow.engines import Scorer, fit_dataset, impute_dataset
from mcflow.engines.jobs import PROFILES
from mcflow.errors import DataError, OutputError
from mcflow.files.tables import as_fitted, read_table, write_table

WORDS = ("high", '"lo, w\n"')


def text(n: int, seed: int = 0, separator: str = ",", newline: str = "\n") -> str:
    """Numbers, integers, categories with line breaks and dates, with missing cells and an empty line."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=n)
    missing = rng.random((n, 4)) < 0.2
    lines = [separator.join(["x", "n", '"word"', "day"])]
    for k, value in enumerate(base):
        row = [
            f"{value:.4f}",
            str(round(10 * value)),
            WORDS[int(value < 0)],
            f"2024-0{1 + k % 9}-{int(np.clip(12 + 3 * value, 1, 28)):02d}",
        ]
        lines.append(separator.join("NA" if empty else cell for cell, empty in zip(row, missing[k], strict=True)))
    return newline.join([*lines[:5], "", *lines[5:]])


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, newline="")
    return path


def in_memory(scorer: Scorer, source: Path, output: Path) -> bytes:
    """Fill a file as `mcflow impute --model` does."""
    table = as_fitted(read_table(source), scorer.imputer.schema_)
    write_table(output, scorer.imputer.transform(table.table), table)
    return output.read_bytes()


def joined(folder: Path, newline: bytes = b"\n") -> bytes:
    """The content of numbered files, with the header once."""
    parts = [file.read_bytes() for file in sorted(folder.glob("*.csv"))]
    begin = parts[0].index(newline) + len(newline)
    assert all(part[:begin] == parts[0][:begin] for part in parts)
    return parts[0] + b"".join(part[begin:] for part in parts[1:])


@pytest.fixture(scope="module")
def scorer(tmp_path_factory) -> Scorer:
    source = write(tmp_path_factory.mktemp("fit") / "rows.csv", text(400))
    return Scorer(MCFlowImputer(max_epochs=2, random_state=0).fit(read_table(source).table))


class Rounding(Scorer):
    """Gives numbers of few digits, as those of float32 may differ in the last ones from batch to batch."""

    def fill(self, table, schema=None):
        filled = super().fill(table, schema)
        place = filled.column_names.index("x")
        return filled.set_column(place, "x", [np.round(filled["x"].to_numpy(), 3)])


@pytest.mark.parametrize(("separator", "newline"), [(",", "\n"), (";", "\r\n")])
def test_file_is_filled_to_the_bytes_that_are_written_in_memory(scorer, tmp_path, separator, newline) -> None:
    source = write(tmp_path / "rows.csv", text(500, 1, separator, newline))
    outcome = impute_dataset(source, tmp_path / "out", scorer)
    assert (outcome.parts, outcome.rows) == (1, 500)
    assert (tmp_path / "out" / "rows.csv").read_bytes() == in_memory(scorer, source, tmp_path / "whole.csv")


def test_long_file_has_the_same_bytes_as_its_blocks_are_those_of_memory(scorer, tmp_path, monkeypatch) -> None:
    for place in ("masked.predictor", "files.partitioned"):
        monkeypatch.setattr(f"mcflow.{place}.BATCH_ROWS", 128)
    source = write(tmp_path / "rows.csv", text(700, 2))
    impute_dataset(source, tmp_path / "out", scorer, part_rows=300)
    assert [file.name for file in sorted((tmp_path / "out").glob("*.csv"))] == [f"rows-{k:05d}.csv" for k in range(3)]
    assert joined(tmp_path / "out") == in_memory(scorer, source, tmp_path / "whole.csv")


def test_cells_do_not_depend_on_the_parts(scorer, tmp_path) -> None:
    source, near = write(tmp_path / "rows.csv", text(300, 3)), Rounding(scorer.imputer)
    impute_dataset(source, tmp_path / "one", near)
    impute_dataset(source, tmp_path / "many", near, part_rows=70)
    assert joined(tmp_path / "many") == (tmp_path / "one" / "rows.csv").read_bytes()


def test_columns_keep_their_type_though_a_part_looks_otherwise(scorer, tmp_path) -> None:
    rows = (
        "".join(f"{k % 5},{k % 7},high,2024-01-0{1 + k % 9}\n" for k in range(60)) + ',,"7",\n0.5,1,high,2024-01-02\n'
    )
    source = write(tmp_path / "rows.csv", "x,n,word,day\n" + rows.replace('"7"', "high"))
    impute_dataset(source, tmp_path / "out", scorer, part_rows=25)
    lines = joined(tmp_path / "out").decode().splitlines()
    assert lines[1:61] == ("x,n,word,day\n" + rows).splitlines()[1:61]
    assert all(lines[61].split(","))


def test_columns_in_another_order_than_at_the_fit_stay_there(scorer, tmp_path) -> None:
    table = read_table(write(tmp_path / "a.csv", text(90, 6))).table
    rows = ["day,word,n,x", *(f"{r['day']},{r['word'] and 'high'},{r['n']},{r['x']}" for r in table.to_pylist())]
    source = write(tmp_path / "rows.csv", "\n".join(rows).replace("None", ""))
    impute_dataset(source, tmp_path / "out", scorer, part_rows=40)
    lines = joined(tmp_path / "out").decode().splitlines()
    assert lines[0] == "day,word,n,x"
    assert all(all(line.split(",")) for line in lines)
    assert [line for line in lines if line in rows] == [
        line for line in rows if all(line.replace("None", "").split(","))
    ]


def test_column_that_the_model_leaves_out_is_in_no_part(tmp_path) -> None:
    base = np.random.default_rng(0).normal(size=60)
    lines = [f",{value:.3f},{2 * value:.3f}" if k % 5 else f",,{2 * value:.3f}" for k, value in enumerate(base)]
    source = write(tmp_path / "rows.csv", "\n".join(["e,x,y", *lines]))
    with pytest.warns(UserWarning, match="Skipping features"):
        scorer = Rounding(MCFlowImputer(max_epochs=1, random_state=0).fit(read_table(source).table))
    impute_dataset(source, tmp_path / "out", scorer, part_rows=25)
    impute_dataset(source, tmp_path / "one", scorer)
    assert joined(tmp_path / "out") == (tmp_path / "one" / "rows.csv").read_bytes()
    assert joined(tmp_path / "out").startswith(b"x,y\n")


@pytest.mark.parametrize("draws", [None, 2])
def test_file_without_rows_is_written_as_it_is(scorer, tmp_path, draws) -> None:
    write(tmp_path / "in" / "a.csv", text(30))
    write(tmp_path / "in" / "b.csv", "x,n,word,day")
    assert impute_dataset(tmp_path / "in", tmp_path / "out", scorer, draws=draws).rows == 30
    (found, *_) = sorted((tmp_path / "out").rglob("b.csv"))
    assert found.read_text() == "x,n,word,day"


def test_folders_keep_their_layout_and_keys_that_the_model_knows_are_used(tmp_path) -> None:
    for k in range(2):
        write(tmp_path / "in" / f"half={k}" / "rows.csv", text(150, k))
    imputer = fit_dataset(tmp_path / "in", MCFlowImputer(max_epochs=1, random_state=0), sample_rows=100)
    assert list(imputer.feature_names_in_) == ["x", "n", "word", "day", "half"]
    impute_dataset(tmp_path / "in", tmp_path / "out", Scorer(imputer), part_rows=100)
    found = sorted(file.relative_to(tmp_path / "out").as_posix() for file in (tmp_path / "out").rglob("*.csv"))
    assert found == [f"half={k}/rows-0000{part}.csv" for k in range(2) for part in range(2)]
    table = read_table(tmp_path / "out" / "half=1" / "rows-00000.csv").table
    assert table.column_names == ["x", "n", "word", "day"]
    assert not any(column.null_count for column in table.columns)


def test_file_in_the_sample_is_fitted_as_in_memory_bit_for_bit(scorer, tmp_path) -> None:
    source = write(tmp_path / "rows.csv", text(400))
    streamed = fit_dataset(source, MCFlowImputer(max_epochs=2, random_state=0))
    first, second = streamed.model_.tensors(), scorer.imputer.model_.tensors()
    assert all((first[name] == second[name]).all() for name in second)


def test_compressed_files_are_filled_into_compressed_ones(scorer, tmp_path) -> None:
    plain = write(tmp_path / "rows.csv", text(200, 4))
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    impute_dataset(tmp_path / "rows.csv.gz", tmp_path / "out", scorer, part_rows=400)
    found = gzip.decompress((tmp_path / "out" / "rows.csv.gz").read_bytes())
    assert found == in_memory(scorer, plain, tmp_path / "whole.csv")


def test_draws_are_those_of_the_whole_table(scorer, tmp_path) -> None:
    source = write(tmp_path / "rows.csv", text(120, 5))
    impute_dataset(source, tmp_path / "out", scorer, draws=2, seed=5)
    table = as_fitted(read_table(source), scorer.imputer.schema_)
    for number, drawn in enumerate(scorer.imputer.draw(table.table, 2, 5), start=1):
        write_table(tmp_path / "whole.csv", drawn, table)
        found = tmp_path / "out" / f"draw={number}" / "rows.csv"
        assert found.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_second_run_reads_what_the_first_found_out_and_a_lost_part_is_done_again(scorer, tmp_path, monkeypatch) -> None:
    source = write(tmp_path / "rows.csv", text(300))
    impute_dataset(source, tmp_path / "out", scorer, part_rows=100)
    files = sorted((tmp_path / "out").glob("*.csv"))
    before = [file.read_bytes() for file in files]
    files[1].unlink()
    monkeypatch.setattr("mcflow.files.partitioned.profile_csv", None)
    outcome = impute_dataset(source, tmp_path / "out", scorer, part_rows=100)
    assert (outcome.found, outcome.rows) == (2, 100)
    assert [file.read_bytes() for file in files] == before
    monkeypatch.undo()
    with pytest.raises(OutputError, match="another model, other source files or other options"):
        impute_dataset(source, tmp_path / "out", scorer, part_rows=150)
    (tmp_path / "out" / PROFILES).write_text('{"part_rows": 100, "fi')
    assert impute_dataset(source, tmp_path / "out", scorer, part_rows=100).found == 3


def test_files_that_do_not_go_together_are_named(scorer, tmp_path) -> None:
    write(tmp_path / "in" / "a.csv", text(20))
    other = write(tmp_path / "in" / "b.csv", text(20).replace("x,n", "x,m", 1))
    with pytest.raises(DataError, match=r"b\.csv has other columns than .*a\.csv: 'm' is new"):
        impute_dataset(tmp_path / "in", tmp_path / "out", scorer)
    other.unlink()
    pq.write_table(read_table(tmp_path / "in" / "a.csv").table, tmp_path / "in" / "b.parquet")
    with pytest.raises(DataError, match=r"a\.csv is a CSV file and .*b\.parquet is not.*Fill them apart"):
        impute_dataset(tmp_path / "in", tmp_path / "out", scorer)
    assert impute_dataset(str(tmp_path / "in" / "*.csv"), tmp_path / "out", scorer).rows == 20
    assert not (tmp_path / "out" / "b.parquet").exists()


def test_ragged_record_in_a_later_part_is_named_by_its_line(scorer, tmp_path) -> None:
    content = text(300)
    source = write(tmp_path / "rows.csv", content + "\n1,2,3\n")
    line = content.count("\n") + 2
    with pytest.raises(DataError, match=f"line {line} has 3 cells, and the first line has 4"):
        impute_dataset(source, tmp_path / "out", scorer, part_rows=100)
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore:Categories that the fit did not see")
def test_character_that_the_encoding_lacks_is_said_and_leaves_no_file(scorer, tmp_path) -> None:
    rows = read_table(write(tmp_path / "a.csv", text(300).replace("high", "h€h"))).table
    imputer = MCFlowImputer(max_epochs=1, random_state=0).fit(rows)
    (tmp_path / "b.csv").write_bytes(
        "x,n,word,day\n1,1,h\x81\xe4h,2024-01-01\n1.5,15,NA,2024-01-12\n".encode("latin-1")
    )
    with pytest.raises(OutputError, match="cannot be written as latin-1, which lacks '€'"):
        impute_dataset(tmp_path / "b.csv", tmp_path / "out", Scorer(imputer))
    assert not list((tmp_path / "out").glob("*.csv"))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kill -9 is of POSIX")
def test_killed_run_leaves_no_half_part_and_goes_on_to_the_same_bytes(scorer, tmp_path, killed_run) -> None:
    killed_run(scorer, write(tmp_path / "rows.csv", text(1200)), part_rows=120)


PEAK = """
import resource, sys
import pyarrow as pa
from mcflow.engines import jobs, impute_dataset
class Nothing:
    class imputer:
        class schema_:
            columns = ()
    def fingerprint(self): return "nothing"
    def in_order(self, table): return table
    def schema(self, given): return given
    def fill(self, table): return table
impute_dataset(sys.argv[1], sys.argv[2], Nothing())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts kilobytes as Linux does")
def test_memory_does_not_grow_with_the_file(tmp_path) -> None:
    rng, peaks = np.random.default_rng(0), {}
    lines = "\n".join(",".join(f"{value:.6f}" for value in row) for row in rng.normal(size=(40_000, 10))) + "\n"
    for size in (6, 18):
        with (tmp_path / f"{size}.csv").open("w") as file:
            file.write(",".join(f"c{k}" for k in range(10)) + "\n")
            for _ in range(size):
                file.write(lines)
        command = [sys.executable, "-c", PEAK, str(tmp_path / f"{size}.csv"), str(tmp_path / f"out{size}")]
        found = subprocess.run(command, check=True, capture_output=True, text=True)
        peaks[size] = int(found.stdout)
    assert (tmp_path / "18.csv").stat().st_size > 60e6
    assert peaks[18] < 1.1 * peaks[6], peaks

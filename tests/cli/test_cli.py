"""The command line: files in, files out, one line for an error, nothing written by half."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mcflow import MCFlowImputer, load
from mcflow.cli.app import COMMANDS, app, main
from mcflow.cli.impute import DEMO_TIME


@pytest.fixture(scope="session")
def quick(preset: str) -> list[str]:
    """Flags of a fit that takes little time."""
    return ["--max-epochs", "2", "--no-calibrate", "--preset", preset]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, quick: list[str]) -> Path:
    """A model of `source` that was fitted by the command; tests must not change it."""
    folder = tmp_path_factory.mktemp("model")
    assert main(["fit", str(write_source(folder)), "-o", str(folder / "m.mcflow"), "-q", *quick]) == 0
    return folder / "m.mcflow"


def write_source(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)).round(3), columns=["a", "b", "c"])
    frame["n"] = rng.integers(0, 50, 60).astype(str)
    frame["zip"] = [f"0{k % 9:04d}" for k in range(60)]
    frame["word"] = ["x, y", 'say "z"', None] * 20
    frame.loc[::5, "a"] = None
    frame.loc[::7, "n"] = None
    frame.to_csv(folder / "in.csv", index=False)
    return folder / "in.csv"


def cells(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def test_impute_fills_missing_cells_and_leaves_every_other_cell_unchanged(source, capsys, quick) -> None:
    output = source.with_name("out.csv")
    assert main(["impute", str(source), "-o", str(output), *quick]) == 0
    before, after = cells(source), cells(output)
    assert list(before.columns) == list(after.columns)
    for name in before:
        seen = before[name] != ""
        assert (before[name][seen] == after[name][seen]).all()
        assert (after[name] != "").all()
    assert set(after["word"]) == {"x, y", 'say "z"'}
    assert after["n"].str.fullmatch(r"\d+").all(), "whole numbers stay whole, without .0"
    said = capsys.readouterr()
    assert "Filled 41 of 41 missing cells." in said.out
    assert "trained 2 epochs" in said.err


def test_impute_without_an_output_writes_beside_the_source_and_says_so(source, model, capsys) -> None:
    assert main(["impute", str(source), "--model", str(model)]) == 0
    output = source.with_name("in.filled.csv")
    assert (cells(output)["a"] != "").all()
    assert output.name in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize("given", ["-", "parts/*.csv"])
def test_impute_without_an_output_needs_the_name_of_a_file(given, model, capsys) -> None:
    assert main(["impute", given, "--model", str(model)]) == 2
    assert "needs --output (-o)" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples_that_can_be_parsed(name, capsys) -> None:
    assert main([name, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split("Examples:")[1].split())
    for example in COMMANDS[name].examples:
        assert example in shown
        assert shlex.split(example)[1] == name
        app.parse_args(shlex.split(example)[1:], exit_on_error=False, print_error=True)


def test_help_of_impute_has_groups_of_flags(capsys) -> None:
    assert main(["impute", "--help"]) == 0
    titles = re.findall(r"╭─ (\w+) ", capsys.readouterr().out)
    assert titles == ["Input", "Output", "Time", "Columns", "Model", "Engine"]


@pytest.mark.filterwarnings("default::mcflow.errors.McflowWarning")
def test_identifiers_and_long_texts_are_not_filled_and_listed(tmp_path, capsys, quick) -> None:
    rows = [f"{k},K{k:03d},{k * 7 % 5}" for k in range(40)]
    (tmp_path / "in.csv").write_text("row,key,x\n" + "\n".join([*rows, ",,"]) + "\n")
    assert main(["impute", str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.csv"), *quick]) == 0
    said = capsys.readouterr()
    assert "Column 'key' has a different text in every row" in said.err
    assert "Identifier, not filled: key." in said.out
    assert "1 remain missing in columns that are not filled" in said.out
    assert cells(tmp_path / "out.csv")["key"].iloc[-1] == ""


def test_flags_say_what_columns_are(source, tmp_path, quick) -> None:
    model = tmp_path / "m.mcflow"
    flags = ["--kind", "n=category", "--role", "b=outcome", "--bounds", "a=-9:9", "--bounds", "c=-9:"]
    assert main(["fit", str(source), "-o", str(model), "-q", *quick, *flags, "--rule", "a <= c"]) == 0
    imputer = load(model)
    columns = {column.name: column for column in imputer.schema_.columns}
    assert columns["n"].kind == "category"
    assert columns["b"].role == "outcome"
    assert [str(rule) for rule in imputer.constraints_.rules] == ["a <= c"]
    place = imputer.constraints_.names.index("a")
    assert (imputer.constraints_.low[place], imputer.constraints_.high[place]) == (-9, 9)


@pytest.mark.filterwarnings("default::mcflow.errors.McflowWarning")
def test_unseen_category_is_named_or_treated_as_missing(model, tmp_path, capsys) -> None:
    new, output = tmp_path / "new.csv", tmp_path / "out.csv"
    new.write_text("a,b,c,n,zip,word\n0.5,2,0.5,3,00001,other\n0.25,1,0.25,4,00001,\n")
    assert main(["impute", str(new), "-o", str(output), "-q", "--model", str(model), "--unseen", "error"]) == 3
    assert "'word' holds categories that the fit did not see: 'other'" in capsys.readouterr().err
    assert main(["impute", str(new), "-o", str(output), "-q", "--model", str(model)]) == 0
    assert "Categories that the fit did not see in: 'word'" in capsys.readouterr().err
    assert cells(output)["word"][0] == "other", "an observed cell is never changed"
    assert cells(output)["word"][1] in {"x, y", 'say "z"'}


def test_check_says_how_a_file_differs(source, model, tmp_path, capsys) -> None:
    new = tmp_path / "new.csv"
    assert main(["check", str(source), "--model", str(model)]) == 0
    assert "matches the table of the fit" in capsys.readouterr().out
    new.write_text("a,b,n,zip,word\n99,2,3,00001,other\n")
    assert main(["check", str(new), "--model", str(model)]) == 3
    said = capsys.readouterr().out
    assert "! Column 'c' of the fit is missing" in said
    assert "- Column 'a' has 1 values outside" in said
    assert "- Column 'word' has categories that the fit did not see: 'other'" in said


@pytest.mark.slow_for_paper
def test_standard_input_and_output_are_files_too(source, quick) -> None:
    command = [sys.executable, "-m", "mcflow", "impute", "-", "-o", "-", *quick]
    done = subprocess.run(command, input=source.read_bytes(), capture_output=True, check=True)
    output = source.with_name("out.csv")
    assert main(["impute", str(source), "-o", str(output), "-q", *quick]) == 0
    assert done.stdout == output.read_bytes()
    assert b"Written to standard output" in done.stderr


def test_compressed_file_comes_back_compressed(source, tmp_path, quick) -> None:
    import gzip

    packed, output = tmp_path / "in.csv.gz", tmp_path / "out.csv.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    assert main(["impute", str(packed), "-o", str(output), "-q", *quick]) == 0
    assert main(["impute", str(source), "-o", str(tmp_path / "plain.csv"), "-q", *quick]) == 0
    assert gzip.decompress(output.read_bytes()) == (tmp_path / "plain.csv").read_bytes()


def test_result_equals_the_python_interface(source, quick, preset) -> None:
    output = source.with_name("out.csv")
    assert main(["impute", str(source), "-o", str(output), "--seed", "3", *quick]) == 0
    frame = pd.read_csv(source, dtype={"zip": str})
    given = {"max_epochs": 2, "calibrate": False, "decimals": "observed", "random_state": 3}
    expected = MCFlowImputer(preset=preset, **given).fit_transform(frame)
    np.testing.assert_array_equal(pd.read_csv(output)["a"], expected["a"])


def test_result_without_a_flag_equals_the_python_interface_with_observed_decimals(source) -> None:
    output = source.with_name("out.csv")
    assert main(["impute", str(source), "-o", str(output), "-q", "--max-epochs", "2", "--seed", "3"]) == 0
    imputer = MCFlowImputer(max_epochs=2, random_state=3, decimals="observed")
    expected = imputer.fit_transform(pd.read_csv(source, dtype={"zip": str}))
    np.testing.assert_array_equal(pd.read_csv(output)["a"], expected["a"])


def test_parquet_keeps_schema_and_metadata(tmp_path, quick) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "x": pa.array([1.0, None, 3.0, 4.5], pa.float32()),
            "k": pa.array([1, 2, None, 9], pa.int16()),
            "s": list("abcd"),
        }
    ).replace_schema_metadata({"who": "me"})
    pq.write_table(table, tmp_path / "in.parquet")
    assert main(["impute", str(tmp_path / "in.parquet"), "-o", str(tmp_path / "out.pq"), "-q", *quick]) == 0
    filled = pq.read_table(tmp_path / "out.pq")
    assert filled.schema.equals(table.schema, check_metadata=True)
    assert filled.column("x").null_count == filled.column("k").null_count == 0
    assert filled.column("k").to_pylist()[:2] == [1, 2]


def test_formats_convert_into_each_other(source, quick) -> None:
    parquet, back = source.with_name("out.parquet"), source.with_name("back.csv")
    assert main(["impute", str(source), "-o", str(parquet), "-q", *quick]) == 0
    assert main(["impute", str(parquet), "-o", str(back), "-q", *quick]) == 0
    np.testing.assert_array_equal(pd.read_csv(back)["a"], pd.read_parquet(parquet)["a"])


def test_fit_then_impute_with_the_model_never_refits(source, tmp_path, capsys, quick) -> None:
    model, output = tmp_path / "model.mcflow", tmp_path / "out.csv"
    assert main(["fit", str(source), "-o", str(model), *quick]) == 0
    assert "Model written to" in capsys.readouterr().out
    assert main(["impute", str(source), "-o", str(output), "--model", str(model)]) == 0
    assert "trained" not in capsys.readouterr().err
    direct = tmp_path / "direct.csv"
    assert main(["impute", str(source), "-o", str(direct), "--save", str(tmp_path / "second.mcflow"), *quick]) == 0
    assert output.read_bytes() == direct.read_bytes()
    assert load(tmp_path / "second.mcflow").n_epochs_ == 2


def test_new_rows_of_whole_numbers_get_fractions_where_the_fit_had_them(model, tmp_path) -> None:
    new, output = tmp_path / "new.csv", tmp_path / "out.csv"
    new.write_text("a,b,c,n,zip,word\n1,2,,3,00001,\n2,,1,,00002,\n,1,1,1,00003,\n")
    assert main(["impute", str(new), "-o", str(output), "-q", "--model", str(model)]) == 0
    filled = cells(output)
    assert "." in filled["a"][2]
    assert filled["n"].str.fullmatch(r"-?\d+").all()
    assert list(filled["b"][[0, 2]]) == ["2", "1"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_column_without_a_value_in_new_rows_is_filled(model, tmp_path, ending) -> None:
    new, output = tmp_path / "new.csv", tmp_path / f"out.{ending}"
    new.write_text("a,b,c,n,zip,word\n,2,0.5,3,00001,\n,1,0.25,4,00002,\n")
    assert main(["impute", str(new), "-o", str(output), "-q", "--model", str(model)]) == 0
    filled = pd.read_csv(output) if ending == "csv" else pd.read_parquet(output)
    assert filled["a"].dtype == float
    assert filled["a"].notna().all()


def test_quiet_prints_nothing(source, capsys, quick) -> None:
    assert main(["impute", str(source), "-o", str(source.with_name("out.csv")), "--quiet", *quick]) == 0
    said = capsys.readouterr()
    assert said.out == said.err == ""


def test_column_without_a_value_is_filled_with_zero_and_said(tmp_path, capsys, quick) -> None:
    pd.DataFrame({"a": [1.0, None, 3.0], "e": np.full(3, np.nan)}).to_parquet(tmp_path / "in.parquet")
    assert main(["impute", str(tmp_path / "in.parquet"), "-o", str(tmp_path / "out.csv"), *quick]) == 0
    assert "No observed value, filled with 0: e." in capsys.readouterr().out
    assert (pd.read_csv(tmp_path / "out.csv")["e"] == 0).all()


def test_column_without_a_value_and_type_is_said_to_stay_missing(tmp_path, capsys, quick) -> None:
    (tmp_path / "in.csv").write_text("a,e\n1,\n,\n3,\n")
    assert main(["impute", str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.csv"), *quick]) == 0
    said = capsys.readouterr().out
    assert "No observed value, not filled: e." in said
    assert "3 remain missing in columns that are not filled" in said
    assert "filled with 0" not in said


def test_checkpoint_folder_is_used(source, tmp_path, quick) -> None:
    folder = tmp_path / "state"
    arguments = ["impute", str(source), "-o", str(tmp_path / "out.csv"), "-q", "--checkpoint-dir", str(folder), *quick]
    assert main(arguments) == 0
    assert (folder / "fit.checkpoint").is_file()


BAD = {
    "no such file": (["impute", "nothing.csv", "-o", "out.csv"], 3, "There is no file nothing.csv"),
    "unknown ending": (["impute", "in.csv", "-o", "out.parqet"], 2, "Did you mean '.parquet'"),
    "input of unknown ending": (["impute", "in.xls", "-o", "out.csv"], 2, "has to end in one of"),
    "output without a folder": (["impute", "in.csv", "-o", "no/such/out.csv"], 4, "is not a folder"),
    "output is the input": (["impute", "in.csv", "-o", "in.csv"], 4, "given twice"),
    "output is the model": (["impute", "in.csv", "-o", "out.csv", "--save", "out.csv"], 4, "given twice"),
    "preset with a slip": (["impute", "in.csv", "-o", "out.csv", "--preset", "papr"], 2, "Did you mean 'paper'"),
    "epochs out of range": (["impute", "in.csv", "-o", "out.csv", "--max-epochs", "0"], 2, "max_epochs is 0"),
    "model that is not one": (["impute", "in.csv", "-o", "out.csv", "--model", "in.csv"], 3, "is not a model"),
    "nothing to learn from": (["impute", "text.csv", "-o", "out.csv"], 3, "None of the 2 columns can be filled"),
    "flag without a name": (["impute", "in.csv", "-o", "out.csv", "--kind", "category"], 2, "NAME=VALUE"),
    "bounds without a colon": (["impute", "in.csv", "-o", "out.csv", "--bounds", "a=3"], 2, "LOW:HIGH"),
    "kind of no column": (["impute", "in.csv", "-o", "out.csv", "--kind", "zap=category"], 2, "Did you mean 'zip'"),
    "ragged rows": (["impute", "ragged.csv", "-o", "out.csv"], 3, "cannot be read as csv"),
    "empty file": (["impute", "empty.csv", "-o", "out.csv"], 3, "is empty"),
    "header alone": (["impute", "header.csv", "-o", "out.csv"], 3, "0 row"),
    "no such column": (["impute", "in.csv", "-o", "out.csv", "--na", "zap=-9"], 2, "Did you mean 'zip'"),
    "lines that are not there": (["impute", "in.csv", "-o", "out.csv", "--skip-rows", "9999"], 3, "lines to skip"),
    "not parquet": (["impute", "fake.parquet", "-o", "out.csv"], 3, "cannot be read as parquet"),
    "not text": (["impute", "binary.csv", "-o", "out.csv"], 3, "cannot be read as csv"),
    "infinity": (["impute", "infinite.csv", "-o", "out.csv"], 3, "infinite values"),
    "flags with a model": (
        ["impute", "in.csv", "-o", "out.csv", "--model", "m", "--seed", "3"],
        2,
        "--seed has no effect",
    ),
    "checkpoints in a file": (
        ["impute", "in.csv", "-o", "out.csv", "--checkpoint-dir", "in.csv"],
        4,
        "The checkpoint folder in.csv",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_in_one_line_and_nothing_written(source, tmp_path, monkeypatch, capsys, case) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "text.csv": "p,q\n,\nNA,\n",
        "ragged.csv": "p,q\n1,2\n1,2,3\n",
        "empty.csv": "",
        "header.csv": "p,q\n",
        "fake.parquet": "no",
        "infinite.csv": "p,q\n1,2\ninf,3\n",
        "in.xls": "",
    }
    for name, text in files.items():
        Path(name).write_text(text)
    Path("binary.csv").write_bytes(b"a,b\n\xff\xfe\x00,1\n")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    arguments, code, words = BAD[case]
    assert main(arguments) == code
    said = capsys.readouterr().err
    assert words in said.replace("\n", " ")
    assert "Traceback" not in said
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_unknown_flag_and_missing_output_are_wrong_usage(source, capsys) -> None:
    assert main(["impute", str(source), "--outptu", "x.csv"]) == 2
    assert main(["fit", str(source)]) == 2
    assert "--output" in capsys.readouterr().err


def test_interrupt_ends_with_130_and_a_hint(source, monkeypatch, capsys) -> None:
    def stop(self, X):
        raise KeyboardInterrupt

    monkeypatch.setattr(MCFlowImputer, "fit", stop)
    output = source.with_name("out.csv")
    assert main(["impute", str(source), "-o", str(output)]) == 130
    assert "--checkpoint-dir" in capsys.readouterr().err
    assert not output.exists()


def test_demo_fills_the_table_that_ships_with_the_package(tmp_path, capsys) -> None:
    output = tmp_path / "filled.parquet"
    assert main(["demo", "-o", str(output), "--max-time", "3"]) == 0
    filled = pd.read_parquet(output)
    assert filled.shape == (5265, 42)
    assert not filled.isna().any().any()
    assert "Filled 14,863 of 14,863 missing cells" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "max_time", "max_epochs"),
    [([], DEMO_TIME, None), (["--max-time", "5"], 5, None), (["--max-epochs", "3"], None, 3)],
)
def test_demo_ends_soon_unless_something_else_is_said(monkeypatch, tmp_path, flags, max_time, max_epochs) -> None:
    given = []
    monkeypatch.setattr("mcflow.cli.impute.impute", lambda source, **how: given.append(how["options"]))
    assert main(["demo", "-o", str(tmp_path / "x.csv"), *flags]) == 0
    assert [(options.max_time, options.max_epochs) for options in given] == [(max_time, max_epochs)]
    assert DEMO_TIME <= 60


HELP = {
    "--help": ("impute", "fit", "check", "demo", "benchmark"),
    "benchmark --help": ("tables", "images", "draws", "anytime", "ablation", "simulation"),
    "benchmark draws --help": ("--energy", "--mechanisms", "--page"),
    "benchmark tables --help": ("--methods", "--folds", "--retry"),
    "benchmark images --help": ("--sets", "--data-dir", "--figure", "--report-only"),
}


@pytest.mark.parametrize("arguments", HELP)
def test_help_lists_what_there_is_without_importing_numpy_or_torch(arguments) -> None:
    script = (
        f"import sys; from mcflow.cli.app import main; code = main({arguments.split()}); "
        "heavy = {'torch', 'sklearn', 'pyarrow', 'pandas', 'numpy'} & set(sys.modules); "
        "sys.exit(code or (f'imported {heavy}' if heavy else 0))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in HELP[arguments]:
        assert words in done.stdout


def test_module_runs_as_a_program_and_tells_its_version() -> None:
    import mcflow

    done = subprocess.run([sys.executable, "-m", "mcflow", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == mcflow.__version__
    failed = subprocess.run(
        [sys.executable, "-m", "mcflow", "impute", "no.csv", "-o", "x.csv"], capture_output=True, check=False
    )
    assert failed.returncode == 3

"""Schema files: what is written is read back, pins what a fit finds, and is checked."""

from __future__ import annotations

import tomllib
import warnings

import numpy as np
import pandas as pd
import pytest

from mcflow import MCFlowImputer
from mcflow.baselines import make
from mcflow.cli.app import main
from mcflow.columns.checking import check_schema
from mcflow.columns.frames import read_frame
from mcflow.columns.planning import column_settings, plan_table
from mcflow.columns.schema_file import read_schema, schema_text
from mcflow.errors import DataError, McflowWarning, ParameterError


def frame(n_rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "x": rng.normal(size=n_rows).round(2),
            "count": rng.integers(0, 9, n_rows),
            'odd "name" é\x7f': rng.choice(["a", "b"], n_rows),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 90, n_rows), unit="D"),
            "zoned": pd.date_range("2021-01-01", periods=n_rows, freq="h", tz="Europe/Berlin"),
            "fine": pd.date_range("2021-01-01", periods=n_rows, freq="37ns"),
            "wait": pd.to_timedelta(rng.integers(0, 90, n_rows), unit="s"),
            "flag": rng.random(n_rows) < 0.5,
            "one": 7,
            "none": pd.Series([None] * n_rows, dtype="float64"),
            "note": [f"text {k}" for k in range(n_rows)],
            "big": 2**60 + rng.integers(0, 9, n_rows),
        }
    )
    table.loc[::7, ["x", "day"]] = None
    return table


def planned(table: pd.DataFrame, schema: object = None, **given: object) -> dict[str, object]:
    read = read_frame(table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, constraints = plan_table(read, column_settings(read, schema, **given))
    return {"schema": found, "low": constraints.low.tolist(), "high": constraints.high.tolist()}


def test_schema_when_written_and_read_gives_the_same_plan(tmp_path) -> None:
    before = planned(frame())
    path = tmp_path / "schema.toml"
    path.write_text(schema_text(before["schema"]), encoding="utf-8")
    assert planned(frame(), path) == before
    assert check_schema(frame(), read_schema(path)).findings == []


def test_schema_when_a_table_has_other_rows_pins_the_kinds() -> None:
    table = frame()
    schema = {"columns": {"note": {"kind": "category"}, "count": {"kind": "category", "role": "targets_only"}}}
    few = planned(table[:30], schema)["schema"].columns
    assert [c.kind for c in few if c.name in ("note", "count")] == ["category", "category"]
    given = planned(table, schema, kinds={"count": "integer"})["schema"].columns
    assert next(c for c in given if c.name == "count").kind == "integer", "an argument replaces the entry"
    assert next(c for c in given if c.name == "count").role == "targets_only"


def test_schema_of_an_array_names_columns_by_position() -> None:
    rows = np.random.default_rng(0).integers(0, 3, (40, 2)).astype(float)
    imputer = make("mean", schema={"columns": {"1": {"kind": "category"}}}).fit(rows)
    assert [column.kind for column in imputer.schema_.columns] == ["integer", "category"]


def test_schema_when_it_names_absent_columns_warns() -> None:
    with pytest.warns(McflowWarning, match="does not have: 'age'"):
        make("mean", schema={"columns": {"age": {"kind": "integer"}}}).fit(np.zeros((5, 2)) + np.eye(5, 2))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"columns": {"a": {"kind": "categry"}}}, "columns.a.kind is 'categry'.*Did you mean 'category'"),
        ({"columns": {"a": {"role": "none"}}}, "columns.a.role is 'none'"),
        ({"columns": {"a": {"bound": [0, 1]}}}, "has the field 'bound'.*Did you mean 'bounds'"),
        ({"columns": {"a": {"bounds": 3}}}, "columns.a.bounds is 3"),
        ({"columns": {"a": {"missing": -999}}}, "columns.a.missing is -999"),
        ({"colums": {}}, "Did you mean 'columns'"),
        ({}, "has no columns"),
    ],
)
def test_schema_when_it_is_wrong_says_where(schema, words) -> None:
    with pytest.raises(ParameterError, match=words):
        read_schema(schema)


def test_schema_file_when_it_cannot_be_read_says_what_to_do(tmp_path) -> None:
    (tmp_path / "a.toml").write_text("kind =")
    for path, words in ((tmp_path / "a.toml", "is not a schema"), (tmp_path / "no.toml", "cannot be read")):
        with pytest.raises(DataError, match=f"{words}.*mcflow schema"):
            read_schema(path)


def test_bounds_when_infinite_are_open() -> None:
    given = read_schema({"columns": {"a": {"bounds": [0, float("inf")]}, "b": {"bounds": ["", "2020-01-01"]}}})
    assert given.settings(["a", "b"])["bounds"] == {"a": (0, None), "b": (None, "2020-01-01")}


def test_missing_codes_when_a_schema_is_written_and_read_are_taken_as_missing() -> None:
    frame = read_frame(pd.DataFrame({"sbp": [120.0, -999.0, 118.5, 130.0]}))
    written = plan_table(frame, column_settings(frame, None, missing_values={"sbp": [-999]}))[0]
    content = tomllib.loads(schema_text(written))
    assert content["columns"]["sbp"]["missing"] == [-999]
    again = plan_table(frame, column_settings(frame, content))[0]
    assert (again.columns[0].missing, again.columns[0].low) == (1, 118.5)


def test_check_by_schema_when_a_table_differs_says_how() -> None:
    schema = read_schema(
        {
            "columns": {
                "x": {"kind": "continuous", "bounds": [-9, 9], "missing_share": 0.0},
                "count": {"kind": "integer", "type": "int64"},
                "flag": {"kind": "boolean"},
                "gone": {"kind": "integer"},
                "note": {"kind": "datetime"},
            }
        }
    )
    table = frame()[["x", "count", "flag", "note"]].assign(count=0.5, more=1)
    table.loc[0:1, "x"] = 99.0
    report = check_schema(table, schema)
    found = {(f.column, f.what, f.breaks) for f in report.findings}
    assert found == {
        ("x", "range", True),
        ("x", "missing cells", False),
        ("count", "type", False),
        ("gone", "missing column", True),
        ("note", "type", True),
        ("more", "extra column", False),
    }
    assert not report.ok
    assert "outside the bounds of the schema" in str(report)


@pytest.mark.filterwarnings("default::mcflow.errors.McflowWarning")
def test_schema_command_when_edited_is_taken_by_all_commands(tmp_path, capsys) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=80), "zip": rng.integers(10, 14, 80), "n": range(80)})
    table.loc[::9, "a"] = None
    source, schema, model = tmp_path / "d.csv", tmp_path / "s.toml", tmp_path / "m.mcflow"
    table.to_csv(source, index=False)
    assert main(["schema", str(source), "-o", str(schema)]) == 0
    schema.write_text(
        schema.read_text().replace('kind = "integer"', 'kind = "category"').replace("bounds = [10, 13]", "")
    )
    capsys.readouterr()
    assert main(["check", str(source), "--schema", str(schema)]) == 0
    assert "matches the schema" in capsys.readouterr().out
    assert main(["check", str(source)]) == 2
    assert main(["inspect", str(source), "--schema", str(schema)]) == 0
    assert "kind given; 4 categories" in capsys.readouterr().out
    assert main(["impute", str(source), "--dry-run", "--schema", str(schema)]) == 0
    assert "4 categories" in capsys.readouterr().out
    quick = ["--schema", str(schema), "--max-epochs", "1", "-q"]
    assert main(["fit", str(source), "-o", str(model), *quick]) == 0
    from mcflow import load

    assert [column.kind for column in load(model).schema_.columns] == ["continuous", "category", "identifier"]
    assert main(["impute", str(source), "-o", str(tmp_path / "out.csv"), *quick]) == 0
    assert "identifier" not in capsys.readouterr().err, "a pinned kind needs no warning"
    assert main(["impute", str(source), "-o", str(tmp_path / "out.csv"), "--model", str(model), *quick[:2]]) == 2
    flags = ["--methods", "mean", "--max-time", "1", "-q", "--schema", str(schema)]
    assert main(["evaluate", str(source), "-o", str(tmp_path / "e.json"), *flags]) == 0


def test_parameter_schema_is_cloned_and_not_saved(tmp_path) -> None:
    from sklearn.base import clone

    from mcflow import load

    rows = np.random.default_rng(0).normal(size=(40, 2))
    schema = {"columns": {"0": {"bounds": [-9.0, 9.0]}}}
    imputer = clone(MCFlowImputer(schema=schema, max_epochs=1, random_state=0)).fit(rows)
    assert imputer.constraints_.low[0] == -9
    imputer.save(tmp_path / "m.mcflow")
    assert load(tmp_path / "m.mcflow").constraints_.low[0] == -9

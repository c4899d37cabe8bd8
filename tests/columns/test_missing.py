"""Missing cells: declared values, words in text, suspected codes, and the decimals of fills."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcflow import MCFlowImputer, load
from mcflow.columns.schema import MISSING_MARKS, MISSING_WORDS, MissingValues, suspected_codes
from mcflow.errors import AdviceWarning, DataError, McflowWarning, ParameterError
from mcflow.files.datasets import nhanes_path
from mcflow.files.tables import read_table

RNG = np.random.default_rng(0)
#: Codes that stand for something else than a number in the real tables, as far as their makers say.
FOUND = {
    "adult": {"capital_gain": [99999]},
    "news": {"n_non_stop_words": [0], "average_token_length": [0]},
    "nhanes_2017_2018": {"dbp1": [0], "dbp2": [0]},
}


def quick(**given) -> MCFlowImputer:
    return MCFlowImputer(max_epochs=1, calibrate=False, random_state=0, **given)


def frame(n: int = 120) -> pd.DataFrame:
    x = RNG.normal(size=n)
    return pd.DataFrame({"x": x, "age": np.where(np.arange(n) % 9 == 0, -999, RNG.integers(20, 80, n))})


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([*RNG.integers(90, 200, 99), *[-999] * 3], [-999]),
        ([*RNG.integers(0, 90, 99), *[-9] * 3, -8], [-9, -8]),
        ([*RNG.normal(7, 1, 99), *[99] * 3], [99]),
        ([*RNG.integers(1, 3, 99), 7, 9, 9], [7, 9]),
        ([*RNG.integers(40, 90, 99), 0, 0], [0]),
        ([*RNG.normal(size=99), 9999], [9999]),
        (RNG.integers(0, 100, 99), []),
        ([*RNG.integers(0, 6, 99), 8, 8, 9], []),
        (np.where(RNG.random(200) < 0.7, 0, RNG.lognormal(8, 1, 200)), []),
        (RNG.lognormal(3, 2, 500), []),
        ([1, 2, 9], []),
    ],
)
def test_codes_are_suspected_when_nothing_is_near(values, codes) -> None:
    assert [suspect.value for suspect in suspected_codes(pa.array(np.asarray(values, float)))] == codes


@pytest.mark.parametrize(
    "name",
    [*FOUND, "bean", "california", "credit", "letter", "penguins", "pima", "spambase", "titanic"],
)
def test_real_tables_have_few_suspected_codes(data_folder, name) -> None:
    table = pq.read_table(data_folder / f"{name}.parquet")
    found = {n: [s.value for s in suspected_codes(table.column(n).combine_chunks())] for n in table.column_names}
    assert {n: codes for n, codes in found.items() if codes} == FOUND.get(name, {})


def test_nhanes_with_sentinels_has_the_missing_cells_of_the_clean_table() -> None:
    clean = pq.read_table(nhanes_path()).select(["age", "sbp1", "sbp2", "sleep_hours", "bmi", "gender"]).slice(0, 800)
    coded = clean
    for name, code in {"sbp1": -999.0, "sbp2": -999.0, "sleep_hours": 99.0}.items():
        coded = coded.set_column(coded.column_names.index(name), name, coded.column(name).fill_null(code))
    one, two = quick().fit(clean), quick(missing_values="auto").fit(coded)
    assert [c.missing for c in one.schema_.columns] == [c.missing for c in two.schema_.columns]
    assert two.transform(coded).equals(one.transform(clean))
    low, high = pa.compute.min_max(one.transform(clean).column("sbp1")).as_py().values()
    assert low > 50
    assert high < 300


def test_fit_warns_of_codes_in_the_terms_of_the_interface() -> None:
    with pytest.warns(
        AdviceWarning, match=r"'age' holds -999 in 14 cells.*missing_values=\{'age': \[-999\]\}"
    ) as caught:
        quick().fit(frame())
    assert "--na age=-999" in caught[0].message.on_command_line
    quick(missing_values={"age": []}).fit(frame())


@pytest.mark.parametrize("make", [lambda t: t, pl.from_pandas, pa.Table.from_pandas], ids=["pandas", "polars", "arrow"])
@pytest.mark.parametrize("given", [[-999], {"age": -999}, {"age": ["-999"]}, "auto", MissingValues((-999,))])
def test_declared_values_are_filled_and_types_kept(make, given) -> None:
    table = make(frame())
    filled = quick(missing_values=given).fit_transform(table)
    ages = np.asarray(filled["age"])
    assert type(filled) is type(table)
    assert ages.dtype == np.int64
    assert ages.min() >= 20


@pytest.mark.parametrize("dtype", [float, int])
def test_declared_values_of_arrays_are_filled(dtype) -> None:
    rows = np.column_stack([RNG.integers(20, 80, 90), np.where(np.arange(90) % 9, RNG.integers(0, 9, 90), -99)])
    filled = quick(missing_values={1: [-99]}, add_indicator=True).fit(rows.astype(dtype)).transform(rows.astype(dtype))
    assert filled[:, 1].min() >= 0
    assert filled[:, 2].sum() == 10


def test_declared_values_are_remembered_by_the_model_file(tmp_path) -> None:
    table = frame()
    imputer = quick(missing_values=[-999]).fit(table)
    imputer.save(tmp_path / "model")
    assert load(tmp_path / "model").transform(table).equals(imputer.transform(table))
    assert load(tmp_path / "model").check(table).findings == []


@pytest.mark.parametrize(
    ("given", "message"), [({"agee": [1]}, "Did you mean 'age'"), ([None], "numbers and texts"), ([[1]], "numbers")]
)
def test_declared_values_that_make_no_sense_are_refused(given, message) -> None:
    with pytest.raises(ParameterError, match=message):
        quick(missing_values=given).fit(frame())


@pytest.mark.parametrize("word", sorted(word for word in MISSING_WORDS | {"Unknown", "N/A", " - "} if word.strip()))
def test_words_in_a_column_of_numbers_are_missing(tmp_path, word) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f'a,b\n1,x\n"{word}",y\n2,z\n', encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert read_table(path).table.column("a").to_pylist() == [1, None, 2]
        table = pd.DataFrame({"a": ["1.5", word, "2.5"] * 10, "b": range(30)})
        (column, _) = quick(kinds={"b": "integer"}).fit(table).schema_.columns
    assert (column.kind, column.missing) == ("continuous", 10)


def test_words_in_a_column_of_text_are_missing_only_when_unambiguous() -> None:
    cells = ["a", "b", "c", "?", "NA", "none", "low"] * 20
    with pytest.warns(McflowWarning, match=r"'t' holds texts that are read as missing.*'\?' \(20\), 'NA' \(20\)"):
        column = quick().fit(pd.DataFrame({"t": cells, "x": RNG.normal(size=140)})).schema_.columns[0]
    assert column.categories == ("a", "b", "c", "low", "none")
    assert {"?", "NA"} <= MISSING_MARKS


def test_numbers_in_text_come_back_as_text_in_their_own_form() -> None:
    prices = [None if k % 7 == 0 else f"${v:,.2f}" for k, v in enumerate(RNG.lognormal(8, 1, 90))]
    table = pd.DataFrame({"price": prices, "x": RNG.normal(size=90), "code": [str(k % 3) for k in range(90)]})
    imputer = quick().fit(table)
    assert [column.kind for column in imputer.schema_.columns] == ["continuous", "continuous", "category"]
    filled = imputer.transform(table)
    assert filled["price"].str.fullmatch(r"\$\d{1,3}(,\d{3})*\.\d\d").all()
    assert filled["price"][table["price"].notna()].equals(table["price"].dropna())
    other = table.assign(price="cheap")
    with pytest.raises(DataError, match="also other text: 'cheap'"):
        imputer.set_params(unseen="error").transform(other)


def test_truth_words_in_several_spellings_are_two_categories() -> None:
    words = [None if k % 5 == 0 else ("Yes", "yes", "NO", "yes", "1")[k % 4] for k in range(80)]
    table = pd.DataFrame({"ok": words, "x": RNG.normal(size=80)})
    imputer = quick().fit(table)
    assert (imputer.schema_.columns[0].kind, imputer.schema_.columns[0].categories) == ("boolean", ("NO", "yes"))
    assert set(imputer.transform(table)["ok"][::5]) <= {"NO", "yes"}


def test_observed_decimals_hold_for_fills_draws_and_intervals() -> None:
    table = pd.DataFrame({"a": RNG.normal(size=90).round(1), "b": RNG.normal(size=90)})
    table.loc[::6] = np.nan
    imputer = quick(decimals="observed").fit(table)
    tables = [imputer.transform(table), *imputer.draw(table, 2, 0, row_ids=range(90)), *imputer.interval(table)]
    for filled in tables:
        assert (filled["a"].round(1) == filled["a"]).all()
        assert (filled["b"][::6].round(6) != filled["b"][::6]).any()
    full = quick().fit_transform(table)
    assert (full["a"].round(1) != full["a"]).any()


def test_nearly_numeric_text_is_named() -> None:
    cells = [f"{v:.2f}" for v in RNG.normal(size=90)] + ["refused"] * 5
    table = pd.DataFrame({"a": cells, "x": RNG.normal(size=95)})
    with pytest.warns(McflowWarning) as caught:
        quick().fit(table)
    assert any("--na a=refused" in getattr(one.message, "on_command_line", "") for one in caught)
    assert quick(missing_values={"a": ["refused"]}).fit(table).schema_.columns[0].kind == "continuous"


def test_categorical_types_keep_all_their_categories() -> None:
    cells = pd.Categorical(["", "nan", "?", "a", None] * 20)
    table = pd.DataFrame({"t": cells, "x": RNG.normal(size=100)})
    filled = quick().fit_transform(table)
    assert filled["t"][table["t"].notna()].equals(table["t"].dropna())
    assert filled["t"].notna().all()

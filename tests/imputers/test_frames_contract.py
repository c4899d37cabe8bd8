"""The contract of tables: whatever the container and its columns, only missing change, and into what fits there."""

from __future__ import annotations

import datetime as dt
import decimal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcflow import MCFlowImputer, load
from mcflow.columns.frames import read_frame
from mcflow.errors import DataError, McflowWarning

#: Random numbers may look like codes for missing cells.
pytestmark = pytest.mark.filterwarnings("ignore:.*may stand for missing cells")

TEXTS = ("a", "b", " b", "Ä", "日本", "not", "3", "a,b", "a\n")  # without texts that mark a missing cell
NAMES = ("a", "b c", "", "naïve", "列 1", "x\ty", "3", "None", 'quo"te', "x0")
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
ZONES = (None, "UTC", "Europe/Berlin", "Asia/Kathmandu", "+05:30")
#: Seconds from 1700 to 2200, which all units can hold.
EARLIEST, LATEST = -8_520_336_000, 7_258_118_400

#: What a column that was made as one kind may be found to be, besides constant and empty.
FOUND = {
    "continuous": {"continuous", "integer"},
    "integer": {"integer", "identifier"},
    "boolean": {"boolean", "integer"},
    "category": {"category", "integer", "identifier"},
    "ordered": {"ordered", "category", "integer"},
    "datetime": {"datetime"},
    "identifier": {"identifier", "integer", "category"},
    "text": {"text", "identifier", "category"},
    "other": {"other"},
    "empty": set(),
}
NUMBERS = ("continuous", "integer", "boolean", "empty")
LEFT_ALONE = ("empty", "identifier", "text", "other")


@dataclass(frozen=True)
class Made:
    """A column as it was made: Arrow cells, or plain objects of several types."""

    kind: str
    cells: Any


@st.composite
def numbers(draw: st.DrawFn, whole: bool) -> tuple[list[Any], pa.DataType]:
    if not whole or draw(st.booleans()):
        width = draw(st.sampled_from([32, 64]))
        values = st.floats(-(2.0**100), 2.0**100, width=width)
        pool = draw(st.lists(values.map(round).map(float) if whole else values, min_size=1, max_size=8))
        return pool, pa.float32() if width == 32 else pa.float64()
    kind = draw(st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()]))
    limits = np.iinfo(kind.to_pandas_dtype())
    start = draw(st.sampled_from([0, int(limits.min), int(limits.max) - 100, int(limits.max) // 2]))
    return draw(st.lists(st.integers(start, min(start + 100, int(limits.max))), min_size=1, max_size=8)), kind


@st.composite
def times(draw: st.DrawFn) -> tuple[list[Any], pa.DataType]:
    form = draw(st.sampled_from(["date32", "date64", "timestamp", "timestamp", "duration"]))
    if form in ("date32", "date64"):
        days = draw(st.lists(st.integers(EARLIEST // 86_400, LATEST // 86_400), min_size=1, max_size=8))
        return [dt.date(1970, 1, 1) + dt.timedelta(day) for day in days], getattr(pa, form)()
    unit = draw(st.sampled_from(list(UNITS)))
    step = draw(st.sampled_from([1, UNITS[unit], 3600 * UNITS[unit]]))
    ends = [bound * UNITS[unit] // step for bound in (EARLIEST, LATEST)]
    pool = [count * step for count in draw(st.lists(st.integers(*ends), min_size=1, max_size=8))]
    return pool, pa.duration(unit) if form == "duration" else pa.timestamp(unit, draw(st.sampled_from(ZONES)))


@st.composite
def categories(draw: st.DrawFn, ordered: bool) -> tuple[list[Any], pa.DataType]:
    pool: list[Any] = draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6, unique=True))
    texts = draw(st.sampled_from([pa.string(), pa.large_string()]))
    if not ordered and draw(st.booleans()):
        return pool, texts
    if draw(st.integers(0, 3)) == 0:
        return [7 - place for place in range(len(pool))], pa.dictionary(pa.int32(), pa.int64(), ordered)
    return pool, pa.dictionary(draw(st.sampled_from([pa.int8(), pa.int32()])), texts, ordered)


OTHERS = (
    ([[1, 2], [], [3]], pa.list_(pa.int64())),
    ([decimal.Decimal("1.50"), decimal.Decimal("-2.25")], pa.decimal128(9, 2)),
    ([dt.time(1, 2), dt.time(23, 59, 59)], pa.time64("us")),
    ([b"x", b"\xff"], pa.binary()),
    ([{"u": 1}, {"u": 2}], pa.struct([("u", pa.int64())])),
    ([1, "a", 2.5, (1, 2), True], None),
)

POOLS = {
    "continuous": numbers(whole=False),
    "integer": numbers(whole=True),
    "boolean": st.just(([True, False], pa.bool_())),
    "category": categories(ordered=False),
    "ordered": categories(ordered=True),
    "datetime": times(),
    "other": st.sampled_from(OTHERS),
    "empty": st.sampled_from([pa.null(), pa.float64(), pa.float32(), pa.int64(), pa.string(), pa.bool_()]).map(
        lambda kind: ([None], kind)
    ),
}


@st.composite
def columns(draw: st.DrawFn, kinds: tuple[str, ...], n_rows: int) -> Made:
    kind = draw(st.sampled_from(kinds))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    missing = rng.random(n_rows) < draw(st.sampled_from([0.0, 0.2, 0.7]))
    if kind == "identifier" and draw(st.booleans()):
        return Made(kind, pa.array(np.arange(n_rows) + 100))
    if kind in ("identifier", "text"):
        texts = [f"t{i if kind == 'identifier' or i % 5 else 0}" for i in range(n_rows)]
        return Made(kind, pa.array(texts, mask=missing))
    pool, found = draw(POOLS[kind])
    picks = rng.integers(0, len(pool) if draw(st.integers(0, 5)) else 1, n_rows)
    if found is None:
        picks[:2], missing[:2] = (0, 1), False
    if found is not None and pa.types.is_dictionary(found):
        return Made(kind, coded(pool, pa.array(picks, found.index_type, mask=missing), found))
    hole = np.nan if found is not None and pa.types.is_floating(found) and draw(st.booleans()) else None
    cells = [hole if empty else pool[pick] for pick, empty in zip(picks, missing, strict=True)]
    return Made(kind, cells if found is None else arrow(cells, found))


def arrow(cells: list[Any], kind: pa.DataType) -> pa.Array:
    """Return cells in an Arrow type; times are given as counts of their unit."""
    counted = pa.types.is_timestamp(kind) or pa.types.is_duration(kind)
    return pa.array(cells, pa.int64()).cast(kind) if counted else pa.array(cells, kind)


def coded(pool: list[Any], places: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a dictionary array with all of a pool as its categories, used or not."""
    return pa.DictionaryArray.from_arrays(places, pa.array(pool, kind.value_type), ordered=kind.ordered)


@st.composite
def tables(draw: st.DrawFn, kinds: tuple[str, ...]) -> list[Made]:
    """Return columns of equal length, the first of which can be learned from."""
    n_rows = draw(st.integers(5, 40))
    first = draw(columns(("continuous", "integer", "boolean"), n_rows))
    if all(map(is_hole, first.cells.to_pylist())):
        first = Made("integer", pa.array(np.arange(n_rows) % 3))
    return [first, *draw(st.lists(columns(kinds, n_rows), max_size=4))]


def is_hole(cell: Any) -> bool:
    return cell is None or cell is pd.NA or cell is pd.NaT or (isinstance(cell, float | np.floating) and cell != cell)


def plain(cells: Any) -> list[Any]:
    """Return cells as plain objects, which know no nanoseconds."""
    if isinstance(cells, list):
        return cells
    if pa.types.is_timestamp(cells.type):
        cells = cells.cast(pa.timestamp("us", cells.type.tz), safe=False)
    return (cells.cast(pa.duration("us"), safe=False) if pa.types.is_duration(cells.type) else cells).to_pylist()


def to_floats(table: list[Made], dtype: str) -> np.ndarray:
    cells = [[np.nan if cell is None else float(cell) for cell in plain(made.cells)] for made in table]
    return np.array(cells, dtype=dtype).T


def to_objects(table: list[Made]) -> np.ndarray:
    return pd.DataFrame({k: pd.Series(plain(made.cells), dtype=object) for k, made in enumerate(table)}).to_numpy()


WORDS = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt64", "Float32", "Float64")
NULLABLE = {getattr(pa, word.lower())(): getattr(pd, f"{word}Dtype")() for word in WORDS}
NULLABLE |= {pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype()}


def in_chunks(cells: pa.Array) -> pa.ChunkedArray:
    return pa.chunked_array([cells[:2], cells[2:]])


def to_pandas(table: list[Made], series: Callable[[pa.Array], pd.Series]) -> pd.DataFrame:
    made = [pd.Series(m.cells, dtype=object) if isinstance(m.cells, list) else series(m.cells) for m in table]
    return pd.concat(dict(enumerate(made)), axis=1)


def to_polars(made: Made) -> pl.Series:
    if isinstance(made.cells, list):
        return pl.Series(made.cells, dtype=pl.Object)
    kind = made.cells.type
    if pa.types.is_timestamp(kind) and kind.tz == "+05:30":  # which polars does not know
        return pl.Series(made.cells.cast(pa.timestamp(kind.unit, "UTC")))
    if not pa.types.is_dictionary(kind):
        return pl.Series(made.cells)
    if pa.types.is_integer(kind.value_type):
        return pl.Series(made.cells.dictionary_decode())
    texts = made.cells.dictionary.to_pylist()
    return pl.Series(made.cells.to_pylist(), dtype=pl.Enum(texts) if kind.ordered else pl.Categorical)


def to_arrow(made: Made) -> pa.ChunkedArray:
    plain = isinstance(made.cells, list)
    return in_chunks(pa.array([None if c is None else repr(c).encode() for c in made.cells]) if plain else made.cells)


PANDAS = {
    "pandas": lambda cells: cells.to_pandas(),
    "pandas with objects": lambda cells: pd.Series(plain(cells), dtype=object),
    "pandas nullable": lambda cells: cells.to_pandas(types_mapper=NULLABLE.get),
    "pandas on arrow": lambda cells: pd.Series(pd.arrays.ArrowExtensionArray(in_chunks(cells))),
}
CONTAINERS = ("float64", "float32", "objects", *PANDAS, "polars", "pyarrow")


@st.composite
def frames(draw: st.DrawFn, container: str, kinds: tuple[str, ...] = tuple(FOUND)) -> tuple[Any, list[str]]:
    """Return a table in a container, and the kind that each of its columns was made as."""
    table = draw(tables(NUMBERS if container.startswith("float") else kinds))
    names = draw(st.permutations(NAMES))[: len(table)]
    if container.startswith("float"):
        native = to_floats(table, container)
    elif container == "objects":
        native = to_objects(table)
    elif container == "polars":
        native = pl.DataFrame([to_polars(made).alias(name) for made, name in zip(table, names, strict=True)])
    elif container == "pyarrow":
        native = pa.table([to_arrow(made) for made in table], names=names)
    else:
        native = to_pandas(table, PANDAS[container])
        native.index = draw(indexes(len(native)))
        if draw(st.integers(0, 3)):
            native.columns = names
    return native, [made.kind for made in table]


def indexes(n_rows: int) -> st.SearchStrategy[pd.Index]:
    return st.sampled_from(
        [
            pd.RangeIndex(n_rows),
            pd.Index(np.arange(n_rows) // 2, name="twice"),
            pd.Index([f"r{row % 7}" for row in range(n_rows)]),
            pd.Index(np.arange(n_rows)[::-1] * 0.5),
            pd.date_range("2020", periods=n_rows, freq="h", tz="UTC"),
            pd.MultiIndex.from_arrays([["k"] * n_rows, np.arange(n_rows) % 3], names=["one", None]),
        ]
    )


def names_of(native: Any) -> list[Any]:
    if isinstance(native, np.ndarray):
        return list(range(native.shape[1]))
    return list(native.column_names if isinstance(native, pa.Table) else native.columns)


def cells_of(native: Any, place: int) -> list[Any]:
    """Return a column as objects; times keep their nanoseconds."""
    if isinstance(native, np.ndarray):
        return list(native[:, place])
    if isinstance(native, pd.DataFrame):
        return list(native.iloc[:, place])
    column = native[:, place] if isinstance(native, pl.DataFrame) else native.column(place)
    if isinstance(column, pl.Series):
        return column.to_list() if column.dtype == pl.Object else column.to_arrow().to_pylist()
    return column.to_pylist()


def type_of(native: Any, place: int) -> Any:
    """Return a column's type with all that belongs to it: unit, time zone, and categories in their order."""
    if isinstance(native, np.ndarray):
        return native.dtype
    if isinstance(native, pl.DataFrame):
        return native.dtypes[place]
    if isinstance(native, pd.DataFrame):
        dtype = native.dtypes.iloc[place]
        return (dtype, list(dtype.categories)) if isinstance(dtype, pd.CategoricalDtype) else dtype
    column = native.column(place)
    return column.type, column.combine_chunks().dictionary if pa.types.is_dictionary(column.type) else None


def some_rows(native: Any, rows: np.ndarray) -> Any:
    if isinstance(native, pd.DataFrame):
        return native.iloc[rows]
    return native.take(rows) if isinstance(native, pa.Table) else native[rows]


def same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, float | np.floating):
        return np.array(one).tobytes() == np.array(other).tobytes()
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other


def check_same_table(before: Any, after: Any) -> None:
    assert type(before) is type(after)
    assert names_of(before) == names_of(after)
    for place in range(len(names_of(before))):
        assert type_of(before, place) == type_of(after, place)
        for old, new in zip(cells_of(before, place), cells_of(after, place), strict=True):
            assert same(old, new) or (is_hole(old) and is_hole(new))


def check_filled(imputer: MCFlowImputer, fitted: Any, before: Any, after: Any) -> None:
    """Check a filled table against the one that was given and the one of the fit."""
    kept = [p for p, c in enumerate(imputer.schema_.columns) if c.kind != "empty" or imputer.keep_empty_features]
    floats = {column.dtype for column in imputer.schema_.columns} <= {"double", "float", "halffloat"}
    assert type(after) is type(before)
    assert names_of(after) == [names_of(before)[p] for p in kept] or isinstance(before, np.ndarray)
    if isinstance(before, pd.DataFrame):
        assert after.index.identical(before.index)
        assert after.columns.identical(before.columns[kept])
    for place, p in enumerate(kept):
        assert type_of(after, place) == type_of(before, p)
        old, new = cells_of(before, p), cells_of(after, place)
        assert len(old) == len(new)
        assert all(same(o, n) for o, n in zip(old, new, strict=True) if not is_hole(o))
        fills = [n for o, n in zip(old, new, strict=True) if is_hole(o)]
        seen = [cell for cell in cells_of(fitted, p) if not is_hole(cell)]
        column = imputer.schema_.columns[p]
        check_fills(column.base or column.kind, fills, seen, measured=floats)


def check_fills(kind: str, fills: list[Any], seen: list[Any], *, measured: bool) -> None:
    if kind in LEFT_ALONE:
        assert kind == "empty" or all(map(is_hole, fills))
        return
    assert not any(map(is_hole, fills))
    if kind in ("boolean", "category", "ordered"):
        assert all(any(same(fill, level) for level in seen) for fill in fills)
        return
    assert all(min(seen) <= fill <= max(seen) for fill in fills)
    assert all(isinstance(fill, type(seen[0])) for fill in fills)
    between = measured and float(max(seen)) - float(min(seen)) < 50
    assert kind != "integer" or between or all(fill == int(fill) for fill in fills)


@pytest.mark.parametrize("container", CONTAINERS)
@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_frame_when_filled_differs_only_in_its_holes(container: str, data: st.DataObject, quick) -> None:
    frame, kinds = data.draw(frames(container))
    imputer = quick(keep_empty_features=data.draw(st.booleans()))
    rows = np.flatnonzero(np.random.default_rng(data.draw(st.integers(0, 99))).random(len(frame)) < 0.5)
    part = some_rows(frame, rows if len(rows) else np.array([0]))
    copies = [given.copy() if isinstance(given, np.ndarray | pd.DataFrame) else given for given in (frame, part)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Skipping features without any observed", UserWarning)
        warnings.simplefilter("ignore", McflowWarning)
        filled = imputer.fit_transform(frame)
    found = [column.base or column.kind for column in imputer.schema_.columns]
    assert all(f in FOUND[kind] | {"empty"} for f, kind in zip(found, kinds, strict=True)), (found, kinds)
    check_filled(imputer, frame, frame, filled)
    check_filled(imputer, frame, part, imputer.transform(part))
    for given_one, copied in zip((frame, part), copies, strict=True):
        check_same_table(copied, given_one)


@pytest.mark.parametrize("wanted", ["pandas", "polars"])
@pytest.mark.parametrize("container", CONTAINERS)
@settings(deadline=None, max_examples=3, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_frame_when_set_output_is_set_comes_back_as_that_kind(
    container: str, wanted: str, data: st.DataObject, quick
) -> None:
    frame, _ = data.draw(frames(container, ("continuous", "integer", "boolean", "category")))
    imputer = quick().set_output(transform=wanted)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Skipping features without any observed", UserWarning)
        filled = imputer.fit_transform(frame)
    kept = [p for p, column in enumerate(imputer.schema_.columns) if column.kind != "empty"]
    assert type(filled) is {"pandas": pd.DataFrame, "polars": pl.DataFrame}[wanted]
    assert list(filled.columns) == list(imputer.get_feature_names_out())
    for place, p in enumerate(kept):
        pairs = zip(cells_of(frame, p), cells_of(filled, place), strict=True)
        assert all(old == new for old, new in pairs if not is_hole(old))
        assert not any(map(is_hole, cells_of(filled, place)))


X = [0.5, None, 1.5, 2.25, None, 3.5] * 2


def dictionary(places: list[int | None], texts: list[str], ordered: bool = True) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), texts, ordered=ordered)


@pytest.mark.parametrize(
    ("fitted", "new"),
    [
        (pd.Series(pd.Categorical(["u", "v", None] * 4)), pd.Series(pd.Categorical([None, None, "u"], ["u"]))),
        (pl.Series(["u", "v", None] * 4, dtype=pl.Enum(["v", "u"])), pl.Series([None] * 3, dtype=pl.Enum(["w"]))),
        (dictionary([0, 1, None] * 4, ["u", "v"]), dictionary([0, None, None], ["u"])),
    ],
)
def test_categories_that_new_rows_do_not_list_are_added_behind_theirs(fitted: Any, new: Any, quick) -> None:
    make = {pd.Series: pd.DataFrame, pl.Series: pl.DataFrame}.get(type(new), pa.table)
    imputer = quick().fit(make({"x": pa.array(X) if make is pa.table else X, "c": fitted}))
    filled = imputer.transform(make({"x": pa.array(X[:3]) if make is pa.table else X[:3], "c": new}))
    assert set(cells_of(filled, 1)) <= {"u", "v"}
    if make is pl.DataFrame:
        assert filled["c"].dtype.categories[0] == "w"


@pytest.mark.parametrize("make", [pl.DataFrame, pd.DataFrame, pa.table])
def test_column_whose_only_gap_is_an_unseen_level_comes_back_as_it_was(make: Callable[[Any], Any], quick) -> None:
    imputer = quick().fit(make({"x": X, "c": ["u", "v", "u"] * 4}))
    with pytest.warns(McflowWarning, match="did not see in: 'c'"):
        filled = imputer.transform(make({"x": [1.0, None], "c": ["new", "u"]}))
    assert cells_of(filled, 1) == ["new", "u"]


def test_ordered_dictionary_of_several_chunks_keeps_its_order(quick) -> None:
    chunks = [dictionary([0, None, 1, 0], ["z", "a"]), dictionary([0, 1, 2, None, 0, 1, 1, 1], ["a", "q", "z"])]
    table = pa.table({"x": X, "c": pa.chunked_array(chunks)})
    imputer = quick().fit(table)
    check_filled(imputer, table, table, imputer.transform(table))
    assert imputer.schema_.columns[1].categories == ("z", "a", "q")


def test_arrow_table_keeps_the_metadata_of_its_columns(quick) -> None:
    fields = [pa.field("x", pa.float64(), metadata={"unit": "m"}), pa.field("k", pa.int64(), nullable=False)]
    table = pa.table([X, [1, 2, 3] * 4], schema=pa.schema(fields, metadata={"from": "here"}))
    assert quick().fit_transform(table).schema.equals(table.schema, check_metadata=True)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.float16()])
def test_arrow_type_that_few_functions_know_is_filled(kind: pa.DataType, quick) -> None:
    cells = pa.array(["u", None, "v"] * 4 if kind == pa.string_view() else np.array(X, dtype="float16"), kind)
    table = pa.table({"x": X, "c": cells})
    imputer = quick().fit(table)
    check_filled(imputer, table, table, imputer.transform(table))


def test_numbers_that_no_float64_can_hold_are_filled_within_their_range(tmp_path: Path, quick) -> None:
    counts = pd.array([2**62 + 1, 2**62 + 9, None] * 4, dtype="Int64")
    frame = pd.DataFrame({"x": X, "big": counts, "time": pd.to_datetime(counts - 3 * 10**18)})
    imputer = quick().fit(frame)
    imputer.save(tmp_path / "model.mcflow")
    check_filled(imputer, frame, frame, load(tmp_path / "model.mcflow").transform(frame))


def test_objects_in_an_array_are_not_read_as_numbers(quick) -> None:
    rows = np.array([["1", True, 1, 0.5], ["2", False, 2, None], [None, None, None, 1.5]] * 4, dtype=object)
    imputer = quick().fit(rows)
    assert [column.kind for column in imputer.schema_.columns] == ["category", "boolean", "integer", "continuous"]
    filled = imputer.transform(rows)
    assert filled.dtype == object
    assert [set(map(type, filled[:, k])) for k in range(4)] == [{str}, {bool}, {int}, {float}]


def test_numbers_of_an_array_that_are_said_to_be_categories_are_filled_with_categories(quick) -> None:
    rows = np.array([[3.0, 0.1], [5.0, 0.7], [np.nan, 0.4]] * 4)
    filled = quick(kinds={0: "category"}).fit_transform(rows)
    assert set(filled[:, 0]) == {3.0, 5.0}
    ones = quick().fit(np.ones((5, 2), dtype=bool))
    assert ones.transform(np.array([[np.nan, 1.0]])).tolist() == [[1.0, 1.0]]


def test_array_of_dates_is_filled_with_dates(quick) -> None:
    rows = np.array([["2020-01-01", "2020-03-01"], ["NaT", "2021-01-01"], ["2020-05-01", "NaT"]], dtype="M8[D]")
    filled = quick().fit_transform(rows)
    assert filled.dtype == rows.dtype
    assert not np.isnat(filled).any()


def test_durations_where_the_fit_had_times_are_refused(quick) -> None:
    times = pd.DataFrame({"x": X, "t": pd.to_datetime(["2020-01-01", "2021-01-01", None] * 4)})
    with pytest.raises(DataError, match="'t' had the type timestamp"):
        quick().fit(times).transform(times.assign(t=times["t"] - times["t"].min()))


@pytest.mark.parametrize(
    ("empty", "dtype"),
    [
        (pd.Series([None] * 12, dtype="timedelta64[s]"), "datetime64[us]"),
        (pd.Series([None] * 12, dtype="float64"), "datetime64[us]"),
        (pd.Series([None] * 12, dtype="datetime64[s]"), "datetime64[s]"),
        (pd.Series([None] * 12, dtype=object), "object"),
    ],
)
def test_empty_column_of_new_rows_takes_another_type_only_if_its_own_cannot_hold_the_fills(empty, dtype, quick) -> None:
    frame = pd.DataFrame({"x": X, "t": pd.to_datetime(["2020-01-01", "2021-01-01", None] * 4)})
    filled = quick().fit(frame).transform(frame.assign(t=empty))
    assert filled["t"].dtype == dtype
    assert filled["t"].notna().all()


def test_columns_of_several_types_go_through_set_output_and_know_their_holes(quick) -> None:
    frame = pd.DataFrame({"x": X, "mixed": pd.Series([1, "a", None, pd.NA, np.nan, pd.NaT] * 2, dtype=object)})
    filled = quick().set_output(transform="polars").fit_transform(frame)
    assert filled["mixed"].to_list()[:2] == [1, "a"]
    assert read_frame(frame).missing(1).tolist() == [False, False, True, True, True, True] * 2

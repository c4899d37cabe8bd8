"""Public tables by name, prepared as complete columns of numbers and, if wanted, of categories."""

from __future__ import annotations

__all__ = [
    "CATALOG",
    "MixedTable",
    "NamedTable",
    "NumberTable",
    "energy_folder",
    "frame_source",
    "locate",
    "read_mixed",
    "read_numbers",
    "table_source",
]

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.typing import FloatArray
from mcflow_bench.data.downloads import Source, checksum, data_folder, fetch

if TYPE_CHECKING:
    import pyarrow as pa

_UCI = "https://archive.ics.uci.edu/static/public"
_ENDINGS = (".parquet", ".csv")
#: Spellings of a missing cell.
_MISSING = ["", "?", "NA", "NaN", "nan", "NULL"]


@dataclass(frozen=True)
class NamedTable:
    """A public table."""

    title: str  # its name in reports
    drop: tuple[str, ...] = ()  # labels and identifiers, as any source spells them
    sources: tuple[Source, ...] = ()  # where it can be downloaded, the first choice first
    member: str = ""  # ending of the name of the file inside a zip archive
    n_columns: int = 0  # number of columns of a file without a header; 0 if it has one
    citation: str = ""  # reference to cite


class NumberTable(NamedTuple):
    """A complete table of numbers: float64 values of shape (n_rows, n_columns), and the columns' names."""

    values: FloatArray
    names: list[str]


class MixedTable(NamedTuple):
    """A complete table of numbers and codes of categories, of shape (n_rows, n_columns)."""

    values: FloatArray
    names: list[str]
    categories: dict[int, list[str]]  # by column; a code is the index of a category


#: The tables that can be downloaded; a folder may hold others.
CATALOG: dict[str, NamedTable] = {
    "letter": NamedTable(
        title="Letter",
        drop=("lettr", "class", "c0"),
        sources=(Source(f"{_UCI}/59/letter+recognition.zip", ".zip"), Source("openml:6", ".arff")),
        member="letter-recognition.data",
        n_columns=17,
        citation="Slate (1991), Letter Recognition, UCI Machine Learning Repository, doi:10.24432/C5ZP40",
    ),
    "credit": NamedTable(
        title="Credit",
        drop=("default", "Y", "y", "ID", "id", "default payment next month"),
        sources=(Source(f"{_UCI}/350/data.csv"), Source("openml:42477", ".arff")),
        citation="Yeh (2009), Default of Credit Card Clients, UCI Machine Learning Repository, doi:10.24432/C55S3H",
    ),
    "news": NamedTable(
        title="News",
        sources=(Source(f"{_UCI}/332/online+news+popularity.zip", ".zip"),),
        member="OnlineNewsPopularity.csv",
        citation="Fernandes et al. (2015), Online News Popularity, UCI Machine Learning Repository, "
        "doi:10.24432/C5NS3V",
    ),
    "bean": NamedTable(
        title="Bean",
        drop=("Class",),
        sources=(Source(f"{_UCI}/602/dry+bean+dataset.zip", ".zip"), Source(f"{_UCI}/602/data.csv")),
        member=".arff",
        citation="Koklu and Ozkan (2020), Dry Bean, UCI Machine Learning Repository, doi:10.24432/C50S4B",
    ),
    "spambase": NamedTable(
        title="Spambase",
        drop=("spam", "class", "Class", "c57"),
        sources=(Source(f"{_UCI}/94/spambase.zip", ".zip"), Source("openml:44", ".arff")),
        member="spambase.data",
        n_columns=58,
        citation="Hopkins et al. (1999), Spambase, UCI Machine Learning Repository, doi:10.24432/C53G6X",
    ),
    "california": NamedTable(
        title="California",
        sources=(Source("openml:44977", ".arff"),),
        citation="Pace and Barry (1997), Sparse spatial autoregressions, Statistics and Probability Letters 33",
    ),
    "adult": NamedTable(
        title="Adult",
        drop=("split",),
        sources=(Source("openml:1590", ".arff"),),
        citation="Becker and Kohavi (1996), Adult, UCI Machine Learning Repository, doi:10.24432/C5XW20",
    ),
}


def locate(name: str, folder: Path | None = None) -> Path:
    """Return the file of a table: from the folder, else from the cache, else downloaded into the cache."""
    folder = data_folder(folder)
    for path in (folder / f"{name}{ending}" for ending in _ENDINGS) if folder is not None else ():
        if path.is_file():
            return path
    if name not in CATALOG:
        where = f" in {folder}, and none" if folder else ""
        known, hint = ", ".join(CATALOG), did_you_mean(name, CATALOG)
        raise ParameterError(f"There is no table {name!r}{where} to download. Known are {known}.{hint}")
    return fetch(name, CATALOG[name].sources)


def table_source(name: str, folder: Path | None = None) -> tuple[Path, str]:
    """Return the file of a table and its checksum."""
    path = locate(name, folder)
    return path, checksum(path)


def energy_folder(folder: Path | None = None) -> Path:
    """Return the folder `energy` of the data folder; its tables are not public downloads."""
    data = data_folder(folder)
    if data is None or not (data / "energy").is_dir():
        where = f"{data} has no folder energy" if data else "No folder with data sets is given"
        raise DataError(f"{where}. --data or MCFLOW_DATA has to name one whose folder energy holds NAME.parquet files.")
    return data / "energy"


def frame_source(name: str, folder: Path | None = None) -> tuple[Path, str]:
    """Return the file of a table with its own column types, and its checksum."""
    path = energy_folder(folder) / f"{name}.parquet"
    if not path.is_file():
        known = sorted(one.stem for one in path.parent.glob("*.parquet"))
        hint = did_you_mean(name, known)
        raise ParameterError(f"There is no table {name!r} in {path.parent}. Known are {', '.join(known)}.{hint}")
    return path, checksum(path)


def read_numbers(path: Path, name: str) -> NumberTable:
    """Read a table and keep its numeric columns that vary and its complete rows."""
    values, names, _ = _complete(path, name, mixed=False)
    return NumberTable(values, names)


def read_mixed(path: Path, name: str) -> MixedTable:
    """Read a table and keep its numeric columns, its columns of text as categories, and its complete rows."""
    return _complete(path, name, mixed=True)


def _complete(path: Path, name: str, *, mixed: bool) -> MixedTable:
    """Read the columns that vary over the complete rows."""
    import pyarrow as pa

    entry = CATALOG.get(name, NamedTable(name))
    try:
        table = _read(path.name, path.read_bytes(), entry)
    except (pa.ArrowException, zipfile.BadZipFile, UnicodeDecodeError, StopIteration) as error:
        raise DataError(f"{path} cannot be read: {error}. Give another file, or remove it from the cache.") from error
    columns, words = {}, {}
    for place, column_name in enumerate(map(str.strip, table.column_names)):
        if column_name in entry.drop:
            continue
        if _is_number(table.schema.field(place).type):
            columns[column_name] = _floats(table.column(place))
        elif mixed:
            columns[column_name], words[column_name] = _codes(table.column(place))
    values = np.column_stack(list(columns.values())) if columns else np.empty((table.num_rows, 0))
    values = values[~np.isnan(values).any(axis=1)]
    varies = np.ptp(values, axis=0) > 0 if len(values) else np.zeros(values.shape[1], dtype=bool)
    if not varies.any():
        kind = "numbers or categories" if mixed else "numbers"
        raise DataError(f"{path} has no column of {kind} that varies over its complete rows.")
    names = [column for column, kept in zip(columns, varies, strict=True) if kept]
    categories = {k: words[column] for k, column in enumerate(names) if column in words}
    return MixedTable(np.ascontiguousarray(values[:, varies]), names, categories)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _floats(column: pa.ChunkedArray) -> FloatArray:
    import pyarrow as pa

    # A safe cast refuses integers above 2**53; the nearest float64 is good enough.
    numbers: FloatArray = column.cast(pa.float64(), safe=False).to_numpy()
    return numbers


def _codes(column: pa.ChunkedArray) -> tuple[FloatArray, list[str]]:
    """Return the codes of a column of text, NaN where it is missing, and its categories in order."""
    import pyarrow as pa

    texts = [(text or "").strip() for text in column.cast(pa.string()).to_pylist()]
    categories = sorted({*texts} - {*_MISSING})
    numbers = {text: float(code) for code, text in enumerate(categories)}
    return np.array([numbers.get(text, np.nan) for text in texts]), categories


def _read(file_name: str, data: bytes, entry: NamedTable) -> pa.Table:
    ending = Path(file_name).suffix.lower()
    if ending == ".zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            member = next((m for m in archive.namelist() if m.endswith(entry.member)), None)
            if member is None:
                raise DataError(f"{file_name} holds no file {entry.member!r}. Remove it from the cache.")
            return _read(member, archive.read(member), entry)
    if ending == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(io.BytesIO(data))
    if ending == ".arff":
        return _read_arff(data)
    return _read_csv(data, [f"c{k}" for k in range(entry.n_columns)] if ending == ".data" else None)


def _read_csv(data: bytes, names: list[str] | None, **parse: Any) -> pa.Table:
    from pyarrow import csv

    read = csv.ReadOptions(column_names=names)
    convert = csv.ConvertOptions(null_values=_MISSING)
    return csv.read_csv(
        io.BytesIO(data), read_options=read, convert_options=convert, parse_options=csv.ParseOptions(**parse)
    )


def _read_arff(data: bytes) -> pa.Table:
    """Read the dense form of ARFF; a column is numeric if all its cells are."""
    lines = data.decode("utf-8", errors="replace").splitlines()
    names: list[str] = []
    for place, line in enumerate(lines):
        word, _, rest = line.strip().replace("\t", " ").partition(" ")
        if word.lower() == "@data":
            body = [row for row in lines[place + 1 :] if row.strip() and not row.startswith("%")]
            return _read_csv("\n".join(body).encode(), names, quote_char=_quote(body))
        if word.lower() == "@attribute":
            names.append(_attribute(rest.strip()))
    raise DataError("An ARFF file has no line @DATA, so it was cut short. Remove it from the cache.")


def _quote(body: list[str]) -> str:
    return "'" if any("'" in row for row in body[:100]) else '"'


def _attribute(declared: str) -> str:
    if declared[:1] in "'\"":
        return declared[1:].partition(declared[0])[0]
    return declared.partition(" ")[0]

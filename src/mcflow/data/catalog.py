"""Public tables by name: from a folder, or downloaded once; prepared as complete columns of numbers."""

from __future__ import annotations

__all__ = ["CATALOG", "NamedTable", "NumberTable", "locate", "read_numbers"]

import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mcflow.data.downloads import Source, fetch
from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.typing import FloatArray

if TYPE_CHECKING:
    import pyarrow as pa

_UCI = "https://archive.ics.uci.edu/static/public"
_ENDINGS = (".parquet", ".csv")


@dataclass(frozen=True)
class NamedTable:
    """A public table.

    Parameters
    ----------
    title : str
        How tables of results call it.
    drop : tuple of str
        Labels and identifiers, in the spelling of every source.
    sources : tuple of Source
        Where it can be downloaded.
    member : str
        How the name of the file inside a zip archive ends.
    n_columns : int
        Columns of a file that has no line of names; 0 when it has one.
    citation : str
        Whom to cite.
    """

    title: str
    drop: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    member: str = ""
    n_columns: int = 0
    citation: str = ""


class NumberTable(NamedTuple):
    """A complete table of numbers: float64 values of shape (n_rows, n_columns), and the columns' names."""

    values: FloatArray
    names: list[str]


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
}


def locate(name: str, folder: Path | None = None) -> Path:
    """Return the file of a table: from a folder, else from the cache, else downloaded into it.

    Parameters
    ----------
    name : str
        A key of `CATALOG`, or any NAME.parquet or NAME.csv of the folder.
    folder : Path, optional
        By default the one that MCFLOW_DATA names.

    Returns
    -------
    Path

    Raises
    ------
    ParameterError
        When nothing has that name.
    DataError
        When the download fails; see `fetch`.
    """
    if folder is None and os.environ.get("MCFLOW_DATA"):
        folder = Path(os.environ["MCFLOW_DATA"])
    if folder is not None:
        if not folder.is_dir():
            raise ParameterError(f"{folder} is not a folder. --data and MCFLOW_DATA name one that holds tables.")
        for ending in _ENDINGS:
            if (path := folder / f"{name}{ending}").is_file():
                return path
    if name not in CATALOG:
        where = f" in {folder}, and none" if folder else ""
        known, hint = ", ".join(CATALOG), did_you_mean(name, CATALOG)
        raise ParameterError(f"There is no table {name!r}{where} to download. Known are {known}.{hint}")
    return fetch(name, CATALOG[name].sources)


def read_numbers(path: Path, name: str) -> NumberTable:
    """Read a table and keep what can be compared: columns of numbers that vary, rows without a hole.

    Parameters
    ----------
    path : Path
        What `locate` returned: .parquet, .csv, .arff or a .zip of one.
    name : str
        Its name; `CATALOG` says which columns are labels.

    Returns
    -------
    NumberTable

    Raises
    ------
    DataError
        When the file cannot be read or nothing is left of it.
    """
    import pyarrow as pa

    entry = CATALOG.get(name, NamedTable(name))
    try:
        table = _read(path.name, path.read_bytes(), entry)
    except (pa.ArrowException, zipfile.BadZipFile, UnicodeDecodeError, StopIteration) as error:
        raise DataError(f"{path} cannot be read: {error}. Give another file, or remove it from the cache.") from error
    columns = {
        column_name: _floats(table.column(place))
        for place, column_name in enumerate(map(str.strip, table.column_names))
        if column_name not in entry.drop and _is_number(table.schema.field(place).type)
    }
    values = np.column_stack(list(columns.values())) if columns else np.empty((table.num_rows, 0))
    values = values[~np.isnan(values).any(axis=1)]
    varies = np.ptp(values, axis=0) > 0 if len(values) else np.zeros(values.shape[1], dtype=bool)
    if not varies.any():
        raise DataError(f"{path} has no column of numbers that varies over its complete rows.")
    names = [column for column, kept in zip(columns, varies, strict=True) if kept]
    return NumberTable(np.ascontiguousarray(values[:, varies]), names)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _floats(column: pa.ChunkedArray) -> FloatArray:
    import pyarrow as pa

    # Safe casts refuse whole numbers above 2 to the power of 53; the nearest float64 is what is wanted.
    numbers: FloatArray = column.cast(pa.float64(), safe=False).to_numpy()
    return numbers


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
    convert = csv.ConvertOptions(null_values=["", "?", "NA", "NaN", "nan", "NULL"])
    return csv.read_csv(
        io.BytesIO(data), read_options=read, convert_options=convert, parse_options=csv.ParseOptions(**parse)
    )


def _read_arff(data: bytes) -> pa.Table:
    """Read the dense form of ARFF; columns are numbers when all their cells are."""
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

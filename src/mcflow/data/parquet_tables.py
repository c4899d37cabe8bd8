"""Parquet files as tables, and filled tables with the types, metadata and compression of their source."""

from __future__ import annotations

__all__ = ["ParquetSource", "conformed", "read_parquet", "write_parquet"]

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


@dataclass(frozen=True)
class ParquetSource:
    """What a Parquet file looks like.

    Parameters
    ----------
    compression : str, default="snappy"
        The codec of its first column.
    group_rows : int, optional
        Rows in its first row group.
    """

    compression: str = "snappy"
    group_rows: int | None = None

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> ParquetSource:
        """Read it off the metadata of a file."""
        if not metadata.num_row_groups or not metadata.num_columns:
            return cls()
        group = metadata.row_group(0)
        codec = group.column(0).compression.lower()
        return cls("none" if codec == "uncompressed" else codec, group.num_rows or None)


def read_parquet(data: bytes) -> tuple[pa.Table, ParquetSource]:
    """Read a Parquet file.

    Parameters
    ----------
    data : bytes
        All of the file.

    Returns
    -------
    table : pyarrow.Table
    source : ParquetSource

    Raises
    ------
    pyarrow.ArrowException or OSError
        When it is damaged or not a Parquet file.
    """
    with pq.ParquetFile(pa.BufferReader(data)) as opened:
        return opened.read(), ParquetSource.of(opened.metadata)


def write_parquet(filled: pa.Table, table: pa.Table, source: ParquetSource) -> memoryview:
    """Write a filled table as a Parquet file.

    Parameters
    ----------
    filled : pyarrow.Table
        The table to write; it may have columns more or less than its source.
    table : pyarrow.Table
        The source's table. Columns that both have get its types where they can hold the filled values.
    source : ParquetSource
        What the file has to look like.

    Returns
    -------
    memoryview
        The bytes of the file.
    """
    whole = conformed(filled, table)
    target = pa.BufferOutputStream()
    pq.write_table(whole, target, compression=source.compression, row_group_size=source.group_rows)
    return memoryview(target.getvalue())


def conformed(filled: pa.Table, table: pa.Table) -> pa.Table:
    """Give the columns of a filled table the types that they have in its source, where these can hold the values.

    Parameters
    ----------
    filled : pyarrow.Table
        It may have columns more or less than its source.
    table : pyarrow.Table
        The source.

    Returns
    -------
    pyarrow.Table
        With the metadata of the source.
    """
    places = {name: place for place, name in enumerate(table.column_names)}
    known = [places.get(name) for name in filled.column_names]
    columns = [
        column if place is None else _conform(column, table.column(place))
        for column, place in zip(filled.columns, known, strict=True)
    ]
    fields = [
        (filled.schema.field(k) if place is None else table.schema.field(place)).with_type(columns[k].type)
        for k, place in enumerate(known)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=table.schema.metadata))


def _conform(column: pa.ChunkedArray, source: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give a column the type that it has in the source, when that can hold its values."""
    kind = source.type
    if column.type == kind or _family(column.type) != _family(kind):
        return column
    try:
        return _encoded(column, source) if pa.types.is_dictionary(kind) else _plain(column).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return column


def _family(kind: pa.DataType) -> str:
    """Return a word for the types whose values mean the same."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "time"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    return str(kind)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _encoded(column: pa.ChunkedArray, source: pa.ChunkedArray) -> pa.ChunkedArray:
    """Encode a column by the dictionary of its source, in its order, with new words at the end."""
    kind = source.type
    values = _plain(column).cast(kind.value_type)
    chunks = source.unify_dictionaries().chunks
    words = chunks[0].dictionary if chunks else pa.array([], kind.value_type)
    given = values.unique().drop_null()
    words = pa.concat_arrays([words, given.filter(pc.invert(pc.is_in(given, value_set=words)))])
    indices = pc.index_in(values, value_set=words).cast(kind.index_type)
    return pa.chunked_array(
        [pa.DictionaryArray.from_arrays(chunk, words, ordered=kind.ordered) for chunk in indices.chunks], kind
    )

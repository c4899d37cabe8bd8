"""Read Parquet files, and write filled tables with the types, metadata and compression of their source."""

from __future__ import annotations

__all__ = ["ParquetSource", "conformed", "decoded_size", "read_parquet", "write_parquet"]

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

#: Bytes of the values of physical types of fixed size.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_ROWS_MEASURED = 8_192  # rows that are measured together


@dataclass(frozen=True)
class ParquetSource:
    """How a Parquet file is written."""

    compression: str = "snappy"  # codec of the first column
    group_rows: int | None = None  # number of rows in the first row group

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> ParquetSource:
        """Read the properties from the metadata of a file."""
        if not metadata.num_row_groups or not metadata.num_columns:
            return cls()
        group = metadata.row_group(0)
        codec = group.column(0).compression.lower()
        return cls("none" if codec == "uncompressed" else codec, group.num_rows or None)


def read_parquet(data: bytes) -> tuple[pa.Table, ParquetSource]:
    """Read a Parquet file."""
    with pq.ParquetFile(pa.BufferReader(data)) as opened:
        table = opened.read()
        table.validate(full=True)  # Arrow does not check that texts are UTF-8
        return table, ParquetSource.of(opened.metadata)


def decoded_size(path: Path, most: int) -> int:
    """Return the bytes of all values of a file in memory, or a number above `most` as soon as it is exceeded."""
    with pq.ParquetFile(path) as opened:
        leaves = [opened.metadata.schema.column(k) for k in range(opened.metadata.num_columns)]
        groups = [opened.metadata.row_group(k) for k in range(opened.metadata.num_row_groups)]
    widths = [_WIDTHS.get(leaf.physical_type, leaf.length) for leaf in leaves]
    fixed = sum(group.column(k).num_values * width for group in groups for k, width in enumerate(widths))
    size: int = max(fixed, sum(group.total_byte_size for group in groups))
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    if size > most or not texts:
        return size
    total: int = fixed  # the footer counts a repeated text once, so the lengths of texts are added up
    with pq.ParquetFile(path, read_dictionary=texts) as opened:
        for batch in opened.iter_batches(_ROWS_MEASURED, columns=texts):
            total += sum(_decoded(array) for column in batch.columns for array in _leaves(column))
            if total > most:
                break
    return max(size, total)


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of values inside an array of lists, maps or structs."""
    if pa.types.is_struct(array.type):
        for inner in array.flatten():
            yield from _leaves(inner)
    elif pa.types.is_map(array.type):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        yield from _leaves(array.flatten())
    else:
        yield array


def _decoded(array: pa.Array) -> int:
    """Return the bytes of the values of an array whose dictionary is expanded."""
    if not pa.types.is_dictionary(array.type) or not len(array.dictionary):
        return int(array.nbytes)
    lengths = pc.binary_length(array.dictionary).cast(pa.int64())
    return int(pc.sum(lengths.take(array.indices)).as_py() or 0)


def write_parquet(filled: pa.Table, table: pa.Table, source: ParquetSource) -> memoryview:
    """Return a filled table as the bytes of a Parquet file, given its source table."""
    target = pa.BufferOutputStream()
    pq.write_table(conformed(filled, table), target, compression=source.compression, row_group_size=source.group_rows)
    return memoryview(target.getvalue())


def conformed(filled: pa.Table, table: pa.Table) -> pa.Table:
    """Convert the columns of a filled table to the types of its source, where these can hold the values."""
    places = {name: place for place, name in enumerate(table.column_names)}
    columns, fields = [], []
    for column, field in zip(filled.columns, filled.schema, strict=True):
        place = places.get(field.name)
        columns.append(column if place is None else _conform(column, table.column(place)))
        fields.append((field if place is None else table.schema.field(place)).with_type(columns[-1].type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=table.schema.metadata))


def _conform(column: pa.ChunkedArray, source: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert a column to the type of its source, if that can hold the values."""
    kind = source.type
    if column.type == kind or _family(column.type) != _family(kind):
        return column
    try:
        return _encoded(column, source) if pa.types.is_dictionary(kind) else _plain(column).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return column


def _family(kind: pa.DataType) -> str:
    """Return a name that is shared by types whose values can be converted into each other."""
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
    """Encode a column with the dictionary of its source, to which new values are appended."""
    kind = source.type
    values = _plain(column).cast(kind.value_type)
    chunks = source.unify_dictionaries().chunks
    words = chunks[0].dictionary if chunks else pa.array([], kind.value_type)
    given = values.unique().drop_null()
    words = pa.concat_arrays([words, given.filter(pc.invert(pc.is_in(given, value_set=words)))])
    indices = pc.index_in(values, value_set=words).cast(kind.index_type)
    coded = [pa.DictionaryArray.from_arrays(chunk, words, ordered=kind.ordered) for chunk in indices.chunks]
    return pa.chunked_array(coded, kind)

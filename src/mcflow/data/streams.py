"""The bytes of files: plain or compressed by their ending, or of standard input and output."""

from __future__ import annotations

__all__ = ["STREAM", "compress", "decompress", "read_stream", "write_stream"]

import gzip
import sys
import zlib
from pathlib import Path

import pyarrow as pa

from mcflow.errors import OutputError

#: The name that stands for standard input and output.
STREAM = Path("-")


def read_stream() -> bytes:
    """Return all of standard input."""
    return sys.stdin.buffer.read()


def write_stream(data: bytes | memoryview) -> None:
    """Write to standard output.

    Raises
    ------
    OutputError
        When nobody reads it any more, or it is closed.
    """
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        raise OutputError(f"Standard output cannot be written: {error.strerror or error}.") from error


def decompress(data: bytes, ending: str) -> bytes:
    """Return the content of a file.

    Parameters
    ----------
    data : bytes
        All of the file.
    ending : str
        The end of its name: ".gz" and ".zst" are compressed, others are not.

    Returns
    -------
    bytes

    Raises
    ------
    ValueError
        When the file is damaged, or not compressed as its ending says.

    Examples
    --------
    >>> decompress(compress(b"rows", ".csv.gz"), ".csv.gz")
    b'rows'
    """
    try:
        if ending.endswith(".gz"):
            return gzip.decompress(data)
        if ending.endswith(".zst"):
            with pa.input_stream(pa.BufferReader(data), compression="zstd") as stream:
                return bytes(stream.read())
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"it cannot be decompressed ({error})") from error
    return data


def compress(data: bytes, ending: str) -> bytes:
    """Undo `decompress`. The same content gives the same bytes."""
    if ending.endswith(".gz"):
        return gzip.compress(data, compresslevel=6, mtime=0)
    if ending.endswith(".zst"):
        return bytes(pa.Codec("zstd").compress(data, asbytes=True))
    return data

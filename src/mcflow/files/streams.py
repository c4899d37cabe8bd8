"""The bytes of files: compressed or not by their ending, and standard input and output."""

from __future__ import annotations

__all__ = [
    "STREAM",
    "compress",
    "decompress",
    "discard_output",
    "open_compressed",
    "open_decompressed",
    "read_stream",
    "readable",
    "write_stream",
]

import contextlib
import gzip
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from mcflow.errors import DataError, OutputError, ParameterError

#: Path that stands for standard input and output.
STREAM = Path("-")


def read_stream() -> bytes:
    """Read standard input to its end."""
    return sys.stdin.buffer.read()


def write_stream(data: bytes | memoryview) -> None:
    """Write to standard output; a reader that closes it early has what it wanted."""
    if sys.stdout is None:
        raise OutputError("Standard output is closed. Give -o the name of a file.")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        discard_output()
    except OSError as error:
        raise OutputError(f"Standard output cannot be written: {error.strerror or error}.") from error


def discard_output() -> None:
    """Discard what is still written to standard output, whose reader is gone."""
    with contextlib.suppress(OSError, AttributeError):  # a replaced standard output may have no file
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


@contextlib.contextmanager
def readable(
    name: str | Path, format_name: str, advice: str = "Check the file, or give another one."
) -> Iterator[None]:
    """Raise a `DataError` that names the file and its format when the block cannot read it."""
    try:
        yield
    except (DataError, ParameterError):
        raise
    except (ValueError, OSError, pa.ArrowException) as error:
        why = str(error).rstrip(". \n")
        raise DataError(f"{name} cannot be read as {format_name}: {why}. {advice}") from error


@contextlib.contextmanager
def _decompressing() -> Iterator[None]:
    """Raise a `ValueError` that explains errors of decompression."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"it cannot be decompressed ({error})") from error


def decompress(data: bytes, ending: str) -> bytes:
    """Decompress the bytes of a file."""
    with _decompressing():
        if ending.endswith(".gz"):
            return gzip.decompress(data)
        if ending.endswith(".zst"):
            with pa.input_stream(pa.BufferReader(data), compression="zstd") as stream:
                return bytes(stream.read())
    return data


def compress(data: bytes, ending: str) -> bytes:
    """Compress the content of a file; the same content gives the same bytes."""
    if ending.endswith(".gz"):
        return gzip.compress(data, compresslevel=6, mtime=0)
    if ending.endswith(".zst"):
        return bytes(pa.Codec("zstd").compress(data, asbytes=True))
    return data


@contextlib.contextmanager
def open_decompressed(path: Path) -> Iterator[IO[bytes] | Any]:
    """Open a file for reading, decompressed according to its ending."""
    ending = path.suffix.lower()
    if ending not in (".gz", ".zst"):
        with path.open("rb") as opened:
            yield opened
        return
    with (
        _decompressing(),
        gzip.open(path, "rb") if ending == ".gz" else pa.input_stream(str(path), compression="zstd") as opened,
    ):
        yield opened


@contextlib.contextmanager
def open_compressed(path: Path, ending: str) -> Iterator[IO[bytes] | Any]:
    """Open a file for writing, compressed according to `ending`; the same content gives the same bytes."""
    if ending == ".zst":
        with pa.output_stream(str(path), compression="zstd") as opened:
            yield opened
        return
    with path.open("wb") as opened:
        if ending == ".gz":
            writer = _GzipWriter(opened)
            yield writer
            writer.finish()
        else:
            yield opened


class _GzipWriter:
    """Write a gzip file without name and time stamp."""

    def __init__(self, opened: IO[bytes]) -> None:
        self.opened = opened
        self.compressor = zlib.compressobj(6, zlib.DEFLATED, 31)

    def write(self, data: bytes) -> None:
        self.opened.write(self.compressor.compress(data))

    def finish(self) -> None:
        self.opened.write(self.compressor.flush())

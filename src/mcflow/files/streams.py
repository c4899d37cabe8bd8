"""The bytes of files: compressed or not by their ending, and standard input and output."""

from __future__ import annotations

__all__ = ["discard_output", "open_compressed", "open_decompressed", "read_stream", "readable", "write_stream"]

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

STREAM = Path("-")  # path that stands for standard input and output


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
def readable(name: str | Path, kind: str, advice: str = "Check the file, or give another one.") -> Iterator[None]:
    """Raise a `DataError` that names the file and its format when the block cannot read it."""
    try:
        yield
    except (DataError, ParameterError):
        raise
    except (ValueError, OSError, pa.ArrowException) as error:
        why = str(error).rstrip(". \n")
        raise DataError(f"{name} cannot be read as {kind}: {why}. {advice}") from error


@contextlib.contextmanager
def open_decompressed(source: Path | IO[bytes], ending: str) -> Iterator[IO[bytes] | Any]:
    """Open a file or its content for reading, decompressed according to its ending."""
    if not ending.endswith((".gz", ".zst")):
        with source.open("rb") if isinstance(source, Path) else source as opened:
            yield opened
        return
    packed = str(source) if isinstance(source, Path) else source
    try:
        with gzip.open(packed) if ending.endswith(".gz") else pa.input_stream(packed, compression="zstd") as opened:
            yield opened
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"it cannot be decompressed ({error})") from error


@contextlib.contextmanager
def open_compressed(path: Path, ending: str) -> Iterator[IO[bytes] | Any]:
    """Open a file for writing, compressed according to `ending`; the same content gives the same bytes."""
    if ending.endswith(".zst"):
        with pa.output_stream(str(path), compression="zstd") as opened:
            yield opened
        return
    with path.open("wb") as opened:
        if ending.endswith(".gz"):
            with gzip.GzipFile("", "wb", 6, opened, mtime=0) as packed:  # without name and time stamp
                yield packed
        else:
            yield opened

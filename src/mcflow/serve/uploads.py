"""Uploaded files: safe names, formats, and checks of compressed content."""

from __future__ import annotations

__all__ = ["ending_of", "plain_name", "refuse_bad_content", "save_upload"]

import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa

from mcflow.errors import DataError
from mcflow.files.tables import FORMATS, format_of
from mcflow.serve.limits import size_in_words

_CHUNK = 1 << 20
_MAX_NAME = 120


def plain_name(given: str | None) -> str:
    r"""Return the file name of a client without folders and unsafe characters.

    Examples
    --------
    >>> plain_name(r"C:\Users\me\my rows.csv"), plain_name("../../etc/passwd")
    ('my rows.csv', 'passwd')
    """
    last = (given or "").replace("\\", "/").rpartition("/")[2]
    kept = "".join(sign for sign in last if sign.isprintable() and sign not in '<>:"|?*').strip(" .")
    return kept[-_MAX_NAME:]


def ending_of(name: str) -> str:
    """Return the extension of a file name, which determines the format.

    Examples
    --------
    >>> ending_of("rows.CSV.gz")
    '.csv.gz'
    """
    try:
        format_of(Path(name or "file"))
    except ValueError as error:
        raise DataError(str(error)) from error
    lower = name.lower()
    return max((ending for ending in FORMATS if lower.endswith(ending)), key=len)


def save_upload(source: IO[bytes], target: Path) -> int:
    """Write an upload to a file, and return its size."""
    with target.open("wb") as file:
        shutil.copyfileobj(source, file, _CHUNK)
    return target.stat().st_size


def refuse_bad_content(path: Path, name: str, most: int) -> None:
    """Raise `DataError` if a file is empty, damaged or decompresses to more than `most` bytes.

    The file is decompressed in chunks that are discarded, so that a decompression bomb takes neither memory nor disk.
    The decompressed size of a Parquet file is in its footer, which is read later.
    """
    if not path.stat().st_size:
        raise DataError(f"{name} is empty. Give a file with a header line and rows.")
    pieces = _unpacked(path)
    if pieces is None:
        return
    total = 0
    try:
        for piece in pieces:
            total += len(piece)
            if total > most:
                raise DataError(
                    f"{name} decompresses to more than {size_in_words(most)}, the limit of this server. Send a part "
                    "of it."
                )
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise DataError(f"{name} cannot be decompressed: {error}. Check the file, or send it uncompressed.") from error


def _unpacked(path: Path) -> Iterator[bytes] | None:
    if path.suffix == ".gz":
        return _gzip_pieces(path)
    return _zstd_pieces(path) if path.suffix == ".zst" else None


def _gzip_pieces(path: Path) -> Iterator[bytes]:
    import gzip

    with gzip.open(path) as stream:
        while piece := stream.read(_CHUNK):
            yield piece


def _zstd_pieces(path: Path) -> Iterator[bytes]:
    with pa.input_stream(str(path), compression="zstd") as stream:
        while piece := stream.read(_CHUNK):
            yield bytes(piece)

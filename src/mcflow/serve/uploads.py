"""Files that clients send: named, weighed and unpacked for a trial before anything is done with them."""

from __future__ import annotations

__all__ = ["ending_of", "plain_name", "refuse_bad_content", "save_upload"]

import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa

from mcflow.data.tables import FORMATS, format_of
from mcflow.errors import DataError
from mcflow.serve.limits import size_in_words

_CHUNK = 1 << 20
_LONGEST_NAME = 120


def plain_name(given: str | None) -> str:
    r"""Return a client's name for a file without folders and signs that do harm.

    Parameters
    ----------
    given : str or None
        As it was sent.

    Returns
    -------
    str

    Examples
    --------
    >>> plain_name(r"C:\Users\me\my rows.csv"), plain_name("../../etc/passwd")
    ('my rows.csv', 'passwd')
    """
    last = (given or "").replace("\\", "/").rpartition("/")[2]
    kept = "".join(sign for sign in last if sign.isprintable() and sign not in '<>:"|?*').strip(" .")
    return kept[-_LONGEST_NAME:]


def ending_of(name: str) -> str:
    """Return the ending of a file's name that says its format.

    Parameters
    ----------
    name : str
        Of the file.

    Returns
    -------
    str
        One of `mcflow.data.tables.FORMATS`.

    Raises
    ------
    DataError
        When it is another one.

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
    """Write what a client sends to a file.

    Parameters
    ----------
    source : file
        To read.
    target : Path
        To write.

    Returns
    -------
    int
        Bytes.
    """
    with target.open("wb") as file:
        shutil.copyfileobj(source, file, _CHUNK)
    return target.stat().st_size


def refuse_bad_content(path: Path, name: str, most: int) -> None:
    """Raise `DataError` when a file is empty, damaged or unpacks to more than is allowed.

    Parameters
    ----------
    path : Path
        The file; its ending says how it is packed.
    name : str
        What the client calls it.
    most : int
        Bytes, unpacked.

    Notes
    -----
    The file is unpacked piece by piece and nothing is kept, so that a small file that unpacks to a huge one costs
    neither memory nor disk. What Parquet files unpack to is in their footer, which is read later.
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
                    f"{name} unpacks to more than {size_in_words(most)}, which is the most this server takes. "
                    "Send a part of it."
                )
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise DataError(f"{name} cannot be unpacked: {error}. Check the file, or send it as it is.") from error


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

"""Files from public archives, kept in a cache and checked by their SHA-256 whenever they are used."""

from __future__ import annotations

__all__ = ["Source", "cache_folder", "checksum", "fetch"]

import contextlib
import hashlib
import http.client
import json
import os
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mcflow.data.files import replacing
from mcflow.data.locks import holding
from mcflow.errors import DataError, McflowError

_SCHEMES = ("https://", "http://", "file://")
_OPENML = "https://api.openml.org"
_TIMEOUT_SECONDS = 60
_PIECE = 1 << 18


@dataclass(frozen=True)
class Source:
    """Where a file can be had.

    Parameters
    ----------
    url : str
        Address of the file; for OpenML ``openml:ID`` with the number of the data set.
    ending : str
        Of the name in the cache, which says how the file is read: ".csv", ".zip", ".arff" or ".parquet".
    sha256 : str or None
        Checksum of the file. When it is not known, that of the first download is trusted and kept.
    """

    url: str
    ending: str = ".csv"
    sha256: str | None = None


def cache_folder() -> Path:
    """Return the folder for downloads: MCFLOW_CACHE, or where the platform keeps caches.

    Returns
    -------
    Path
        It need not exist yet.
    """
    if given := os.environ.get("MCFLOW_CACHE"):
        return Path(given)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "mcflow" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "mcflow"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mcflow"


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "x").write_bytes(b"")
    ...     checksum(Path(folder) / "x")[:16]
    'e3b0c44298fc1c14'
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(name: str, sources: tuple[Source, ...], folder: Path | None = None) -> Path:
    """Return the cached file of a data set, after downloading it if need be.

    Parameters
    ----------
    name : str
        Name in the cache, without an ending.
    sources : tuple of Source
        Tried in turn until one can be had.
    folder : Path, optional
        The cache, by default `cache_folder()`.

    Returns
    -------
    Path

    Raises
    ------
    DataError
        When no source can be had, or when a file is not the one that its checksum was taken of.
    OutputError
        When the cache cannot be written, or another process is downloading into it.

    Notes
    -----
    A download goes to a temporary name and is renamed when it is whole. One that broke off goes on where it was, when
    the server allows it. The checksum is kept beside the file, and every later use checks it.
    """
    folder = folder or cache_folder()
    for source in sources:
        cached = folder / f"{name}{source.ending}"
        if _record(cached).is_file() and cached.is_file():
            return _checked(cached, source)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"The cache {folder} cannot be made: {error.strerror}. MCFLOW_CACHE names another.") from error
    reasons = []
    with holding(folder / f".{name}.lock", f"the download of {name}"):
        for source in sources:
            try:
                return _downloaded(source, folder / f"{name}{source.ending}")
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                if isinstance(error, McflowError):
                    raise
                reasons.append(f"{source.url}: {_reason(error)}")
    raise DataError(
        f"{name} is not in {folder} and cannot be downloaded ({'; '.join(reasons)}). Try again when the network is "
        f"back, or put {name}.parquet or {name}.csv into a folder and name it with --data or MCFLOW_DATA."
    )


def _reason(error: BaseException) -> str:
    return str(getattr(error, "reason", "") or error or type(error).__name__)


def _record(cached: Path) -> Path:
    return cached.with_name(cached.name + ".sha256.json")


def _checked(cached: Path, source: Source) -> Path:
    try:
        expected = source.sha256 or json.loads(_record(cached).read_text())["sha256"]
    except (ValueError, KeyError, TypeError):
        expected = "unreadable"
    if checksum(cached) != expected:
        raise DataError(
            f"{cached} is not the file that was downloaded: its checksum does not fit. Remove it to download it again."
        )
    return cached


def _downloaded(source: Source, cached: Path) -> Path:
    url, md5 = _openml(source.url) if source.url.startswith("openml:") else (source.url, None)
    if not url.startswith(_SCHEMES):
        raise DataError(f"{url} is not an address that can be downloaded.")
    part = cached.with_name(f".{cached.name}.part")
    _transfer(url, part)
    found = checksum(part)
    wrong = source.sha256 is not None and found != source.sha256
    if wrong or (md5 is not None and hashlib.md5(part.read_bytes(), usedforsecurity=False).hexdigest() != md5):
        part.unlink()
        raise DataError(f"{url} has another checksum than expected, so it was not kept. Try again later.")
    part.replace(cached)
    record = {"sha256": found, "url": url, "date": datetime.now(UTC).isoformat(timespec="seconds")}
    with replacing(_record(cached)) as temporary:
        temporary.write_text(json.dumps(record, indent=2) + "\n")
    return cached


def _transfer(url: str, part: Path) -> None:
    """Bring `part` to the whole file; go on with what is there when the server still has the same version."""
    mark = part.with_name(part.name + ".etag")
    headers = {"User-Agent": "mcflow"}
    if part.is_file() and mark.is_file():
        headers |= {"Range": f"bytes={part.stat().st_size}-", "If-Range": mark.read_text()}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme was checked
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310
        more = getattr(reply, "status", None) == http.HTTPStatus.PARTIAL_CONTENT
        tag = reply.headers.get("ETag", "")
        if tag and not tag.startswith("W/"):
            mark.write_text(tag)
        expected = reply.headers.get("Content-Length")
        got = _copy(reply, part, more)
    if expected is not None and got != int(expected):
        raise OSError(f"the download broke off after {got} of {expected} bytes")
    with contextlib.suppress(OSError):
        mark.unlink()


def _copy(reply: Any, part: Path, more: bool) -> int:
    got = 0
    with part.open("ab" if more else "wb") as file:
        while piece := reply.read(_PIECE):
            file.write(piece)
            got += len(piece)
        file.flush()
        os.fsync(file.fileno())
    return got


def _openml(address: str) -> tuple[str, str | None]:
    """Ask OpenML where the file of a data set is, and for its MD5."""
    url = f"{_OPENML}/api/v1/json/data/{address.removeprefix('openml:')}"
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310 - a constant
        found = json.load(reply)["data_set_description"]
    return f"{_OPENML}/data/v1/download/{found['file_id']}", found.get("md5_checksum")

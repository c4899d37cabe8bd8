"""Download files from public archives into a cache, and check their SHA-256 whenever they are used."""

from __future__ import annotations

__all__ = ["Source", "checksum", "data_folder", "fetch"]

import hashlib
import http.client
import json
import os
import shutil
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mcflow.errors import DataError, McflowError, OutputError, ParameterError
from mcflow.files.atomic import cache_folder, holding, replacing

_OPENML = "https://api.openml.org"
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Source:
    """Where a file can be downloaded."""

    url: str  # address of the file, or ``openml:ID`` with the number of an OpenML data set
    ending: str = ".csv"  # of the cached file, which decides how it is read: ".csv", ".zip", ".arff" or ".parquet"
    sha256: str | None = None  # checksum of the file; if None, the checksum of the first download is trusted


def data_folder(folder: str | Path | None = None) -> Path | None:
    """Return the folder that data sets are read from: the given one, else MCFLOW_DATA, else None."""
    folder = folder or os.environ.get("MCFLOW_DATA") or None
    if folder is not None and not Path(folder).is_dir():
        raise ParameterError(f"{folder} is not a folder. --data and MCFLOW_DATA name one that holds data sets.")
    return None if folder is None else Path(folder)


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(name: str, sources: tuple[Source, ...], folder: Path | None = None) -> Path:
    """Return the cached file of a data set, and download it first if it is not cached.

    A download goes to a temporary name and is renamed when it is complete. Its checksum is stored beside it and
    compared at every later use.
    """
    folder = folder or cache_folder()
    for source in sources:
        cached = folder / f"{name}{source.ending}"
        if _record(cached).is_file() and cached.is_file():
            return _checked(cached, source)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"The cache {folder} cannot be made: {error.strerror}. Name another one with MCFLOW_CACHE."
        ) from error
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
    """Return the reason of a failure, without the wrappers of the HTTP library."""
    inner = error.args[0] if error.args else error
    return str(getattr(inner, "reason", "") or error or type(error).__name__)


def _record(cached: Path) -> Path:
    return cached.with_name(cached.name + ".sha256.json")


def _checked(cached: Path, source: Source) -> Path:
    try:
        expected = source.sha256 or json.loads(_record(cached).read_text())["sha256"]
    except (ValueError, KeyError, TypeError):
        expected = "unreadable"
    if checksum(cached) != expected:
        raise DataError(
            f"{cached} is not the file that was downloaded: its checksum differs. Remove it to download it again."
        )
    return cached


def _downloaded(source: Source, cached: Path) -> Path:
    """Download a file to its place in the cache and store its checksum."""
    import pooch

    url, known = source.url, f"sha256:{source.sha256}" if source.sha256 else None
    if url.startswith("openml:"):
        url, known = _openml(url)
    scheme = urlsplit(url).scheme
    if scheme not in ("https", "http", "file"):
        raise DataError(f"{url} is not an address that can be downloaded. Use https, http or file.")
    headers = {"User-Agent": "mcflow"}
    over_http = pooch.HTTPDownloader(chunk_size=1 << 18, headers=headers, timeout=_TIMEOUT_SECONDS)
    pooch.get_logger().setLevel("WARNING")
    try:
        pooch.retrieve(url, known, cached.name, cached.parent, downloader=_copied if scheme == "file" else over_http)
    except ValueError as error:
        if isinstance(error, OSError):  # of the connection, as requests has it
            raise
        raise DataError(f"{url} has another checksum than expected, so it was not kept. Try again later.") from error
    record = {"sha256": checksum(cached), "url": url, "date": datetime.now(UTC).isoformat(timespec="seconds")}
    with replacing(_record(cached)) as temporary:
        temporary.write_text(json.dumps(record, indent=2) + "\n")
    return cached


def _copied(url: str, target: Any, _: Any) -> None:
    """Copy a file of this machine, for pooch."""
    shutil.copyfile(urllib.request.url2pathname(urlsplit(url).path), target)


def _openml(address: str) -> tuple[str, str | None]:
    """Ask OpenML for the address of a data set's file and for its MD5."""
    url = f"{_OPENML}/api/v1/json/data/{address.removeprefix('openml:')}"
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310 - a constant
        found = json.load(reply)["data_set_description"]
    md5 = found.get("md5_checksum")
    return f"{_OPENML}/data/v1/download/{found['file_id']}", f"md5:{md5}" if md5 else None

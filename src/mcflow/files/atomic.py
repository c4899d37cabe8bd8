"""Files that are complete or absent: atomic writes, lock files, tensors with a JSON header, and the cache folder."""

from __future__ import annotations

__all__ = ["cache_folder", "check_writable", "holding", "read_tensors", "replacing", "write_tensors", "write_text"]

import contextlib
import errno
import glob
import hashlib
import json
import os
import platform
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mcflow.errors import McflowError, ModelFileError, OutputError

if TYPE_CHECKING:
    from mcflow.typing import Array, Header

FORMAT_VERSION = 2  # version of the files that `write_tensors` writes, and newest version that `read_tensors` accepts
#: Digest of the machine's name; temporary files are swept only by the machine that wrote them.
_MACHINE = hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def check_writable(path: Path) -> None:
    """Raise `OutputError` if a file cannot be written; a symbolic link is followed."""
    if path.is_dir():
        raise OutputError(f"{path} is a folder. Give the name of a file.")
    target = _target(path)
    if not target.parent.is_dir():
        raise OutputError(f"{target.parent} is not a folder, so {path.name} cannot be written there. Make it first.")
    probe = _temporary(target)
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}. Choose another folder.") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder, and rename it to `path`, or what it links to, if the block succeeds.

    A file that is replaced keeps its mode and owner; temporary files of processes that were killed are removed.
    """
    check_writable(path)
    target = _target(path)
    _sweep(target)
    temporary = _temporary(target)
    try:
        temporary.touch(exist_ok=False)
        old = target.stat() if target.exists() else temporary.stat()
        yield temporary
        _own(temporary, old)
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        if isinstance(error, McflowError) or error.filename not in (None, str(temporary)):
            raise
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """Return the file that a path stands for, which a symbolic link may name."""
    try:
        return path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError) as error:
        raise OutputError(f"{path} is a symbolic link that leads nowhere. Give another file.") from error


def _temporary(target: Path) -> Path:
    """Return a new name beside a file, which tells the process that writes it."""
    return target.parent / f".{target.name}.{_MACHINE}-{os.getpid()}-{secrets.token_hex(4)}.tmp"


def _sweep(target: Path) -> None:
    """Remove the temporary files of a file whose process on this machine has ended."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.{_MACHINE}-*-*.tmp"):
        process = left.name.split("-")[-2]
        if process.isdecimal() and not _is_alive(int(process)):
            with contextlib.suppress(OSError):
                left.unlink()


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":  # where signal 0 would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def _own(temporary: Path, old: os.stat_result) -> None:
    """Give a file the mode and, where that is permitted, the owner of another."""
    with contextlib.suppress(OSError, AttributeError):  # only root may change owners, and Windows has none
        if (old.st_uid, old.st_gid) != (os.getuid(), os.getgid()):
            os.chown(temporary, old.st_uid, old.st_gid)
    temporary.chmod(stat.S_IMODE(old.st_mode))


def _sync_folder(folder: Path) -> None:
    """Write the entries of a folder to the disk, so that a rename outlives a power cut."""
    if sys.platform == "win32":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot do this
            raise
    finally:
        os.close(opened)


@contextlib.contextmanager
def holding(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file during a block, or raise `OutputError` at once if another process that is alive holds it."""
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        holder = _holder(path)
        raise OutputError(f"{holder} is at work on {what}. Wait until it ends, or choose another folder.") from error
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}. Choose another folder.") from error
    try:
        with contextlib.suppress(OSError):  # Windows denies access to a locked file
            path.write_text(str(os.getpid()))
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


def _holder(path: Path) -> str:
    """Name the process that holds a lock file, if it can be read."""
    with contextlib.suppress(OSError, ValueError):
        return f"Process {int(path.read_text())}"
    return "Another process"


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_tensors(path: Path, kind: str, header: Header, tensors: dict[str, Array]) -> None:
    """Write arrays and a JSON header as one safetensors file."""
    import numpy as np
    from safetensors.numpy import save

    text = json.dumps(header, sort_keys=True, allow_nan=False)
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    metadata = {"program": "mcflow", "kind": kind, "format": str(FORMAT_VERSION), "header": text}
    metadata["sha256"] = _digest(metadata, whole)
    with replacing(path) as temporary:
        temporary.write_bytes(save(whole, metadata=metadata))  # safetensors would leave files of its own when killed


def read_tensors(path: Path, kind: str) -> tuple[int, Header, dict[str, Array]]:
    """Read what `write_tensors` wrote; the checksum is compared before anything is parsed."""
    metadata, tensors = _load(path, kind)
    if metadata.get("program") != "mcflow" or metadata.get("kind") != kind:
        raise ModelFileError(f"{path} was not written by mcflow as a {kind}. Give a file that mcflow has saved.")
    claimed = metadata.pop("sha256", "")
    if claimed != _digest(metadata, tensors):
        raise ModelFileError(f"{path} was altered after it was saved: its checksum does not fit. Save it again.")
    version, text = metadata.get("format", ""), metadata.get("header", "")
    if not re.fullmatch("[1-9][0-9]{0,3}", version):
        raise ModelFileError(f"{path} names {version[:40]!r} as its format, which is not a number. Save it again.")
    if int(version) > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format {version}, and this version of mcflow reads up to {FORMAT_VERSION}. "
            "Upgrade mcflow to read it."
        )
    try:
        header = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} has a header that cannot be read ({str(error)[:200]}). Save it again.") from error
    if not isinstance(header, dict):
        raise ModelFileError(f"{path} has a header that is not an object. Save it again.")
    return int(version), header, tensors


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a number")


def _load(path: Path, kind: str) -> tuple[dict[str, str], dict[str, Array]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:  # unknown types too
        raise ModelFileError(
            f"{path} is not a {kind} of mcflow, or was cut short ({error}). Save it again, or give another file."
        ) from error


def _digest(metadata: dict[str, str], tensors: dict[str, Array]) -> str:
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name}:{tensors[name].dtype}:{tensors[name].shape};".encode())
        digest.update(tensors[name].tobytes())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the folder for downloads: MCFLOW_CACHE, or where the platform keeps caches."""
    if given := os.environ.get("MCFLOW_CACHE"):
        return Path(given)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "mcflow" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "mcflow"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mcflow"

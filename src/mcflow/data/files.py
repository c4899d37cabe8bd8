"""Files that are either whole or not there: temporary name first, then a rename; tensors with a JSON header."""

from __future__ import annotations

__all__ = ["check_writable", "read_tensors", "replacing", "write_tensors"]

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mcflow.errors import ModelFileError, OutputError
from mcflow.typing import Array, Header

FORMAT_VERSION = 1


def check_writable(path: Path) -> None:
    """Raise `OutputError` now when `path` cannot be written later.

    Parameters
    ----------
    path : Path
        A file that is about to be made or replaced.

    Raises
    ------
    OutputError
        When its folder does not exist or cannot be written, or when it is a folder itself.
    """
    if path.is_dir():
        raise OutputError(f"{path} is a folder. Give the name of a file.")
    folder = path.parent
    if not folder.is_dir():
        raise OutputError(f"{folder} is not a folder, so {path.name} cannot be written there. Make it first.")
    probe = folder / f".{path.name}.{secrets.token_hex(4)}.probe"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}. Choose another folder.") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`, and rename it to `path` when the block ends well.

    Parameters
    ----------
    path : Path
        The file to make or to replace.

    Yields
    ------
    Path
        Where to write. After an error it is gone and `path` is as it was.

    Raises
    ------
    OutputError
        When the file cannot be written.
    """
    check_writable(path)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        yield temporary
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename not in (None, str(temporary)):
            raise
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_tensors(path: Path, kind: str, header: Header, tensors: dict[str, Array]) -> None:
    """Write arrays and a JSON header as one safetensors file.

    Parameters
    ----------
    path : Path
        The file to make or to replace.
    kind : str
        What the file is, checked by `read_tensors`.
    header : dict
        Anything that JSON can hold.
    tensors : dict of ndarray
        The arrays by name.
    """
    from safetensors.numpy import save_file

    text = json.dumps(header, sort_keys=True, allow_nan=False)
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    metadata = {"program": "mcflow", "kind": kind, "format": str(FORMAT_VERSION), "header": text}
    metadata["sha256"] = _digest(metadata, whole)
    with replacing(path) as temporary:
        save_file(whole, temporary, metadata=metadata)


def read_tensors(path: Path, kind: str) -> tuple[Header, dict[str, Array]]:
    """Read what `write_tensors` wrote.

    Parameters
    ----------
    path : Path
        The file.
    kind : str
        What it has to be.

    Returns
    -------
    header : dict
    tensors : dict of ndarray

    Raises
    ------
    ModelFileError
        When the file is truncated, altered, of another program or kind, or of a newer format.
    FileNotFoundError
        When there is no such file.
    """
    metadata, tensors = _load(path, kind)
    if metadata.get("program") != "mcflow" or metadata.get("kind") != kind:
        raise ModelFileError(f"{path} was not written by mcflow as a {kind}. Give a file that mcflow has saved.")
    version = metadata.get("format", "")
    if version.isdecimal() and int(version) > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format {version}, and this version of mcflow reads up to {FORMAT_VERSION}. "
            "Upgrade mcflow to read it."
        )
    claimed = metadata.pop("sha256", "")
    if claimed != _digest(metadata, tensors):
        raise ModelFileError(f"{path} was altered after it was saved: its checksum does not fit. Save it again.")
    header: Header = json.loads(metadata["header"])
    return header, tensors


def _load(path: Path, kind: str) -> tuple[dict[str, str], dict[str, Array]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(
            f"{path} is not a {kind} of mcflow, or was cut short ({error}). Save it again, or give another file."
        ) from error


def _digest(metadata: dict[str, str], tensors: dict[str, Array]) -> str:
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}:{tensor.dtype}:{tensor.shape};".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()

"""Names of stored results: hashes of settings, and methods as parts of file names."""

from __future__ import annotations

__all__ = ["cells_folder", "file_word", "key_of"]

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcflow.errors import OutputError


def key_of(settings: Mapping[str, Any]) -> str:
    """Return a hash of settings that JSON can hold, the same on every machine.

    Examples
    --------
    >>> key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1}), len(key_of({}))
    (True, 24)
    """
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def file_word(method: str) -> str:
    """Return a method as a part of a file's name.

    Examples
    --------
    >>> file_word("missforest(n_trees=30)")
    'missforest_n_trees=30'
    """
    return re.sub(r"[^A-Za-z0-9.=]+", "_", method).strip("_")[:60]


def cells_folder(folder: Path) -> Path:
    """Return the folder inside another one that holds a file for each result, and make it when it is not there.

    Raises
    ------
    OutputError
        When it cannot be made.
    """
    cells = folder / "cells"
    try:
        cells.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made: {error.strerror}. Choose another folder.") from error
    return cells

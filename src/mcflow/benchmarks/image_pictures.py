"""The first test images of every cell, kept so that a figure needs no fit."""

from __future__ import annotations

__all__ = ["Pictures", "keep_pictures", "read_pictures"]

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mcflow.data.files import replacing
from mcflow.errors import OutputError
from mcflow.typing import Array, BoolArray

if TYPE_CHECKING:
    from mcflow.benchmarks.image_protocol import ImageSplit

#: Test images of every cell, the first ones, that are kept.
N_PICTURES = 16
#: Where they are kept, inside the folder of results.
FOLDER = "pictures"


class Pictures(NamedTuple):
    """Some test images: complete, which pixels were hidden, filled, and one draw where the method has them."""

    truth: Array
    hidden: BoolArray
    filled: Array
    drawn: Array | None


def keep_pictures(output: Path, name: str, split: ImageSplit, filled: Array, drawn: Array | None = None) -> None:
    """Keep the first test images of a cell.

    Parameters
    ----------
    output : Path
        Folder of results.
    name : str
        The task's.
    split : ImageSplit
        What was hidden.
    filled : ndarray
        The filled test images.
    drawn : ndarray, optional
        A draw of them.

    Raises
    ------
    OutputError
        When they cannot be written.
    """
    some = slice(N_PICTURES)
    arrays: dict[str, Any] = {"truth": split.test[some], "hidden": split.hidden_test[some], "filled": filled[some]}
    if drawn is not None:
        arrays["drawn"] = drawn[some]
    path = _path(output, name)
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path.parent} cannot be made: {error.strerror}. Choose another folder.") from error
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_pictures(output: Path, name: str) -> Pictures | None:
    """Return the images that were kept of a cell, None when there are none.

    Parameters
    ----------
    output : Path
        Folder of results.
    name : str
        The task's.

    Returns
    -------
    Pictures or None
    """
    try:
        with _path(output, name).open("rb") as file, np.load(file) as arrays:
            drawn = arrays.get("drawn")
            return Pictures(arrays["truth"], arrays["hidden"], arrays["filled"], drawn)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _path(output: Path, name: str) -> Path:
    return output / FOLDER / f"{name}.npz"

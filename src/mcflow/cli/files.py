"""Checks of files before any work is done."""

from __future__ import annotations

__all__ = ["check_output", "load_table_model"]

from pathlib import Path
from typing import TYPE_CHECKING

from mcflow.data.files import check_writable
from mcflow.data.streams import STREAM
from mcflow.errors import ModelFileError, OutputError

if TYPE_CHECKING:
    from mcflow.imputers import MCFlowImputer


def check_output(output: Path, *inputs: Path | None) -> None:
    """Raise `OutputError` when an output cannot be written or would replace an input.

    Parameters
    ----------
    output : Path
        A file about to be written.
    *inputs : Path or None
        Files that are read, or written besides.
    """
    if output == STREAM:
        return
    check_writable(output)
    for source in inputs:
        if source is not None and output.resolve() == source.resolve():
            raise OutputError(f"{output} is given twice, and would be replaced. Give each file its own name.")


def load_table_model(path: Path, device: str = "auto") -> MCFlowImputer:
    """Read a fitted model of tables.

    Parameters
    ----------
    path : Path
        What `mcflow fit` wrote.
    device : str, default="auto"
        Where to compute.

    Returns
    -------
    MCFlowImputer

    Raises
    ------
    ModelFileError
        When it is no such model.
    """
    from mcflow.imputers import MCFlowImputer, load

    imputer = load(path, device=device)
    if not isinstance(imputer, MCFlowImputer):
        raise ModelFileError(f"{path} is a model of images. `mcflow impute-images` uses it.")
    return imputer

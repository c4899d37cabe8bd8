"""Checks of files before any work is done."""

from __future__ import annotations

__all__ = ["check_output"]

from pathlib import Path

from mcflow.data.files import check_writable
from mcflow.data.streams import STREAM
from mcflow.errors import OutputError


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

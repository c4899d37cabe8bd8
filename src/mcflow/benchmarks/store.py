"""Results on disk: one small file a cell, whole or not there, so that a stop at any moment loses no finished cell."""

from __future__ import annotations

__all__ = ["Row", "Store"]

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcflow.benchmarks.keys import cells_folder
from mcflow.benchmarks.tasks import AnyTask
from mcflow.data.files import replacing
from mcflow.data.locks import holding

#: One result: the task, its key, scores, times, memory, status and where it was measured.
Row = dict[str, Any]


class Store:
    """A folder of results.

    Parameters
    ----------
    folder : Path
        Made when it is not there.

    Notes
    -----
    Every finished cell is a file of its own under ``cells``, written to a temporary name and then renamed. A file that
    cannot be read is taken for none, so its cell is done again.

    Examples
    --------
    >>> import tempfile
    >>> from mcflow.benchmarks.suite import Task
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(Path(folder))
    ...     task = Task("letter", "", None, "mcar", 0.2, 0, "mean", 0)
    ...     store.add(task, {"status": "done"})
    ...     [row["key"] == task.key for row in store.rows()]
    [True]
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cells = cells_folder(folder)

    @contextlib.contextmanager
    def locked(self) -> Iterator[Path]:
        """Keep other benchmarks out of the folder, and give a folder for passing files.

        Yields
        ------
        Path
            Empty at the start, gone at the end.

        Raises
        ------
        OutputError
            When another benchmark is at work there.
        """
        with holding(self.folder / ".lock", str(self.folder)):
            work = self.folder / ".work"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)

    def add(self, task: AnyTask, result: Row) -> None:
        """Keep the result of a task, in place of an earlier one.

        Parameters
        ----------
        task : AnyTask
            What was measured.
        result : dict
            Anything that JSON can hold.
        """
        text = json.dumps({"key": task.key, **result}, indent=1, sort_keys=True, allow_nan=False)
        with replacing(self.cells / f"{task.name}.json") as temporary:
            temporary.write_text(text + "\n")

    def rows(self) -> list[Row]:
        """Return all results that can be read, in the order of their files' names."""
        found = (_read(path) for path in sorted(self.cells.glob("*.json")))
        return [row for row in found if row is not None]

    def finished(self, *, retry: bool = False) -> dict[str, Row]:
        """Return the results by key.

        Parameters
        ----------
        retry : bool, default=False
            Leave those out that failed.

        Returns
        -------
        dict of dict
        """
        return {row["key"]: row for row in self.rows() if row["status"] == "done" or not retry}


def _read(path: Path) -> Row | None:
    try:
        row = json.loads(path.read_text())
    except (ValueError, OSError):
        return None
    return row if isinstance(row, dict) and {"key", "status"} <= row.keys() else None

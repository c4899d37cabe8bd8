"""Results on disk: one small JSON file per cell, written atomically, so that an interruption loses no finished cell."""

from __future__ import annotations

__all__ = ["Outcome", "Row", "Store"]

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mcflow.errors import OutputError
from mcflow.files.atomic import holding, write_text
from mcflow_bench.suites import Task

#: One result: the task, its key, scores, times, memory, status and where it was measured.
Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """Numbers of results that a run found, measured, and has as failures."""

    found: int
    done: int
    failed: int


class Store:
    """A folder of results.

    Every finished cell is a file of its own under ``cells``. A file that cannot be read counts as missing, so that its
    cell is measured again.
    """

    #: Fields without which a file counts as unreadable.
    required: ClassVar[frozenset[str]] = frozenset({"key", "status"})

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cells = folder / "cells"
        try:
            self.cells.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder} cannot be made: {error.strerror}. Choose another folder.") from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[Path]:
        """Keep other benchmarks out of the folder, and give a folder for temporary files."""
        with holding(self.folder / ".lock", str(self.folder)):
            work = self.folder / ".work"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)

    def add(self, task: Task, result: Row) -> None:
        """Store the result of a task, replacing an earlier one."""
        text = json.dumps({"key": task.key, **result}, indent=1, sort_keys=True, allow_nan=False)
        write_text(self.cells / f"{task.name}.json", text + "\n")

    def rows(self) -> list[Row]:
        """Return all readable results in the order of their file names."""
        return [row for path in sorted(self.cells.glob("*.json")) if (row := self._read(path)) is not None]

    def finished(self, *, retry: bool = False) -> dict[str, Row]:
        """Return the results by key, without failed ones if these are to be measured again."""
        return {row["key"]: row for row in self.rows() if row["status"] == "done" or not retry}

    def _read(self, path: Path) -> Row | None:
        try:
            row = json.loads(path.read_text())
        except (ValueError, OSError):
            return None
        return row if isinstance(row, dict) and self.required <= row.keys() else None

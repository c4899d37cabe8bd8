"""What every cell of a benchmark has, whatever it measures: settings with a hash, and a program that measures them."""

from __future__ import annotations

__all__ = ["AnyCell", "AnyTask"]

import abc
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True)
class AnyTask(abc.ABC):
    """Everything that decides the figures of one cell, as fields that JSON can hold; ``method`` is one of them."""

    #: The module that is run, in a process of its own, to measure such a task.
    program: ClassVar[str]
    #: The field that names the data.
    subject: ClassVar[str]

    @property
    @abc.abstractmethod
    def key(self) -> str:
        """Return a hash of all settings, the same on every machine."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Return a name for a file: readable, and different for every key."""

    @property
    @abc.abstractmethod
    def words(self) -> str:
        """Return the task as a line of progress has it."""

    @property
    def settings(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class AnyCell:
    """A task with what is needed to run it and to show it.

    Parameters
    ----------
    task : AnyTask
        What decides the figures.
    path : Path
        Where its data are.
    label : str
        The row of the table of results that it belongs to.
    note : str
        Printed below that table.
    asked_folds : int
        Folds that the suite asks for, all methods alike.
    """

    task: AnyTask
    path: Path
    label: str
    note: str = ""
    asked_folds: int = 1

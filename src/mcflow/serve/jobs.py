"""A job: one folder on disk with what was sent, what became of it, and how it stands."""

from __future__ import annotations

__all__ = ["ENDED", "INTERVAL_LEVEL", "Job"]

import json
import secrets
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mcflow.data.files import replacing

#: States after which nothing happens by itself. The others: checking, ready, queued, running.
ENDED = ("done", "failed", "cancelled", "interrupted")
#: The share of the cells that the intervals of the page are to hold.
INTERVAL_LEVEL = 0.9


@dataclass
class Job:
    """A file that was sent and what is done with it.

    Parameters
    ----------
    folder : Path
        Where all its files are.
    kind : str
        "fit": fit on the file and fill it; "impute": fill it by a model; "draws": draw a model's own file.
    filename : str
        As the client called it.
    ending : str
        Of the file, one of `mcflow.data.tables.FORMATS`.
    size : int
        Bytes of the file.
    model : str
        For "impute" and "draws", the job that made the model.
    options : dict
        What the client chose.
    state : str
        "checking": the file is being read; "ready": it was read and waits for a start; "queued"; "running"; or one of
        `ENDED`.
    message : str
        Why it failed or was ended, in words.
    table, intervals : str
        Whether the filled cells, and their intervals, can be looked at: "", "building", "ready" or why not.
    created, started, ended : float
        Seconds since 1970; 0 for not yet.
    child : dict
        The process that works on it: "pid" and "ticks", the time of its start.
    peak_memory : int
        Bytes that its processes held at most.
    """

    folder: Path
    kind: str = "fit"
    filename: str = ""
    ending: str = ".csv"
    size: int = 0
    model: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    state: str = "checking"
    message: str = ""
    table: str = ""
    intervals: str = ""
    created: float = field(default_factory=time.time)
    started: float = 0.0
    ended: float = 0.0
    child: dict[str, int] = field(default_factory=dict)
    peak_memory: int = 0

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @property
    def upload(self) -> Path:
        """The file as it was sent."""
        return self.folder / f"upload{self.ending}"

    @property
    def output(self) -> Path:
        """The file that it makes."""
        return self.folder / f"{'draws' if self.kind == 'draws' else 'filled'}{self.ending}"

    @property
    def output_name(self) -> str:
        """What the client's copy of the output is to be called."""
        stem = self.filename[: len(self.filename) - len(self.ending)] or "table"
        return f"{stem}_{'draws' if self.kind == 'draws' else 'filled'}{self.ending}"

    @staticmethod
    def new_id() -> str:
        """Return a name that nobody guesses."""
        return secrets.token_hex(8)

    def schema(self) -> dict[str, Any] | None:
        """Return what was found in the file, None before it was read."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "schema.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found

    def save(self) -> None:
        """Write the state; whole or not at all."""
        state = asdict(self)
        del state["folder"]
        with replacing(self.folder / "state.json") as temporary:
            temporary.write_text(json.dumps(state), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Job | None:
        """Read a job from its folder.

        Parameters
        ----------
        folder : Path
            Of the job.

        Returns
        -------
        Job or None
            None when the folder holds no whole job: its upload was cut off.
        """
        try:
            state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            return cls(folder=folder, **state)
        except (OSError, ValueError, TypeError):
            return None

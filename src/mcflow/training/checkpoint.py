"""Checkpoints: a fit that was killed goes on where it was, and ends with the same bits."""

from __future__ import annotations

__all__ = ["Checkpointer", "fingerprint"]

import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mcflow.data.files import read_tensors, write_tensors
from mcflow.errors import CheckpointError, OutputError
from mcflow.training.callbacks import Callback
from mcflow.typing import FloatArray, Header

if TYPE_CHECKING:
    from mcflow.training.callbacks import AnyTrainer
    from mcflow.training.held_out import HeldOutTrainer

FILE_NAME = "fit.checkpoint"


def fingerprint(values: FloatArray, settings: dict[str, object]) -> str:
    """Return a digest that is the same only for the same table and settings.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        The table, NaN where missing.
    settings : dict
        What JSON can hold.

    Returns
    -------
    str
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    digest.update(str(values.shape).encode())
    digest.update(np.ascontiguousarray(np.where(np.isnan(values), np.nan, values)).tobytes())
    return digest.hexdigest()


class Checkpointer(Callback):
    """Write the whole state of a fit into a folder now and then, and take it up again at the beginning.

    Parameters
    ----------
    folder : Path
        Made when it is not there.
    identity : str
        From `fingerprint`; a checkpoint of another identity is refused.
    seed : int
        The seed of the fit, kept so that a fit with `random_state=None` can go on.
    every_seconds : float, default=20
        How often to write, besides every refill and the end.
    """

    def __init__(self, folder: Path, identity: str, seed: int, every_seconds: float = 20.0) -> None:
        self.path = Path(folder) / FILE_NAME
        self.identity = identity
        self.seed = seed
        self._every = every_seconds
        self._last = 0.0

    @classmethod
    def seed_in(cls, folder: Path) -> int | None:
        """Return the seed of the fit whose checkpoint is in a folder, or None when there is none."""
        path = Path(folder) / FILE_NAME
        return int(read_tensors(path, "checkpoint")[0]["seed"]) if path.is_file() else None

    def on_begin(self, trainer: AnyTrainer) -> None:
        """Go on from the last checkpoint, if there is one."""
        self._last = time.perf_counter()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"{self.path.parent} cannot be made as a folder for checkpoints: {error.strerror}. Choose another."
            ) from error
        if self.path.is_file():
            header, tensors = read_tensors(self.path, "checkpoint")
            self._check(header)
            trainer.restore(header, tensors)

    def on_epoch_end(self, trainer: AnyTrainer) -> None:
        """Write a checkpoint when it is time."""
        if self._due() or trainer.history.ending or trainer.at_milestone:
            self._write(trainer)

    def on_part_end(self, trainer: HeldOutTrainer) -> None:
        """Write a checkpoint when it is time."""
        if self._due():
            self._write(trainer)

    def _due(self) -> bool:
        return time.perf_counter() - self._last >= self._every

    def _write(self, trainer: AnyTrainer) -> None:
        header, tensors = trainer.capture()
        write_tensors(self.path, "checkpoint", header | {"identity": self.identity, "seed": self.seed}, tensors)
        self._last = time.perf_counter()

    def _check(self, header: Header) -> None:
        if header["identity"] != self.identity:
            raise CheckpointError(
                f"{self.path} belongs to a fit of another table or with other settings. "
                "Choose another checkpoint_dir, or delete this file to begin anew."
            )

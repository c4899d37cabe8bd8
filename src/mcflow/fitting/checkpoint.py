"""Checkpoints: an interrupted fit resumes and ends with the same bits."""

from __future__ import annotations

__all__ = ["Checkpointer", "fingerprint"]

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mcflow.errors import CheckpointError, McflowError, OutputError
from mcflow.files.atomic import read_tensors, write_tensors
from mcflow.fitting.callbacks import AnyTrainer, Callback
from mcflow.typing import FloatArray

FILE_NAME = "fit.checkpoint"


def fingerprint(values: FloatArray, settings: dict[str, object]) -> str:
    """Return a digest of a table (n_rows, n_columns) and the settings of a fit."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    digest.update(str(values.shape).encode())
    digest.update(np.ascontiguousarray(np.where(np.isnan(values), np.nan, values)).tobytes())
    return digest.hexdigest()


@contextlib.contextmanager
def _resumable(path: Path) -> Iterator[None]:
    """Raise `CheckpointError` when a checkpoint with a valid checksum cannot be used."""
    try:
        yield
    except (McflowError, OSError):
        raise
    except Exception as error:
        raise CheckpointError(
            f"{path} cannot be resumed ({type(error).__name__}: {str(error)[:200]}). Choose another checkpoint_dir, "
            "or delete this file to start again."
        ) from error


class Checkpointer(Callback):
    """Write the state of a fit to a folder regularly, and restore it when the fit starts."""

    def __init__(self, folder: Path, identity: str, seed: int, every_seconds: float = 20.0) -> None:
        self.path, self.identity, self.seed = Path(folder) / FILE_NAME, identity, seed
        self._every, self._last = every_seconds, 0.0

    @classmethod
    def seed_in(cls, folder: Path) -> int | None:
        """Return the seed of the checkpoint in a folder, None if there is no checkpoint."""
        path = Path(folder) / FILE_NAME
        if not path.is_file():
            return None
        with _resumable(path):
            return int(read_tensors(path, "checkpoint")[1]["seed"])

    def on_begin(self, trainer: AnyTrainer) -> None:
        """Resume from the last checkpoint, if there is one."""
        self._last = time.perf_counter()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"The checkpoint folder {self.path.parent} cannot be created: {error.strerror}. Choose another."
            ) from error
        if self.path.is_file():
            with _resumable(self.path):
                _, header, tensors = read_tensors(self.path, "checkpoint")
                if header["identity"] != self.identity:
                    raise CheckpointError(
                        f"{self.path} belongs to a fit of another table or with other settings. "
                        "Choose another checkpoint_dir, or delete this file to start again."
                    )
                trainer.restore(header, tensors)

    def on_epoch_end(self, trainer: AnyTrainer) -> None:
        """Write a checkpoint if one is due."""
        self._write(trainer, due=bool(trainer.history.ending or trainer.at_milestone))

    def on_part_end(self, trainer: AnyTrainer) -> None:
        """Write a checkpoint if one is due."""
        self._write(trainer)

    def _write(self, trainer: AnyTrainer, *, due: bool = False) -> None:
        if due or time.perf_counter() - self._last >= self._every:
            header, tensors = trainer.capture()
            write_tensors(self.path, "checkpoint", header | {"identity": self.identity, "seed": self.seed}, tensors)
            self._last = time.perf_counter()

"""Checkpoints: a fit that was killed goes on where it was, and ends with the same bits."""

from __future__ import annotations

__all__ = ["Checkpointer", "capture", "fingerprint", "restore"]

import hashlib
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mcflow.data.files import read_tensors, write_tensors
from mcflow.errors import CheckpointError, OutputError
from mcflow.training.callbacks import Callback
from mcflow.training.history import History
from mcflow.training.loop import Trainer
from mcflow.training.schedule import is_refill_epoch
from mcflow.training.stages import flow_from, stage_tensors, stages_from
from mcflow.typing import Array, FloatArray, Header

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

    def on_begin(self, trainer: Trainer) -> None:
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
            restore(trainer, header, tensors)

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Write a checkpoint when it is time."""
        due = time.perf_counter() - self._last >= self._every
        if due or trainer.history.ending or is_refill_epoch(trainer.epoch):
            header, tensors = capture(trainer)
            write_tensors(self.path, "checkpoint", header | {"identity": self.identity, "seed": self.seed}, tensors)
            self._last = time.perf_counter()

    def _check(self, header: Header) -> None:
        if header["identity"] != self.identity:
            raise CheckpointError(
                f"{self.path} belongs to a fit of another table or with other settings. "
                "Choose another checkpoint_dir, or delete this file to begin anew."
            )


def capture(trainer: Trainer) -> tuple[Header, dict[str, Array]]:
    """Return a fit's whole state as a header and arrays."""
    tensors: dict[str, Tensor] = {
        "theta": trainer.flow.theta,
        "masks": trainer.flow.masks,
        "phi": trainer.mapper.phi,
        "filled": trainer.rows[trainer.missing],
        "order": trainer.streams.order.get_state(),
        "weights": trainer.streams.weights.get_state(),
    }
    for name, adam in (("flow", trainer.flow_adam), ("latent", trainer.latent_adam)):
        tensors |= {f"{name}.mean": adam.mean, f"{name}.square": adam.square}
    tensors |= stage_tensors(trainer.stages)
    header: Header = {
        "epoch": trainer.epoch,
        "n_stages": len(trainer.stages),
        "steps": [trainer.flow_adam.steps, trainer.latent_adam.steps],
        "history": trainer.history.to_dict(),
    }
    return header, {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def restore(trainer: Trainer, header: Header, arrays: dict[str, Array]) -> None:
    """Put a captured state into a trainer that was made for the same table and settings."""
    settings, device = trainer.settings, trainer.rows.device
    tensors = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
    trainer.stages = stages_from(tensors, header["n_stages"], settings)
    trainer.use_flow(flow_from(tensors["masks"], tensors["theta"], settings))
    with torch.no_grad():
        trainer.mapper.phi.copy_(tensors["phi"])
        trainer.rows = trainer.rows.masked_scatter(trainer.missing, tensors["filled"])
    adams = (("flow", trainer.flow_adam), ("latent", trainer.latent_adam))
    for (name, adam), steps in zip(adams, header["steps"], strict=True):
        adam.steps = steps
        adam.mean.copy_(tensors[f"{name}.mean"])
        adam.square.copy_(tensors[f"{name}.square"])
    trainer.streams.order.set_state(tensors["order"].cpu())
    trainer.streams.weights.set_state(tensors["weights"].cpu())
    trainer.history = History.from_dict(header["history"])
    trainer.epoch = header["epoch"]

"""What the fits of tables and of images have in common: a device, a seed, and who listens."""

from __future__ import annotations

__all__ = ["check_same", "choose_device", "fit_seed", "listeners"]

from pathlib import Path
from typing import Any

import torch

from mcflow.errors import DataError, ParameterError
from mcflow.random import seed_from
from mcflow.training import Callback, Checkpointer, progress_listeners
from mcflow.training.checkpoint import fingerprint
from mcflow.training.parallel import Workers
from mcflow.typing import Array, RandomState


def choose_device(wanted: str) -> torch.device:
    """Return the device for a word such as "auto", "cpu", "cuda:1" or "mps".

    Parameters
    ----------
    wanted : str
        "auto" takes CUDA, then Apple's MPS, then the CPU.

    Returns
    -------
    torch.device

    Raises
    ------
    ParameterError
        When the machine has no such device.
    """
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if wanted == "auto":
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    if (wanted.startswith("cuda") and not cuda) or (wanted == "mps" and not mps):
        raise ParameterError(f"device is {wanted!r}, which this machine does not have. Use device='auto' or 'cpu'.")
    return torch.device(wanted)


def fit_seed(random_state: RandomState, checkpoint_dir: str | Path | None) -> int:
    """Return the seed of a fit: a stopped fit without a fixed one goes on with the seed it had.

    Parameters
    ----------
    random_state : int, Generator, RandomState or None
        Of the imputer.
    checkpoint_dir : path-like or None
        Where a stopped fit may have left its state.

    Returns
    -------
    int
    """
    found = None
    if random_state is None and checkpoint_dir is not None:
        found = Checkpointer.seed_in(Path(checkpoint_dir))
    return seed_from(random_state) if found is None else found


def check_same(workers: Workers, values: Array, said: dict[str, Any]) -> None:
    """Raise `DataError` when the workers of a fit do not have the same table and settings.

    Parameters
    ----------
    workers : Workers
        All of them call this.
    values : ndarray
        What is learned from.
    said : dict
        Everything else that decides the fit.
    """
    if workers.alone:
        return
    found = workers.gather(fingerprint(values, said))
    other = [rank + 1 for rank, one in enumerate(found) if one != found[0]]
    if other:
        raise DataError(
            f"Worker {other[0]} of {workers.number} has another table than the first one, or other settings. "
            "Give all of them the same."
        )


def listeners(
    verbose: bool | str, checkpoint_dir: str | Path | None, values: Array, said: dict[str, Any]
) -> list[Callback]:
    """Return who hears of a fit: one that keeps its state, and one that shows its progress.

    Parameters
    ----------
    verbose : bool or str
        As the imputer's.
    checkpoint_dir : path-like or None
        Where to keep the state of the fit.
    values : ndarray
        What is learned from; a state that was left by a fit on other values is refused.
    said : dict
        Everything else that decides the fit, its "seed" among it.

    Returns
    -------
    list of Callback
    """
    callbacks: list[Callback] = []
    if checkpoint_dir is not None:
        callbacks.append(Checkpointer(Path(checkpoint_dir), fingerprint(values, said), said["seed"]))
    return callbacks + progress_listeners(verbose)

"""Commands under torchrun: several processes that fit one model."""

from __future__ import annotations

__all__ = ["check_command", "sharing", "worker_prefix"]

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mcflow.errors import ParameterError

if TYPE_CHECKING:
    from mcflow.cli.options import FitOptions


def check_command(given: Sequence[str]) -> None:
    """Raise `ParameterError` if torchrun has started several processes of a command other than `fit`."""
    number = _world_size()
    if number > 1 and given and given[0] != "fit" and not given[0].startswith("-"):
        raise ParameterError(
            f"torchrun has started {number} processes of `mcflow {given[0]}`, which runs in one process. Fit with "
            "torchrun and `mcflow fit`, then use the model with `mcflow impute --model`, without torchrun."
        )


def worker_prefix() -> str:
    """Return the prefix of an error, such as "worker 2 of 2: "; empty for the first worker or a single process."""
    rank, number = int(os.environ.get("RANK", "0")), _world_size()
    return f"worker {rank + 1} of {number}: " if number > 1 and rank else ""


@contextmanager
def sharing(source: Path, options: FitOptions) -> Iterator[tuple[FitOptions, bool]]:
    """Join the processes of torchrun, if any; yield the options, quiet in all but the first, and whether it is that."""
    if _world_size() == 1:
        yield options, True
        return
    from mcflow.files.streams import STREAM
    from mcflow.fitting.distributed import torchrun

    if source == STREAM:
        raise ParameterError("Standard input cannot be read by several processes. Give a file to fit with torchrun.")
    with torchrun(options.device) as workers, warnings.catch_warnings():
        if not workers.is_first:
            warnings.simplefilter("ignore")
            options = replace(options, quiet=True)
        yield options, workers.is_first


def _world_size() -> int:
    """Return the number of processes that torchrun has started; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1

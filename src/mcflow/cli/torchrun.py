"""The command line under torchrun: several processes that fit one model."""

from __future__ import annotations

__all__ = ["check_command", "sharing", "speaker"]

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

#: What the processes of torchrun can do together.
SHARED = "fit"


def check_command(given: Sequence[str]) -> None:
    """Raise `ParameterError` when torchrun has started several processes of a command that is meant for one.

    Parameters
    ----------
    given : sequence of str
        The arguments of the process.
    """
    number = _started()
    if number > 1 and given and given[0] != SHARED and not given[0].startswith("-"):
        raise ParameterError(
            f"torchrun has started {number} processes of `mcflow {given[0]}`, which works in one. Fit with torchrun "
            "and `mcflow fit`, then use the model with `mcflow impute --model`, without torchrun."
        )


def speaker() -> str:
    """Return who says an error: nothing for a single process and for the first of several.

    Returns
    -------
    str
        Such as "worker 2 of 2: ".
    """
    rank, number = int(os.environ.get("RANK", "0")), _started()
    return f"worker {rank + 1} of {number}: " if number > 1 and rank else ""


@contextmanager
def sharing(source: Path, options: FitOptions) -> Iterator[tuple[FitOptions, bool]]:
    """Share a fit with the other processes of torchrun, if it has started this one.

    Parameters
    ----------
    source : Path
        What is learned from.
    options : FitOptions
        Flags of the command.

    Yields
    ------
    options : FitOptions
        The same; quiet for all but the first process.
    is_first : bool
        Whether this is the process that writes the model.

    Raises
    ------
    ParameterError
        When the source is standard input, which only one process can read.
    """
    if _started() == 1:
        yield options, True
        return
    from mcflow.data.streams import STREAM
    from mcflow.training.parallel import torchrun

    if source == STREAM:
        raise ParameterError("Standard input cannot be read by several processes. Give torchrun's workers a file.")
    with torchrun(options.device) as workers, warnings.catch_warnings():
        if not workers.is_first:
            warnings.simplefilter("ignore")
            options = replace(options, quiet=True)
        yield options, workers.is_first


def _started() -> int:
    """Return how many processes torchrun has started, 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1

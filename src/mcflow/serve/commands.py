"""The command lines that do the work of jobs; the same that anybody can give by hand."""

from __future__ import annotations

__all__ = [
    "bounds_command",
    "check_names",
    "draws_command",
    "fill_command",
    "fit_command",
    "intervals_command",
    "look_command",
    "texts_command",
]

import json
import sys
from collections.abc import Mapping
from typing import Any

from mcflow.errors import ParameterError, did_you_mean
from mcflow.serve.jobs import INTERVAL_LEVEL, Job
from mcflow.serve.limits import Limits

_MCFLOW = (sys.executable, "-m", "mcflow")


def fit_command(job: Job) -> list[str]:
    """Return the command that fits on a file and fills it.

    Parameters
    ----------
    job : Job
        Its options decide the flags.

    Returns
    -------
    list of str
        `mcflow impute`, to be run in the job's folder.

    Notes
    -----
    A time for the fit is given only when the client chose one: the clock would make the answer another one each time.

    Examples
    --------
    >>> from pathlib import Path
    >>> " ".join(fit_command(Job(Path("1"), options={"seed": 3}))[3:])
    'impute upload.csv --output filled.csv --save model.mcflow --report report.html --seed 3 --checkpoint-dir checkpoint
     --progress json'
    """
    outputs = ["--output", job.output.name, "--save", "model.mcflow", "--report", "report.html"]
    chosen = job.options
    flags = ["--seed", str(chosen.get("seed", 0)), "--checkpoint-dir", "checkpoint", "--progress", "json"]
    given = [option for option in ("preset", "max_time", "max_epochs") if chosen.get(option) is not None]
    flags += [f"--{option.replace('_', '-')}={chosen[option]}" for option in given]
    columns = [*_pairs("kind", chosen.get("kinds")), *_pairs("role", chosen.get("roles"))]
    return [*_MCFLOW, "impute", job.upload.name, *outputs, *flags, *columns]


def check_names(options: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Raise `ParameterError` when choices name a column that a file does not have, or that no flag can name.

    Parameters
    ----------
    options : mapping
        With "kinds" and "roles".
    content : mapping
        What was found in the file.
    """
    names = [column["name"] for column in content["columns"]]
    for wish in ("kinds", "roles"):
        for name in options.get(wish) or {}:
            if name not in names:
                hint = did_you_mean(name, names)
                raise ParameterError(f"{wish} names the column {name[:80]!r}, which the file does not have.{hint}")
            if not name or "\0" in name:
                raise ParameterError(f"{wish} names the column {name!r}, which needs a name first. Rename it.")


def _pairs(flag: str, given: Mapping[str, str] | None) -> list[str]:
    return [f"--{flag}={name}={word}" for name, word in (given or {}).items()]


def intervals_command(job: Job) -> list[str]:
    """Return the command that puts intervals around the filled cells of a job's file."""
    level = ["--interval", str(INTERVAL_LEVEL)]
    return [*_MCFLOW, "impute", job.upload.name, "--model", "model.mcflow", *level, "--output", "cells.parquet", "-q"]


def fill_command(job: Job) -> list[str]:
    """Return the command that fills another file by the model of a job."""
    model = "../../model.mcflow"
    flags = ["--unseen", str(job.options.get("unseen", "error")), "--quiet"]
    return [*_MCFLOW, "impute", job.upload.name, "--model", model, "--output", job.output.name, *flags]


def draws_command(job: Job) -> list[str]:
    """Return the command that draws the file of a model several times, all draws below each other."""
    source, model = f"../../upload{job.ending}", "../../model.mcflow"
    flags = ["--draws", str(job.options["m"]), "--long", "--seed", str(job.options.get("seed", 0)), "--quiet"]
    return [*_MCFLOW, "impute", source, "--model", model, "--output", job.output.name, *flags]


def look_command(job: Job, limits: Limits) -> list[str]:
    """Return the command that reads a file and says what its columns are."""
    most = {name: getattr(limits, name) for name in ("max_rows", "max_columns", "max_cells")}
    return _own("look", job, max_bytes=limits.max_upload, **most)


def texts_command(job: Job) -> list[str]:
    """Return the command that makes the filled cells ready to be looked at."""
    return _own("view", job, what="texts")


def bounds_command(job: Job) -> list[str]:
    """Return the command that makes the intervals ready to be looked at."""
    return _own("view", job, what="bounds")


def _own(module: str, job: Job, **wishes: Any) -> list[str]:
    said = {"upload": job.upload.name, "output": job.output.name, **wishes}
    return [sys.executable, "-m", f"mcflow.serve.{module}", json.dumps(said)]

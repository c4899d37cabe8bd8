"""Command lines of jobs: `mcflow` as a user would call it, and the programs of the server."""

from __future__ import annotations

__all__ = [
    "bounds_command",
    "check_names",
    "check_schema_text",
    "draws_command",
    "fill_command",
    "fit_command",
    "inspect_command",
    "intervals_command",
    "run_program",
    "save_schema_text",
    "texts_command",
]

import json
import sys
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from mcflow.columns.schema import MissingValues
from mcflow.columns.schema_file import read_schema
from mcflow.errors import DataError, McflowError, ParameterError, did_you_mean
from mcflow.files.atomic import replacing
from mcflow.serve.jobs import INTERVAL_LEVEL, Job
from mcflow.serve.limits import Limits

_MCFLOW = (sys.executable, "-m", "mcflow")
#: Name of the schema file of a job.
SCHEMA_FILE = "columns.toml"


def fit_command(job: Job) -> list[str]:
    """Return the command that fits on a file and fills it.

    A time limit is passed on only if the client has set one, since it makes the result depend on the clock.

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
    columns += ["--schema", SCHEMA_FILE] if chosen.get("columns_file") else []
    reading = [*(f"--na={text}" for text in chosen.get("na") or ()), *_skip_rows(job)]
    return [*_MCFLOW, "impute", job.upload.name, *outputs, *flags, *columns, *reading]


def _skip_rows(job: Job) -> list[str]:
    lines = job.options.get("skip_rows")
    return [f"--skip-rows={lines}"] if lines else []


def check_schema_text(text: str) -> None:
    """Raise `ParameterError` or `DataError` if a text is given that is not a schema file."""
    if not text:
        return
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DataError(f"columns_file is not a schema: {error}. Write one with `mcflow schema`.") from error
    read_schema(content)


def save_schema_text(job: Job) -> None:
    """Write the schema file of a job, for its command."""
    if job.options.get("columns_file"):
        with replacing(job.folder / SCHEMA_FILE) as temporary:
            temporary.write_text(job.options["columns_file"], encoding="utf-8")


def check_names(options: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Raise `ParameterError` if options name a column that the file does not have or that no flag can name."""
    names = [column["name"] for column in content["columns"]]
    MissingValues.parse(options.get("na") or ()).check(names)
    for option in ("kinds", "roles"):
        for name in options.get(option) or {}:
            if name not in names:
                hint = did_you_mean(name, names)
                raise ParameterError(f"{option} names the column {name[:80]!r}, which the file does not have.{hint}")
            kinds = next((c.get("kinds") for c in content["columns"] if c["name"] == name), None)
            if option == "kinds" and kinds and options["kinds"][name] not in kinds:
                raise ParameterError(
                    f"The column {name[:80]!r} cannot be of kind {options['kinds'][name]}. Choose {', '.join(kinds)}."
                )
            if not name or "\0" in name:
                raise ParameterError(f"{option} names the column {name!r}, which needs a name. Rename it in the file.")


def _pairs(flag: str, given: Mapping[str, str] | None) -> list[str]:
    return [f"--{flag}={name}={word}" for name, word in (given or {}).items()]


def intervals_command(job: Job) -> list[str]:
    """Return the command that computes the intervals of the filled cells."""
    flags = ["--interval", str(INTERVAL_LEVEL), *_skip_rows(job), "--quiet"]
    return [*_MCFLOW, "impute", job.upload.name, "--model", "model.mcflow", *flags, "--output", "cells.parquet"]


def fill_command(job: Job) -> list[str]:
    """Return the command that fills another file with the model of a job."""
    model = "../../model.mcflow"
    flags = ["--unseen", str(job.options.get("unseen", "missing")), *_skip_rows(job), "--quiet"]
    return [*_MCFLOW, "impute", job.upload.name, "--model", model, "--output", job.output.name, *flags]


def draws_command(job: Job) -> list[str]:
    """Return the command that writes draws of the file of a model in long format."""
    source, model = f"../../upload{job.ending}", "../../model.mcflow"
    flags = ["--draws", str(job.options["m"]), "--long", "--seed", str(job.options.get("seed", 0)), "--quiet"]
    flags += _skip_rows(job)
    return [*_MCFLOW, "impute", source, "--model", model, "--output", job.output.name, *flags]


def inspect_command(job: Job, limits: Limits) -> list[str]:
    """Return the command that reads a file and describes its columns."""
    most = {name: getattr(limits, name) for name in ("max_rows", "max_columns", "max_cells")}
    return _program("inspect_upload", job, max_bytes=limits.max_upload, **most)


def texts_command(job: Job) -> list[str]:
    """Return the command that prepares the filled cells for display."""
    return _program("preview", job, what="texts")


def bounds_command(job: Job) -> list[str]:
    """Return the command that prepares the intervals for display."""
    return _program("preview", job, what="bounds")


def _program(module: str, job: Job, **arguments: Any) -> list[str]:
    reading = {name: job.options[name] for name in ("na", "skip_rows", "kinds") if job.options.get(name)}
    given = {"upload": job.upload.name, "output": job.output.name, **reading, **arguments}
    return [sys.executable, "-m", f"mcflow.serve.{module}", json.dumps(given)]


def run_program(main: Callable[[dict[str, Any]], None]) -> None:
    """Run a program of the server with its JSON arguments, and print an error as one line."""
    try:
        main(json.loads(sys.argv[1]))
    except (McflowError, OSError) as error:
        print(f"mcflow: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(3)

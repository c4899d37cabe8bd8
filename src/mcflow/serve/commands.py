"""Command lines of jobs: `mcflow` as a user would call it, and the programs of the server."""

from __future__ import annotations

__all__ = [
    "check_names",
    "check_schema_text",
    "draws_command",
    "fill_command",
    "fit_command",
    "inspect_command",
    "intervals_command",
    "preview_command",
    "run_program",
    "save_schema_text",
]

import json
import sys
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from mcflow.columns.schema import MissingValues
from mcflow.columns.schema_file import read_schema
from mcflow.errors import DataError, McflowError, ParameterError, did_you_mean
from mcflow.files.atomic import write_text
from mcflow.serve.jobs import INTERVAL_LEVEL, Job
from mcflow.serve.limits import Limits

SCHEMA_FILE = "columns.toml"  #: Name of the schema file of a job.


def fit_command(job: Job) -> list[str]:
    """Return the command that fits on a file and fills it, without a time limit unless the client has set one."""
    chosen = job.options
    flags = ["--save", "model.mcflow", "--report", "report.html", "--seed", str(chosen.get("seed", 0))]
    flags += ["--checkpoint-dir", "checkpoint", "--progress", "json"]
    given = [option for option in ("preset", "max_time", "max_epochs") if chosen.get(option) is not None]
    flags += [f"--{option.replace('_', '-')}={chosen[option]}" for option in given]
    for flag in ("kind", "role"):
        flags += [f"--{flag}={name}={word}" for name, word in (chosen.get(f"{flag}s") or {}).items()]
    flags += [f"--na={text}" for text in chosen.get("na") or ()]
    flags += ["--schema", SCHEMA_FILE] if chosen.get("columns_file") else []
    return _impute(job, job.upload.name, job.output.name, *flags)


def intervals_command(job: Job) -> list[str]:
    """Return the command that computes the intervals of the filled cells."""
    level = str(INTERVAL_LEVEL)
    return _impute(job, job.upload.name, "cells.parquet", "--model", "model.mcflow", "--interval", level, "--quiet")


def fill_command(job: Job) -> list[str]:
    """Return the command that fills another file with the model of a job."""
    flags = ["--model", "../../model.mcflow", "--unseen", str(job.options.get("unseen", "missing")), "--quiet"]
    return _impute(job, job.upload.name, job.output.name, *flags)


def draws_command(job: Job) -> list[str]:
    """Return the command that writes draws of the file of a model in long format."""
    flags = ["--model", "../../model.mcflow", "--draws", str(job.options["m"]), "--long", "--quiet"]
    flags += ["--seed", str(job.options.get("seed", 0))]
    return _impute(job, f"../../upload{job.ending}", job.output.name, *flags)


def _impute(job: Job, source: str, output: str, *flags: str) -> list[str]:
    lines = job.options.get("skip_rows")
    reading = [f"--skip-rows={lines}"] if lines else []
    return [sys.executable, "-m", "mcflow", "impute", source, "--output", output, *reading, *flags]


def inspect_command(job: Job, limits: Limits) -> list[str]:
    """Return the command that reads a file and describes its columns."""
    most = {name: getattr(limits, name) for name in ("max_rows", "max_columns", "max_cells")}
    return _program("uploads", job, max_bytes=limits.max_upload, **most)


def preview_command(job: Job, what: str) -> list[str]:
    """Return the command that prepares the filled cells ("texts") or their intervals ("bounds") for display."""
    return _program("preview", job, what=what)


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
        write_text(job.folder / SCHEMA_FILE, job.options["columns_file"])


def check_names(options: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Raise `ParameterError` if options name a column that the file does not have or that no flag can name."""
    columns = {column["name"]: column for column in content["columns"]}
    MissingValues.parse(options.get("na") or ()).check(list(columns))
    for option in ("kinds", "roles"):
        for name, word in (options.get(option) or {}).items():
            if name not in columns:
                hint = did_you_mean(name, list(columns))
                raise ParameterError(f"{option} names the column {name[:80]!r}, which the file does not have.{hint}")
            kinds = columns[name].get("kinds") if option == "kinds" else None
            if kinds and word not in kinds:
                raise ParameterError(f"The column {name[:80]!r} cannot be of kind {word}. Choose {', '.join(kinds)}.")
            if not name or "\0" in name:
                raise ParameterError(f"{option} names the column {name!r}, which needs a name. Rename it in the file.")

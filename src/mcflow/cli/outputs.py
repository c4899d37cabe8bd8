"""Output files of commands: checks before any work, and reports with the command that reproduces them."""

from __future__ import annotations

__all__ = ["check_output", "check_report_file", "command_line", "write_report_file"]

import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcflow.cli.options import FitOptions
from mcflow.errors import OutputError, ParameterError
from mcflow.files.atomic import check_writable
from mcflow.files.streams import STREAM

if TYPE_CHECKING:
    import pyarrow as pa

    from mcflow.imputers import MCFlowImputer

#: Options that do not change the result.
_NO_EFFECT = {"quiet", "progress", "checkpoint_dir"}


def check_output(output: Path, *others: Path | None) -> None:
    """Raise `OutputError` if an output cannot be written or would replace another file of the command."""
    if output == STREAM:
        return
    check_writable(output)
    for other in others:
        if other is not None and output.resolve() == other.resolve():
            raise OutputError(f"{output} is given twice and would be overwritten. Give each file its own name.")


def check_report_file(report: Path | None, *others: Path | None) -> None:
    """Raise an error if a requested report cannot be written later, or if its libraries are not installed."""
    if report is None:
        return
    from mcflow.report import check_report

    if report == STREAM:
        raise ParameterError("--report is -, but a report is a file. Give a name such as report.html.")
    check_report()
    check_output(report, *(other for other in others if other != STREAM))


def command_line(name: str, source: Path, files: Mapping[str, Path | None], *options: Any) -> str:
    """Return the command that reproduces a result, with the files by flag and the options that differ from defaults.

    Examples
    --------
    >>> command_line("fit", Path("a b.csv"), {"--output": Path("m.mcflow")}, FitOptions(max_time=30))
    "mcflow fit 'a b.csv' --output m.mcflow --seed 0 --max-time 30"
    """
    words = ["mcflow", name, str(source)]
    for flag, path in files.items():
        words += [] if path is None else [flag, str(path)]
    for group in options:
        for field in fields(group):
            value = getattr(group, field.name)
            if field.name not in _NO_EFFECT and (value != field.default or field.name == "seed"):
                words += _flag("--" + field.name.replace("_", "-"), value)
    return shlex.join(words)


def _flag(flag: str, value: Any) -> list[str]:
    if isinstance(value, tuple):
        return [word for one in value for word in (flag, str(one))]
    if isinstance(value, bool):
        return [flag if value else "--no-" + flag[2:]]
    return [flag, f"{value:g}" if isinstance(value, float) else str(value)]


def write_report_file(
    report: Path,
    imputer: MCFlowImputer,
    table: pa.Table,
    filled: list[pa.Table] | None = None,
    *,
    source: Path,
    command: str,
    options: FitOptions,
) -> None:
    """Write the report of a fit, of a filled table or of several draws, and print its name to standard error."""
    from mcflow.report import write_report

    options.notify_phase("writing the report")
    tables = filled or []
    draws = tables if len(tables) > 1 else None
    write_report(
        report, imputer, table, tables[0] if tables else None, draws=draws, command=command, source=source.name
    )
    if not options.quiet:
        print(f"Report written to {report}", file=sys.stderr)

"""Reports that commands write: checks before any work, and the command line that does it again."""

from __future__ import annotations

__all__ = ["check_report_file", "command_line", "say_written", "tell_phase"]

import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from mcflow.cli.files import check_output
from mcflow.cli.options import FitOptions
from mcflow.data.streams import STREAM
from mcflow.errors import ParameterError

#: Flags that change nothing of the result.
_SILENT = {"quiet", "progress", "checkpoint_dir"}


def check_report_file(report: Path | None, *others: Path | None) -> None:
    """Raise an error now when a report that is asked for cannot be written later.

    Parameters
    ----------
    report : Path or None
        The file; None when none is asked for.
    *others : Path or None
        Files that are read, or written besides.

    Raises
    ------
    MissingExtraError
        When what it needs is not installed.
    OutputError
        When it cannot be written, or would replace another file of the command.
    ParameterError
        When it is standard output.
    """
    if report is None:
        return
    from mcflow.report import check_report

    if report == STREAM:
        raise ParameterError("--report is -, but a report is a file. Give a name such as report.html.")
    check_report()
    check_output(report, *(other for other in others if other != STREAM))


def command_line(name: str, source: Path, files: Mapping[str, Path | None], *options: Any) -> str:
    """Return the command that does the same again.

    Parameters
    ----------
    name : str
        Of the command.
    source : Path
        Its file.
    files : mapping
        Further files by flag; None for those that were not given.
    *options : dataclass
        Flags; those that differ from their defaults are written, and the seed of a fit always.

    Returns
    -------
    str

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
            if field.name not in _SILENT and (value != field.default or field.name == "seed"):
                words += _flag("--" + field.name.replace("_", "-"), value)
    return shlex.join(words)


def _flag(flag: str, value: Any) -> list[str]:
    if isinstance(value, tuple):
        return [word for one in value for word in (flag, str(one))]
    if isinstance(value, bool):
        return [flag if value else "--no-" + flag[2:]]
    return [flag, f"{value:g}" if isinstance(value, float) else str(value)]


def tell_phase(name: str, options: FitOptions) -> None:
    """Tell a program that watches the command what it does now.

    Parameters
    ----------
    name : str
        Such as "filling".
    options : FitOptions
        Says whether a program watches.
    """
    if options.shown == "json":
        from mcflow.training.progress import write_event

        write_event("phase", name=name)


def say_written(report: Path, options: FitOptions) -> None:
    """Say where a report is, on standard error, as standard output may carry the table.

    Parameters
    ----------
    report : Path
        The file.
    options : FitOptions
        Says whether to say anything.
    """
    if not options.quiet:
        print(f"Report written to {report}", file=sys.stderr)

"""`mcflow evaluate`: how well the holes of a file can be filled, by mcflow and by simpler methods."""

from __future__ import annotations

__all__ = ["EvaluateOptions", "evaluate"]

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mcflow.cli.options import ColumnOptions
from mcflow.config import PROGRESS, Options, check_parameter

if TYPE_CHECKING:
    from mcflow.evaluation import Evaluation


@Parameter(name="*")
@dataclass(frozen=True)
class EvaluateOptions:
    """How to evaluate.

    Parameters
    ----------
    methods
        What to compare with, separated by commas: "mean,em,missforest(n_trees=100)". By default the mean, ridge
        regressions in a loop (mice) and small forests (missforest).
    repeats
        How often to hide other cells and fit anew.
    share
        Share of a column's known cells to hide, at most; up to 0.5.
    pattern
        How hidden cells lie: own, as the file's holes; random, anywhere; auto, as the holes if there are enough.
    max_time
        Seconds that each fit of mcflow may take; 0 for no limit.
    max_rows
        Of more rows, a sample is taken; 0 takes all.
    level
        Of the intervals whose coverage is measured.
    seed
        Whole number that decides everything.
    progress
        How to show the progress, on standard error: auto, plain, json or none.
    quiet
        Print errors only.
    """

    methods: str | None = None
    repeats: int = 1
    share: float = 0.2
    pattern: str = "auto"
    max_time: float = 75.0
    max_rows: int = 10_000
    level: float = 0.9
    seed: int = 0
    progress: str = "auto"
    quiet: Annotated[bool, Parameter(alias="-q", negative="")] = False

    def parameters(self) -> dict[str, Any]:
        """Return the arguments of `mcflow.evaluate`."""
        from mcflow.benchmarks.methods import split_list

        check_parameter("--progress", self.progress, Options(PROGRESS))
        return {
            "methods": None if self.methods is None else split_list(self.methods),
            "repeats": self.repeats,
            "share": self.share,
            "pattern": self.pattern,
            "max_time": self.max_time or None,
            "max_rows": self.max_rows or None,
            "level": self.level,
            "random_state": self.seed,
            "verbose": "none" if self.quiet else self.progress,
        }


def evaluate(
    source: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    output: Annotated[Path | None, Parameter(alias="-o", allow_leading_hyphen=True)] = None,
    report: Path | None = None,
    columns: ColumnOptions | None = None,
    options: EvaluateOptions | None = None,
) -> None:
    """Hide known cells of a file, fill them by mcflow and by simpler methods, and say which is better where.

    Cells are hidden as the file's own holes lie. Nothing in the file is changed.

    Parameters
    ----------
    source
        File to look at: .csv, .tsv or .parquet, CSV also as .gz or .zst; - for standard input.
    output
        Also write everything that was found to this file, as JSON; - for standard output.
    report
        Also write a report to this HTML file.
    """
    from mcflow.cli.files import check_output
    from mcflow.cli.reports import check_report_file
    from mcflow.data.tables import read_table
    from mcflow.evaluation import evaluate as evaluate_table

    chosen, wished = options or EvaluateOptions(), columns or ColumnOptions()
    given = chosen.parameters() | wished.parameters()
    if output is not None:
        check_output(output, source)
    check_report_file(report, source, output)
    table = read_table(source).table
    found = evaluate_table(table, **given)
    _write(found, output, quiet=chosen.quiet)
    if report is not None:
        from mcflow.cli.reports import command_line
        from mcflow.report import write_report

        command = command_line("evaluate", source, {"--report": report}, chosen, wished)
        write_report(report, None, table, evaluation=found.to_dict(), command=command)
        if not chosen.quiet:
            print(f"Report written to {report}", file=sys.stderr)


def _write(found: Evaluation, output: Path | None, *, quiet: bool) -> None:
    """Print the tables and the verdict, and write everything as JSON where that is asked for."""
    from mcflow.data.streams import STREAM

    if output is not None:
        _write_json(found.to_dict(), output)
    if not quiet:
        from rich.console import Console

        from mcflow.evaluation.display import print_evaluation

        print_evaluation(found, Console(stderr=output == STREAM))
        if output not in (None, STREAM):
            print(f"Written to {output}")


def _write_json(found: dict[str, Any], output: Path) -> None:
    import json

    from mcflow.data.files import replacing
    from mcflow.data.streams import STREAM, write_stream

    text = json.dumps(found, indent=2, allow_nan=False) + "\n"
    if output == STREAM:
        write_stream(text.encode())
        return
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")

"""`mcflow evaluate`: compare mcflow with simpler methods on masked cells of a file."""

from __future__ import annotations

__all__ = ["EvaluateOptions", "evaluate"]

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from mcflow.cli.options import EVALUATION, INPUT, OUTPUT, TIME, ColumnOptions, ReadOptions
from mcflow.config import PROGRESS, Options, check_parameter
from mcflow.errors import ParameterError

if TYPE_CHECKING:
    from mcflow.evaluation import DrawRanking, Evaluation


@Parameter(name="*", group=EVALUATION)
@dataclass(frozen=True)
class EvaluateOptions:
    """Options of the evaluation.

    Parameters
    ----------
    score
        Score of the methods: error (of fills of masked cells) or energy (energy-I-Score of draws of the whole table).
    methods
        Methods to compare with, separated by commas: "mean,em,missforest(n_trees=100)". By default the mean, chained
        ridge regressions (mice) and small random forests (missforest).
    repeats
        Number of repetitions, each with new fits and with other masked cells or another seed; by default 1, and 3 with
        --score energy.
    share
        Maximum fraction of the observed cells of a column to mask; at most 0.5.
    pattern
        Pattern of the masked cells: own (as the missing cells of the file), random (completely at random) or auto (own
        if enough cells are missing).
    max_time
        Time limit of each fit of mcflow in seconds; 0 for no limit.
    max_rows
        Maximum number of rows; larger tables are sampled. 0 uses all rows.
    level
        Level of the intervals whose coverage is measured.
    draws
        Number of draws of each cell with --score energy.
    max_columns
        Maximum number of columns to score with --score energy, each with its own fits; 0 for all.
    seed
        Random seed.
    progress
        Progress on standard error: auto, plain, json or none.
    quiet
        Print errors only.
    """

    score: str = "error"
    methods: str | None = None
    repeats: int | None = None
    share: float = 0.2
    pattern: str = "auto"
    max_time: Annotated[float, Parameter(group=TIME)] = 75.0
    max_rows: int = 10_000
    level: float = 0.9
    draws: int = 20
    max_columns: int = 10
    seed: int = 0
    progress: Annotated[str, Parameter(group=TIME)] = "auto"
    quiet: Annotated[bool, Parameter(alias="-q", negative="", group=OUTPUT)] = False

    def parameters(self) -> dict[str, Any]:
        """Return the arguments of `mcflow.evaluate`, or those of `rank_draws` for the score energy."""
        from mcflow.evaluation.methods import split_list

        check_parameter("--progress", self.progress, Options(PROGRESS))
        check_parameter("--score", self.score, Options(("error", "energy")))
        energy = self.score == "energy"
        for name in ("share", "pattern", "level") if energy else ("draws", "max_columns"):
            if getattr(self, name) != getattr(EvaluateOptions, name):
                flag = f"--{name.replace('_', '-')}"
                raise ParameterError(f"{flag} has no effect with --score {self.score}. Leave it out.")
        own = {"draws": self.draws, "max_columns": self.max_columns or None}
        return (own if energy else {"share": self.share, "pattern": self.pattern, "level": self.level}) | {
            "methods": None if self.methods is None else split_list(self.methods),
            "repeats": (3 if energy else 1) if self.repeats is None else self.repeats,
            "max_time": self.max_time or None,
            "max_rows": self.max_rows or None,
            "random_state": self.seed,
            "verbose": "none" if self.quiet else self.progress,
        }


def evaluate(
    source: Annotated[Path, Parameter(allow_leading_hyphen=True, group=INPUT)],
    /,
    *,
    output: Annotated[Path | None, Parameter(alias="-o", allow_leading_hyphen=True, group=OUTPUT)] = None,
    report: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    reading: ReadOptions | None = None,
    columns: ColumnOptions | None = None,
    options: EvaluateOptions | None = None,
) -> None:
    """Mask observed cells of a file, fill them with mcflow and with simpler methods, and compare the errors.

    Parameters
    ----------
    source
        File to evaluate on: .csv, .tsv, .parquet or .xlsx, CSV also as .gz or .zst; - for standard input.
    output
        Also write all results to this file, as JSON; - for standard output.
    report
        Also write a report to this HTML file.
    """
    from mcflow.cli.outputs import check_output, check_report_file, command_line
    from mcflow.evaluation import evaluate as evaluate_table
    from mcflow.evaluation import rank_draws

    evaluation, settings = options or EvaluateOptions(), columns or ColumnOptions()
    given = evaluation.parameters() | settings.parameters()
    if output is not None:
        check_output(output, source)
    read = reading or ReadOptions()
    if evaluation.score == "energy":
        if report is not None:
            raise ParameterError("--report shows errors, which --score energy does not measure. Use --output.")
        _write(rank_draws(read.read(source).table, **given), output, quiet=evaluation.quiet)
        return
    check_report_file(report, source, output)
    table = read.read(source).table
    found = evaluate_table(table, **given)
    _write(found, output, quiet=evaluation.quiet)
    if report is not None:
        from mcflow.report import write_report

        command = command_line("evaluate", source, {"--report": report}, evaluation, read, settings)
        write_report(report, None, table, evaluation=found.to_dict(), command=command, source=source.name)
        if not evaluation.quiet:
            print(f"Report written to {report}", file=sys.stderr)


def _write(found: Evaluation | DrawRanking, output: Path | None, *, quiet: bool) -> None:
    """Print the tables and the verdict, and write all results as JSON if an output is given."""
    from mcflow.cli.outputs import write_output
    from mcflow.evaluation.result import Evaluation, print_evaluation
    from mcflow.files.streams import STREAM

    if output is not None:
        write_output(output, json.dumps(found.to_dict(), indent=2, allow_nan=False) + "\n")
    if quiet:
        return
    console = Console(stderr=output == STREAM)
    if isinstance(found, Evaluation):
        print_evaluation(found, console)
    else:
        console.print(str(found), highlight=False, markup=False, soft_wrap=True)
    if output not in (None, STREAM):
        print(f"Written to {output}")

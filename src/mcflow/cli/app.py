"""The command line: one app, one file a command, and every error on one line."""

from __future__ import annotations

__all__ = ["EXIT_CODES", "app", "main", "run"]

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from cyclopts import App, CycloptsError

import mcflow
from mcflow.cli.torchrun import check_command, speaker
from mcflow.errors import McflowError, OutputError, ParameterError, TrainingError

#: What each exit code means; the first class that fits an error decides.
EXIT_CODES: dict[type[BaseException], int] = {
    ParameterError: 2,
    OutputError: 4,
    TrainingError: 5,
    McflowError: 3,
    OSError: 3,
    KeyboardInterrupt: 130,
}

app = App(
    name="mcflow",
    help="Fill the holes of tables and images with Monte Carlo flow models.",
    version=mcflow.__version__,
    help_epilogue="Exit codes: 0 done, 2 wrong usage, 3 unusable input, 4 output cannot be written, "
    "5 training failed, 130 stopped.",
    suppress_keyboard_interrupt=False,
)
app.command("mcflow.cli.impute:impute", help="Fill the missing cells of a CSV or Parquet file.", sort_key=0)
app.command("mcflow.cli.fit:fit", help="Fit a model on a CSV or Parquet file and save it.", sort_key=1)
app.command(
    "mcflow.cli.impute_images:impute_images",
    name="impute-images",
    help="Fill the missing pixels of a folder of pictures.",
    sort_key=1,
)
app.command("mcflow.cli.check:check", help="Say how a file differs from the table of a model.", sort_key=2)
app.command(
    "mcflow.cli.evaluate:evaluate",
    help="Hide known cells of a file and score mcflow beside simple methods.",
    sort_key=2,
)
app.command("mcflow.cli.serve:serve", help="Serve the page and the HTTP interface on this machine.", sort_key=3)
app.command("mcflow.cli.doctor:doctor", help="Say what mcflow runs on: versions, device, threads, cache.", sort_key=5)
app.command(
    "mcflow.cli.completion:completion", help="Print or install the completion of commands and flags.", sort_key=5
)
app.command("mcflow.cli.demo:demo", help="Fill the NHANES table that ships with the package.", sort_key=3)
benchmark = App(name="benchmark", help="Measure imputers on public data sets; stop and resume at will.", sort_key=4)
benchmark.command("mcflow.cli.benchmark:tables", help="The paper's Table 1: imputers on tables.")
benchmark.command("mcflow.cli.benchmark_images:images", help="The paper's Tables 2 to 4: imputers on images.")
benchmark.command("mcflow.cli.benchmark:ablation", help="What each ingredient of the presets is worth.")
benchmark.command("mcflow.cli.benchmark:simulation", help="Whether intervals from draws hold the truth.")
app.command(benchmark)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.

    Returns
    -------
    int
        The exit code; see `EXIT_CODES`.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            check_command(given)
            app(given, exit_on_error=False, print_error=True, result_action="return_value")
    except CycloptsError:
        return 2
    except tuple(EXIT_CODES) as error:
        code = next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind))
        stopped = "stopped; with --checkpoint-dir a fit goes on where it was"
        words = str(error) or (stopped if isinstance(error, KeyboardInterrupt) else type(error).__name__)
        print(f"mcflow: {speaker()}{words}", file=sys.stderr)
        return code
    return 0


def run() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(main())


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without the place in the code."""
    print(f"mcflow: {message}", file=sys.stderr)

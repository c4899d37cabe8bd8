"""Command-line application: commands, exit codes and error messages."""

from __future__ import annotations

__all__ = ["COMMANDS", "EXIT_CODES", "Command", "app", "completion", "in_flags", "main", "run"]

import re
import shlex
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal, NamedTuple

from cyclopts import App, CycloptsError, Parameter

import mcflow
from mcflow.cli.torchrun import check_command, worker_prefix
from mcflow.errors import McflowError, MissingExtraError, OutputError, ParameterError, TrainingError
from mcflow.installation import install_bench

#: Exit code of each class of errors; the first class that matches is used.
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
    help="Fill missing values in tables and images with neural networks and boosted trees.",
    version=mcflow.__version__,
    help_epilogue="Exit codes: 0 success, 2 wrong usage, 3 unusable input, 4 output cannot be written, "
    "5 training failed, 130 interrupted.",
    suppress_keyboard_interrupt=False,
)


class Command(NamedTuple):
    """A command that is imported when it is used."""

    place: str  #: Module and function.
    help: str
    examples: tuple[str, ...]  #: Shown at the end of its help.


#: Commands by name, in the order of the help.
COMMANDS = {
    "impute": Command(
        "impute:impute",
        "Fill the missing cells of a CSV, Parquet or Excel file.",
        (
            "mcflow impute data.csv",
            "mcflow impute data.csv -o filled.parquet --max-time 60 --na -999",
            "mcflow impute new.csv --model model.mcflow --interval 0.9",
        ),
    ),
    "fit": Command(
        "fit:fit",
        "Fit a model on a CSV, Parquet or Excel file and save it.",
        (
            "mcflow fit data.parquet -o model.mcflow --max-time 300",
            'mcflow fit "data/*.parquet" -o model.mcflow --checkpoint-dir state',
        ),
    ),
    "impute-images": Command(
        "impute_images:impute_images",
        "Fill the missing pixels of a folder of images.",
        (
            "mcflow impute-images pictures -o filled --masks masks",
            "mcflow impute-images pictures -o filled --draws 5 --save images.mcflow",
        ),
    ),
    "inspect": Command(
        "inspect:inspect",
        "Show the kind, role and missing cells of every column of a file.",
        ("mcflow inspect data.csv", "mcflow inspect data.csv --kind zip=category"),
    ),
    "schema": Command(
        "inspect:schema",
        "Write the detected columns of a file to a schema file.",
        ("mcflow schema data.csv -o schema.toml", "mcflow schema data.csv -o -"),
    ),
    "check": Command(
        "inspect:check",
        "Compare a file with a model or with a schema file.",
        ("mcflow check new.csv --model model.mcflow", "mcflow check new.csv --schema schema.toml"),
    ),
    "evaluate": Command(
        "evaluate:evaluate",
        "Mask observed cells of a file and compare mcflow with simple methods on them.",
        (
            "mcflow evaluate data.csv",
            'mcflow evaluate data.csv --methods "mean,em,missforest(n_trees=100)"',
            "mcflow evaluate data.csv --report report.html",
        ),
    ),
    "demo": Command(
        "impute:demo",
        "Fill the NHANES table that ships with the package.",
        ("mcflow demo", "mcflow demo -o filled.csv --max-time 5"),
    ),
    "serve": Command(
        "serve:serve",
        "Serve the web page and the HTTP API on this machine.",
        ("mcflow serve --open", "mcflow serve --host 0.0.0.0 --port 8000 --jobs 2"),
    ),
    "doctor": Command(
        "doctor:doctor",
        "Show versions, device, threads and cache folder, and test a small fit.",
        ("mcflow doctor", "mcflow doctor --json"),
    ),
    "completion": Command(
        "app:completion",
        "Print or install shell completion.",
        ("mcflow completion bash", "mcflow completion zsh --install"),
    ),
}

for _place, (_name, _command) in enumerate(COMMANDS.items()):
    app.command(
        f"mcflow.cli.{_command.place}",
        name=_name,
        help=_command.help,
        help_epilogue="Examples:\n\n" + "\n".join(f"    {line}" for line in _command.examples),
        sort_key=_place,
    )
_BENCHMARK = "Benchmark imputers on public data sets; interrupted runs resume."
for _entry in entry_points(group="mcflow.commands"):
    app.command(_entry.value, name=_entry.name, help=_BENCHMARK, sort_key=len(COMMANDS))
if "benchmark" not in app:

    @app.command(help=_BENCHMARK, sort_key=len(COMMANDS))
    def benchmark(*_: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]) -> None:
        """Explain how to install the command."""
        raise MissingExtraError(f"This command needs mcflow-bench: {install_bench()}")


def completion(
    shell: Literal["bash", "zsh", "fish"], /, *, install: Annotated[bool, Parameter(negative="")] = False
) -> None:
    """Print the script that completes commands and flags in a shell.

    Parameters
    ----------
    shell
        bash, zsh or fish.
    install
        Install the script in the completion folder of the shell instead of printing it. For bash and zsh, the start-up
        file of the shell is changed to load it.
    """
    if not install:
        print(app.generate_completion(shell=shell))
        return
    try:
        path = app.install_completion(shell=shell)
    except OSError as error:
        raise OutputError(
            f"The completion cannot be installed: {error}. Without --install the script is printed; save it yourself."
        ) from error
    print(f"Completion for {shell} written to {path}. Start a new shell to use it.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default with the arguments of the process, and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            check_command(given)
            app(given, exit_on_error=False, print_error=True, result_action="return_value")
        if sys.stdout is not None:
            sys.stdout.flush()
    except CycloptsError:
        return 2
    except BrokenPipeError:  # the reader has closed standard output; all files are written before anything is said
        from mcflow.files.streams import discard_output

        discard_output()
    except SystemExit as stop:
        if not isinstance(stop.__context__, BrokenPipeError):  # for which rich stops the program
            raise
    except tuple(EXIT_CODES) as error:
        code = next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind))
        stopped = "interrupted; a fit with --checkpoint-dir resumes from its last checkpoint"
        message = str(error) or (stopped if isinstance(error, KeyboardInterrupt) else type(error).__name__)
        print(f"mcflow: {worker_prefix()}{in_flags(message)}", file=sys.stderr)
        return code
    return 0


def run() -> None:
    """Run the command line and exit the process."""
    sys.exit(main())


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without its source location."""
    print(f"mcflow: {in_flags(str(getattr(message, 'on_command_line', message)))}", file=sys.stderr)


def in_flags(text: str) -> str:
    """Replace arguments of Python in a message by flags.

    Examples
    --------
    >>> in_flags("Set kinds={'cabin': 'category'} to use it, or unseen='error'.")
    'Set --kind cabin=category to use it, or --unseen error.'
    """

    def flag(found: re.Match[str]) -> str:
        return f"--{found[1]} {shlex.quote(f'{found[2]}={found[3]}')}"

    text = re.sub(r"\b(kind|role)s=\{'([^'}]*)': '(\w+)'\}", flag, text)
    return re.sub(r"\bunseen='(\w+)'", r"--unseen \1", text)

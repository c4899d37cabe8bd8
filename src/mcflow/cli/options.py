"""Options shared by several commands."""

from __future__ import annotations

__all__ = ["ColumnOptions", "DrawOptions", "EngineOptions", "FitOptions", "ReadOptions", "load_imputer", "new_imputer"]

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from mcflow.config import PROGRESS, Interval, Options, check_parameter
from mcflow.errors import ParameterError

if TYPE_CHECKING:
    from mcflow.columns.frames import Frame
    from mcflow.columns.planning import ColumnSettings
    from mcflow.columns.schema import MissingValues, TableSchema
    from mcflow.engines import Scorer, StreamOutcome
    from mcflow.files.tables import TableFile
    from mcflow.imputers import MCFlowImputer

Listener = Callable[[int, int], None]  # called with the number of rows that are done and of all rows

# Groups of flags in the help of the commands.
INPUT = Group("Input", sort_key=1)
OUTPUT = Group("Output", sort_key=2)
TIME = Group("Time", sort_key=3)
COLUMNS = Group("Columns", sort_key=4)
EVALUATION = Group("Evaluation", sort_key=5)
MODEL = Group("Model", sort_key=5)
ENGINE = Group("Engine", sort_key=6)

DRAWS_FORMATS = ("files", "long", "mids", "stata", "stata-wide", "spss")  #: Formats of draws.
FILL_ENGINES = ("local", "ray", "spark")  #: Engines that fill tables.
FIT_ENGINES = ("local", "ray")  #: Engines that fit models.


def _whole(_: Any, tokens: Sequence[Any]) -> int:
    """Parse an integer; without this converter, 2.5 would be rounded."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not an integer.") from None


@Parameter(name="*", group=MODEL)
@dataclass(frozen=True)
class FitOptions:
    """Options of the fit.

    Parameters
    ----------
    preset
        Settings to start from: default, or paper for the method of the MCFlow paper.
    seed
        Random seed; the same seed gives the same file.
    scaling
        With --preset paper, scaling of numeric columns: range, or auto to map columns with long tails by rank.
    max_epochs
        Maximum number of epochs. By default as in the preset.
    max_time
        Time limit of the fit in seconds; the learning-rate schedule adapts to it.
    batch_size
        Rows per training step.
    learning_rate
        Learning rate of Adam.
    likelihood_weight
        With --preset paper, weight of the log-density in the loss of the latent network (lambda in the paper).
    tolerance
        With --preset paper, early stopping: stop when both losses change by less than this fraction of their range; 0
        disables it.
    n_couplings
        Number of affine couplings in the flow.
    n_models
        Number of models to fit. All but the first are fitted on bootstrap samples, and draws alternate between them.
    calibrate
        Calibrate intervals and draws on validation cells.
    checkpoint_dir
        Folder for checkpoints; an interrupted fit resumes from there.
    device
        auto, cpu, cuda or mps.
    progress
        Progress on standard error: auto (a live display on a terminal, else lines), plain (lines), json (one JSON
        object per line) or none.
    quiet
        Print errors only.
    """

    preset: str = "default"
    seed: int = 0
    scaling: str | None = None
    max_epochs: Annotated[int | None, Parameter(group=TIME)] = None
    max_time: Annotated[float | None, Parameter(group=TIME)] = None
    batch_size: int | None = None
    learning_rate: float | None = None
    likelihood_weight: float | None = None
    tolerance: float | None = None
    n_couplings: int | None = None
    n_models: int = 1
    calibrate: bool = True
    checkpoint_dir: Annotated[Path | None, Parameter(group=TIME)] = None
    device: Annotated[str, Parameter(group=ENGINE)] = "auto"
    progress: Annotated[str, Parameter(group=TIME)] = "auto"
    quiet: Annotated[bool, Parameter(alias="-q", negative="", group=OUTPUT)] = False

    def parameters(self) -> dict[str, Any]:
        """Return the estimator's arguments."""
        given = asdict(self)
        seed, _, _ = given.pop("seed"), given.pop("quiet"), given.pop("progress")
        return given | {"random_state": seed, "verbose": self.shown}

    @property
    def shown(self) -> str:
        """Display of the progress; "none" if quiet."""
        check_parameter("--progress", self.progress, Options(PROGRESS))
        return "none" if self.quiet else self.progress

    def notify_phase(self, name: str) -> None:
        """Write a JSON event for the current phase, such as "filling", if the progress is JSON."""
        if self.shown == "json":
            from mcflow.fitting.progress import write_event

            write_event("phase", name=name)


@Parameter(name="*", group=COLUMNS)
@dataclass(frozen=True)
class ColumnOptions:
    """Options of columns; all but --schema and --unseen can be given several times.

    Parameters
    ----------
    schema
        Schema file written by `mcflow schema`, with the kinds, roles and bounds of columns. The options below replace
        its entries.
    kind
        NAME=KIND, to correct the detected kind of a column: zip=category.
    role
        NAME=ROLE: ignore, predictors_only, targets_only or outcome.
    bounds
        NAME=LOW:HIGH, the range of filled values; omit a bound to leave it open: age=0:120, price=0:
    allowed
        NAME=V1,V2,… or NAME=observed, the only values that may be filled in.
    rule
        Comparison that filled rows must satisfy: "low <= high".
    unseen
        Handling of categories that were not seen during the fit: missing (the cell is kept, but not used) or error.
    """

    schema: Path | None = None
    kind: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    role: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    bounds: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    allowed: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    rule: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    unseen: str = "missing"

    def parameters(self) -> dict[str, Any]:
        """Return the estimator's arguments."""
        return {
            "schema": None if self.schema is None else str(self.schema),
            "kinds": _pairs("kind", self.kind, str),
            "roles": _pairs("role", self.role, str),
            "bounds": _pairs("bounds", self.bounds, _bounds),
            "allowed": _pairs("allowed", self.allowed, _values),
            "rules": list(self.rule),
            "unseen": self.unseen,
        }

    def settings(self, frame: Frame, missing: MissingValues) -> ColumnSettings:
        """Return the settings for a table with some missing values, without a fit."""
        from mcflow.columns.planning import column_settings

        given = self.parameters() | {"missing_values": missing}
        return column_settings(frame, given.pop("schema"), **{k: v for k, v in given.items() if k != "unseen"})


@Parameter(name="*", group=INPUT)
@dataclass(frozen=True)
class ReadOptions:
    """Options of reading a file.

    Parameters
    ----------
    na
        Values that stand for missing cells: -999 in all columns, NAME=-999,99 in one column, or auto for all suspected
        codes. Can be given several times.
    skip_rows
        Number of lines above the header of a CSV or Excel file. They are kept in the output.
    """

    na: Annotated[tuple[str, ...], Parameter(negative="", show_default=False, allow_leading_hyphen=True)] = ()
    skip_rows: int = 0

    @property
    def missing(self) -> MissingValues:
        """Values that stand for missing cells."""
        from mcflow.columns.schema import MissingValues

        return MissingValues.parse(self.na)

    def read(self, source: Path, known: TableSchema | None = None) -> TableFile:
        """Read a file, with the missing values of a fitted table besides the given ones."""
        from mcflow.files.tables import read_table

        missing = self.missing
        if known is not None:
            codes = {str(column.name): column.missing_codes for column in known.columns if column.missing_codes}
            for name, values in missing.by_column.items():
                codes[name] = (*codes.get(name, ()), *values)
            missing = replace(missing, by_column=codes)
        check_parameter("--skip-rows", self.skip_rows, Interval(int, 0))
        return read_table(source, missing=missing, skip_rows=self.skip_rows)

    def check_for_parts(self, report: Path | None) -> None:
        """Raise `ParameterError` if an option requires a table in memory, for files that are read in parts."""
        if report is not None:
            raise ParameterError("--report needs the whole table in memory. Leave it out, or give a single file.")
        if self.skip_rows:
            raise ParameterError("--skip-rows requires a table in memory. Leave it out, or fill the files one by one.")
        if self.missing.auto:
            raise ParameterError(
                "--na auto requires a table in memory. Run `mcflow inspect` on one of the files to see the suspected "
                "codes, and name them, such as --na age=-999; or fill the files one by one."
            )


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True)
class DrawOptions:
    """Options of draws and intervals.

    Parameters
    ----------
    draws
        Multiple imputation: write this many completed tables, with missing cells drawn from their conditional
        distribution. With -o filled.csv they are filled.1.csv, filled.2.csv and so on.
    long
        Write all draws to one file in long format, with the number of the draw in a last column "draw".
    draws_format
        How draws are written: files (one per draw), long (as --long), mids (for as.mids of R's mice: .imp, .id and the
        incomplete table as imputation 0), stata (for mi import flong: _mi_m, _mi_id), stata-wide (for mi import wide:
        _1_NAME, _2_NAME and so on) or spss (Imputation_, with the incomplete table as imputation 0).
    row_ids
        Column of integers that distinguishes rows that are otherwise equal, so that their draws differ.
    interval
        Coverage between 0 and 1, such as 0.9: add the bounds of prediction intervals as columns NAME.low and NAME.high.
    """

    draws: Annotated[int | None, Parameter(converter=_whole)] = None
    long: Annotated[bool, Parameter(negative="")] = False
    draws_format: str | None = None
    row_ids: str | None = None
    interval: float | None = None

    @property
    def layout(self) -> str:
        """Format of the draws."""
        return self.draws_format or ("long" if self.long else "files")

    def check(self, output: Path) -> None:
        """Raise `ParameterError` if options contradict each other or the output."""
        from mcflow.files.streams import STREAM

        if self.interval is not None and not 0 < self.interval < 1:
            raise ParameterError(f"--interval is {self.interval:g}, but has to be above 0 and below 1, such as 0.9.")
        if self.draws is None:
            given = {"--long": self.long, "--draws-format": self.draws_format, "--row-ids": self.row_ids}
            for flag, value in given.items():
                if value:
                    raise ParameterError(f"{flag} requires --draws. Add the number of draws, or leave it out.")
            return
        check_parameter("--draws", self.draws, Interval(int, 1))
        if self.draws_format is not None:
            check_parameter("--draws-format", self.draws_format, Options(DRAWS_FORMATS))
            if self.long and self.draws_format != "long":
                raise ParameterError(f"--long contradicts --draws-format {self.draws_format}. Leave one of them out.")
        if self.interval is not None:
            raise ParameterError(
                "--interval adds columns to the filled table, which --draws does not write; the spread of the draws "
                "shows the uncertainty. Leave one of them out."
            )
        if output == STREAM and self.layout == "files":
            raise ParameterError("--draws writes several files. Add --long for standard output, or name a file.")


@Parameter(name="*", group=ENGINE)
@dataclass(frozen=True)
class EngineOptions:
    """Options of the engine.

    Parameters
    ----------
    engine
        local (this machine), ray (a Ray cluster) or spark (Spark, which fills tables but does not fit models).
    workers
        Number of worker processes with ray. By default one per CPU of the cluster to fill, and two to fit.
    address
        With ray, address of the cluster: auto, host:port or ray://host:port, or local to start one on this machine.
        With spark, the master, such as spark://host:7077; by default all cores of this machine.
    """

    engine: str = "local"
    workers: Annotated[int | None, Parameter(show_default=False)] = None
    address: str | None = None

    @property
    def is_cluster(self) -> bool:
        """Whether the engine is Ray or Spark."""
        return self.engine != "local"

    def check(self, *, fits: bool) -> None:
        """Raise `ParameterError` if the engine is unknown, cannot fit, or does not use an option."""
        if fits and self.engine == "spark":
            raise ParameterError("--engine spark fills tables but does not fit models. Fit with --engine local or ray.")
        check_parameter("--engine", self.engine, Options(FIT_ENGINES if fits else FILL_ENGINES))
        if self.workers is not None:
            check_parameter("--workers", self.workers, Interval(int, 1))
            if self.engine != "ray":
                more = " The master of Spark sets their number: --address 'local[4]'." if self.is_cluster else ""
                raise ParameterError(f"--workers has no effect with --engine {self.engine}. Leave it out.{more}")
        if self.address is not None and not self.is_cluster:
            raise ParameterError("--address has no effect with --engine local. Add --engine ray or --engine spark.")

    def refuse_in_memory(self, source: Path, output: Path) -> None:
        """Raise `ParameterError` if the engine is a cluster, which does not fill tables in memory."""
        if self.is_cluster:
            raise ParameterError(
                f"--engine {self.engine} fills files part by part into a folder, but -o is {output}. Name a folder, or "
                f"leave out --engine to fill {source} in memory."
            )

    def fill(
        self, source: Path, output: Path, scorer: Scorer, *, draws: int | None, seed: int, listen: Listener
    ) -> StreamOutcome:
        """Fill files of any size into a folder; see `mcflow.engines.impute_dataset`."""
        given: dict[str, Any] = {"draws": draws, "seed": seed, "listen": listen}
        if self.engine == "ray":
            from mcflow.engines import ray

            return ray.impute_dataset(source, output, scorer, address=self.address, workers=self.workers, **given)
        if self.engine == "spark":
            from mcflow.engines import spark

            return spark.impute_dataset(source, output, scorer, master=self.address, **given)
        from mcflow.engines import impute_dataset

        return impute_dataset(source, output, scorer, **given)

    def fit(self, source: Path, imputer: MCFlowImputer, *, folder: Path | None, listen: Listener) -> MCFlowImputer:
        """Fit on files of any size, with Ray or on this machine; see `mcflow.engines.fit_dataset`."""
        if self.engine == "ray":
            from mcflow.engines import ray_fit

            return ray_fit.fit_dataset(source, imputer, address=self.address, workers=self.workers or 2)
        from mcflow.engines import fit_dataset

        return fit_dataset(source, imputer, folder=folder, listen=listen)


def new_imputer(chosen: FitOptions, settings: ColumnOptions, missing: MissingValues) -> MCFlowImputer:
    """Return an imputer that is not fitted, for tables with some missing values."""
    from mcflow.imputers import MCFlowImputer

    given = chosen.parameters() | settings.parameters()
    return MCFlowImputer(keep_empty_features=True, decimals="observed", missing_values=missing, **given)


def load_imputer(model: Path, chosen: FitOptions, settings: ColumnOptions, draws: DrawOptions) -> MCFlowImputer:
    """Load a fitted imputer, and raise `ParameterError` if an option is set that has no effect with it."""
    from mcflow.imputers.persistence import load_table_model

    used = {"device", "progress", "quiet", "unseen"} | ({"seed"} if draws.draws is not None else set())
    for options in (chosen, settings):
        given = [f.name for f in fields(options) if f.name not in used and getattr(options, f.name) != f.default]
        if given:
            flags = [("--no-" if getattr(options, name) is False else "--") + name.replace("_", "-") for name in given]
            raise ParameterError(
                f"{', '.join(flags)} has no effect with --model, which is already fitted. Leave one of them out."
            )
    imputer = load_table_model(model, device=chosen.device)
    imputer.set_params(unseen=settings.unseen)
    return imputer


def _pairs(flag: str, given: Sequence[str], read: Callable[[str], Any]) -> dict[str, Any]:
    """Parse NAME=VALUE options; a name may contain "=", a value may not."""
    pairs = {}
    for text in given:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise ParameterError(f"--{flag} is {text!r}, but has to be NAME=VALUE.")
        pairs[name] = read(value)
    return pairs


def _bounds(text: str) -> tuple[Any, Any]:
    low, colon, high = text.partition(":")
    if not colon:
        raise ParameterError(f"--bounds ends in {text!r}, but has to end in LOW:HIGH, such as 0:120 or 0:.")
    return _value(low), _value(high)


def _values(text: str) -> Any:
    return text if text == "observed" else [_value(part) for part in text.split(",")]


def _value(text: str) -> Any:
    """Return a number, a text such as a date, or None for an empty text."""
    try:
        return float(text) if text.strip() else None
    except ValueError:
        return text.strip()

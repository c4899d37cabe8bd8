"""Flags that more than one command takes."""

from __future__ import annotations

__all__ = ["ColumnOptions", "DrawOptions", "FitOptions", "refuse_with_model"]

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from mcflow.config import PROGRESS, Interval, Options, check_parameter
from mcflow.errors import ParameterError


def refuse_with_model(options: Any, kept: set[str]) -> None:
    """Raise `ParameterError` when a flag was given that a fitted model cannot follow.

    Parameters
    ----------
    options : dataclass
        Flags and their values.
    kept : set of str
        Flags that have a meaning with a model too.
    """
    given = [f.name for f in fields(options) if f.name not in kept and getattr(options, f.name) != f.default]
    if given:
        flags = ", ".join(_flag(name, getattr(options, name)) for name in given)
        raise ParameterError(f"{flags} has no effect with --model, which is fitted already. Leave one of them out.")


def _whole(_: Any, tokens: Sequence[Any]) -> int:
    """Read a whole number; 2.5 would be rounded otherwise."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number.") from None


def _flag(name: str, value: Any) -> str:
    return ("--no-" if value is False else "--") + name.replace("_", "-")


@Parameter(name="*")
@dataclass(frozen=True)
class FitOptions:
    """How to fit.

    Parameters
    ----------
    preset
        Settings to start from: default, or paper for the method of the MCFlow paper.
    seed
        Whole number that decides everything; the same seed gives the same file.
    scaling
        How numbers are scaled: range or auto; the preset's value when not given.
    max_epochs
        Passes over the rows, at most; the preset's value when not given.
    max_time
        Seconds that the fit may take; the rate of learning follows the clock.
    batch_size
        Rows a step.
    learning_rate
        Adam's rate.
    likelihood_weight
        The paper's lambda: weight of the log-density in the latent network's loss.
    tolerance
        End early when both losses move less than this share of their range; 0 never ends early.
    n_couplings
        Affine couplings in the flow.
    n_models
        Models to fit, those after the first on rows drawn with replacement; draws take turns with them.
    calibrate
        Set intervals and draws right by cells that were held out of the fit.
    checkpoint_dir
        Folder for the fit's state: a fit that was stopped goes on from there.
    device
        auto, cpu, cuda or mps.
    progress
        How to show the progress, on standard error: auto, a live display on a terminal and lines elsewhere; plain,
        lines; json, one JSON object a line; none.
    quiet
        Print errors only.
    """

    preset: str = "default"
    seed: int = 0
    scaling: str | None = None
    max_epochs: int | None = None
    max_time: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    likelihood_weight: float | None = None
    tolerance: float | None = None
    n_couplings: int | None = None
    n_models: int = 1
    calibrate: bool = True
    checkpoint_dir: Path | None = None
    device: str = "auto"
    progress: str = "auto"
    quiet: Annotated[bool, Parameter(alias="-q", negative="")] = False

    def refuse_with_model(self, *, draws: bool = False) -> None:
        """Raise `ParameterError` when a flag was given that a fitted model cannot follow; draws need a seed."""
        refuse_with_model(self, {"device", "progress", "quiet"} | ({"seed"} if draws else set()))

    def parameters(self) -> dict[str, Any]:
        """Return the estimator's arguments."""
        given = asdict(self)
        seed, _, _ = given.pop("seed"), given.pop("quiet"), given.pop("progress")
        return given | {"random_state": seed, "verbose": self.shown}

    @property
    def shown(self) -> str:
        """How to show the progress; nothing when quiet."""
        check_parameter("--progress", self.progress, Options(PROGRESS))
        return "none" if self.quiet else self.progress


@Parameter(name="*")
@dataclass(frozen=True)
class ColumnOptions:
    """What to know of the columns; each flag may be given several times.

    Parameters
    ----------
    kind
        NAME=KIND, where the kind that was found is not right: zip=category.
    role
        NAME=ROLE: ignore, predictors_only, targets_only or outcome.
    bounds
        NAME=LOW:HIGH, the values that may be filled in; leave one out for open: age=0:120, price=0:
    allowed
        NAME=V1,V2,… or NAME=observed, the only values that may be filled in.
    rule
        Comparison that filled rows have to meet: "low <= high".
    unseen
        What to do with a level that the fit did not see: error or missing.
    """

    kind: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    role: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    bounds: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    allowed: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    rule: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    unseen: str = "error"

    def refuse_with_model(self) -> None:
        """Raise `ParameterError` when a flag was given that a fitted model cannot follow."""
        refuse_with_model(self, {"unseen"})

    def parameters(self) -> dict[str, Any]:
        """Return the estimator's arguments."""
        return {
            "kinds": _pairs("kind", self.kind, str),
            "roles": _pairs("role", self.role, str),
            "bounds": _pairs("bounds", self.bounds, _bounds),
            "allowed": _pairs("allowed", self.allowed, _values),
            "rules": list(self.rule),
            "unseen": self.unseen,
        }


@Parameter(name="*")
@dataclass(frozen=True)
class DrawOptions:
    """How to write what is not known of the filled cells.

    Parameters
    ----------
    draws
        Multiple imputation: write this many tables, each with other cells drawn from what they may be.
        With -o filled.csv they are filled.1.csv, filled.2.csv and so on.
    long
        Write all draws to one file, below each other, with their number in a last column "draw".
    row_ids
        Column of whole numbers that tells rows apart which are equal otherwise, so that their draws differ.
    interval
        Share between 0 and 1, such as 0.9: add columns NAME.low and NAME.high between which that share of the cells is.
    """

    draws: Annotated[int | None, Parameter(converter=_whole)] = None
    long: Annotated[bool, Parameter(negative="")] = False
    row_ids: str | None = None
    interval: float | None = None

    def check(self, output: Path) -> None:
        """Raise `ParameterError` when the flags do not go together, or not with the output.

        Parameters
        ----------
        output : Path
            Of the command; "-" is standard output.
        """
        from mcflow.data.streams import STREAM

        if self.interval is not None and not 0 < self.interval < 1:
            raise ParameterError(f"--interval is {self.interval:g}, but has to be above 0 and below 1, such as 0.9.")
        if self.draws is None:
            self._refuse_without_draws()
            return
        check_parameter("--draws", self.draws, Interval(int, 1))
        if self.interval is not None:
            raise ParameterError(
                "--interval adds columns to the table of estimates, which --draws does not write; draws have a spread "
                "of their own. Leave one of them out."
            )
        if output == STREAM and not self.long:
            raise ParameterError(
                "--draws writes several files, and standard output is one. Add --long, or name a file."
            )

    def _refuse_without_draws(self) -> None:
        needless = "--long" if self.long else "--row-ids" if self.row_ids is not None else None
        if needless is not None:
            raise ParameterError(f"{needless} is for draws. Say how many with --draws, or leave it out.")


def _pairs(flag: str, given: Sequence[str], read: Callable[[str], Any]) -> dict[str, Any]:
    """Read NAME=VALUE flags; a name may hold "=" itself, the value may not."""
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
    """Return a number, a text such as a date, or None for nothing."""
    try:
        return float(text) if text.strip() else None
    except ValueError:
        return text.strip()

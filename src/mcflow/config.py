"""Constraints of parameters: what each value may be, and the message when it is not."""

from __future__ import annotations

__all__ = [
    "BATCH_ROWS",
    "CONSTRAINTS",
    "PROGRESS",
    "Interval",
    "Options",
    "check_parameter",
    "check_parameters",
    "field_range",
]

import math
import numbers
from dataclasses import dataclass, replace
from typing import Any

from mcflow.errors import ParameterError, did_you_mean


@dataclass(frozen=True)
class Interval:
    """A number of one kind between two ends; `low_open` leaves the lower end out."""

    kind: type[int] | type[float]
    low: float
    high: float = math.inf
    low_open: bool = False
    optional: bool = False

    def allows(self, value: object) -> bool:
        """Tell whether `value` is inside."""
        if value is None:
            return self.optional
        number = numbers.Integral if self.kind is int else numbers.Real
        if isinstance(value, bool) or not isinstance(value, number):
            return False
        above = value > self.low if self.low_open else value >= self.low  # type: ignore[operator]
        return bool(above and value <= self.high and value != math.inf)

    def __str__(self) -> str:
        words = "a whole number" if self.kind is int else "a number"
        words += f" {'above' if self.low_open else 'of at least'} {self.low:g}"
        words += f" and at most {self.high:g}" if self.high < math.inf else ""
        return words + (" or None (the preset's value)" if self.optional else "")


@dataclass(frozen=True)
class Options:
    """One word of a list, a word that starts with one of `prefixes`, or an object of one of `types`."""

    words: tuple[Any, ...]
    prefixes: tuple[str, ...] = ()
    types: tuple[type, ...] = ()

    def allows(self, value: object) -> bool:
        """Tell whether `value` is one of the words or objects."""
        if any(type(value) is type(w) and value == w for w in self.words) or isinstance(value, self.types):
            return True
        return isinstance(value, str) and value.startswith(self.prefixes) and bool(self.prefixes)

    def __str__(self) -> str:
        objects = [f"an object of type {kind.__name__}" for kind in self.types]
        return "one of " + ", ".join([*map(repr, self.words), *(f"'{p}…'" for p in self.prefixes), *objects])


PROGRESS = ("auto", "plain", "json", "none")  #: How the progress of a fit may be shown.

#: Rows that are filled together. Longer tables are filled in blocks of as many, in memory and from files alike, so that
#: where the blocks are the same, the answers are the same to the last bit.
BATCH_ROWS = 65_536

#: What each parameter may be; `check_parameter` words the messages.
CONSTRAINTS: dict[str, Interval | Options] = {
    "preset": Options(("default", "paper")),
    "max_epochs": Interval(int, 1, optional=True),
    "batch_size": Interval(int, 1, optional=True),
    "learning_rate": Interval(float, 0, 1, low_open=True, optional=True),
    "likelihood_weight": Interval(float, 0, optional=True),
    "tolerance": Interval(float, 0, 1, optional=True),
    "max_time": Interval(float, 0, low_open=True, optional=True),
    "warm_start": Options((True, False)),
    "n_couplings": Interval(int, 1, 256, optional=True),
    "scaling": Options((None, "range", "auto")),
    "unseen": Options(("missing", "error")),
    "decimals": Options((None, "observed")),
    "restore_integers": Options((True, False)),
    "n_models": Interval(int, 1),
    "density": Options(("auto", True, False)),
    "calibrate": Options((True, False)),
    "add_indicator": Options((True, False)),
    "keep_empty_features": Options((True, False)),
    "verbose": Options((True, False, 0, 1, *PROGRESS)),
    "device": Options(("auto", "cpu", "cuda", "mps"), prefixes=("cuda:",)),
}

#: What fields of configurations may be that are not arguments of an imputer; the others are in `CONSTRAINTS`.
_FIELDS: dict[str, Interval | Options] = {
    "scaling": Options(("range", "auto")),
    "width": Interval(int, 0, 65_536),
    "n_members": Interval(int, 0, 1_024),
    "n_blocks": Interval(int, 0, 256),
    "n_components": Interval(int, 1, 256),
    "n_flow_layers": Interval(int, 1, 256),
    "n_latent_layers": Interval(int, 1, 256),
    "n_knots": Interval(int, 0, 65_536),
    "n_points": Interval(int, 1, 65_536),
    "burn_in": Interval(int, 0, 100_000),
    "thinning": Interval(int, 1, 100_000),
    "n_states": Interval(int, 1, 100_000),
    "state_thinning": Interval(int, 1, 100_000),
}

#: What any other number of a configuration may be.
_COUNT, _NUMBER = Interval(int, 0, 10**12), Interval(float, 0, 1e12)


def field_range(name: str, kind: type) -> Interval | Options | None:
    """Return what a field of a configuration may be, given its type; 0 lets the algorithm choose the value."""
    known = _FIELDS.get(name) or CONSTRAINTS.get(name)
    if isinstance(known, Interval) and name not in _FIELDS:
        return replace(known, low=0, low_open=False, optional=False)
    return known or {int: _COUNT, float: _NUMBER}.get(kind)


def check_parameter(name: str, value: object, constraint: Interval | Options | None = None, advice: str = "") -> None:
    """Raise `ParameterError` if a value is not allowed by `constraint`, or by that of its name in `CONSTRAINTS`.

    The message has the value, what is allowed, the `advice` and, for words, the closest one.
    """
    constraint = constraint or CONSTRAINTS.get(name)
    if constraint is None or constraint.allows(value):
        return
    hint = did_you_mean(value, map(str, constraint.words)) if isinstance(constraint, Options) else ""
    raise ParameterError(f"{name} is {value!r}, but has to be {constraint}.{advice and ' '}{advice}{hint}")


def check_parameters(estimator: Any) -> None:
    """Check the parameters of an estimator, by its own `constraints` first."""
    for name, value in estimator.get_params(deep=False).items():
        check_parameter(name, value, estimator.constraints.get(name))

"""Every hyper-parameter, once: small frozen dataclasses, the presets, and what each value may be."""

from __future__ import annotations

__all__ = [
    "BATCH_ROWS",
    "CONSTRAINTS",
    "IMAGE_PRESETS",
    "OVERRIDES",
    "PRESETS",
    "PROGRESS",
    "DataConfig",
    "FlowConfig",
    "Interval",
    "LatentConfig",
    "Options",
    "Settings",
    "TrainConfig",
    "check_parameter",
    "resolve",
]

import dataclasses
import math
import numbers
from dataclasses import dataclass, field
from typing import Any

from mcflow.errors import ParameterError, did_you_mean


@dataclass(frozen=True)
class FlowConfig:
    """The flow G.

    Parameters
    ----------
    n_couplings : int
        Affine couplings in the flow.
    n_layers : int
        Linear layers in each of the networks s and t.
    """

    n_couplings: int = 6
    n_layers: int = 4


@dataclass(frozen=True)
class LatentConfig:
    """The network H in the flow's latent space.

    Parameters
    ----------
    masked : bool
        Whether H reads rows of which some cells are hidden, and their mask, instead of points of the latent space.
    n_layers : int
        Linear layers, each as wide as the table, of the one that reads the latent space.
    n_blocks : int
        Residual blocks of the one that reads masks.
    width : int
        Their width; 0 for one that fits the table.
    n_members : int
        Networks side by side whose answers are averaged; 0 for more the smaller the table.
    n_knots, n_points : int
        Knots by which a number is read and points at which it may be, at most. Without knots a number is read as it is.
    reads_mask : bool
        Whether the mask is among what H reads.
    """

    masked: bool = False
    n_layers: int = 5
    n_blocks: int = 2
    width: int = 0
    n_members: int = 0
    n_knots: int = 32
    n_points: int = 32
    reads_mask: bool = True


@dataclass(frozen=True)
class TrainConfig:
    """How G and H are trained in turn.

    Parameters
    ----------
    max_epochs : int
        Epochs after which training ends, stable or not; 0 for as many as fit the table.
    batch_size : int
        Rows a step.
    learning_rate : float
        Adam's rate, for G and for H.
    likelihood_weight : float
        The paper's λ: the weight of the log-density in H's loss.
    tolerance : float
        A loss counts as stable when two successive windows of epochs differ by at most this share
        of the range that the loss has run through. Zero turns the test off.
    window : int
        Epochs in such a window.
    max_time : float
        Seconds after which training ends; 0 for no limit.
    hide_share : float
        Share of the observed cells that is hidden at every step, to be learned; 0 learns those that are shown.
    refills : bool
        Whether the paper's schedule refills the missing cells at every power of two.
    held_share : float
        Share of the observed cells of some rows that is never learned, to choose by.
    weight_decay : float
        How fast weights shrink, in units of the rate.
    """

    max_epochs: int = 500
    batch_size: int = 128
    learning_rate: float = 1e-4
    likelihood_weight: float = 1e-3
    tolerance: float = 1e-3
    window: int = 16
    max_time: float = 0.0
    refills: bool = True
    hide_share: float = 0.2
    held_share: float = 0.1
    weight_decay: float = 0.1


@dataclass(frozen=True)
class DataConfig:
    """How cells become the networks' numbers.

    Parameters
    ----------
    scaling : str
        "range": columns of numbers by their observed minimum and maximum, as in the paper; "auto": columns with heavy
        tails, outliers or many equal values by rank.
    """

    scaling: str = "range"


@dataclass(frozen=True)
class Settings:
    """A preset: the data, the flow, the latent network and the training together."""

    data: DataConfig = field(default_factory=DataConfig)
    flow: FlowConfig = field(default_factory=FlowConfig)
    latent: LatentConfig = field(default_factory=LatentConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the settings as plain nested dictionaries."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, given: dict[str, dict[str, Any]]) -> Settings:
        """Build settings from what `to_dict` returned."""
        parts = {"data": DataConfig, "flow": FlowConfig, "latent": LatentConfig, "train": TrainConfig}
        return cls(**{name: part(**given[name]) for name, part in parts.items()})


#: The settings to start from, by name.
PRESETS: dict[str, Settings] = {
    "default": Settings(
        latent=LatentConfig(masked=True),
        train=TrainConfig(max_epochs=0, batch_size=256, learning_rate=2e-3),
    ),
    "paper": Settings(),
}

#: The same for images; the paper's batch, rate and λ for images follow from their size and holes.
IMAGE_PRESETS: dict[str, Settings] = {
    "default": Settings(
        latent=LatentConfig(masked=True, n_blocks=1),
        train=TrainConfig(max_epochs=0, batch_size=16, learning_rate=2e-3, weight_decay=0.01),
    ),
    "paper": Settings(),
}

#: Estimator arguments that replace one field of the preset, with the section that holds it.
OVERRIDES: dict[str, str] = {
    "max_epochs": "train",
    "batch_size": "train",
    "learning_rate": "train",
    "likelihood_weight": "train",
    "tolerance": "train",
    "max_time": "train",
    "n_couplings": "flow",
    "scaling": "data",
}


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


#: How the progress of a fit may be shown.
PROGRESS = ("auto", "plain", "json", "none")

#: Rows that are filled together. Longer tables are filled in blocks of as many, in memory and from files alike, so that
#: where the blocks are the same, the answers are the same to the last bit.
BATCH_ROWS = 65_536

#: What each parameter may be; `check_parameter` words the messages.
CONSTRAINTS: dict[str, Interval | Options] = {
    "preset": Options(tuple(PRESETS), types=(Settings,)),
    "max_epochs": Interval(int, 1, optional=True),
    "batch_size": Interval(int, 1, optional=True),
    "learning_rate": Interval(float, 0, 1, low_open=True, optional=True),
    "likelihood_weight": Interval(float, 0, optional=True),
    "tolerance": Interval(float, 0, 1, optional=True),
    "max_time": Interval(float, 0, low_open=True, optional=True),
    "warm_start": Options((True, False)),
    "n_couplings": Interval(int, 1, 256, optional=True),
    "scaling": Options((None, "range", "auto")),
    "unseen": Options(("error", "missing")),
    "restore_integers": Options((True, False)),
    "n_models": Interval(int, 1),
    "calibrate": Options((True, False)),
    "add_indicator": Options((True, False)),
    "keep_empty_features": Options((True, False)),
    "verbose": Options((True, False, 0, 1, *PROGRESS)),
    "device": Options(("auto", "cpu", "cuda", "mps"), prefixes=("cuda:",)),
}


def check_parameter(name: str, value: object, constraint: Interval | Options | None = None) -> None:
    """Raise `ParameterError` when a parameter's value is not allowed.

    Parameters
    ----------
    name : str
        A key of `CONSTRAINTS`; names without a constraint pass.
    value : object
        What the caller gave.
    constraint : Interval or Options, optional
        In place of the one in `CONSTRAINTS`.

    Raises
    ------
    ParameterError
        With the value, what is allowed and, for words, the closest one.

    Examples
    --------
    >>> check_parameter("batch_size", 0)
    Traceback (most recent call last):
        ...
    mcflow.errors.ParameterError: batch_size is 0, but has to be a whole number of at least 1 ...
    """
    constraint = constraint or CONSTRAINTS.get(name)
    if constraint is None or constraint.allows(value):
        return
    hint = did_you_mean(value, map(str, constraint.words)) if isinstance(constraint, Options) else ""
    raise ParameterError(f"{name} is {value!r}, but has to be {constraint}.{hint}")


def resolve(preset: str | Settings, presets: dict[str, Settings] = PRESETS, **overrides: Any) -> Settings:
    """Return the preset's settings with every override that is not None in its place.

    Parameters
    ----------
    preset : str or Settings
        A key of `presets`, or settings of your own.
    presets : dict, default=PRESETS
        Settings by name.
    **overrides : object
        Values for the fields named in `OVERRIDES`.

    Returns
    -------
    Settings
        A new object; presets are never changed.

    Examples
    --------
    >>> resolve("paper", max_epochs=8).train.max_epochs
    8
    """
    check_parameter("preset", preset)
    sections: dict[str, dict[str, Any]] = {}
    for name, value in overrides.items():
        if name not in OVERRIDES:
            raise ParameterError(f"{name!r} is not a setting.{did_you_mean(name, OVERRIDES)}")
        check_parameter(name, value)
        if value is not None:
            constraint = CONSTRAINTS[name]
            plain = constraint.kind(value) if isinstance(constraint, Interval) else value
            sections.setdefault(OVERRIDES[name], {})[name] = plain
    base = preset if isinstance(preset, Settings) else presets[preset]
    changed = {part: dataclasses.replace(getattr(base, part), **values) for part, values in sections.items()}
    return dataclasses.replace(base, **changed)

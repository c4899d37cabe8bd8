"""Setup of a fit: presets and the arguments that override them, device, seed and callbacks."""

from __future__ import annotations

__all__ = [
    "CONFIGS",
    "IMAGE_PRESETS",
    "OVERRIDES",
    "PRESETS",
    "Config",
    "check_same",
    "choose_device",
    "config_to_dict",
    "fit_callbacks",
    "fit_seed",
    "resolve",
    "set_model",
    "table_algorithm",
]

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from mcflow.config import CONSTRAINTS, Interval, Options, check_parameter
from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.fitting.callbacks import Callback
from mcflow.fitting.checkpoint import Checkpointer, fingerprint
from mcflow.fitting.progress import progress_callbacks
from mcflow.images.config import ImageConfig
from mcflow.masked.config import MaskedConfig
from mcflow.paper.config import PAPER_IMAGES, PaperConfig
from mcflow.random import seed_from
from mcflow.typing import Array, RandomState

if TYPE_CHECKING:
    import torch

    from mcflow.fitting.distributed import Workers
    from mcflow.masked.model import MaskedModel
    from mcflow.paper.model import PaperModel

    TableModel: TypeAlias = MaskedModel | PaperModel

Config = MaskedConfig | PaperConfig | ImageConfig
PRESETS: dict[str, Config] = {"default": MaskedConfig(), "paper": PaperConfig()}  #: Presets of `MCFlowImputer`.
#: Presets of `MCFlowImageImputer`; batch size, learning rate and λ of "paper" depend on the images.
IMAGE_PRESETS: dict[str, Config] = {"default": ImageConfig(), "paper": PAPER_IMAGES}
#: Arguments of the imputers that replace a field of the preset.
OVERRIDES = (
    "max_epochs",
    "batch_size",
    "learning_rate",
    "likelihood_weight",
    "tolerance",
    "max_time",
    "n_couplings",
    "scaling",
)
#: Configuration class of each algorithm.
CONFIGS: dict[str, type[Config]] = {"masked": MaskedConfig, "paper": PaperConfig, "images": ImageConfig}


def resolve(preset: str | Config, presets: Mapping[str, Config] = PRESETS, **overrides: Any) -> Config:
    """Return a preset with overrides applied, except those that are None.

    Parameters
    ----------
    preset : str or Config
        A key of `presets`, or a configuration of one of their classes.
    presets : mapping, default=PRESETS
        Configurations by name.
    **overrides : object
        Values of the arguments named in `OVERRIDES`. Those that the algorithm has no field for are ignored.

    Returns
    -------
    Config
        A new object; presets are never changed.

    Raises
    ------
    ParameterError
        When the preset, an argument or a value is not allowed.

    Examples
    --------
    >>> resolve("paper", max_epochs=8).max_epochs
    8
    """
    classes = tuple(type(config) for config in presets.values())
    check_parameter("preset", preset, Options(tuple(presets), types=classes))
    config = presets[preset] if isinstance(preset, str) else preset
    fields = {field.name for field in dataclasses.fields(config)}
    changes: dict[str, Any] = {}
    for name, value in overrides.items():
        if name not in OVERRIDES:
            raise ParameterError(f"{name!r} is not a setting.{did_you_mean(name, OVERRIDES)}")
        check_parameter(name, value)
        if value is not None and name in fields:
            constraint = CONSTRAINTS[name]
            changes[name] = constraint.kind(value) if isinstance(constraint, Interval) else value
    return dataclasses.replace(config, **changes)


def table_algorithm(config: Config) -> Any:
    """Return the class of the `TableModel` of a configuration; all have the methods that `MCFlowImputer` calls."""
    from mcflow.masked.model import MaskedModel
    from mcflow.paper.model import PaperModel

    return MaskedModel if isinstance(config, MaskedConfig) else PaperModel


def config_to_dict(config: Config) -> dict[str, Any]:
    """Return a configuration as plain values, with the name of its algorithm."""
    algorithm = next(name for name, kind in CONFIGS.items() if type(config) is kind)
    return {"algorithm": algorithm} | dataclasses.asdict(config)


def choose_device(wanted: str) -> torch.device:
    """Return the device for a word such as "auto", "cpu", "cuda:1" or "mps"."""
    import torch

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if wanted == "auto":
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    if (wanted.startswith("cuda") and not cuda) or (wanted == "mps" and not mps):
        raise ParameterError(f"device is {wanted!r}, which this machine does not have. Use device='auto' or 'cpu'.")
    return torch.device(wanted)


def fit_seed(random_state: RandomState, checkpoint_dir: str | Path | None) -> int:
    """Return the seed of a fit; without a `random_state`, a resumed fit keeps the seed of its checkpoint."""
    found = None
    if random_state is None and checkpoint_dir is not None:
        found = Checkpointer.seed_in(Path(checkpoint_dir))
    return seed_from(random_state) if found is None else found


def check_same(workers: Workers, values: Array, inputs: dict[str, Any]) -> None:
    """Raise `DataError` if the workers of a fit do not have the same table and settings."""
    if workers.alone:
        return
    found = workers.gather(fingerprint(values, inputs))
    other = [rank + 1 for rank, one in enumerate(found) if one != found[0]]
    if other:
        raise DataError(
            f"Worker {other[0]} of {workers.number} has another table or other settings than the first one. "
            "Give all of them the same."
        )


def fit_callbacks(
    verbose: bool | str, checkpoint_dir: str | Path | None, values: Array, inputs: dict[str, Any]
) -> list[Callback]:
    """Return the callbacks of a fit, which write checkpoints and show progress as far as requested."""
    callbacks: list[Callback] = []
    if checkpoint_dir is not None:
        callbacks.append(Checkpointer(Path(checkpoint_dir), fingerprint(values, inputs), inputs["seed"]))
    return callbacks + (progress_callbacks(verbose) if verbose else [])


def set_model(imputer: Any, model: Any, seed: int) -> None:
    """Set a fitted or loaded model on an imputer, with its configuration, history and seed."""
    imputer.model_, imputer.config_, imputer.seed_ = model, model.config, seed
    imputer.history_, imputer.n_epochs_ = model.history, len(model.history.epochs)

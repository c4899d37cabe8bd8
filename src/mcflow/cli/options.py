"""Flags that more than one command takes."""

from __future__ import annotations

__all__ = ["FitOptions"]

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from mcflow.errors import ParameterError


@Parameter(name="*")
@dataclass(frozen=True)
class FitOptions:
    """How to fit.

    Parameters
    ----------
    preset
        Settings to start from: paper.
    seed
        Whole number that decides everything; the same seed gives the same file.
    max_epochs
        Passes over the rows, at most; the preset's value when not given.
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
    checkpoint_dir
        Folder for the fit's state: a fit that was stopped goes on from there.
    device
        auto, cpu, cuda or mps.
    quiet
        Print errors only.
    """

    preset: str = "paper"
    seed: int = 0
    max_epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    likelihood_weight: float | None = None
    tolerance: float | None = None
    n_couplings: int | None = None
    checkpoint_dir: Path | None = None
    device: str = "auto"
    quiet: Annotated[bool, Parameter(alias="-q", negative="")] = False

    def refuse_with_model(self) -> None:
        """Raise `ParameterError` when a flag was given that a fitted model cannot follow."""
        kept = {"device", "quiet"}
        given = [f.name for f in fields(self) if f.name not in kept and getattr(self, f.name) != f.default]
        if given:
            flags = ", ".join("--" + name.replace("_", "-") for name in given)
            raise ParameterError(f"{flags} has no effect with --model, which is fitted already. Leave one of them out.")

    def parameters(self) -> dict[str, Any]:
        """Return the estimator's arguments."""
        given = asdict(self)
        quiet, seed = given.pop("quiet"), given.pop("seed")
        return given | {"random_state": seed, "verbose": not quiet}

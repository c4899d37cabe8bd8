"""What each ingredient of a preset is worth: the preset without it, as methods of the benchmark."""

from __future__ import annotations

__all__ = ["ABLATION", "QUICK_ABLATION", "VARIANTS", "AblationSuite", "Variant", "ablation_suite", "variant"]

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcflow.benchmarks.methods import MethodSpec
from mcflow.benchmarks.suite import Cell, Suite
from mcflow.config import PRESETS, Settings
from mcflow.errors import ParameterError, did_you_mean

if TYPE_CHECKING:
    from mcflow import MCFlowImputer

#: Shares of hidden cells that are tried in place of the preset's own.
HIDE_SHARES = (0.05, 0.1, 0.35, 0.5)


@dataclass(frozen=True)
class Variant:
    """A preset with one thing changed.

    Parameters
    ----------
    label : str
        The change in plain words.
    settings : Settings
        What `MCFlowImputer` takes as its preset.
    against : str
        Name of the variant that it is compared with; its own name for a whole preset.
    """

    label: str
    settings: Settings
    against: str


def _changed(base: Settings, section: str, **fields: Any) -> Settings:
    return replace(base, **{section: replace(getattr(base, section), **fields)})


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _variants() -> dict[str, Variant]:
    whole, paper = PRESETS["default"], PRESETS["paper"]
    own = whole.train.hide_share
    changes: dict[str, tuple[str, str, dict[str, Any]]] = {
        "no_hidden": ("learns the cells that it is shown, none is hidden", "train", {"hide_share": 0.0}),
        "no_mask": ("does not read the mask", "latent", {"reads_mask": False}),
        "no_knots": ("reads a number as it is, not by knots", "latent", {"n_knots": 0}),
        "one_member": ("one network in place of several", "latent", {"n_members": 1}),
    }
    for share in HIDE_SHARES:
        if share != own:
            changes[f"hide_{share:g}"] = (f"hides {_percent(share)}", "train", {"hide_share": share})
    found = {"full": Variant(f"default preset, hides {_percent(own)} of the cells", whole, "full")}
    for name, (label, section, fields) in changes.items():
        found[name] = Variant(label, _changed(whole, section, **fields), "full")
    found["paper"] = Variant("paper's preset", paper, "paper")
    found["no_refills"] = Variant("never refills", _changed(paper, "train", refills=False), "paper")
    return found


#: The variants by name, each whole preset followed by what is taken from it.
VARIANTS: dict[str, Variant] = _variants()


def variant(name: str, *, max_epochs: int | None = None, random_state: int | None = None) -> MCFlowImputer:
    """Return the imputer of a variant, not fitted yet.

    Parameters
    ----------
    name : str
        A key of `VARIANTS`.
    max_epochs : int, optional
        In place of the preset's.
    random_state : int, optional
        Decides everything.

    Returns
    -------
    MCFlowImputer

    Raises
    ------
    ParameterError
        When there is no such variant.

    Examples
    --------
    >>> variant("no_mask", max_epochs=8).preset.latent.reads_mask
    False
    """
    from mcflow import MCFlowImputer

    if name not in VARIANTS:
        known = ", ".join(VARIANTS)
        raise ParameterError(f"There is no variant {name!r}. Known are {known}.{did_you_mean(name, VARIANTS)}")
    return MCFlowImputer(preset=VARIANTS[name].settings, max_epochs=max_epochs, random_state=random_state)


@dataclass(frozen=True)
class AblationSuite(Suite):
    """A suite whose every fold has a seed of its own: the same number decides split, hidden cells and fit.

    Examples
    --------
    >>> suite = AblationSuite(tables=("letter",), methods=("mean",), folds=(0, 2))
    >>> [(cell.task.fold, cell.task.seed) for cell in suite.cells(lambda name: (Path(name), ""))]
    [(0, 0), (2, 2)]
    """

    def cells(self, find: Callable[[str], tuple[Path, str]]) -> list[Cell]:
        """Return the cells as `Suite.cells` does, each with the number of its fold as the seed."""
        return [replace(cell, task=replace(cell.task, seed=cell.task.fold)) for cell in super().cells(find)]

    def method_of(self, name: str) -> str | None:
        """Return the method of a variant as this suite writes it, None when it has none."""
        for method in self.methods:
            spec = MethodSpec.parse(method)
            if dict(spec.parameters).get("name") == name:
                return str(spec)
        return None


def ablation_suite(
    *, rows: int, max_epochs: int, paper_epochs: int, seeds: tuple[int, ...], time_limit: float = 900.0
) -> AblationSuite:
    """Return all variants on Letter.

    Parameters
    ----------
    rows : int
        First rows of each table that are used.
    max_epochs, paper_epochs : int
        Epochs of the variants of the default preset and of the paper's.
    seeds : tuple of int
        From 0 to 4.
    time_limit : float, default=900
        Seconds that a cell may take.

    Returns
    -------
    AblationSuite

    Examples
    --------
    >>> suite = ablation_suite(rows=600, max_epochs=4, paper_epochs=8, seeds=(0,))
    >>> suite.method_of("no_refills")
    "python:mcflow.benchmarks.ablation:variant(max_epochs=8,name='no_refills')"
    """
    epochs = {"full": max_epochs, "paper": paper_epochs}
    methods = [
        str(MethodSpec(f"python:{__name__}:variant", (("max_epochs", epochs[one.against]), ("name", name))))
        for name, one in VARIANTS.items()
    ]
    return AblationSuite(("letter",), tuple(methods), folds=seeds, rows=rows, time_limit=time_limit)


#: Rows enough that no multivariate normal joins the answers, which would stand in for what a variant lacks.
ABLATION = ablation_suite(rows=6500, max_epochs=64, paper_epochs=64, seeds=(0, 1, 2))

#: Whether it runs, not what it finds.
QUICK_ABLATION = ablation_suite(rows=500, max_epochs=4, paper_epochs=4, seeds=(0,), time_limit=180.0)

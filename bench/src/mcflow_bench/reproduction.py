"""The choices that the paper's text leaves open: its method with one of them changed, on the paper's tables."""

from __future__ import annotations

__all__ = [
    "AUTHORS_WEIGHT",
    "CHOICES",
    "QUICK_REPRODUCTION",
    "REPRODUCTION",
    "WIDTH_WEIGHT",
    "Choice",
    "ChosenPaper",
    "choice",
    "method_of",
    "reproduction_suites",
]

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

from mcflow.errors import ParameterError, did_you_mean
from mcflow.evaluation.methods import MethodSpec
from mcflow.paper.config import PaperConfig
from mcflow_bench.suites import TableSuite

if TYPE_CHECKING:
    from mcflow.imputers.presets import TableModel
    from mcflow.typing import FloatArray

#: λ times the number of columns in the authors' program, which sums squared errors over the observed 80 % of the cells
#: of a batch of 64 rows and averages the log-density over these rows.
AUTHORS_WEIGHT = 1 / (64 * 0.8)

#: λ times the number of columns that equals our value for a table of 16 columns, as for images.
WIDTH_WEIGHT = 16 * PaperConfig().likelihood_weight


@dataclass(frozen=True)
class Choice:
    """The paper's preset with one choice changed."""

    subject: str  # the choice
    label: str  # what is chosen instead
    changes: Mapping[str, Any] = field(default_factory=dict)  # fields of `PaperConfig`
    weight_by_width: float | None = None  # λ times the number of columns
    patches: Mapping[str, str] = field(default_factory=dict)  # names of `paper_variants` by what they replace
    tables: tuple[str, ...] = ("letter",)

    def config(self, n_columns: int) -> PaperConfig:
        """Return the configuration for a table of `n_columns` columns."""
        changes = dict(self.changes)
        if self.weight_by_width is not None:
            changes["likelihood_weight"] = self.weight_by_width / n_columns
        return replace(PaperConfig(), **changes)


_MODEL, _ALGORITHM, _NETWORKS = (f"mcflow.paper.{module}" for module in ("model", "algorithm", "networks"))
_TWO = ("letter", "credit")
_ALL = ("letter", "credit", "news")

#: The choices by name, after the unchanged preset. A line here is a row of the page.
CHOICES: dict[str, Choice] = {
    "paper": Choice("unchanged", 'preset="paper"', tables=_ALL),
    "batch_64": Choice("batch", "64 rows", {"batch_size": 64}, tables=_TWO),
    "lambda_0": Choice("λ", "0", {"likelihood_weight": 0.0}, tables=_ALL),
    "lambda_width": Choice("λ", "0.016 / columns", weight_by_width=WIDTH_WEIGHT, tables=("credit", "news")),
    "lambda_authors": Choice("λ", "1 / (64 · 0.8 · columns)", weight_by_width=AUTHORS_WEIGHT, tables=_ALL),
    "lambda_large": Choice("λ", "0.01", {"likelihood_weight": 0.01}, tables=_TWO),
    "lambda_1": Choice("λ", "1", {"likelihood_weight": 1.0}, tables=_TWO),
    "new_weights": Choice("restart of G", "new weights and masks", patches={f"{_MODEL}.Trainer": "NewFlowTrainer"}),
    "no_restart": Choice("restart of G", "none, against the text", patches={f"{_MODEL}.Trainer": "SteadyTrainer"}),
    "restart_both": Choice("restart of G", "H restarts as well", patches={f"{_MODEL}.Trainer": "NewMapperTrainer"}),
    "half_masks": Choice("masks", "exactly half of the columns", patches={f"{_ALGORITHM}.draw_masks": "half_masks"}),
    "late_refill": Choice("first refill", "epoch 2, not 1", patches={f"{_MODEL}.Trainer": "LateRefillTrainer"}),
    "clipping": Choice("values out of range", "clipped", patches={f"{_ALGORITHM}.fold": "clip"}, tables=_TWO),
    "width_64": Choice("width of s and t", "64", patches={f"{_NETWORKS}.AffineCoupling": "WideCoupling"}),
}


class ChosenPaper:
    """The paper's method with one choice changed, as an imputer of the benchmark without draws and calibration."""

    def __init__(self, chosen: Choice, max_epochs: int, random_state: int | None) -> None:
        self.chosen, self.max_epochs, self.random_state = chosen, max_epochs, random_state

    def fit(self, rows: FloatArray) -> Self:
        """Fit to rows (n_rows, n_columns) in which NaN marks missing cells."""
        from mcflow import MCFlowImputer

        preset = self.chosen.config(rows.shape[1])
        imputer = MCFlowImputer(
            preset=preset, max_epochs=self.max_epochs, random_state=self.random_state, calibrate=False
        )
        with self._patched():
            self.imputer_ = imputer.fit(rows)
        return self

    def transform(self, rows: FloatArray) -> FloatArray:
        """Fill the missing cells of rows (n_rows, n_columns)."""
        with self._patched():
            filled: FloatArray = self.imputer_.transform(rows)
        return filled

    @property
    def model_(self) -> TableModel:
        """Return the fitted model."""
        return self.imputer_.model_

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        """Replace parts of `mcflow.paper`: the package has no settings that only this comparison would use."""
        from mcflow_bench import paper_variants

        with contextlib.ExitStack() as stack:
            for target, name in self.chosen.patches.items():
                stack.enter_context(mock.patch(target, getattr(paper_variants, name)))
            yield


def choice(name: str, *, max_epochs: int = 64, random_state: int | None = None) -> ChosenPaper:
    """Return the unfitted imputer of a choice."""
    if name not in CHOICES:
        raise ParameterError(
            f"There is no choice {name!r}. Known are {', '.join(CHOICES)}.{did_you_mean(name, CHOICES)}"
        )
    return ChosenPaper(CHOICES[name], max_epochs, random_state)


def method_of(name: str, max_epochs: int) -> str:
    """Return the method of a choice as suites write it.

    Examples
    --------
    >>> method_of("batch_64", 64)
    "python:mcflow_bench.reproduction:choice(max_epochs=64,name='batch_64')"
    """
    return str(MethodSpec(f"python:{__name__}:choice", (("max_epochs", max_epochs), ("name", name))))


def reproduction_suites(
    *, max_epochs: int, folds: tuple[int, ...], rows: int | None = None, time_limit: float = 1800.0
) -> tuple[TableSuite, ...]:
    """Return a suite for each table, and one that trains four times as long on Credit with λ = 0.

    A fold also determines the random state of the fit.
    """
    whole = TableSuite((), (), rows=rows, seed_by_fold=True, time_limit=time_limit)
    suites = [
        replace(
            whole,
            data=(table,),
            methods=tuple(method_of(name, max_epochs) for name, one in CHOICES.items() if table in one.tables),
            folds=folds if table in _TWO else folds[:1],
        )
        for table in _ALL
    ]
    longer = replace(whole, data=("credit",), methods=(method_of("lambda_0", 4 * max_epochs),), folds=folds[:1])
    return (*suites, longer)


#: What `make reproduction` measures.
REPRODUCTION = reproduction_suites(max_epochs=64, folds=(0, 1, 2))

#: The same at a size that only shows that it runs.
QUICK_REPRODUCTION = reproduction_suites(max_epochs=2, folds=(0,), rows=300, time_limit=180.0)

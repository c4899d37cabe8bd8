"""Score predictions of hidden cells: losses of cells, significance of differences, scores of columns and methods."""

from __future__ import annotations

__all__ = [
    "CellLosses",
    "CellScore",
    "ColumnScore",
    "Difference",
    "MethodScore",
    "cell_losses",
    "compare",
    "overall_standing",
    "score_columns",
    "score_method",
    "significant",
]

from dataclasses import dataclass

import numpy as np
from scipy import stats

from mcflow.columns.schema import CATEGORY_KINDS, Column, TableSchema
from mcflow.evaluation.methods import OURS, REFERENCE
from mcflow.evaluation.wording import MICROSECONDS_PER_DAY
from mcflow.typing import Array, BoolArray, FloatArray

MIN_CELLS = 20  #: Hidden cells that a column needs for its methods to be compared.
FALSE_DISCOVERY_RATE = 0.05  #: False discovery rate when methods are compared in many columns.
SIGNIFICANCE = 0.05  #: Significance level of a single comparison.


@dataclass(frozen=True)
class MethodScore:
    """Scores of a method over all columns."""

    name: str  #: Name of the method.
    seconds: float | None = None  #: Seconds of its fit and transform, averaged over the repeats.
    #: Mean of its relative errors, weighted by the hidden cells of the columns; columns with too few are left out.
    relative_error: float | None = None
    coverage: float | None = None  #: Share of hidden numbers inside its intervals.
    error_message: str | None = None  #: Why the method failed, if it did.


@dataclass(frozen=True)
class CellScore:
    """Scores of a method in one column."""

    error: float | None = None  #: RMSE in the units of the column, days for dates and times; share of wrong categories.
    relative: float | None = None  #: The error divided by that of the mean, or of the most frequent category.
    coverage: float | None = None  #: Share of hidden cells inside its intervals.
    #: "better" or "worse" if the difference to mcflow is significant, otherwise "same"; None if there are too few
    #: cells, and for mcflow itself.
    against_mcflow: str | None = None


@dataclass(frozen=True)
class ColumnScore:
    """Scores of all methods in one column."""

    name: str  #: Name of the column.
    kind: str  #: Kind of the column.
    measure: str  #: How errors are measured: "rmse" or "error rate".
    hidden: int  #: Number of hidden cells, over all repeats.
    enough: bool  #: Whether there are enough hidden cells to compare methods.
    predictable: bool  #: False if no method is significantly better than the mean, or the most frequent category.
    methods: dict[str, CellScore]  #: Scores by name of the method.
    unit: str = ""  #: Unit of the error where it is not that of the column.


@dataclass(frozen=True)
class CellLosses:
    """Losses of all methods on the hidden cells of all repeats."""

    rows: Array  # (n_cells,) row of each cell
    columns: Array  # (n_cells,) column of each cell
    losses: dict[str, FloatArray]  # (n_cells,) by method
    covered: dict[str, FloatArray]  # (n_cells,) by method: 1 inside the interval, 0 outside, NaN without an interval

    def where(self, here: BoolArray) -> CellLosses:
        """Select cells by a mask of shape (n_cells,)."""
        return CellLosses(
            self.rows[here],
            self.columns[here],
            {name: loss[here] for name, loss in self.losses.items()},
            {name: covered[here] for name, covered in self.covered.items()},
        )

    def relative_to(self, reference: str) -> CellLosses:
        """Divide losses by the mean loss of a reference method in the same column; NaN where that is 0."""
        unit = np.full(len(self.columns), np.nan)
        for position in np.unique(self.columns):
            here = self.columns == position
            typical = self.losses[reference][here].mean()
            unit[here] = typical if typical > 0 else np.nan
        losses = {name: loss / unit for name, loss in self.losses.items()}
        return CellLosses(self.rows, self.columns, losses, self.covered)


def cell_losses(column: Column, truth: FloatArray, filled: FloatArray) -> FloatArray:
    """Return squared errors of numbers, in days for times, and 0 or 1 for categories; all of shape (n_cells,)."""
    if column.kind in CATEGORY_KINDS:
        return np.where(np.isnan(filled), np.nan, filled != truth)
    unit = column.step / MICROSECONDS_PER_DAY if column.kind == "datetime" else 1.0
    with np.errstate(over="ignore"):
        squared: FloatArray = ((filled - truth) * unit) ** 2
    return squared


@dataclass(frozen=True)
class Difference:
    """Mean difference of the losses of two methods."""

    mean: float  # above 0 if the first method is worse
    error: float  # standard error, with cells of one row as a cluster
    p_value: float  # of a two-sided t-test; 1 with fewer than two rows


def compare(cells: CellLosses, first: str, second: str) -> Difference:
    """Compare the losses of two methods on the same cells."""
    differences = cells.losses[first] - cells.losses[second]
    known = np.isfinite(differences)
    differences, rows = differences[known], np.unique(cells.rows[known], return_inverse=True)[1]
    n_rows = int(rows.max()) + 1 if len(rows) else 0
    if n_rows < 2:
        return Difference(float("nan"), float("nan"), 1.0)
    mean = float(differences.mean())
    by_row = np.bincount(rows, weights=differences - mean)
    error = float(np.sqrt((by_row**2).sum() * n_rows / (n_rows - 1)) / len(differences))
    if error == 0:
        return Difference(mean, error, 1.0 if mean == 0 else 0.0)
    return Difference(mean, error, float(2 * stats.t.sf(abs(mean) / error, n_rows - 1)))


def significant(p_values: Array) -> BoolArray:
    """Tell which comparisons (n,) are significant at a false discovery rate, by Benjamini and Hochberg (1995)."""
    return np.asarray(stats.false_discovery_control(p_values) <= FALSE_DISCOVERY_RATE)


def score_columns(cells: CellLosses, schema: TableSchema) -> tuple[ColumnScore, ...]:
    """Score all methods in every column with hidden cells."""
    positions = [int(position) for position in np.unique(cells.columns)]
    parts = [cells.where(cells.columns == position) for position in positions]
    enough = np.array([len(part.rows) >= MIN_CELLS for part in parts], dtype=bool)
    standings = {name: _standings(parts, enough, name) for name in cells.losses}
    predictable = _predictable(parts, enough)
    scores = []
    for k, (position, part) in enumerate(zip(positions, parts, strict=True)):
        column = schema.columns[position]
        categories = column.kind in CATEGORY_KINDS
        scores.append(
            ColumnScore(
                name=str(column.name),
                kind=column.kind,
                measure="error rate" if categories else "rmse",
                hidden=len(part.rows),
                enough=bool(enough[k]),
                predictable=bool(predictable[k]),
                methods={name: _cell_score(part, name, categories, standings[name][k]) for name in cells.losses},
                unit="days" if column.kind == "datetime" else "",
            )
        )
    return tuple(scores)


def _cell_score(part: CellLosses, name: str, categories: bool, standing: str | None) -> CellScore:
    error, reference = _error(part.losses[name], categories), _error(part.losses[REFERENCE], categories)
    relative = error / reference if error is not None and reference else None
    return CellScore(error, relative, _coverage(part.covered.get(name)), standing)


def _error(losses: FloatArray, categories: bool) -> float | None:
    mean = float(losses.mean())
    if not np.isfinite(mean):
        return None
    return mean if categories else float(np.sqrt(mean))


def _coverage(covered: FloatArray | None) -> float | None:
    known = covered[~np.isnan(covered)] if covered is not None else np.zeros(0)
    return float(known.mean()) if len(known) else None


def _standings(parts: list[CellLosses], enough: BoolArray, name: str) -> list[str | None]:
    """Return for every column whether a method is significantly better or worse than mcflow."""
    if name == OURS or OURS not in parts[0].losses:
        return [None] * len(parts)
    found = [compare(part, name, OURS) for part in parts]
    differs = _significant_where(np.array([one.p_value for one in found]), enough)
    return [
        None if not known or np.isnan(one.mean) else "same" if not clear else "worse" if one.mean > 0 else "better"
        for one, known, clear in zip(found, enough, differs, strict=True)
    ]


def _significant_where(p_values: FloatArray, enough: BoolArray) -> BoolArray:
    """Test the columns with enough hidden cells, and return False for the others."""
    found = np.zeros(len(p_values), dtype=bool)
    found[enough] = significant(p_values[enough])
    return found


def _predictable(parts: list[CellLosses], enough: BoolArray) -> BoolArray:
    """Tell which columns some method fills significantly better than the mean; True for those with too few cells."""
    names = [name for name in parts[0].losses if name != REFERENCE]
    smallest = []
    for part in parts:
        found = [compare(part, name, REFERENCE) for name in names]
        # Bonferroni over the methods.
        smallest.append(min([1.0, *(len(names) * one.p_value for one in found if one.mean < 0)]))
    return _significant_where(np.array(smallest), enough) | ~enough


def score_method(name: str, seconds: float | None, cells: CellLosses, columns: tuple[ColumnScore, ...]) -> MethodScore:
    """Score a method over the columns with enough hidden cells, or over all columns if none has enough."""
    used = [column for column in columns if column.enough] or columns
    known = [(c.hidden, c.methods[name].relative) for c in used if c.methods[name].relative is not None]
    total = sum(hidden for hidden, _ in known)
    relative = sum(hidden * share for hidden, share in known if share is not None) / total if total else None
    return MethodScore(name, seconds, relative, _coverage(cells.covered.get(name)))


def overall_standing(cells: CellLosses, name: str) -> str:
    """Return whether a method is significantly better or worse than mcflow over all columns with enough cells."""
    _, place, counts = np.unique(cells.columns, return_inverse=True, return_counts=True)
    many = counts >= min(MIN_CELLS, counts.max())
    found = compare(cells.where(many[place]).relative_to(REFERENCE), name, OURS)
    if found.p_value > SIGNIFICANCE:
        return "same"
    return "worse" if found.mean > 0 else "better"

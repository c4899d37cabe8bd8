"""From losses of single cells to scores of columns and methods."""

from __future__ import annotations

__all__ = ["overall_standing", "score_columns", "score_method"]

import numpy as np

from mcflow.data.schema import LEVEL_KINDS, TableSchema
from mcflow.evaluation.contenders import OURS, REFERENCE
from mcflow.evaluation.result import CellScore, ColumnScore, MethodScore
from mcflow.evaluation.scores import ENOUGH_CELLS, CellLosses, Difference, beyond_noise, compare
from mcflow.typing import BoolArray, FloatArray

#: What more than noise is for a single comparison.
UNLIKELY = 0.05


def score_columns(cells: CellLosses, schema: TableSchema) -> tuple[ColumnScore, ...]:
    """Score all methods in every column that had hidden cells.

    Parameters
    ----------
    cells : CellLosses
        Of all methods that did not fail.
    schema : TableSchema
        Of the table.

    Returns
    -------
    tuple of ColumnScore
        In the table's order.
    """
    positions = [int(position) for position in np.unique(cells.columns)]
    parts = [cells.at(position) for position in positions]
    enough = np.array([len(part.rows) >= ENOUGH_CELLS for part in parts], dtype=bool)
    standings = {name: _standings(parts, enough, name) for name in cells.losses if name != OURS}
    predictable = _predictable(parts, enough)
    scores = []
    for k, (position, part) in enumerate(zip(positions, parts, strict=True)):
        column = schema.columns[position]
        levels = column.kind in LEVEL_KINDS
        methods = {
            name: _cell_score(part, name, levels, standings[name][k] if name != OURS else None) for name in cells.losses
        }
        scores.append(
            ColumnScore(
                name=str(column.name),
                kind=column.kind,
                measure="error rate" if levels else "rmse",
                hidden=len(part.rows),
                enough=bool(enough[k]),
                predictable=bool(predictable[k]),
                methods=methods,
                unit="days" if column.kind == "datetime" else "",
            )
        )
    return tuple(scores)


def _cell_score(part: CellLosses, name: str, levels: bool, standing: str | None) -> CellScore:
    error, reference = _error(part.losses[name], levels), _error(part.losses[REFERENCE], levels)
    relative = error / reference if error is not None and reference else None
    return CellScore(error, relative, _mean(part.inside.get(name)), standing)


def _error(losses: FloatArray, levels: bool) -> float | None:
    mean = float(losses.mean())
    if not np.isfinite(mean):
        return None
    return mean if levels else float(np.sqrt(mean))


def _mean(inside: FloatArray | None) -> float | None:
    known = inside[~np.isnan(inside)] if inside is not None else np.zeros(0)
    return float(known.mean()) if len(known) else None


def _standings(parts: list[CellLosses], enough: BoolArray, name: str) -> list[str | None]:
    """Say for every column whether a method is better or worse than mcflow by more than noise."""
    if OURS not in parts[0].losses:
        return [None] * len(parts)
    found = [compare(part, name, OURS) for part in parts]
    apart = _apart(found, enough)
    return [
        None if not known or np.isnan(one.mean) else "same" if not clear else "worse" if one.mean > 0 else "better"
        for one, known, clear in zip(found, enough, apart, strict=True)
    ]


def _apart(found: list[Difference], enough: BoolArray) -> BoolArray:
    """Tell in which of the columns that can be judged a difference is more than noise."""
    apart = np.zeros(len(found), dtype=bool)
    apart[enough] = beyond_noise(np.array([one.p_value for one in found])[enough])
    return apart


def _predictable(parts: list[CellLosses], enough: BoolArray) -> BoolArray:
    """Tell which columns some method fills better than the mean does; those that cannot be judged count as such."""
    names = [name for name in parts[0].losses if name != REFERENCE]
    best = []
    for part in parts:
        found = [compare(part, name, REFERENCE) for name in names]
        p_values = [one.p_value for one in found if one.mean < 0]
        best.append(Difference(0.0, 0.0, min([1.0, *(len(names) * p for p in p_values)])))
    return _apart(best, enough) | ~enough


def score_method(name: str, seconds: float | None, cells: CellLosses, columns: tuple[ColumnScore, ...]) -> MethodScore:
    """Score a method over all columns, or those with enough hidden cells if there are any.

    Parameters
    ----------
    name : str
        The method.
    seconds : float or None
        Of its fit and fill.
    cells : CellLosses
        Of all methods.
    columns : tuple of ColumnScore
        From `score_columns`.

    Returns
    -------
    MethodScore
    """
    counted = [column for column in columns if column.enough] or columns
    known = [(c.hidden, c.methods[name].relative) for c in counted if c.methods[name].relative is not None]
    total = sum(hidden for hidden, _ in known)
    relative = sum(hidden * share for hidden, share in known if share is not None) / total if total else None
    return MethodScore(name, seconds, relative, _mean(cells.inside.get(name)))


def overall_standing(cells: CellLosses, name: str) -> str:
    """Say whether a method is better or worse than mcflow over all cells of columns that have enough, beyond noise.

    Parameters
    ----------
    cells : CellLosses
        Of all methods, mcflow among them.
    name : str
        The other method.

    Returns
    -------
    {"better", "worse", "same"}
    """
    _, place, counts = np.unique(cells.columns, return_inverse=True, return_counts=True)
    many = counts >= min(ENOUGH_CELLS, counts.max())
    found = compare(cells.where(many[place]).relative_to(REFERENCE), name, OURS)
    if found.p_value > UNLIKELY:
        return "same"
    return "worse" if found.mean > 0 else "better"

"""Facts on correlations: between observed cells before, and in the filled table after."""

from __future__ import annotations

__all__ = ["pair_facts"]

from typing import Any

import numpy as np

from mcflow.data.frames import Frame
from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.report.diagnostics_cells import place_in, widest
from mcflow.report.facts_tables import Limits, ReportTables, some_places
from mcflow.report.wording import name_text
from mcflow.typing import Array, FloatArray

#: Rows and columns that correlations are taken over, and pairs that are listed.
MOST_ROWS, MOST_COLUMNS, MOST_PAIRS = 20_000, 200, 10
#: Rows that have to have both cells for a correlation to be stated.
FEWEST_ROWS = 20


def pair_facts(tables: ReportTables, limits: Limits) -> dict[str, Any] | None:
    """Compare correlations before and after.

    Parameters
    ----------
    tables : ReportTables
        The table and what filled it.
    limits : Limits
        How many columns a map holds.

    Returns
    -------
    dict or None
        None when nothing was filled or fewer than two columns can be correlated. Correlations are those of Pearson;
        dates count as numbers, and levels with an order, or only two, as their places.
    """
    if tables.filled is None or not tables.holes:
        return None
    usable = [p for p, column in enumerate(tables.schema.columns) if _has_place(column)]
    sizes = [int(tables.holes[p].sum()) if p in tables.holes else 0 for p in usable]
    chosen = widest(usable, sizes, MOST_COLUMNS)
    if len(chosen) < 2:
        return None
    rows = some_places(tables.compared.n_rows, MOST_ROWS)
    before = np.column_stack([_codes(tables.compared, p, tables.schema.columns[p])[rows] for p in chosen])
    places = [place_in(tables.filled, tables.schema, p) for p in chosen]
    columns = [tables.schema.columns[p] for p in chosen]
    after = np.column_stack(
        [_codes(tables.filled, place, column)[rows] for place, column in zip(places, columns, strict=True)]
    )
    old, n_both = _correlations(before)
    new, _ = _correlations(after)
    names = [name_text(column.name) for column in columns]
    holed = np.isnan(before).sum(axis=0)
    mapped = widest(range(len(chosen)), holed.tolist(), limits.mapped)
    return {
        "rows": len(rows),
        "n_columns": len(chosen),
        "n_usable": len(usable),
        "columns": [names[k] for k in mapped],
        "before": _plain(old[np.ix_(mapped, mapped)]),
        "after": _plain(new[np.ix_(mapped, mapped)]),
        "pairs": _moved(old, new, n_both, names, holed),
    }


def _has_place(column: Column) -> bool:
    """Tell whether cells of a column have places on a line."""
    if not column.in_model or not column.filled:
        return False
    return column.kind not in LEVEL_KINDS or column.kind == "ordered" or len(column.levels) == 2


def _codes(table: Frame, place: int, column: Column) -> FloatArray:
    return table.column_codes(place, column, "missing")


def _correlations(values: FloatArray) -> tuple[FloatArray, Array]:
    """Return correlations over the rows that have both cells, NaN where they are few, and the number of those rows."""
    seen = ~np.isnan(values)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        n_seen = np.maximum(seen.sum(axis=0), 1)
        plain = np.where(seen, values - np.where(seen, values, 0.0).sum(axis=0) / n_seen, 0.0)
        spread = np.sqrt((plain**2).sum(axis=0) / n_seen)
        plain /= np.where(spread > 0, spread, 1.0)
        known = seen.astype(np.float64)
        count = known.T @ known
        sums, squares, products = plain.T @ known, (plain**2).T @ known, plain.T @ plain
        mean = sums / count
        variance = squares / count - mean**2
        found = (products / count - mean * mean.T) / np.sqrt(variance * variance.T)
    found[(count < FEWEST_ROWS) | (variance <= 1e-9) | (variance.T <= 1e-9)] = np.nan
    np.fill_diagonal(found, 1.0)
    return np.clip(found, -1, 1), count.astype(np.int64)


def _plain(found: FloatArray) -> list[list[float | None]]:
    return [[None if np.isnan(r) else round(float(r), 3) for r in row] for row in found]


def _moved(old: FloatArray, new: FloatArray, n_both: Array, names: list[str], holed: Array) -> list[dict[str, Any]]:
    """Return the pairs whose correlation differs most after the fill."""
    first, second = np.triu_indices(len(names), 1)
    moves = np.nan_to_num(np.abs(new - old)[first, second])
    moves[(holed[first] == 0) & (holed[second] == 0)] = 0.0
    order = np.argsort(-moves, kind="stable")[:MOST_PAIRS]
    return [
        {
            "first": names[first[k]],
            "second": names[second[k]],
            "before": round(float(old[first[k], second[k]]), 3),
            "after": round(float(new[first[k], second[k]]), 3),
            "rows": int(n_both[first[k], second[k]]),
        }
        for k in order
        if moves[k] > 0
    ]

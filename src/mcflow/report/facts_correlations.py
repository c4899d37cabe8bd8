"""Facts on correlations: between observed cells, and in the filled table."""

from __future__ import annotations

__all__ = ["correlation_facts"]

from typing import Any

import numpy as np

from mcflow.columns.schema import CATEGORY_KINDS, Column
from mcflow.evaluation.wording import name_text
from mcflow.report.tables import Limits, ReportTables, largest, sample_indices
from mcflow.typing import Array, FloatArray

#: Maximum number of rows from which correlations are estimated.
MAX_ROWS = 20_000
#: Maximum number of columns.
MAX_COLUMNS = 200
#: Maximum number of listed pairs.
MAX_PAIRS = 10
#: Minimum number of rows with both cells for a correlation.
MIN_ROWS = 20


def correlation_facts(tables: ReportTables, limits: Limits) -> dict[str, Any] | None:
    """Compare correlations before and after imputation."""
    if tables.filled is None or not tables.missing:
        return None
    usable = [p for p, column in enumerate(tables.schema.columns) if _is_ordered(column)]
    sizes = [int(tables.missing[p].sum()) if p in tables.missing else 0 for p in usable]
    chosen = largest(usable, sizes, MAX_COLUMNS)
    if len(chosen) < 2:
        return None
    rows = sample_indices(tables.sample.n_rows, MAX_ROWS)
    columns = {p: tables.schema.columns[p] for p in chosen}
    before = np.column_stack([tables.sample.column_codes(p, c, "missing")[rows] for p, c in columns.items()])
    after = np.column_stack([tables.codes_after(p)[rows] for p in chosen])
    old, n_both = _correlations(before)
    new, _ = _correlations(after)
    names = [name_text(column.name) for column in columns.values()]
    n_missing = np.isnan(before).sum(axis=0)
    mapped = largest(range(len(chosen)), n_missing.tolist(), limits.mapped)
    return {
        "rows": len(rows),
        "n_columns": len(chosen),
        "n_usable": len(usable),
        "columns": [names[k] for k in mapped],
        "before": _plain(old[np.ix_(mapped, mapped)]),
        "after": _plain(new[np.ix_(mapped, mapped)]),
        "pairs": _changed(old, new, n_both, names, n_missing),
    }


def _is_ordered(column: Column) -> bool:
    """Tell whether a filled column is ordered, so that it has correlations."""
    if not column.in_model or not column.filled:
        return False
    return column.kind not in CATEGORY_KINDS or column.kind == "ordered" or len(column.categories) == 2


def _correlations(values: FloatArray) -> tuple[FloatArray, Array]:
    """Return pairwise correlations, NaN with too few rows, and the number of rows with both cells."""
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
    found[(count < MIN_ROWS) | (variance <= 1e-9) | (variance.T <= 1e-9)] = np.nan
    np.fill_diagonal(found, 1.0)
    return np.clip(found, -1, 1), count.astype(np.int64)


def _plain(found: FloatArray) -> list[list[float | None]]:
    return [[None if np.isnan(r) else round(float(r), 3) for r in row] for row in found]


def _changed(
    old: FloatArray, new: FloatArray, n_both: Array, names: list[str], n_missing: Array
) -> list[dict[str, Any]]:
    """Return the pairs whose correlation changes most."""
    first, second = np.triu_indices(len(names), 1)
    changes = np.nan_to_num(np.abs(new - old)[first, second])
    changes[(n_missing[first] == 0) & (n_missing[second] == 0)] = 0.0
    order = np.argsort(-changes, kind="stable")[:MAX_PAIRS]
    return [
        {
            "first": names[first[k]],
            "second": names[second[k]],
            "before": round(float(old[first[k], second[k]]), 3),
            "after": round(float(new[first[k], second[k]]), 3),
            "rows": int(n_both[first[k], second[k]]),
        }
        for k in order
        if changes[k] > 0
    ]

"""Facts on distributions: the observed and the filled cells of each column, counted in the same bins."""

from __future__ import annotations

__all__ = ["column_facts"]

from typing import Any

import numpy as np

from mcflow.report.compared import (
    Comparison,
    bin_shares,
    common_edges,
    common_levels,
    compare_column,
    level_shares,
)
from mcflow.report.diagnostics_cells import widest
from mcflow.report.facts_tables import Limits, ReportTables
from mcflow.report.wording import cell_text, clean, name_text
from mcflow.typing import FloatArray

_MICROSECONDS_A_DAY = 86_400_000_000
#: Digits that shares are kept with.
DIGITS = 3


def column_facts(tables: ReportTables, limits: Limits) -> dict[str, Any]:
    """Count the observed and the filled cells of the columns with the most filled cells.

    Parameters
    ----------
    tables : ReportTables
        The table and what filled it.
    limits : Limits
        How many columns to look at.

    Returns
    -------
    dict
        "drawn", a dictionary a column, and "undrawn", how many more were filled.
    """
    filled = [p for p in tables.holes if tables.schema.columns[p].coded and tables.schema.columns[p].filled]
    if not tables.draws:
        filled = []
    chosen = widest(filled, [int(tables.holes[p].sum()) for p in filled], limits.drawn)
    compared = [compare_column(tables.compared, list(tables.draws), tables.schema, p) for p in chosen]
    drawn = [_column(one) for one in compared if one.n_filled and len(one.observed)]
    return {"drawn": drawn, "undrawn": len(filled) - len(chosen), "n_draws": len(tables.draws)}


def _column(one: Comparison) -> dict[str, Any]:
    column = one.column
    facts: dict[str, Any] = {
        "name": name_text(column.name),
        "kind": column.base or column.kind,
        "observed": len(one.observed),
        "filled": one.n_filled,
    }
    return facts | (_levels(one) if one.has_levels else _numbers(one))


def _levels(one: Comparison) -> dict[str, Any]:
    kept, joined = common_levels(one)
    names = [clean(one.column.levels[k], 40) or "(empty text)" for k in kept]
    names += [f"{joined} others"] if joined else []
    seen = level_shares(one.observed, kept, joined)
    new = np.stack([level_shares(cells, kept, joined) for cells in one.filled])
    mean = new.mean(axis=0)
    return {
        "axis": "levels",
        "levels": names,
        "observed_shares": _rounded(seen),
        "filled_shares": _rounded(mean),
        "lowest_shares": _rounded(new.min(axis=0)),
        "highest_shares": _rounded(new.max(axis=0)),
        "shift": 0.0,
        # Half of the absolute differences: the share of cells that would have to change their level.
        "apart": round(float(np.abs(seen - mean).sum()) / 200, DIGITS),
    }


def _numbers(one: Comparison) -> dict[str, Any]:
    column, edges = one.column, common_edges(one)
    together = np.concatenate(one.filled)
    new = np.stack([bin_shares(cells, edges) for cells in one.filled])
    quartiles = [np.quantile(cells, (0.25, 0.5, 0.75)) for cells in (one.observed, together)]
    beyond = [float(np.mean((cells < edges[0]) | (cells > edges[-1]))) for cells in (one.observed, together)]
    return {
        "axis": _axis(one),
        "edges": _axis_edges(edges, one),
        "observed_shares": _rounded(bin_shares(one.observed, edges)),
        "filled_shares": _rounded(new.mean(axis=0)),
        "lowest_shares": _rounded(new.min(axis=0)),
        "highest_shares": _rounded(new.max(axis=0)),
        "observed_quartiles": [cell_text(float(code), column) for code in quartiles[0]],
        "filled_quartiles": [cell_text(float(code), column) for code in quartiles[1]],
        "beyond": [round(share, 5) for share in beyond],
        "apart": round(_apart(one.observed, together), DIGITS),
        "shift": round(_shift(*quartiles), DIGITS),
    }


def _axis(one: Comparison) -> str:
    if (one.column.base or one.column.kind) != "datetime":
        return "number"
    return "duration" if one.column.dtype.startswith("duration") else "date"


def _axis_edges(edges: FloatArray, one: Comparison) -> list[float]:
    """Return edges as an axis shows them: numbers as they are, times in days, from 1970 on where they are dates."""
    scale = 1.0 if _axis(one) == "number" else one.column.step / _MICROSECONDS_A_DAY
    found: list[float] = (edges * scale).tolist()
    return found


def _shift(observed: FloatArray, filled: FloatArray) -> float:
    """Return how far the medians are apart, in distances between the quartiles of the observed cells."""
    spread = float(observed[2] - observed[0])
    return float(abs(filled[1] - observed[1])) / spread if spread else 0.0


def _apart(observed: FloatArray, filled: FloatArray) -> float:
    """Return the largest distance between the two distribution functions, from 0 to 1."""
    together = np.sort(np.concatenate([observed, filled]))
    shares = [np.searchsorted(np.sort(cells), together, side="right") / len(cells) for cells in (observed, filled)]
    return float(np.abs(shares[0] - shares[1]).max())


def _rounded(shares: FloatArray) -> list[float]:
    found: list[float] = np.round(shares, DIGITS).tolist()
    return found

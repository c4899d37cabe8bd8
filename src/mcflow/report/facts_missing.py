"""Facts on what was missing: by column, by pattern, and which columns are missing together."""

from __future__ import annotations

__all__ = ["missing_facts"]

import itertools
from typing import Any

import numpy as np

from mcflow.report.facts_tables import Limits, ReportTables, some_places
from mcflow.report.wording import name_text
from mcflow.typing import Array

#: Patterns and pairs that are listed.
MOST_PATTERNS, MOST_PAIRS = 12, 10
#: Rows by which pairs are judged, at most, and columns among which they are sought.
PAIR_ROWS, PAIR_COLUMNS = 50_000, 300
#: Shares of missing cells between which columns are counted where there are too many to look at.
SHARES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)


def missing_facts(tables: ReportTables, limits: Limits) -> dict[str, Any]:
    """Count what was missing.

    Parameters
    ----------
    tables : ReportTables
        The table and what filled it.
    limits : Limits
        How many columns to name.

    Returns
    -------
    dict
        "columns", the ones with the most holes first; "patterns"; "together", and totals.
    """
    n_rows, n_columns = tables.before.n_rows, len(tables.schema.columns)
    counts = {p: int(missing.sum()) for p, missing in tables.holes.items()}
    order = sorted(counts, key=lambda p: -counts[p])
    holed = np.zeros(n_rows, dtype=bool)
    for missing in tables.holes.values():
        holed |= missing
    total = sum(counts.values())
    return {
        "rows": n_rows,
        "n_columns": n_columns,
        "cells": n_rows * n_columns,
        "missing": total,
        "share": total / (n_rows * n_columns),
        "holed_rows": int(holed.sum()),
        "holed_columns": len(order),
        "columns": _columns(tables, counts, order[: limits.listed]),
        "unlisted": len(order) - len(order[: limits.listed]),
        "by_share": _by_share([counts[p] / n_rows for p in order], n_columns),
        "patterns": _patterns(tables, order[: limits.mapped]),
        "together": _together(tables, order, limits.mapped),
    }


def _columns(tables: ReportTables, counts: dict[int, int], listed: list[int]) -> list[dict[str, Any]]:
    columns = [tables.schema.columns[p] for p in listed]
    return [
        {
            "position": p,
            "name": name_text(column.name),
            "kind": column.kind,
            "role": column.role,
            "missing": counts[p],
            "share": counts[p] / tables.before.n_rows,
        }
        for p, column in zip(listed, columns, strict=True)
    ]


def _by_share(shares: list[float], n_columns: int) -> list[dict[str, Any]]:
    """Count columns by the share of their cells that is missing."""
    bins = [{"from": 0.0, "to": 0.0, "columns": n_columns - len(shares)}]
    found = np.array(shares)
    for low, high in itertools.pairwise(SHARES):
        bins.append({"from": low, "to": high, "columns": int(((found > low) & (found <= high)).sum())})
    return bins


def _patterns(tables: ReportTables, shown: list[int]) -> dict[str, Any]:
    """Return the commonest sets of columns that are missing in a row."""
    # Two rows with the same holes get the same sum of random numbers, and others in effect never.
    keys = np.random.default_rng(0).integers(1, 2**62, size=len(tables.schema.columns), dtype=np.uint64)
    sums = np.zeros(tables.before.n_rows, dtype=np.uint64)
    for p, missing in tables.holes.items():
        sums[missing] += keys[p]
    _, firsts, counts = np.unique(sums, return_index=True, return_counts=True)
    order = sorted(range(len(counts)), key=lambda k: (-counts[k], firsts[k]))[:MOST_PATTERNS]
    places = sorted(shown)
    patterns = []
    for k in order:
        row = int(firsts[k])
        absent = [place for place, p in enumerate(places) if tables.holes[p][row]]
        n_missing = sum(bool(holes[row]) for holes in tables.holes.values())
        patterns.append({"rows": int(counts[k]), "missing": absent, "n_missing": n_missing})
    names = [name_text(tables.schema.columns[p].name) for p in places]
    return {"columns": names, "n_patterns": len(counts), "commonest": patterns}


def _together(tables: ReportTables, order: list[int], mapped: int) -> dict[str, Any]:
    """Return of every column's missing cells the share whose row lacks another column too, and pairs that go most."""
    rows = some_places(tables.before.n_rows, PAIR_ROWS)
    sought = order[:PAIR_COLUMNS]
    if len(sought) < 2:
        return {"columns": [], "shares": [], "pairs": []}
    holes = np.column_stack([tables.holes[p][rows] for p in sought]).astype(np.float32)
    both = holes.T @ holes
    shares = both / np.maximum(np.diag(both), 1)[:, None]
    chosen = sorted(sought[:mapped])
    places = [sought.index(p) for p in chosen]
    names = [name_text(tables.schema.columns[p].name) for p in sought]
    return {
        "columns": [names[k] for k in places],
        "shares": np.round(shares[np.ix_(places, places)], 3).tolist(),
        "pairs": _pairs(both, names, len(rows)),
    }


def _pairs(both: Array, names: list[str], n_rows: int) -> list[dict[str, Any]]:
    """Return the pairs of columns whose holes agree most, by the correlation of their being missing."""
    share = np.diag(both) / n_rows
    spread = np.sqrt(share * (1 - share))
    with np.errstate(invalid="ignore", divide="ignore"):
        phi = (both / n_rows - np.outer(share, share)) / np.outer(spread, spread)
    first, second = np.triu_indices(len(names), 1)
    found = np.nan_to_num(phi[first, second])
    order = np.argsort(-found, kind="stable")[:MOST_PAIRS]
    return [
        {"first": names[first[k]], "second": names[second[k]], "correlation": round(float(found[k]), 3)}
        for k in order
        if found[k] > 0.1
    ]

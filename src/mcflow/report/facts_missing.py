"""Facts on missing cells: by column, by missingness pattern, and columns that are missing together."""

from __future__ import annotations

__all__ = ["missing_facts"]

import itertools
from typing import Any

import numpy as np

from mcflow.evaluation.wording import name_text
from mcflow.report.tables import Limits, ReportTables, sample_indices
from mcflow.typing import Array

#: Maximum number of listed patterns.
MAX_PATTERNS = 12
#: Maximum number of listed pairs of columns.
MAX_PAIRS = 10
#: Maximum number of rows in which pairs of columns are compared.
MAX_PAIR_ROWS = 50_000
#: Maximum number of columns among which pairs are searched.
MAX_PAIR_COLUMNS = 300
#: Edges of the bins in which columns are counted by their share of missing cells.
SHARE_EDGES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)


def missing_facts(tables: ReportTables, limits: Limits) -> dict[str, Any]:
    """Count the missing cells."""
    n_rows, n_columns = tables.before.n_rows, len(tables.schema.columns)
    counts = {p: int(missing.sum()) for p, missing in tables.missing.items()}
    order = sorted(counts, key=lambda p: -counts[p])
    incomplete = np.zeros(n_rows, dtype=bool)
    for missing in tables.missing.values():
        incomplete |= missing
    total = sum(counts.values())
    return {
        "rows": n_rows,
        "n_columns": n_columns,
        "cells": n_rows * n_columns,
        "missing": total,
        "share": total / (n_rows * n_columns),
        "incomplete_rows": int(incomplete.sum()),
        "incomplete_columns": len(order),
        "columns": _columns(tables, counts, order[: limits.listed]),
        "unlisted": len(order) - len(order[: limits.listed]),
        "by_share": _by_share([counts[p] / n_rows for p in order], n_columns),
        "patterns": _patterns(tables, sorted(order[: limits.mapped])),
        "co_missing": _co_missing(tables, order, limits.mapped),
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
    """Count columns by their share of missing cells."""
    bins = [{"from": 0.0, "to": 0.0, "columns": n_columns - len(shares)}]
    found = np.array(shares)
    for low, high in itertools.pairwise(SHARE_EDGES):
        bins.append({"from": low, "to": high, "columns": int(((found > low) & (found <= high)).sum())})
    return bins


def _patterns(tables: ReportTables, shown: list[int]) -> dict[str, Any]:
    """Return the most frequent sets of columns that are missing in the same row."""
    # Hash a pattern by the sum of one random number per missing column; collisions are practically impossible.
    keys = np.random.default_rng(0).integers(1, 2**62, size=len(tables.schema.columns), dtype=np.uint64)
    sums = np.zeros(tables.before.n_rows, dtype=np.uint64)
    for p, missing in tables.missing.items():
        sums[missing] += keys[p]
    _, firsts, counts = np.unique(sums, return_index=True, return_counts=True)
    order = sorted(range(len(counts)), key=lambda k: (-counts[k], firsts[k]))[:MAX_PATTERNS]
    patterns = []
    for k in order:
        row = int(firsts[k])
        absent = [place for place, p in enumerate(shown) if tables.missing[p][row]]
        n_missing = sum(bool(missing[row]) for missing in tables.missing.values())
        patterns.append({"rows": int(counts[k]), "missing": absent, "n_missing": n_missing})
    names = [name_text(tables.schema.columns[p].name) for p in shown]
    return {"columns": names, "n_patterns": len(counts), "most_frequent": patterns}


def _co_missing(tables: ReportTables, order: list[int], mapped: int) -> dict[str, Any]:
    """Return, for the rows that lack one column, the share that also lack another, and the most correlated pairs."""
    rows = sample_indices(tables.before.n_rows, MAX_PAIR_ROWS)
    sought = order[:MAX_PAIR_COLUMNS]
    if len(sought) < 2:
        return {"columns": [], "shares": [], "pairs": []}
    missing = np.column_stack([tables.missing[p][rows] for p in sought]).astype(np.float32)
    both = missing.T @ missing
    shares = both / np.maximum(np.diag(both), 1)[:, None]
    places = [sought.index(p) for p in sorted(sought[:mapped])]
    names = [name_text(tables.schema.columns[p].name) for p in sought]
    return {
        "columns": [names[k] for k in places],
        "shares": np.round(shares[np.ix_(places, places)], 3).tolist(),
        "pairs": _pairs(both, names, len(rows)),
    }


def _pairs(both: Array, names: list[str], n_rows: int) -> list[dict[str, Any]]:
    """Return the pairs of columns with the most correlated missingness."""
    share = np.diag(both) / n_rows
    spread = np.sqrt(share * (1 - share))
    with np.errstate(invalid="ignore", divide="ignore"):
        phi = (both / n_rows - np.outer(share, share)) / np.outer(spread, spread)
    first, second = np.triu_indices(len(names), 1)
    found = np.nan_to_num(phi[first, second])
    order = np.argsort(-found, kind="stable")[:MAX_PAIRS]
    return [
        {"first": names[first[k]], "second": names[second[k]], "correlation": round(float(found[k]), 3)}
        for k in order
        if found[k] > 0.1
    ]

"""Tables to measure speed by: as many rows and columns as asked for, made without other data."""

from __future__ import annotations

from typing import Any

import numpy as np

Table = np.ndarray[Any, Any]

#: Share of the cells that is missing.
MISSING = 0.2

#: Rows that are made at a time, so that making a table takes little more memory than the table itself.
ROWS_AT_ONCE = 50_000

#: Normal numbers behind all columns.
N_FACTORS = 6


def correlated(n_rows: int, n_columns: int, seed: int = 0) -> Table:
    """Return float32 rows of correlated normals, a third of the columns as they are, the rest bent, with holes."""
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(N_FACTORS, n_columns)).astype(np.float32)
    table = np.empty((n_rows, n_columns), dtype=np.float32)
    for start in range(0, n_rows, ROWS_AT_ONCE):
        rows = _normals(rng, loadings, min(ROWS_AT_ONCE, n_rows - start))
        rows[:, 1::3] = np.exp(0.3 * rows[:, 1::3])
        rows[:, 2::3] = np.sin(rows[:, 2::3]) + 0.1 * rows[:, 2::3] ** 2
        table[start : start + len(rows)] = _holed(rng, rows)
    return table


def letter_like(n_rows: int, n_columns: int = 16, seed: int = 0) -> Table:
    """Return rows of related whole numbers from 0 to 15, as the Letter table has, with holes."""
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(N_FACTORS, n_columns)).astype(np.float32)
    rows = np.clip(np.round(7.5 + 1.2 * _normals(rng, loadings, n_rows)), 0, 15)
    return _holed(rng, rows.astype(np.float64))


def _normals(rng: np.random.Generator, loadings: Table, n_rows: int) -> Table:
    factors = rng.standard_normal((n_rows, len(loadings)), dtype=np.float32)
    noise = rng.standard_normal((n_rows, loadings.shape[1]), dtype=np.float32)
    rows: Table = factors @ loadings + noise
    return rows


def _holed(rng: np.random.Generator, rows: Table) -> Table:
    rows[rng.random(rows.shape, dtype=np.float32) < MISSING] = np.nan
    return rows

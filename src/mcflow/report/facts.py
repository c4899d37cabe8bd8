"""Collect the content of a report as a dictionary that JSON can hold, section by section."""

from __future__ import annotations

__all__ = ["report_facts"]

import itertools
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np

import mcflow
from mcflow.columns.constraints import Constraints, Rule
from mcflow.columns.frames import read_frame, take_rows
from mcflow.columns.inspection import column_facts as inspected_column
from mcflow.columns.schema import CATEGORY_KINDS, NUMBER_KINDS, Column
from mcflow.evaluation.hidden_cells import codes_in
from mcflow.evaluation.wording import cell_text, clean, name_text
from mcflow.fitting.calibration import Calibration
from mcflow.fitting.callbacks import ENDINGS, History
from mcflow.report.distributions import column_facts
from mcflow.report.tables import (
    MAX_DRAWN,
    ReportTables,
    binomial_band,
    compare_cells,
    evenly_spaced,
    largest,
    probabilities_in,
    sample_indices,
    typical_cell,
)
from mcflow.typing import Array, BoolArray, FloatArray

MAX_LISTED = 400  #: Maximum number of columns in a list of columns.
MAX_MAPPED = 24  #: Maximum number of columns in a map.
MAX_PAIRS = 10  #: Maximum number of listed pairs of columns.
MAX_PATTERNS = 12  #: Maximum number of listed missingness patterns.
MAX_PAIR_ROWS = 50_000  #: Maximum number of rows in which the missingness of columns is compared.
MAX_PAIR_COLUMNS = 300  #: Maximum number of columns whose missingness is compared.
SHARE_EDGES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)  #: Bins of columns by their share of missing cells.
MAX_LIMITS = 60  #: Maximum number of listed limits, and of listed rules.
MAX_VALUES = 6  #: Maximum number of listed values of a set of allowed values.
TOLERANCE = 1e-9  #: Relative tolerance for rounding errors at a bound.
MAX_POINTS = 400  #: Maximum number of points of a loss curve.
MAX_CORRELATED_ROWS = 20_000  #: Maximum number of rows from which correlations are estimated.
MAX_CORRELATED_COLUMNS = 200  #: Maximum number of columns with correlations.
MIN_CORRELATED_ROWS = 20  #: Minimum number of rows with both cells for a correlation.
LEVEL = 0.9  #: Level of the intervals.
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  #: Levels at which coverage is measured.
MIN_VALIDATION_CELLS = 20  #: Validation cells that a table or a column needs for its error or coverage to be reported.
MAX_DEVIATING = 10  #: Maximum number of columns in the list of deviating coverages.
MAX_UNCERTAIN = 20  #: Maximum number of listed uncertain cells.
MAX_UNCERTAIN_PER_COLUMN = 4  #: Maximum number of listed uncertain cells of one column.
MAX_INTERVAL_ROWS = 1_000  #: Maximum number of rows whose intervals are computed.
MAX_CHAIN_ROWS = 40  #: The same for models that run a Markov chain for every row.
MAX_INTERVAL_CELLS = 400_000  #: Maximum number of rows times columns of a table whose intervals are computed.
PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "pyarrow", "narwhals")  #: Packages whose versions are reported.
_IRRELEVANT = ("verbose", "checkpoint_dir")  #: Parameters that do not affect the result.


def report_facts(
    imputer: Any,
    before: Any,
    after: Any = None,
    *,
    draws: Any = None,
    evaluation: Any = None,
    command: str | None = None,
    source: str | None = None,
    date: str | None = None,
) -> dict[str, Any]:
    """Collect the content of a report on an imputed table.

    Parameters
    ----------
    imputer, before, after, draws, evaluation, command, source, date : object
        The arguments of `report_html`; at most ten draws are read.

    Returns
    -------
    dict
        Dictionaries, lists, strings and numbers. Sections that do not apply are None.

    Raises
    ------
    DataError
        If the tables do not belong together.
    """
    tables = ReportTables.read(imputer, before, after, draws)
    calibration = _calibration(imputer)
    return {
        "source": None if source is None else clean(source, 200),
        "date": date,
        "inspection": _inspection(tables, imputer),
        "accuracy": _accuracy(imputer, calibration),
        "missing": _missing(tables),
        "fills": _fills(tables, getattr(imputer, "constraints_", None)),
        "training": _training(imputer),
        "columns": column_facts(tables),
        "correlations": _correlations(tables),
        "uncertainty": _uncertainty(tables, imputer),
        "calibration": calibration,
        "evaluation": None if evaluation is None else dict(evaluation),
        "origin": _origin(imputer, command),
    }


def _inspection(tables: ReportTables, imputer: Any) -> dict[str, Any]:
    """Return the kind, role, missing share and reason of every column, and the names of those that are not used."""
    given = getattr(imputer, "kinds", None) or {}
    columns = []
    for position, column in enumerate(tables.schema.columns[:MAX_LISTED]):
        array = tables.before.arrow(position)
        found = inspected_column(column, array, tables.before.n_rows, given=column.name in given)
        columns.append(found | {"name": name_text(column.name), "why": clean(found["why"], 120)})
    excluded = [name_text(c.name) for c in tables.schema.columns if not (c.in_model or c.kind == "constant")]
    return {"columns": columns, "unlisted": len(tables.schema.columns) - len(columns), "excluded": excluded}


def _accuracy(imputer: Any, calibration: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the error relative to the mean's, and the coverage of intervals, by column on validation cells."""
    schema, history = getattr(imputer, "schema_", None), getattr(imputer, "history_", None)
    if schema is None:
        return []
    errors = {int(k): (cells, relative) for k, cells, relative in getattr(history, "column_errors", ())}
    covered = {one["position"]: one for one in (calibration or {}).get("by_column", ())}
    found = []
    for k, position in enumerate(schema.model):
        column = schema.columns[position]
        cells, relative = errors.get(k, (0, None))
        if column.filled and column.missing and (cells >= MIN_VALIDATION_CELLS or k in covered):
            one: dict[str, Any] = {"name": name_text(column.name), "kind": column.kind}
            one["cells"] = int(cells) or covered[k]["cells"]
            one["relative"] = relative if cells >= MIN_VALIDATION_CELLS else None
            one["coverage"] = covered[k]["calibrated"] if k in covered else None
            found.append(one)
    return found


def _missing(tables: ReportTables) -> dict[str, Any]:
    """Count missing cells by column, by missingness pattern, and in columns that are missing together."""
    n_rows, n_columns = tables.before.n_rows, len(tables.schema.columns)
    counts = {p: int(missing.sum()) for p, missing in tables.missing.items()}
    order = sorted(counts, key=lambda p: -counts[p])
    incomplete = np.zeros(n_rows, dtype=bool)
    for missing in tables.missing.values():
        incomplete |= missing
    total = sum(counts.values())
    columns = [
        {
            "position": p,
            "name": name_text(tables.schema.columns[p].name),
            "kind": tables.schema.columns[p].kind,
            "role": tables.schema.columns[p].role,
            "missing": counts[p],
            "share": counts[p] / n_rows,
        }
        for p in order[:MAX_LISTED]
    ]
    shares = np.array([counts[p] / n_rows for p in order])
    by_share = [{"from": 0.0, "to": 0.0, "columns": n_columns - len(shares)}]
    for low, high in itertools.pairwise(SHARE_EDGES):
        by_share.append({"from": low, "to": high, "columns": int(((shares > low) & (shares <= high)).sum())})
    return {
        "rows": n_rows,
        "n_columns": n_columns,
        "cells": n_rows * n_columns,
        "missing": total,
        "share": total / (n_rows * n_columns),
        "incomplete_rows": int(incomplete.sum()),
        "incomplete_columns": len(order),
        "columns": columns,
        "unlisted": len(order) - len(columns),
        "by_share": by_share,
        "patterns": _patterns(tables, sorted(order[:MAX_MAPPED])),
        "co_missing": _co_missing(tables, order),
    }


def _patterns(tables: ReportTables, shown: list[int]) -> dict[str, Any]:
    """Return the most frequent sets of columns that are missing in the same row."""
    # Hash a pattern by the sum of one random number per missing column; collisions are practically impossible.
    keys = np.random.default_rng(0).integers(1, 2**62, size=len(tables.schema.columns), dtype=np.uint64)
    sums = np.zeros(tables.before.n_rows, dtype=np.uint64)
    for p, missing in tables.missing.items():
        sums[missing] += keys[p]
    _, firsts, counts = np.unique(sums, return_index=True, return_counts=True)
    patterns = []
    for k in sorted(range(len(counts)), key=lambda k: (-counts[k], firsts[k]))[:MAX_PATTERNS]:
        absent = [place for place, p in enumerate(shown) if tables.missing[p][firsts[k]]]
        n_missing = sum(bool(missing[firsts[k]]) for missing in tables.missing.values())
        patterns.append({"rows": int(counts[k]), "missing": absent, "n_missing": n_missing})
    names = [name_text(tables.schema.columns[p].name) for p in shown]
    return {"columns": names, "n_patterns": len(counts), "most_frequent": patterns}


def _co_missing(tables: ReportTables, order: list[int]) -> dict[str, Any]:
    """Return, for the rows that lack one column, the share that also lack another, and the most correlated pairs."""
    sought = order[:MAX_PAIR_COLUMNS]
    if len(sought) < 2:
        return {"columns": [], "shares": [], "pairs": []}
    rows = sample_indices(tables.before.n_rows, MAX_PAIR_ROWS)
    missing = np.column_stack([tables.missing[p][rows] for p in sought]).astype(np.float32)
    both = missing.T @ missing
    shares = both / np.maximum(np.diag(both), 1)[:, None]
    share = np.diag(both) / len(rows)
    spread = np.sqrt(share * (1 - share))
    with np.errstate(invalid="ignore", divide="ignore"):
        phi = (both / len(rows) - np.outer(share, share)) / np.outer(spread, spread)
    places = [sought.index(p) for p in sorted(sought[:MAX_MAPPED])]
    names = [name_text(tables.schema.columns[p].name) for p in sought]
    return {
        "columns": [names[k] for k in places],
        "shares": np.round(shares[np.ix_(places, places)], 3).tolist(),
        "pairs": [
            {"first": names[i], "second": names[j], "correlation": round(float(phi[i, j]), 3)}
            for i, j in _largest_pairs(phi)
            if phi[i, j] > 0.1
        ],
    }


def _largest_pairs(scores: FloatArray) -> Iterable[tuple[int, int]]:
    """Return the pairs of columns with the largest scores, given as a symmetric matrix; NaN counts as 0."""
    first, second = np.triu_indices(len(scores), 1)
    order = np.argsort(-np.nan_to_num(scores[first, second]), kind="stable")[:MAX_PAIRS]
    return zip(first[order], second[order], strict=True)


def _fills(tables: ReportTables, constraints: Constraints | None) -> dict[str, Any] | None:
    """Return the number of filled cells, their typical values, and whether they satisfy the constraints."""
    if tables.filled is None:
        return None
    columns: dict[str, Any] = {}
    limits: list[dict[str, Any]] = []
    n_filled = n_left = 0
    listed = set(sorted(tables.missing, key=lambda p: -int(tables.missing[p].sum()))[:MAX_LISTED])
    for position, column in ((p, tables.schema.columns[p]) for p in tables.missing):
        missing, filled, codes = compare_cells(tables.sample, tables.filled, tables.schema, position)
        n_here = int(filled.sum())
        n_filled, n_left = n_filled + n_here, n_left + int(missing.sum()) - n_here
        if position in listed:
            seen, new = (None if codes is None else _typical(codes[where], column) for where in (~missing, filled))
            columns[str(position)] = {"filled": n_here, "observed_typical": seen, "filled_typical": new}
        if constraints is not None and codes is not None and n_here:
            limits.append(_limits(codes[filled], column, constraints, tables.schema.coded.index(position)))
    return {
        "rows": tables.sample.n_rows,
        "sampled": tables.sampled,
        "filled": n_filled,
        "left": n_left,
        "columns": columns,
        "constraints": None if constraints is None else _constraints(tables, constraints, limits),
    }


def _typical(codes: FloatArray, column: Column) -> Any:
    found = typical_cell(codes, column)
    return found if found is None or isinstance(found, float) else clean(found, 40)


def _limits(cells: FloatArray, column: Column, constraints: Constraints, place: int) -> dict[str, Any]:
    """Count the filled cells of a column, given as codes, within its limits, and describe these limits."""
    low, high, options = float(constraints.low[place]), float(constraints.high[place]), constraints.allowed[place]
    slack = TOLERANCE * max(abs(low) if np.isfinite(low) else 0.0, abs(high) if np.isfinite(high) else 0.0)
    good = (cells >= low - slack) & (cells <= high + slack)
    if constraints.whole[place]:
        good &= cells == np.rint(cells)
    if options is not None:
        good &= np.isin(cells, options)
    stated = bool(low != column.low or high != column.high or options is not None)
    return {
        "name": name_text(column.name),
        "stated": stated and column.kind != "constant" and not column.categories,
        "words": _limit_text(column, low, high, options),
        "cells": len(cells),
        "met": int(good.sum()),
    }


def _limit_text(column: Column, low: float, high: float, options: FloatArray | None) -> str:
    if options is not None:
        shown = ", ".join(cell_text(float(code), column) for code in options[:MAX_VALUES])
        more = f" and {len(options) - MAX_VALUES} more" if len(options) > MAX_VALUES else ""
        return f"one of {shown}{more}"
    if np.isinf(low) and np.isinf(high):
        return "any value"
    if np.isinf(high):
        return f"at least {cell_text(low, column)}"
    if np.isinf(low):
        return f"at most {cell_text(high, column)}"
    return f"from {cell_text(low, column)} to {cell_text(high, column)}"


def _constraints(tables: ReportTables, constraints: Constraints, limits: list[dict[str, Any]]) -> dict[str, Any]:
    stated = [one for one in limits if one["stated"] or one["met"] < one["cells"]]
    return {
        "cells": sum(one["cells"] for one in limits),
        "met": sum(one["met"] for one in limits),
        "stated": stated[:MAX_LIMITS],
        "unlisted": len(stated[MAX_LIMITS:]) + len(constraints.rules[MAX_LIMITS:]),
        "rules": [_rule(tables, rule, constraints) for rule in constraints.rules[:MAX_LIMITS]],
    }


def _rule(tables: ReportTables, rule: Rule, constraints: Constraints) -> dict[str, Any]:
    """Count the rows with a filled cell in a rule, and those that satisfy the rule."""
    cells, missing = {}, np.zeros(tables.sample.n_rows, dtype=bool)
    for name in rule.columns:
        position = tables.schema.coded[list(constraints.names).index(name)]
        cells[name] = tables.codes_after(position)
        missing |= tables.sample.missing(position)
    smaller, larger = (cells[side] if isinstance(side, str) else side for side in (rule.smaller, rule.larger))
    known = ~np.isnan(np.stack(list(cells.values()))).any(axis=0)
    kept = smaller < larger if rule.strict else smaller <= larger
    return {
        "rule": clean(rule, 120),
        "rows": int((missing & known).sum()),
        "met": int((missing & known & kept).sum()),
        "observed_rows": int((~missing & known).sum()),
        "observed_met": int((~missing & known & kept).sum()),
    }


def _training(imputer: Any) -> dict[str, Any] | None:
    """Return the loss curves and how training ended."""
    history: History | None = getattr(imputer, "history_", None)
    if not isinstance(history, History):
        return None
    epochs = history.epochs
    shown = [epochs[k] for k in evenly_spaced(len(epochs), MAX_POINTS)]
    starts = [epoch.epoch for before, epoch in itertools.pairwise(epochs) if epoch.stage != before.stage]
    return {
        "n_epochs": len(epochs),
        "ending": history.ending,
        "ending_words": ENDINGS.get(history.ending, "there was nothing to learn"),
        "cut_short": history.cut_short,
        "seconds": float(np.sum(history.column("seconds"))),
        "has_flow_loss": any(epoch.flow_loss for epoch in epochs),
        "epochs": [epoch.epoch for epoch in shown],
        "flow_loss": [epoch.flow_loss for epoch in shown],
        "latent_loss": [epoch.latent_loss for epoch in shown],
        "validation": [[epoch.epoch, epoch.validation_error] for epoch in epochs if epoch.validation_error is not None],
        "stage_starts": starts,
        "n_stages": len(starts) + 1 if epochs else 0,
        "n_models": 1 + len(getattr(imputer, "other_models_", [])),
        "masked": hasattr(getattr(imputer, "config_", None), "n_validations"),
    }


def _origin(imputer: Any, command: str | None) -> dict[str, Any]:
    """Return the command, seed, parameters and versions."""
    versions = {"mcflow": mcflow.__version__, "Python": platform.python_version()}
    versions |= {package: metadata.version(package) for package in PACKAGES}
    seed = getattr(imputer, "seed_", None)
    settings = vars(imputer.config_) if hasattr(imputer, "config_") else {}
    return {
        "command": None if command is None else clean(command, 4_000),
        "imputer": None if imputer is None else type(imputer).__name__,
        "seed": None if seed is None else str(seed),
        "parameters": _parameters(imputer),
        "settings": {name: clean(value, 60) for name, value in settings.items()},
        "versions": versions,
    }


def _parameters(imputer: Any) -> dict[str, str]:
    """Return the parameters that differ from their defaults."""
    if not hasattr(imputer, "get_params"):
        return {}
    try:
        usual = type(imputer)().get_params(deep=False)
    except TypeError:
        usual = {}
    given = imputer.get_params(deep=False)
    return {
        name: clean(repr(value), 300)
        for name, value in sorted(given.items())
        if name not in _IRRELEVANT and repr(usual.get(name)) != repr(value) and value not in (None, {}, [])
    }


def _correlations(tables: ReportTables) -> dict[str, Any] | None:
    """Return the correlations between observed cells, and those in the filled table."""
    columns = tables.schema.columns
    usable = [p for p, column in enumerate(columns) if _is_ordered(column)]
    if tables.filled is None or not tables.missing or len(usable) < 2:
        return None
    sizes = [int(tables.missing[p].sum()) if p in tables.missing else 0 for p in usable]
    chosen = largest(usable, sizes, MAX_CORRELATED_COLUMNS)
    rows = sample_indices(tables.sample.n_rows, MAX_CORRELATED_ROWS)
    before = np.column_stack([tables.sample.column_codes(p, columns[p], "missing")[rows] for p in chosen])
    old, n_both = _pairwise_correlations(before)
    new, _ = _pairwise_correlations(np.column_stack([tables.codes_after(p)[rows] for p in chosen]))
    names = [name_text(columns[p].name) for p in chosen]
    n_missing = np.isnan(before).sum(axis=0)
    mapped = largest(range(len(chosen)), n_missing.tolist(), MAX_MAPPED)
    changes = np.nan_to_num(np.abs(new - old)) * (np.add.outer(n_missing, n_missing) > 0)
    return {
        "rows": len(rows),
        "n_columns": len(chosen),
        "n_usable": len(usable),
        "columns": [names[k] for k in mapped],
        "before": _plain(old[np.ix_(mapped, mapped)]),
        "after": _plain(new[np.ix_(mapped, mapped)]),
        "pairs": [
            {
                "first": names[i],
                "second": names[j],
                "before": round(float(old[i, j]), 3),
                "after": round(float(new[i, j]), 3),
                "rows": int(n_both[i, j]),
            }
            for i, j in _largest_pairs(changes)
            if changes[i, j] > 0
        ],
    }


def _is_ordered(column: Column) -> bool:
    """Tell whether a filled column is ordered, so that it has correlations."""
    if not column.in_model or not column.filled:
        return False
    return column.kind not in CATEGORY_KINDS or column.kind == "ordered" or len(column.categories) == 2


def _pairwise_correlations(values: FloatArray) -> tuple[FloatArray, Array]:
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
    found[(count < MIN_CORRELATED_ROWS) | (variance <= 1e-9) | (variance.T <= 1e-9)] = np.nan
    np.fill_diagonal(found, 1.0)
    return np.clip(found, -1, 1), count.astype(np.int64)


def _plain(found: FloatArray) -> list[list[float | None]]:
    return [[None if np.isnan(r) else round(float(r), 3) for r in row] for row in found]


def _uncertainty(tables: ReportTables, imputer: Any) -> dict[str, Any] | None:
    """Return the filled cells with the widest intervals and those with the least probable categories."""
    if tables.filled is None or not hasattr(imputer, "interval"):
        return None
    columns = tables.schema.columns
    missing = {p: tables.sample.missing(p) for p in tables.missing if columns[p].in_model and columns[p].filled}
    incomplete = np.flatnonzero(np.any(list(missing.values()), axis=0)) if missing else np.empty(0, dtype=np.int64)
    if not len(incomplete):
        return None
    has_chain = hasattr(getattr(imputer, "model_", None), "trace")
    max_rows = min(MAX_CHAIN_ROWS if has_chain else MAX_INTERVAL_ROWS, max(20, MAX_INTERVAL_CELLS // len(columns)))
    rows = incomplete[sample_indices(len(incomplete), max_rows)]
    sample = take_rows(tables.sample, rows)
    numbers = _uncertain_numbers(tables, imputer, sample, rows, missing)
    categories = _uncertain_categories(tables, imputer, sample, rows, missing)
    medians = [(one, round(float(np.median(one.uncertainty)), 3)) for one in numbers]
    widest = sorted(((one, width) for one, width in medians if np.isfinite(width)), key=lambda pair: -pair[1])
    return {
        "level": LEVEL,
        "rows": len(rows),
        "incomplete_rows": len(incomplete),
        "sampled": tables.sampled,
        "numbers": _most_uncertain(numbers, tables),
        "categories": _most_uncertain(categories, tables),
        "columns": [
            {"name": name_text(one.column.name), "cells": len(one.rows), "width": width}
            for one, width in widest[:MAX_DRAWN]
        ],
    }


@dataclass(frozen=True)
class _UncertainCells:
    """The filled cells of one column with a measure of their uncertainty; arrays have shape (n_cells,)."""

    column: Column
    rows: Array
    codes: FloatArray
    uncertainty: FloatArray  # relative width of the interval, or probability of other categories
    bounds: tuple[FloatArray, FloatArray] | None = None  # of the intervals

    def entry(self, k: int, tables: ReportTables) -> dict[str, Any]:
        """Return the texts of one cell, with its row number in the whole table."""
        row = int(self.rows[k] if tables.sample_rows is None else tables.sample_rows[self.rows[k]])
        found: dict[str, Any] = {"row": row + 1, "column": name_text(self.column.name)}
        found["value"] = cell_text(float(self.codes[k]), self.column)
        if self.bounds is None:
            return found | {"probability": round(1 - float(self.uncertainty[k]), 3)}
        low, high = (cell_text(float(end[k]), self.column) for end in self.bounds)
        return found | {"low": low, "high": high, "width": round(float(self.uncertainty[k]), 3)}


def _uncertain_numbers(
    tables: ReportTables, imputer: Any, sample: Any, rows: Array, missing: dict[int, Array]
) -> list[_UncertainCells]:
    """Return filled numbers and dates with the widths of their intervals, relative to that of the observed cells."""
    positions = [p for p in missing if tables.schema.columns[p].kind in NUMBER_KINDS and missing[p][rows].any()]
    bounds = [read_frame(end) for end in imputer.interval(sample, level=LEVEL)] if positions else []
    found = []
    for p in positions:
        column, codes, here = tables.schema.columns[p], tables.codes_after(p), missing[p][rows]
        low, high = (codes_in(end, tables.schema, p)[here] for end in bounds)
        observed = codes[~missing[p] & np.isfinite(codes)]
        ends = np.quantile(observed, ((1 - LEVEL) / 2, (1 + LEVEL) / 2)) if len(observed) else (0.0, 0.0)
        width = (high - low) / (float(ends[1] - ends[0]) or (column.high - column.low) or 1.0)
        found.append(_UncertainCells(column, rows[here], codes[rows[here]], width, (low, high)))
    return found


def _uncertain_categories(
    tables: ReportTables, imputer: Any, sample: Any, rows: Array, missing: dict[int, Array]
) -> list[_UncertainCells]:
    """Return the filled cells of categories with the predicted probability of all other categories."""
    positions = [p for p in missing if tables.schema.columns[p].kind in CATEGORY_KINDS and missing[p][rows].any()]
    if not positions or not hasattr(imputer, "predict_proba"):
        return []
    predicted = imputer.predict_proba(sample)
    found = []
    for p in positions:
        column, codes = tables.schema.columns[p], tables.codes_after(p)
        here = np.flatnonzero(missing[p][rows] & ~np.isnan(codes[rows]))
        filled = codes[rows[here]]
        others = 1 - probabilities_in(predicted[column.name])[here, filled.astype(np.int64)]
        found.append(_UncertainCells(column, rows[here], filled, others))
    return found


def _most_uncertain(found: list[_UncertainCells], tables: ReportTables) -> list[dict[str, Any]]:
    """Return the most uncertain cells, a few of each column."""
    chosen = []
    for one in found:
        uncertainty = np.nan_to_num(one.uncertainty, nan=-1.0, posinf=-1.0)
        worst = np.argsort(-uncertainty, kind="stable")[:MAX_UNCERTAIN_PER_COLUMN]
        chosen += [(float(uncertainty[k]), int(k), one) for k in worst if uncertainty[k] > 0]
    return [one.entry(k, tables) for _, k, one in sorted(chosen, key=lambda cell: -cell[0])[:MAX_UNCERTAIN]]


def _calibration(imputer: Any) -> dict[str, Any] | None:
    """Return the coverage of intervals on the validation cells of the fit, before and after calibration."""
    found: Calibration | None = getattr(getattr(imputer, "model_", None), "calibration", None)
    if not isinstance(found, Calibration):
        return None
    columns = [imputer.schema_.columns[p] for p in imputer.schema_.model]
    ordered = np.array([column.kind in (*NUMBER_KINDS, "ordered") for column in columns])[_column_of_cells(found)]
    found = _selected(found, ordered, ordered)  # other columns have no intervals
    counts, n_cells = np.diff(found.starts), len(found.below)
    if n_cells < MIN_VALIDATION_CELLS:
        return None
    first, second = _halves(found)
    tails = [(1 - level) / 2 for level in LEVELS]
    uncalibrated = [_n_covered(found, *np.full((2, len(columns)), tail)) for tail in tails]
    # Each half is covered by intervals that were calibrated on the other half.
    calibrated = [_n_covered(first, *second.tails(tail)) + _n_covered(second, *first.tails(tail)) for tail in tails]
    low, high = binomial_band(n_cells, np.array(LEVELS))
    at, some = LEVELS.index(LEVEL), np.flatnonzero(counts >= MIN_VALIDATION_CELLS)
    before, after = (covered[at][some] / counts[some] for covered in (uncalibrated, calibrated))
    by_column = [
        {
            "position": int(k),
            "name": name_text(columns[k].name),
            "cells": int(counts[k]),
            "uncalibrated": round(float(old), 3),
            "calibrated": round(float(new), 3),
        }
        for k, old, new in zip(some, before, after, strict=True)
    ]
    deviations = np.abs(after - LEVEL) * np.sqrt(counts[some])  # in standard errors, up to a factor
    return {
        "cells": n_cells,
        "levels": list(LEVELS),
        "uncalibrated": [round(float(covered.sum() / n_cells), 4) for covered in uncalibrated],
        "calibrated": [round(float(covered.sum() / n_cells), 4) for covered in calibrated],
        "band": [np.round(low, 4).tolist(), np.round(high, 4).tolist()],
        "level": LEVEL,
        "columns": [by_column[k] for k in np.argsort(-deviations, kind="stable")[:MAX_DEVIATING]],
        "by_column": by_column,
    }


def _column_of_cells(found: Calibration) -> Array:
    """Return the column of each validation cell, (n_cells,)."""
    return np.repeat(np.arange(len(found.starts) - 1), np.diff(found.starts))


def _n_covered(found: Calibration, low: FloatArray, high: FloatArray) -> FloatArray:
    """Count the true values of each column inside intervals that cut off the masses `low` and `high`; (n_columns,)."""
    columns, counts = _column_of_cells(found), np.diff(found.starts)
    outside = np.bincount(columns, found.below < low[columns] - 1e-12, minlength=len(counts))
    outside += np.bincount(columns, found.above < high[columns] - 1e-12, minlength=len(counts))
    return np.clip(counts - outside, 0, None)


def _halves(found: Calibration) -> tuple[Calibration, Calibration]:
    columns = _column_of_cells(found)
    within = np.arange(len(columns)) - found.starts[:-1][columns]
    rng = np.random.default_rng(0)
    below, above = np.empty((2, len(columns)), dtype=bool)
    for first in (below, above):  # both arrays are sorted separately, so that an index is not the same cell in both
        first[np.lexsort((rng.random(len(columns)), columns))] = within % 2 == 0
    return _selected(found, below, above), _selected(found, ~below, ~above)


def _selected(found: Calibration, below: BoolArray, above: BoolArray) -> Calibration:
    """Return some of the validation cells, by masks of both arrays, (n_cells,)."""
    counts = np.bincount(_column_of_cells(found)[below], minlength=len(found.starts) - 1)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return Calibration(found.below[below], found.above[above], starts, found.scale)

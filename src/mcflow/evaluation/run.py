"""`evaluate`: hide known cells of a table, fill them by several methods and compare the errors."""

from __future__ import annotations

__all__ = ["check_arguments", "evaluate", "failure_message"]

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mcflow.columns.frames import read_frame
from mcflow.columns.schema import TableSchema
from mcflow.config import CONSTRAINTS, Interval, Options, check_parameter
from mcflow.errors import DataError, McflowError, ParameterError, did_you_mean
from mcflow.evaluation.hidden_cells import PATTERNS, EvaluationTable, MaskedTable, choose_cells, copies_patterns
from mcflow.evaluation.methods import OURS, REFERENCE, compared_methods, default_methods
from mcflow.evaluation.predictions import Predictions, predict_hidden
from mcflow.evaluation.progress import EvaluationProgress
from mcflow.evaluation.result import Evaluation
from mcflow.evaluation.scores import (
    CellLosses,
    MethodScore,
    cell_losses,
    overall_standing,
    score_columns,
    score_method,
)
from mcflow.evaluation.verdict import verdict
from mcflow.evaluation.wording import listed
from mcflow.random import seed_from
from mcflow.typing import RandomState

_CONSTRAINTS: dict[str, Interval | Options] = {
    "share": Interval(float, 0, 0.5, low_open=True),
    "repeats": Interval(int, 1),
    "level": Interval(float, 0, 0.999, low_open=True),
    "max_rows": Interval(int, 20, optional=True),
    "draws": Interval(int, 1),
    "max_columns": Interval(int, 1, optional=True),
    "pattern": Options(PATTERNS),
    "max_time": CONSTRAINTS["max_time"],
}

#: Column options that `evaluate` accepts.
_COLUMN_OPTIONS = ("schema", "kinds", "roles", "bounds", "allowed", "rules", "unseen", "missing_values")


def evaluate(
    frame: Any,
    *,
    methods: Sequence[str] | None = None,
    share: float = 0.2,
    repeats: int = 1,
    max_time: float | None = 75.0,
    level: float = 0.9,
    max_rows: int | None = 10_000,
    pattern: str = "auto",
    random_state: RandomState = 0,
    verbose: bool | str = False,
    **table: Any,
) -> Evaluation:
    """Hide known cells of a table, fill them by mcflow and by other methods, and compare the errors.

    Parameters
    ----------
    frame : array-like or data frame of shape (n_rows, n_columns)
        numpy, pandas, polars or pyarrow; it is not changed.
    methods : sequence of str, optional
        Methods to compare with: names of `mcflow.baselines`, with parameters in brackets as in
        ``"missforest(n_trees=100)"``, or presets such as ``"mcflow:paper"``. By default the mean, chained ridge
        regressions ("mice") and small forests ("missforest"). The mean is always included. ``"mcflow(...)"`` sets
        parameters of mcflow itself.
    share : float, default=0.2
        Share of a column's known cells to hide, above 0 and up to 0.5. It is an upper limit when the missingness
        patterns of the table are copied, and approximate when cells are hidden at random.
    repeats : int, default=1
        How often to hide other cells and fit all methods again.
    max_time : float or None, default=75
        Maximum seconds of each fit of mcflow; None for no limit.
    level : float, default=0.9
        Level of the intervals whose coverage is measured.
    max_rows : int or None, default=10000
        Maximum number of rows; larger tables are sampled. None for no limit.
    pattern : {"auto", "own", "random"}, default="auto"
        How to choose hidden cells: "own" copies the missingness patterns of the table's incomplete rows; "random" hides
        cells completely at random in all columns; "auto" is "own" if at least ten rows are incomplete.
    random_state : int, Generator, RandomState or None, default=0
        Seed of the hidden cells and of the methods.
    verbose : bool or {"auto", "plain", "json", "none"}, default=False
        Show the progress on standard error.
    **table : object
        Column options for all methods: ``schema``, ``kinds``, ``roles``, ``bounds``, ``allowed``, ``rules``,
        ``unseen`` and ``missing_values``.

    Returns
    -------
    Evaluation
        Errors, coverage and times by column and method, and a verdict in sentences.

    Raises
    ------
    DataError
        If the table has no column to fill or too few known cells.
    ParameterError
        If a method or a parameter is unknown or out of range.

    Notes
    -----
    With `pattern="own"`, a row receives the missingness pattern of a randomly chosen incomplete row. Cells that are
    missing together are hidden together, columns lose cells in proportion to their missing cells, and complete columns
    lose none. All methods are fitted on the table without the hidden cells, and scored on the hidden cells only. These
    cells were observed: if cells are missing because of their own value, the truly missing cells may be harder to
    predict.

    Two methods are compared by their losses :math:`a_i` and :math:`b_i` in each cell (squared errors of numbers, 0 or 1
    for categories): the mean of :math:`a_i - b_i` is divided by its standard error, which is clustered by row.
    Comparisons in several columns are corrected to a false discovery rate of 5 % by Benjamini and Hochberg.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow import evaluate
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(400, 1)) + [[0.0, 5.0, 9.0]] + 0.3 * rng.normal(size=(400, 3))
    >>> found = evaluate(rows, methods=["mean", "em"], max_time=1, repeats=2)
    >>> found.hidden_cells > 400, all(column.predictable for column in found.per_column)
    (True, True)
    """
    given = {"share": share, "repeats": repeats, "level": level, "max_rows": max_rows, "pattern": pattern}
    check_arguments(given | {"max_time": max_time, "verbose": verbose}, methods, table)
    seed = seed_from(random_state)
    used = EvaluationTable.prepare(read_frame(frame), table, max_rows, seed)
    chosen = compared_methods(default_methods(len(used.schema.columns)) if methods is None else methods)
    for one in chosen:  # reject wrong parameters before anything is fitted
        one.build(seed, table, max_time=max_time, verbose=False)
    own = copies_patterns(used.missing, pattern)
    progress = EvaluationProgress(chosen, repeats, max_time, verbose)
    run = _Run([one.name for one in chosen], level)
    for repeat in range(repeats):
        hidden = choose_cells(used.missing, share, own=own, rng=np.random.default_rng([seed, repeat]))
        run.masked.append(used.mask(hidden))
        options = table | {"kinds": used.kinds_for(run.masked[-1].table)}
        for one in chosen:
            if one.name in run.failed:
                progress.skip(one)
                continue
            with progress.method(one):
                imputer = one.build(seed + repeat, options, max_time=max_time, verbose=verbose)
                run.predict(one.name, imputer, seed + repeat)
                progress.fail(run.failed.get(one.name))
    settings = {"methods": [str(one.spec) for one in chosen], "share": share, "pattern": "own" if own else "random"}
    settings |= {"max_time": max_time, "max_rows": max_rows, "random_state": seed}
    settings["notes"] = used.notes(own, share, run.n_cells, repeats) + run.notes(max_time)
    return run.evaluation(used, settings)


def check_arguments(given: dict[str, Any], methods: Sequence[str] | None, table: dict[str, Any]) -> None:
    """Raise `ParameterError` if an argument of an evaluation is unknown or out of range."""
    for name, value in given.items():
        check_parameter(name, value, _CONSTRAINTS.get(name))
    for name in table:
        if name not in _COLUMN_OPTIONS:
            raise ParameterError(f"evaluate has no argument {name!r}.{did_you_mean(name, _COLUMN_OPTIONS)}")
    if methods is not None and (isinstance(methods, str) or not all(isinstance(word, str) for word in methods)):
        raise ParameterError(f"methods is {methods!r}, but has to be a list of names, such as ['mean', 'mice'].")


def failure_message(error: Exception) -> str:
    """Return the first line of an error, with its type if it is not one of mcflow's."""
    kind = "" if isinstance(error, McflowError) else f"{type(error).__name__}: "
    return kind + (str(error).partition("\n")[0] or "no reason given")


@dataclass
class _Run:
    """Predictions of all methods, collected over the repeats."""

    names: list[str]  # of the methods
    level: float  # of the intervals
    masked: list[MaskedTable] = field(default_factory=list)  # one table per repeat
    failed: dict[str, str] = field(default_factory=dict)  # error messages by method
    predictions: dict[str, list[Predictions]] = field(default_factory=dict)  # by method and repeat
    stopped_at: str = ""  # epochs that mcflow reached before its time limit

    @property
    def n_cells(self) -> int:
        return sum(len(masked.truth) for masked in self.masked)

    def predict(self, name: str, imputer: Any, seed: int) -> None:
        """Fit a method on the newest table and predict its hidden cells; keep the message of an error."""
        try:
            found = predict_hidden(imputer, self.masked[-1], self.level, seed)
            if name == OURS:
                self.stopped_at = _stopped_at(imputer) or self.stopped_at
        except Exception as error:
            self.failed[name] = failure_message(error)
            self.predictions.pop(name, None)
            return
        self.predictions.setdefault(name, []).append(found)

    def notes(self, max_time: float | None) -> list[str]:
        """Report whether the time limit stopped a fit of mcflow."""
        if not self.stopped_at:
            return []
        return [
            f"mcflow stopped training after {max_time:g} s ({self.stopped_at}); more time may lower its error "
            "(max_time, --max-time)."
        ]

    def _losses(self, schema: TableSchema) -> CellLosses:
        positions = np.concatenate([masked.positions for masked in self.masked])
        truth = np.concatenate([masked.truth for masked in self.masked])
        losses, covered = {}, {}
        for name, repeats in self.predictions.items():
            filled = np.concatenate([one.filled for one in repeats])
            losses[name] = np.full(len(truth), np.nan)
            for position in np.unique(positions):
                here = positions == position
                losses[name][here] = cell_losses(schema.columns[position], truth[here], filled[here])
            covered[name] = np.concatenate([one.covered for one in repeats])
        return CellLosses(np.concatenate([masked.rows for masked in self.masked]), positions, losses, covered)

    def evaluation(self, used: EvaluationTable, settings: dict[str, Any]) -> Evaluation:
        """Score the predictions."""
        if REFERENCE in self.failed:
            raise DataError(f"The mean, which other methods are compared with, failed: {self.failed[REFERENCE]}")
        cells = _without_single_cells(self._losses(used.schema), used.schema, settings)
        columns = score_columns(cells, used.schema)
        methods = tuple(
            MethodScore(name, error_message=self.failed[name])
            if name in self.failed
            else score_method(name, float(np.mean([one.seconds for one in self.predictions[name]])), cells, columns)
            for name in [OURS, *(name for name in self.names if name != OURS)]
        )
        others = [name for name in cells.losses if name != OURS] if OURS in cells.losses else []
        overall = {name: overall_standing(cells, name) for name in others}
        return Evaluation(
            rows=used.frame.n_rows,
            columns=len(used.schema.columns),
            hidden_cells=len(cells.rows),
            repeats=len(self.masked),
            level=self.level,
            methods=methods,
            per_column=columns,
            verdict=verdict(columns, methods, overall, self.level, len(self.masked)),
            settings=settings,
        )


def _without_single_cells(cells: CellLosses, schema: TableSchema, settings: dict[str, Any]) -> CellLosses:
    """Leave out columns with a single hidden cell, whose error means nothing, and note them in the settings."""
    positions, counts = np.unique(cells.columns, return_counts=True)
    single = positions[counts == 1]
    if not len(single) or len(single) == len(positions):
        return cells
    names = listed([str(schema.columns[position].name) for position in single])
    settings["notes"].append(f"Columns with a single hidden cell are left out: {names}.")
    return cells.where(~np.isin(cells.columns, single))


def _stopped_at(imputer: Any) -> str:
    """Return how many epochs a fit reached before its time limit; empty if the limit did not stop it."""
    history = getattr(imputer, "history_", None)
    if history is None or history.ending != "max_time":
        return ""
    return f"{len(history.epochs)} of at most {imputer.config_.max_epochs} epochs"

"""`evaluate`: hide known cells of a table, fill them by several methods, and say what comes of it."""

from __future__ import annotations

__all__ = ["DEFAULT_ROWS", "DEFAULT_SECONDS", "DEFAULT_SHARE", "evaluate"]

from collections.abc import Sequence
from typing import Any

import numpy as np

from mcflow.config import CONSTRAINTS, Interval, Options, check_parameter
from mcflow.data.frames import read_frame
from mcflow.errors import ParameterError, did_you_mean
from mcflow.evaluation.contenders import contenders, default_methods
from mcflow.evaluation.hiding import PATTERNS, choose_cells, follows_holes
from mcflow.evaluation.outcome import Outcome
from mcflow.evaluation.progress import EvaluationProgress
from mcflow.evaluation.result import Evaluation
from mcflow.evaluation.task import Task
from mcflow.random import seed_from
from mcflow.typing import RandomState

#: What is done unless the caller says otherwise: share of known cells, rows at most, seconds of a fit of mcflow.
DEFAULT_SHARE, DEFAULT_ROWS, DEFAULT_SECONDS = 0.2, 10_000, 75.0

_CONSTRAINTS: dict[str, Interval | Options] = {
    "share": Interval(float, 0, 0.5, low_open=True),
    "repeats": Interval(int, 1),
    "level": Interval(float, 0, 0.999, low_open=True),
    "max_rows": Interval(int, 20, optional=True),
    "pattern": Options(PATTERNS),
    "max_time": CONSTRAINTS["max_time"],
}

#: What may be said of the columns.
_TABLE = ("kinds", "roles", "bounds", "allowed", "rules", "unseen")


def evaluate(
    frame: Any,
    *,
    methods: Sequence[str] | None = None,
    share: float = DEFAULT_SHARE,
    repeats: int = 1,
    max_time: float | None = DEFAULT_SECONDS,
    level: float = 0.9,
    max_rows: int | None = DEFAULT_ROWS,
    pattern: str = "auto",
    random_state: RandomState = 0,
    verbose: bool | str = False,
    **table: Any,
) -> Evaluation:
    """Hide known cells of a table, fill them by mcflow and by simpler methods, and compare.

    Parameters
    ----------
    frame : array-like or data frame of shape (n_rows, n_columns)
        numpy, pandas, polars or pyarrow; it is not changed.
    methods : sequence of str, optional
        What to compare with: names of `mcflow.baselines`, with parameters in brackets as in
        ``"missforest(n_trees=100)"``, or presets such as ``"mcflow:paper"``. By default the mean, ridge regressions in
        a loop ("mice") and small forests ("missforest"). The mean always takes part, and ``"mcflow(...)"`` sets
        parameters of mcflow itself.
    share : float, default=0.2
        Share of a column's known cells to hide, above 0 and up to 0.5: at most so many where the table's own holes are
        followed, about so many where cells are hidden at random.
    repeats : int, default=1
        How often to hide other cells and fit anew.
    max_time : float or None, default=75
        Seconds that each fit of mcflow may take; None for no limit.
    level : float, default=0.9
        Of the intervals whose coverage is measured.
    max_rows : int or None, default=10000
        Of more rows, a sample is taken.
    pattern : {"auto", "own", "random"}, default="auto"
        How hidden cells lie: "own", as the table's holes; "random", anywhere in all columns; "auto", as the holes if at
        least ten rows have some.
    random_state : int, Generator, RandomState or None, default=0
        Decides which cells are hidden and all that is random in the methods.
    verbose : bool or {"auto", "plain", "json", "none"}, default=False
        Show the progress on standard error.
    **table : object
        What is known of the columns, for all methods: ``kinds``, ``roles``, ``bounds``, ``allowed``, ``rules``.

    Returns
    -------
    Evaluation
        Errors, coverage and times, by column and method, and the verdict in words.

    Raises
    ------
    DataError
        When the table has no column to fill or too few known cells.
    ParameterError
        When a method or a parameter is unknown or out of range.

    Notes
    -----
    A row takes over the holes of another, randomly chosen row: cells that are missing together are hidden together,
    and columns lose cells in proportion to those they lack. Columns without a hole lose none. Methods are fitted on
    the table with both kinds of holes, and only the known cells count. Hidden cells were observed: if cells are missing
    because of their own value, those that are truly missing may be harder.

    Differences are judged cell by cell: with losses :math:`a_i` and :math:`b_i` of two methods (squared errors of
    numbers, 0 or 1 for levels) by the mean of :math:`a_i - b_i` against its standard error, cells of one row counted as
    one. Of the columns in which a difference is called more than noise, one in twenty is a false find on average, at
    most.

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
    _check(given | {"max_time": max_time, "verbose": verbose}, table)
    seed = seed_from(random_state)
    task = Task.prepare(read_frame(frame), table, max_rows, seed)
    chosen = contenders(default_methods(len(task.schema.columns)) if methods is None else _words(methods))
    for one in chosen:  # so that a wrong word is refused before anything is fitted
        one.build(seed, table, max_time=max_time, verbose=False)
    own = follows_holes(task.missing, pattern)
    shown = EvaluationProgress(chosen, repeats, max_time, verbose)
    outcome = Outcome([one.name for one in chosen])
    for repeat in range(repeats):
        hidden = choose_cells(task.missing, share, own=own, rng=np.random.default_rng([seed, repeat]))
        question, truth, numbers = task.question(hidden, level)
        outcome.ask(question, truth, numbers)
        said = table | {"kinds": task.kinds_for(question.table)}
        for one in chosen:
            if one.name in outcome.failed:
                shown.skip(one)
                continue
            with shown.turn(one):
                imputer = one.build(seed + repeat, said, max_time=max_time, verbose=verbose)
                outcome.hear(one, imputer, seed + repeat)
                shown.fail(outcome.failed.get(one.name))
    settings = {"methods": [str(one.spec) for one in chosen], "share": share, "pattern": "own" if own else "random"}
    settings |= {"max_time": max_time, "max_rows": max_rows, "random_state": seed}
    settings["notes"] = task.notes(own, share, outcome.n_cells, repeats) + outcome.notes(max_time)
    return outcome.summary(task, repeats, level, settings)


def _words(methods: Sequence[str]) -> Sequence[str]:
    if isinstance(methods, str) or not all(isinstance(word, str) for word in methods):
        raise ParameterError(f"methods is {methods!r}, but has to be a list of names, such as ['mean', 'mice'].")
    return methods


def _check(given: dict[str, Any], table: dict[str, Any]) -> None:
    for name, value in given.items():
        check_parameter(name, value, _CONSTRAINTS.get(name))
    for name in table:
        if name not in _TABLE:
            raise ParameterError(f"evaluate has no argument {name!r}.{did_you_mean(name, _TABLE)}")

"""`evaluate`: hide known cells of a table, fill them by several methods, show the progress, and compare the errors."""

from __future__ import annotations

__all__ = ["EvaluationProgress", "evaluate", "start"]

import contextlib
import itertools
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from mcflow.columns.frames import read_frame
from mcflow.columns.schema import TableSchema
from mcflow.config import CONSTRAINTS, Interval, Options, check_parameter
from mcflow.errors import DataError, McflowError, ParameterError, did_you_mean
from mcflow.evaluation.hidden_cells import PATTERNS, EvaluationTable, MaskedTable, choose_cells, copies_patterns
from mcflow.evaluation.methods import OURS, REFERENCE, ComparedMethod, compared_methods, default_methods
from mcflow.evaluation.result import Evaluation, verdict
from mcflow.evaluation.scores import CellLosses, MethodScore, cell_losses, overall_standing, score_columns, score_method
from mcflow.evaluation.wording import listed
from mcflow.fitting.progress import can_be_live, write_event
from mcflow.random import seed_from
from mcflow.typing import FloatArray, RandomState

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
MAX_DRAWS = 60  #: Maximum number of draws from which an interval is estimated.
MIN_DRAWS = 15  #: Minimum number of draws from which an interval is estimated.
MAX_DRAW_SECONDS = 15.0  #: Intervals are skipped if all draws would take more seconds than this.


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
    seed = seed_from(random_state)
    used, chosen, progress = start(frame, given | {"max_time": max_time}, methods, table, seed=seed, verbose=verbose)
    own = copies_patterns(used.missing, pattern)
    masked: list[MaskedTable] = []  # one table per repeat
    predictions: dict[str, list[_Predictions]] = {one.name: [] for one in chosen}
    stopped_at = ""
    for repeat in range(repeats):
        hidden = choose_cells(used.missing, share, own=own, rng=np.random.default_rng([seed, repeat]))
        masked.append(used.mask(hidden))
        options = table | {"kinds": used.kinds_for(masked[-1].table)}
        for one in progress.remaining(chosen):
            with progress.method(one):
                imputer = one.build(seed + repeat, options, max_time=max_time, verbose=verbose)
                predictions[one.name].append(_predict_hidden(imputer, masked[-1], level, seed + repeat))
                if one.name == OURS:
                    stopped_at = _stopped_at(imputer) or stopped_at
    if REFERENCE in progress.failed:
        raise DataError(f"The mean, which other methods are compared with, failed: {progress.failed[REFERENCE]}")
    notes = used.notes(own, share, sum(len(one.rows) for one in masked), repeats)
    if stopped_at:
        words = f"mcflow stopped training after {max_time:g} s ({stopped_at}); more time may lower its error "
        notes.append(words + "(max_time, --max-time).")
    done = {name: found for name, found in predictions.items() if name not in progress.failed}
    cells = _without_single_cells(_losses(masked, done, used.schema), used.schema, notes)
    columns = score_columns(cells, used.schema)
    seconds = {name: float(np.mean([one.seconds for one in found])) for name, found in done.items()}
    scores = [MethodScore(name, error_message=message) for name, message in progress.failed.items()]
    scores += [score_method(name, seconds[name], cells, columns) for name in done]
    order = [OURS, *(name for name in predictions if name != OURS)]
    scores.sort(key=lambda one: order.index(one.name))
    overall = {name: overall_standing(cells, name) for name in done if name != OURS} if OURS in done else {}
    return Evaluation(
        rows=used.frame.n_rows,
        columns=len(used.schema.columns),
        hidden_cells=len(cells.rows),
        repeats=repeats,
        level=level,
        methods=tuple(scores),
        per_column=columns,
        verdict=verdict(columns, scores, overall, level, repeats),
        settings={
            "methods": [str(one.spec) for one in chosen],
            "share": share,
            "pattern": "own" if own else "random",
            "max_time": max_time,
            "max_rows": max_rows,
            "random_state": seed,
            "notes": notes,
        },
    )


def start(
    frame: Any,
    given: Mapping[str, Any],
    methods: Sequence[str] | None,
    table: Mapping[str, Any],
    *,
    seed: int,
    verbose: bool | str,
) -> tuple[EvaluationTable, list[ComparedMethod], EvaluationProgress]:
    """Check arguments with constraints and column options; return the rows, methods and progress of an evaluation."""
    for name, value in {**given, "verbose": verbose}.items():
        check_parameter(name, value, _CONSTRAINTS.get(name))
    for name in table:
        if name not in _COLUMN_OPTIONS:
            raise ParameterError(f"evaluate has no argument {name!r}.{did_you_mean(name, _COLUMN_OPTIONS)}")
    if methods is not None and (isinstance(methods, str) or not all(isinstance(word, str) for word in methods)):
        raise ParameterError(f"methods is {methods!r}, but has to be a list of names, such as ['mean', 'mice'].")
    used = EvaluationTable.prepare(read_frame(frame), table, given["max_rows"], seed)
    chosen = compared_methods(default_methods(len(used.schema.columns)) if methods is None else methods)
    for one in chosen:  # reject wrong parameters before anything is fitted
        one.build(seed, table, max_time=given["max_time"], verbose=False)
    return used, chosen, EvaluationProgress(chosen, given["repeats"], given["max_time"], verbose)


@dataclass(frozen=True)
class _Predictions:
    """Predictions of one method for the hidden cells."""

    filled: FloatArray  # (n_cells,) codes
    covered: FloatArray  # (n_cells,) 1 if the interval contains the truth, 0 if not, NaN without an interval
    seconds: float  # of the fit and the transform


def _predict_hidden(imputer: Any, masked: MaskedTable, level: float, seed: int) -> _Predictions:
    """Fit an imputer on the masked table, and predict the hidden cells with intervals of a level."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings on the columns were raised when the table was read
        start = time.perf_counter()
        imputer.fit(masked.table)
        filled = masked.cells.read(imputer.transform(masked.incomplete))
        seconds = time.perf_counter() - start
        low, high = _intervals(imputer, masked, level, seed)
    truth = masked.cells.truth
    covered = np.where(np.isnan(low) | np.isnan(high), np.nan, (low <= truth) & (truth <= high))
    return _Predictions(filled, covered, seconds)


def _intervals(imputer: Any, masked: MaskedTable, level: float, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return interval bounds, from `interval` or from order statistics of draws; NaN where there are none."""
    if hasattr(imputer, "interval"):
        low, high = imputer.interval(masked.incomplete, level)
        return masked.cells.read(low), masked.cells.read(high)
    nothing = np.full(len(masked.rows), np.nan)
    n_draws, rank = _draws_for(level)
    if not hasattr(imputer, "draw") or n_draws > MAX_DRAWS:
        return nothing, nothing
    start = time.perf_counter()
    draws = imputer.draw(masked.incomplete, m=n_draws, random_state=seed)
    first = next(draws)
    if (time.perf_counter() - start) * n_draws > MAX_DRAW_SECONDS:
        return nothing, nothing
    ordered = np.sort([masked.cells.read(table) for table in itertools.chain([first], draws)], axis=0)
    kinds = np.array([column.kind for column in masked.cells.schema.columns])[masked.cells.positions]
    ordered[:, np.isin(kinds, ("boolean", "category"))] = np.nan  # categories without an order
    return ordered[rank - 1], ordered[n_draws - rank]


def _draws_for(level: float) -> tuple[int, int]:
    """Return the number of draws, and the rank of the draw that is the lower bound."""
    # The k-th smallest and largest of m draws contain another draw with probability (m + 1 − 2k) / (m + 1).
    rank = 1
    while round(2 * rank / (1 - level)) - 1 < MIN_DRAWS:
        rank += 1
    return round(2 * rank / (1 - level)) - 1, rank


def _losses(
    masked: Sequence[MaskedTable], predictions: Mapping[str, Sequence[_Predictions]], schema: TableSchema
) -> CellLosses:
    """Return the losses of all methods on the hidden cells of all repeats."""
    rows = np.concatenate([one.rows for one in masked])
    positions = np.concatenate([one.cells.positions for one in masked])
    truth = np.concatenate([one.cells.truth for one in masked])
    losses = {}
    for name, repeats in predictions.items():
        filled = np.concatenate([one.filled for one in repeats])
        losses[name] = np.full(len(truth), np.nan)
        for position in np.unique(positions):
            here = positions == position
            losses[name][here] = cell_losses(schema.columns[position], truth[here], filled[here])
    covered = {name: np.concatenate([one.covered for one in repeats]) for name, repeats in predictions.items()}
    return CellLosses(rows, positions, losses, covered)


def _without_single_cells(cells: CellLosses, schema: TableSchema, notes: list[str]) -> CellLosses:
    """Leave out columns with a single hidden cell, whose error means nothing, and add a note on them."""
    positions, counts = np.unique(cells.columns, return_counts=True)
    single = positions[counts == 1]
    if not len(single) or len(single) == len(positions):
        return cells
    names = listed([str(schema.columns[position].name) for position in single])
    notes.append(f"Columns with a single hidden cell are left out: {names}.")
    return cells.where(~np.isin(cells.columns, single))


def _stopped_at(imputer: Any) -> str:
    """Return how many epochs a fit reached before its time limit; empty if the limit did not stop it."""
    history = getattr(imputer, "history_", None)
    if history is None or history.ending != "max_time":
        return ""
    return f"{len(history.epochs)} of at most {imputer.config_.max_epochs} epochs"


class EvaluationProgress:
    """Show the running method, the time of each method and an estimate of the remaining time; record failures."""

    def __init__(
        self, methods: list[ComparedMethod], repeats: int, max_time: float | None, verbose: bool | str
    ) -> None:
        self.failed: dict[str, str] = {}  # messages of the errors of methods, by name
        self._queue = methods * repeats
        self._total, self._done = len(self._queue), 0
        self._limit = max_time
        self._times: dict[str, float] = {}
        self._mode = "none" if not verbose else verbose if isinstance(verbose, str) else "auto"

    def remaining(self, methods: list[ComparedMethod]) -> Iterator[ComparedMethod]:
        """Yield the methods that have not failed in an earlier repeat."""
        for method in methods:
            if method.name not in self.failed:
                yield method
            else:
                self._queue.remove(method)
                self._total -= 1

    @contextlib.contextmanager
    def method(self, method: ComparedMethod) -> Iterator[None]:
        """Show that a method is running while the block is executed, and record its error instead of raising it."""
        number, (seconds_left, _) = self._done + 1, self._left()
        self._event("method", name=method.name, number=number, of=self._total, seconds_left=seconds_left)
        start = time.perf_counter()
        # mcflow shows its own epochs, and two live displays would overwrite each other.
        with self._spinner(f"[{number}/{self._total}] {method.name}{self._left_text()}", hide=method.ours):
            try:
                yield
            except Exception as error:
                kind = "" if isinstance(error, McflowError) else f"{type(error).__name__}: "
                self.failed[method.name] = kind + (str(error).partition("\n")[0] or "no reason given")
        self._queue.pop(0)
        self._done = number
        seconds = self._times[method.name] = time.perf_counter() - start
        message = self.failed.get(method.name)
        words = f"failed after {seconds:.1f} s" if message else f"{seconds:.1f} s"
        self._print(f"[{number}/{self._total}] {method.name}: {words}{self._left_text()}")
        self._event("method_end", name=method.name, seconds=seconds, error_message=message)

    def _left(self) -> tuple[float | None, float]:
        """Estimate the remaining seconds: of all methods, None if the time of one is unknown, and of known ones."""
        guesses = [self._guess(one) for one in self._queue]
        known = sum(guess for guess in guesses if guess is not None)
        return None if None in guesses else known, known

    def _guess(self, method: ComparedMethod) -> float | None:
        return self._times.get(method.name, self._limit if method.ours else None)

    def _left_text(self) -> str:
        if not self._queue:
            return ""
        seconds, known = self._left()
        clock = f"{int(known // 60)}:{int(known % 60):02d}"
        if seconds is not None:
            return f", about {clock} left"
        unknown = list(dict.fromkeys(one.name for one in self._queue if self._guess(one) is None))
        return f", left: {', '.join(unknown)}" + (f" and {clock} for the rest" if known else "")

    def _spinner(self, words: str, *, hide: bool) -> contextlib.AbstractContextManager[Any]:
        if self._mode != "auto" or hide or not can_be_live(self._console):
            return contextlib.nullcontext()
        return self._console.status(Text(words))

    @cached_property
    def _console(self) -> Console:
        return Console(file=sys.stderr)

    def _print(self, line: str) -> None:
        if self._mode in ("auto", "plain"):
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def _event(self, event: str, **facts: Any) -> None:
        if self._mode == "json":
            write_event(event, **facts)

"""The methods that are compared: built from words, fitted, and asked for the hidden cells."""

from __future__ import annotations

__all__ = ["Answer", "Contender", "Question", "contenders", "default_methods"]

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcflow.benchmarks.methods import MethodSpec
from mcflow.data.frames import read_frame
from mcflow.data.schema import TableSchema
from mcflow.errors import ParameterError
from mcflow.typing import Array, BoolArray, FloatArray

#: The method that all others are measured by, and the one that is looked at.
REFERENCE, OURS = "mean", "mcflow"

#: Draws that are made for an interval at most, seconds that they may take, and draws at least.
MOST_DRAWS, DRAW_SECONDS, FEWEST_DRAWS = 60, 15.0, 15


@dataclass(frozen=True)
class Question:
    """A table with hidden cells, and what is known of them.

    Parameters
    ----------
    table : object
        With the cells gone.
    rows : object
        Those of its rows that have hidden cells.
    schema : TableSchema
        Of the whole table, whose codes are compared.
    places : ndarray of shape (n_cells,)
        The row of each hidden cell among `rows`.
    positions : ndarray of shape (n_cells,)
        Its column.
    level : float
        Of the intervals that are asked for.
    """

    table: Any
    rows: Any
    schema: TableSchema
    places: Array
    positions: Array
    level: float

    @property
    def unordered(self) -> BoolArray:
        """Which hidden cells are levels without an order, between which nothing lies."""
        kinds = np.array([column.kind for column in self.schema.columns])
        return np.isin(kinds[self.positions], ("boolean", "category"))

    def cells_in(self, filled: Any) -> FloatArray:
        """Return the codes of the hidden cells in a filled table, NaN where it has none."""
        frame = read_frame(filled)
        found = np.full(len(self.places), np.nan)
        for position in np.unique(self.positions):
            column, here = self.schema.columns[position], self.positions == position
            place = frame.names.index(column.name) if column.name in frame.names else int(position)
            found[here] = frame.column_codes(place, column, "missing")[self.places[here]]
        return found


@dataclass(frozen=True)
class Answer:
    """What a method said of the hidden cells.

    Parameters
    ----------
    filled : ndarray of shape (n_cells,)
        Codes.
    low, high : ndarray of shape (n_cells,) or None
        Ends of intervals, NaN for cells that have none.
    seconds : float
        Of the fit and the fill.
    cut_short : str
        Of a fit of mcflow that had to end because the time was up, how far it had come, in words.
    """

    filled: FloatArray
    low: FloatArray | None
    high: FloatArray | None
    seconds: float
    cut_short: str = ""


@dataclass(frozen=True)
class Contender:
    """A method that takes part.

    Parameters
    ----------
    name : str
        As it is shown: short where that is clear.
    spec : MethodSpec
        What it is.
    """

    name: str
    spec: MethodSpec

    @property
    def ours(self) -> bool:
        """Tell whether it is a preset of mcflow."""
        return self.spec.name.partition(":")[0] == OURS

    def build(self, seed: int, table: Mapping[str, Any], *, max_time: float | None, verbose: bool | str) -> Any:
        """Return the imputer, not fitted yet.

        Parameters
        ----------
        seed : int
            Its random_state.
        table : mapping
            What is known of the columns: kinds, roles, bounds, allowed, rules.
        max_time : float or None
            Seconds that a fit of mcflow may take.
        verbose : bool or str
            How mcflow shows its progress.

        Returns
        -------
        object
            With `fit` and `transform`.

        Raises
        ------
        ParameterError
            When there is no such method, preset or parameter.
        """
        given = {"keep_empty_features": True, **table}
        return self.spec.build_with(seed, given, {"max_time": max_time, "verbose": verbose})

    def answer(self, imputer: Any, question: Question, seed: int) -> Answer:
        """Fit on the table with hidden cells, and fill them.

        Parameters
        ----------
        imputer : object
            From `build`.
        question : Question
            The table and its hidden cells.
        seed : int
            Decides the draws.

        Returns
        -------
        Answer
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the table's owner should know was said when it was read
            start = time.perf_counter()
            imputer.fit(question.table)
            filled = question.cells_in(imputer.transform(question.rows))
            seconds = time.perf_counter() - start
            low, high = _ends(imputer, question, seed)
        return Answer(filled, low, high, seconds, _how_far(imputer) if self.ours else "")


def _how_far(imputer: Any) -> str:
    history = getattr(imputer, "history_", None)
    if history is None or history.ending != "max_time":
        return ""
    return f"{len(history.epochs)} of at most {imputer.settings_.train.max_epochs} epochs"


def _ends(imputer: Any, question: Question, seed: int) -> tuple[FloatArray | None, FloatArray | None]:
    """Return the ends of intervals: stated ones, or order statistics of draws where these are quick to have."""
    if hasattr(imputer, "interval"):
        low, high = imputer.interval(question.rows, question.level)
        return question.cells_in(low), question.cells_in(high)
    n_draws, place = _draws_for(question.level)
    if not hasattr(imputer, "draw") or n_draws > MOST_DRAWS:
        return None, None
    draws = _in_time(imputer.draw(question.rows, m=n_draws, random_state=seed), n_draws)
    if draws is None:
        return None, None
    ordered = np.sort([question.cells_in(table) for table in draws], axis=0)
    ordered[:, question.unordered] = np.nan
    return ordered[place - 1], ordered[n_draws - place]


def _draws_for(level: float) -> tuple[int, int]:
    """Return how many draws to make, and which of them in order is the lower end.

    The k-th smallest and largest of m draws hold one more from the same distribution with probability
    (m + 1 − 2k) / (m + 1).

    Examples
    --------
    >>> _draws_for(0.9), _draws_for(0.5)
    ((19, 1), (15, 4))
    """
    place = 1
    while round(2 * place / (1 - level)) - 1 < FEWEST_DRAWS:
        place += 1
    return round(2 * place / (1 - level)) - 1, place


def _in_time(tables: Iterator[Any], n_draws: int) -> Iterator[Any] | None:
    """Return all tables, or None when the first took so long that all would take too long."""
    start = time.perf_counter()
    first = next(tables)
    if (time.perf_counter() - start) * n_draws > DRAW_SECONDS:
        return None

    def whole() -> Iterator[Any]:
        yield first
        yield from tables

    return whole()


def default_methods(n_columns: int) -> tuple[str, ...]:
    """Return the methods to compare with when none are named: the mean, ridge regressions in a loop, and forests.

    Parameters
    ----------
    n_columns : int
        Of the table; many columns get smaller forests.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> default_methods(10)
    ('mean', 'mice(n_chains=5,n_rounds=5)', 'missforest(max_rounds=2,max_rows=4000,n_trees=50)')
    """
    n_trees, n_rows = np.clip(1500 // n_columns, 5, 50), np.clip(60_000 // n_columns, 500, 4000)
    return "mean", "mice(n_chains=5,n_rounds=5)", f"missforest(max_rounds=2,max_rows={n_rows},n_trees={n_trees})"


def contenders(methods: Sequence[str]) -> list[Contender]:
    """Return the methods that take part: the mean first, those that were named, and mcflow last.

    Parameters
    ----------
    methods : sequence of str
        Baselines by name, with parameters in brackets; `mcflow(...)` sets parameters of mcflow itself.

    Returns
    -------
    list of Contender

    Raises
    ------
    ParameterError
        When a word is not a method, or one stands twice.

    Examples
    --------
    >>> [one.name for one in contenders(["em", "mcflow:paper"])]
    ['mean', 'em', 'mcflow:paper', 'mcflow']
    """
    specs = [MethodSpec.parse(text) for text in methods]
    twice = {str(spec) for spec in specs if specs.count(spec) > 1}
    if twice:
        raise ParameterError(f"methods names {', '.join(sorted(twice))} more than once. Name each once.")
    ours = [spec for spec in specs if spec.name == OURS] or [MethodSpec(OURS)]
    if len(ours) > 1:
        raise ParameterError(f"methods names mcflow {len(ours)} times. Name it once, or a preset such as mcflow:paper.")
    others = [spec for spec in specs if spec not in ours]
    if MethodSpec(REFERENCE) not in others:
        others.insert(0, MethodSpec(REFERENCE))
    names = [spec.name for spec in others]
    found = [Contender(spec.name if names.count(spec.name) == 1 else str(spec), spec) for spec in others]
    return [*found, Contender(OURS, ours[0])]

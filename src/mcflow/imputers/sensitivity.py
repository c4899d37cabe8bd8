"""What an analysis would say if missing cells were not like the observed ones: delta adjustment and tipping points."""

from __future__ import annotations

__all__ = ["Sensitivity", "TippingPoint", "sensitivity"]

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from mcflow.errors import ParameterError, did_you_mean
from mcflow.imputers.moved_draws import MovedDraws
from mcflow.pool.display import as_frame, as_text
from mcflow.pool.fits import PooledFit, fit_pooled
from mcflow.pool.rules import PooledResult
from mcflow.typing import FloatArray, RandomState

if TYPE_CHECKING:
    from mcflow.imputers.uncertainty import UncertaintyMixin


@dataclass(frozen=True)
class TippingPoint:
    """How far the filled cells of a column have to be moved until a conclusion changes.

    Parameters
    ----------
    term : str
        Of the analysis.
    below, above : float or None
        The deltas nearest to 0 on both sides at which it changes; None where it does not within the grid.
    words : str
        The same as sentences; also what `str` gives.
    """

    term: str
    below: float | None
    above: float | None
    words: str

    @property
    def delta(self) -> float | None:
        """Return the one of both that is nearer to 0, None when there is none."""
        found = [side for side in (self.below, self.above) if side is not None]
        return min(found, key=abs) if found else None

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True, repr=False, eq=False)
class Sensitivity:
    """Draws, and an analysis of them, for a series of deltas.

    Parameters
    ----------
    column : object
        The column whose filled cells are moved.
    deltas : tuple of float
        In rising order; 0, no move, is one of them.
    results : mapping of float to PooledResult
        The pooled analysis at each delta; empty when none was given.
    level : float
        Of the intervals.
    moved : MovedDraws or None
        Where the tables come from.

    See Also
    --------
    sensitivity : Makes it.
    """

    column: Any
    deltas: tuple[float, ...]
    results: Mapping[float, PooledResult] = field(default_factory=dict)
    level: float = 0.95
    moved: MovedDraws | None = None

    def draws(self, delta: float) -> Iterator[Any]:
        """Return the completed tables at one delta.

        Parameters
        ----------
        delta : float
            Any finite number; it need not be among `deltas`.

        Returns
        -------
        iterator
            Of m tables of the same kind as the one that was given, made when they are asked for.
        """
        (checked,) = _checked_deltas(delta)
        if self.moved is None:
            raise ParameterError("These are results only. `imputer.sensitivity` gives them together with their draws.")
        return self.moved.tables(checked)

    def table(self) -> Any:
        """Return the terms at all deltas as a table.

        Returns
        -------
        pandas.DataFrame or pyarrow.Table
            Of pandas when it is installed. Columns: delta, term, estimate, std.error, df, p.value and both ends of the
            interval.

        Raises
        ------
        ParameterError
            When there was no analysis.
        """
        return as_frame(self._columns())

    def tipping_point(self, term: str, alpha: float = 0.05) -> TippingPoint:
        """Find how far filled cells have to be moved until the conclusion about a term changes.

        Parameters
        ----------
        term : str
            Of the analysis.
        alpha : float, default=0.05
            A term with a p value below it is told apart from 0.

        Returns
        -------
        TippingPoint

        Raises
        ------
        ParameterError
            When there was no analysis or it has no such term, or alpha is not between 0 and 1.

        Notes
        -----
        The conclusion at delta 0 is one of three: above 0, below 0, or not told apart from 0. The end of the interval
        of level 1 - alpha that decides it is interpolated linearly between the last delta of the grid at which the
        conclusion holds and the first at which it does not. What happens between two deltas at which it holds is not
        seen: take a finer grid.

        Examples
        --------
        >>> from mcflow.pool import pool
        >>> results = {delta: pool([1.0 + delta] * 2, [0.25] * 2, names=["age"]) for delta in (-1.0, 0.0, 1.0)}
        >>> print(Sensitivity("bmi", (-1.0, 0.0, 1.0), results).tipping_point("age"))
        age is above 0 at delta 0 (p = 0.0455). This changes when the filled cells of bmi are moved by -0.02; upwards it
        holds as far as 1.
        """
        results = self._analysed()
        if not 0 < alpha < 1:
            raise ParameterError(f"alpha is {alpha!r}, but has to be between 0 and 1, such as 0.05.")
        place = _place(term, results[0.0].names)
        ends = np.array([_ends(results[delta], place, alpha) for delta in self.deltas])
        start = self.deltas.index(0.0)
        below = _change(self.deltas[start::-1], ends[start::-1])
        above = _change(self.deltas[start:], ends[start:])
        words = self._words(term, ends[start], float(results[0.0].p_value[place]), (below, above))
        return TippingPoint(term, below, above, words)

    def _words(self, term: str, ends: FloatArray, p_value: float, sides: tuple[float | None, float | None]) -> str:
        side = "above 0" if ends[0] > 0 else "below 0" if ends[1] < 0 else "not told apart from 0"
        opening = f"{term} is {side} at delta 0 (p {'< 0.0001' if p_value < 1e-4 else f'= {p_value:.4f}'})."
        found = " or ".join(f"{delta:.3g}" for delta in sides if delta is not None)
        if not found:
            return f"{opening} This holds for all deltas from {self.deltas[0]:g} to {self.deltas[-1]:g}."
        text = f"{opening} This changes when the filled cells of {self.column} are moved by {found}"
        for way, delta, last in zip(("downwards", "upwards"), sides, (self.deltas[0], self.deltas[-1]), strict=True):
            if delta is None and last:
                text += f"; {way} it holds as far as {last:g}"
        return text + "."

    def _analysed(self) -> Mapping[float, PooledResult]:
        if not self.results:
            raise ParameterError("Nothing was analysed. Give analysis=, such as analysis='bmi ~ age'.")
        return self.results

    def _columns(self) -> dict[str, Any]:
        results = self._analysed()
        low, high = (f"{100 * end:g} %" for end in ((1 - self.level) / 2, (1 + self.level) / 2))
        parts = [(delta, results[delta]) for delta in self.deltas]
        return {
            "delta": np.repeat(self.deltas, [len(result.names) for _, result in parts]),
            "term": [name for _, result in parts for name in result.names],
            "estimate": np.concatenate([result.estimate for _, result in parts]),
            "std.error": np.concatenate([result.std_error for _, result in parts]),
            "df": np.concatenate([result.df for _, result in parts]),
            "p.value": np.concatenate([result.p_value for _, result in parts]),
            low: np.concatenate([result.interval[:, 0] for _, result in parts]),
            high: np.concatenate([result.interval[:, 1] for _, result in parts]),
        }

    def __str__(self) -> str:
        title = f"Filled cells of {self.column} moved by {', '.join(f'{delta:g}' for delta in self.deltas)}"
        if not self.results:
            return title
        columns = self._columns()
        return as_text(title, {"term": columns.pop("term")} | columns)

    def __repr__(self) -> str:
        return str(self)


def sensitivity(
    imputer: UncertaintyMixin,
    X: Any,
    column: Any,
    deltas: Any,
    *,
    analysis: Any = None,
    m: int = 20,
    random_state: RandomState = None,
    level: float = 0.95,
    row_ids: Any = None,
    **how: Any,
) -> Sensitivity:
    r"""Move the filled cells of a column and see what becomes of an analysis.

    Parameters
    ----------
    imputer : MCFlowImputer
        Fitted.
    X : array-like or data frame of shape (n_rows, n_columns)
        The same columns as at fit; the rows may be new.
    column : object
        Name of the column, its position for numpy.
    deltas : sequence of float
        By how much its filled cells are moved. Numbers in the column's own units, dates in days. Booleans, ordered
        levels and categories of two levels: what is added to the log-odds of each level against the one before it. 0
        is put among them.
    analysis : str, callable or scikit-learn estimator, optional
        What `mcflow.pool.fit_pooled` is to fit at each delta.
    m : int, default=20
        Tables to draw at each delta.
    random_state : int, Generator, RandomState or None
        Decides the draws. All deltas get the same random numbers.
    level : float, default=0.95
        Of the intervals.
    row_ids : array-like of shape (n_rows,), optional
        As in `draw`.
    **how : object
        Further arguments of `fit_pooled`, such as ``target`` or ``formula``.

    Returns
    -------
    Sensitivity

    Raises
    ------
    ParameterError
        When there is no such column, it is not filled or has more than two levels without an order; when deltas are
        missing or not finite.
    DataError
        When the columns are not those of the fit.

    Warns
    -----
    McflowWarning
        When the column has no missing cell, or when many moved cells come to a bound of the column.

    Notes
    -----
    Imputers take missing cells to be like observed ones in rows that are otherwise alike (missing at random), which the
    data cannot tell. A pattern-mixture model says how they differ: if :math:`f` is the imputer's distribution of a
    missing cell given the observed ones, the cell is drawn from :math:`f(x - \delta)`, and levels with the ranks
    :math:`j` from :math:`p_j e^{\delta j} / \sum_i p_i e^{\delta i}`. The other missing cells of the row are then drawn
    given the moved one.

    At delta 0 the column is, cell by cell, that of ``imputer.draw(X, m, random_state)``, and so is every row in which
    the column is observed. Other missing cells of a row in which it is missing are drawn anew, with the same
    distribution and other random numbers than in `draw`, the same for all deltas.

    Moved cells stop at the bounds of the column, by default its observed range; give ``bounds`` at fit to let them go
    on. Rules hold. In a column of whole numbers, a part of one is rounded up as often as it is large.

    References
    ----------
    R. J. A. Little, "Pattern-Mixture Models for Multivariate Incomplete Data", JASA 88, 1993. S. van Buuren, "Flexible
    Imputation of Missing Data", 2nd edition, 2018, section 3.8.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow import MCFlowImputer
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> rows[:50, 1] = np.nan
    >>> imputer = MCFlowImputer(max_epochs=4, bounds={1: (-9, 9)}, random_state=0).fit(rows)
    >>> def mean(table):
    ...     return {"mean": (table[:, 1].mean(), table[:, 1].var() / len(table))}
    >>> found = sensitivity(imputer, rows, 1, [-1, 1], analysis=mean, m=5, random_state=0)
    >>> [round(float(found.results[delta].estimate[0] - found.results[0].estimate[0]), 6) for delta in found.deltas]
    [-0.25, 0.0, 0.25]
    """
    if not 0 < level < 1:
        raise ParameterError(f"level is {level!r}, but has to be between 0 and 1, such as 0.95.")
    if how and analysis is None:
        raise ParameterError(f"{', '.join(how)}: further arguments are those of an analysis. Give analysis= as well.")
    grid = tuple(sorted({0.0, *_checked_deltas(deltas)}))
    moved = MovedDraws(imputer, X, column, m=m, random_state=random_state, row_ids=row_ids)
    results = {}
    if analysis is not None:
        for delta in grid:
            results[delta] = _terms_only(fit_pooled(analysis, moved.tables(delta), level=level, **how))
    return Sensitivity(column, grid, results, float(level), moved)


def _checked_deltas(deltas: Any) -> list[float]:
    wrong = f"deltas is {deltas!r}, but has to be finite numbers, such as [-10, -5, 0, 5, 10]."
    try:
        found = np.atleast_1d(np.asarray(deltas, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ParameterError(wrong) from error
    if found.ndim > 1 or not found.size or not np.isfinite(found).all():
        raise ParameterError(wrong)
    return [float(delta) + 0.0 for delta in found]  # no negative zero


def _terms_only(fit: PooledFit) -> PooledResult:
    """Return a pooled fit without its models, of which there would be many."""
    if fit.reason:
        raise ParameterError(fit.reason)
    return PooledResult(**{part.name: getattr(fit, part.name) for part in fields(PooledResult)})


def _place(term: str, names: tuple[str, ...]) -> int:
    if term not in names:
        raise ParameterError(f"There is no term {term!r}. There are {', '.join(names)}.{did_you_mean(term, names)}")
    return names.index(term)


def _ends(result: PooledResult, place: int, alpha: float) -> tuple[float, float]:
    """Return the ends of the interval of level 1 - alpha of a term."""
    half = stats.t.isf(alpha / 2, result.df[place]) * result.std_error[place]
    return float(result.estimate[place] - half), float(result.estimate[place] + half)


def _change(deltas: tuple[float, ...], ends: FloatArray) -> float | None:
    """Return where, from the first delta on, the conclusion is another; ends are of shape (n_deltas, 2)."""
    above, below = ends[:, 0] > 0, ends[:, 1] < 0
    other = np.flatnonzero((above != above[0]) | (below != below[0]))
    if not len(other):
        return None
    last = int(other[0])
    # What decides is an end that is lost, or one that is won.
    end = ends[:, 0] if above[0] != above[last] else ends[:, 1]
    before, after = end[last - 1], end[last]
    share = before / (before - after)
    return float(deltas[last - 1] + share * (deltas[last] - deltas[last - 1]))

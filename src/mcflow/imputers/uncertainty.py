"""Draws, quantiles and intervals of filled cells."""

from __future__ import annotations

__all__ = ["UncertaintyMixin", "warn_of_equal_rows"]

import itertools
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mcflow.columns.frames import read_where
from mcflow.config import Interval, check_parameter
from mcflow.errors import McflowWarning, ParameterError
from mcflow.imputers.base import TableImputer
from mcflow.random import checked_ids, hash_rows, seed_from
from mcflow.typing import FloatArray, RandomState, TableT

if TYPE_CHECKING:
    from mcflow.imputers.models import TableModel
    from mcflow.imputers.sensitivity import Sensitivity
    from mcflow.paper.chain import ChainTrace

EQUAL_SHARE = 0.01  # fraction of the incomplete rows that may be equal to others before a warning is issued
EQUAL_ROWS = 10  # number of incomplete rows that may be equal to others before a warning is issued


class UncertaintyMixin(TableImputer):
    """Mixin that implements draws, quantiles, intervals and sensitivity analysis for imputers with a `TableModel`."""

    model_: TableModel
    other_models_: list[TableModel]

    def draw(
        self, X: TableT, m: int = 20, random_state: RandomState = None, *, row_ids: Any = None, where: Any = None
    ) -> Iterator[TableT]:
        """Draw completed tables from the distribution of the missing cells given the observed ones.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit; the rows may be new.
        m : int, default=20
            Number of tables to draw.
        random_state : int, Generator, RandomState or None
            Seed of the draws. The draws of a row depend on the seed and on the row only, not on the order or the
            number of rows.
        row_ids : array-like of shape (n_rows,), optional
            An integer that identifies each row. Without it, rows with equal cells get equal draws.
        where : array-like or data frame of bool, optional
            Missing cells to fill, as for `transform`. The others stay missing in all tables.

        Returns
        -------
        iterator
            m tables of the same type as X, generated one at a time. Only missing cells differ. The missing cells of a
            row are drawn jointly.

        Raises
        ------
        ParameterError
            If m is not a positive integer, row_ids has another length, or the draws need the flow G and the imputer was
            fitted with ``density=False``.
        DataError
            If the columns differ from those of the fit.

        Examples
        --------
        >>> import numpy as np
        >>> from mcflow import MCFlowImputer
        >>> rows = np.random.default_rng(0).normal(size=(200, 3))
        >>> rows[::7, 1] = np.nan
        >>> imputer = MCFlowImputer(max_epochs=4, random_state=0).fit(rows)
        >>> means = [table[:, 1].mean() for table in imputer.draw(rows, m=5, random_state=0)]
        >>> len(set(means))
        5
        """
        check_is_fitted(self)
        check_parameter("m", m, Interval(int, 1))
        frame, values = self._read(X)
        ids = None if row_ids is None else checked_ids("row_ids", row_ids, len(values))
        if ids is None:
            warn_of_equal_rows(values)
        wanted = None if where is None else read_where(where, frame)
        series = self._series(values, int(m), seed_from(random_state), ids)
        return self._tables(frame, values, series, where=wanted)

    def _series(self, values: FloatArray, m: int, seed: int, ids: FloatArray | None) -> Iterator[FloatArray]:
        """Yield draws of the columns that vary, from the models in turn."""
        models = [self.model_, *self.other_models_]
        given = self._seen_by_model(values)
        seeds = [seed, *(seed_from(np.random.default_rng([seed, k])) for k in range(1, len(models)))]
        counts = [len(range(k, m, len(models))) for k in range(len(models))]
        asked = zip(models, counts, seeds, strict=True)
        turns = [model.draws(given, count, own_seed, ids) for model, count, own_seed in asked]
        for k in range(m):
            yield next(turns[k % len(models)])

    def quantile(self, X: Any, q: Any) -> Any:
        """Fill missing cells with quantiles of their predictive distributions.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.
        q : float or sequence of float
            Probabilities from 0 to 1.

        Returns
        -------
        table or list of tables
            One table of the same type as X per probability. Cells of unordered categories stay missing; use
            `predict_proba` for them.

        Raises
        ------
        ParameterError
            If a probability is not between 0 and 1.

        Notes
        -----
        With ``calibrate=True``, quantiles are corrected column by column on validation cells (split conformal
        prediction): at most a fraction q of new, exchangeable cells is below the quantile (above it for q > 0.5),
        whatever the accuracy of the model and the number of validation cells.
        """
        check_is_fitted(self)
        asked = np.asarray(q, dtype=np.float64)
        if asked.ndim > 1 or not asked.size or not ((asked >= 0) & (asked <= 1)).all():
            raise ParameterError(f"q is {q!r}, but has to be a number from 0 to 1, or several of them.")
        tables = self._quantiles(X, np.atleast_1d(asked))
        return tables if asked.ndim else tables[0]

    def interval(self, X: TableT, level: float = 0.9) -> tuple[TableT, TableT]:
        """Return prediction intervals of the missing cells.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.
        level : float, default=0.9
            Probability of the interval, between 0 and 1; the rest is split equally between both tails.

        Returns
        -------
        low, high : table
            Tables of the same type as X. Observed cells are the same in both. Cells of unordered categories stay
            missing.

        Raises
        ------
        ParameterError
            If the level is not between 0 and 1.

        Examples
        --------
        >>> import numpy as np
        >>> from mcflow import MCFlowImputer
        >>> rows = np.random.default_rng(0).normal(size=(200, 2))
        >>> rows[::7, 1] = np.nan
        >>> low, high = MCFlowImputer(max_epochs=4, random_state=0).fit(rows).interval(rows)
        >>> bool((low <= high).all())
        True
        """
        check_is_fitted(self)
        check_parameter("level", level, Interval(float, 0, 1, low_open=True))
        if level >= 1:
            raise ParameterError(f"level is {level!r}, but has to be below 1; 0.9 is usual.")
        low, high = self._quantiles(X, np.array([(1 - level) / 2, (1 + level) / 2]))
        return low, high

    def sensitivity(self, X: Any, column: Any, deltas: Any, **how: Any) -> Sensitivity:
        """Shift the filled cells of a column by several amounts and repeat an analysis (delta adjustment).

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.
        column : object
            Name of the column, or its position for numpy.
        deltas : sequence of float
            Shifts of the filled cells: in the units of a numeric column, in days for dates, and in log-odds of each
            category against the one before it for ordered or binary columns.
        **how : object
            ``analysis``, ``m``, ``random_state``, ``level``, ``row_ids``, and arguments of `mcflow.pool.fit_pooled`
            such as ``target`` or ``formula``.

        Returns
        -------
        Sensitivity
            Draws and, with an analysis, pooled results at every delta, and the tipping points of its terms.
        """
        from mcflow.imputers.sensitivity import sensitivity

        check_is_fitted(self)
        return sensitivity(self, X, column, deltas, **how)

    def trace(self, X: Any, n_steps: int = 300, random_state: RandomState = None) -> ChainTrace:
        """Record the Markov chains of some rows from their start, to inspect convergence and mixing.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            A few incomplete rows, with the same columns as at fit.
        n_steps : int, default=300
            Number of steps to record.
        random_state : int, Generator, RandomState or None
            Seed of the chains, as for `draw`.

        Returns
        -------
        ChainTrace
            The input of `mcflow.report.plot_trace`.

        Raises
        ------
        ParameterError
            If the preset draws without Markov chains, as "default" does.
        """
        check_is_fitted(self)
        check_parameter("n_steps", n_steps, Interval(int, 1))
        if not hasattr(self.model_, "trace"):
            raise ParameterError(
                "This preset draws without Markov chains, so there is no trace; preset='paper' has one."
            )
        _, values = self._read(X)
        found: ChainTrace = self.model_.trace(self._seen_by_model(values), seed_from(random_state), int(n_steps))
        names = [self.schema_.columns[p].name for p in self.schema_.model]
        return found._replace(names=tuple(f"row {row}, {names[column]}" for row, column in found.cells))

    def _quantiles(self, X: Any, probabilities: FloatArray) -> list[Any]:
        frame, values = self._read(X)
        series = list(self.model_.quantiles(self._seen_by_model(values), probabilities))
        if len(series) > 1:  # two calibrated quantiles near the median may have crossed
            order = np.argsort(probabilities, kind="stable")
            for before, after in itertools.pairwise(order):
                series[after] = np.fmax(series[before], series[after])
        return list(self._tables(frame, values, series, rules=False))


def warn_of_equal_rows(values: FloatArray) -> None:
    """Warn if many incomplete rows are equal, as they get equal draws."""
    incomplete = values[np.isnan(values).any(axis=1)]
    if not len(incomplete):
        return
    n_equal = len(incomplete) - len(np.unique(hash_rows(incomplete, 0)))
    if n_equal > max(EQUAL_ROWS, EQUAL_SHARE * len(incomplete)):
        warnings.warn(
            f"{n_equal} of {len(incomplete)} incomplete rows are equal to another one and get the same draws. "
            "Pass row_ids= (--row-ids), an integer per row, to draw them independently.",
            McflowWarning,
            stacklevel=3,
        )

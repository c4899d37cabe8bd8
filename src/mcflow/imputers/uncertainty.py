"""What is not known: draws, quantiles and intervals of the cells that are filled."""

from __future__ import annotations

__all__ = ["UncertaintyMixin"]

import itertools
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mcflow.config import Interval, check_parameter
from mcflow.errors import McflowWarning, ParameterError
from mcflow.imputers.base import TableImputer
from mcflow.random import checked_ids, hash_rows, seed_from
from mcflow.typing import FloatArray, RandomState

if TYPE_CHECKING:
    from mcflow.imputers.masked_model import MaskedModel
    from mcflow.imputers.model import FlowModel
    from mcflow.imputers.sensitivity import Sensitivity
    from mcflow.training.chain import ChainTrace

#: Share of the rows with holes that may be equal to others before a warning is given, and their number.
EQUAL_SHARE, EQUAL_ROWS = 0.01, 10


class UncertaintyMixin(TableImputer):
    """Give an imputer with a model of the whole conditional distribution `draw`, `quantile` and `interval`."""

    model_: FlowModel | MaskedModel
    other_models_: list[FlowModel | MaskedModel]

    def draw(self, X: Any, m: int = 20, random_state: RandomState = None, *, row_ids: Any = None) -> Iterator[Any]:
        """Draw completed tables from the distribution of the missing cells given the observed ones.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit; the rows may be new.
        m : int, default=20
            Tables to draw.
        random_state : int, Generator, RandomState or None
            Decides the draws. A row's draws depend on it and on the row alone, so it does not matter how rows are
            ordered, split or distributed.
        row_ids : array-like of shape (n_rows,), optional
            A whole number for each row that goes with it wherever it is filled. Rows that are equal cell by cell get
            equal draws without it.

        Returns
        -------
        iterator
            Of m tables of the same kind as X, in which only missing cells differ. The cells of a row are drawn
            together, so that they go together as they do in the data. Tables are made when they are asked for.

        Raises
        ------
        ParameterError
            When m is not a whole number of at least 1, or row_ids has another length.
        DataError
            When the columns are not those of the fit.

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
            _warn_of_equal_rows(values)
        return self._tables(frame, values, self._series(values, int(m), seed_from(random_state), ids))

    def _series(self, values: FloatArray, m: int, seed: int, ids: FloatArray | None) -> Iterator[FloatArray]:
        """Yield draws of the columns that vary; the models take turns."""
        models = [self.model_, *self.other_models_]
        given = self._seen_by_model(values)
        seeds = [seed, *(seed_from(np.random.default_rng([seed, k])) for k in range(1, len(models)))]
        counts = [len(range(k, m, len(models))) for k in range(len(models))]
        asked = zip(models, counts, seeds, strict=True)
        turns = [model.draws(given, count, own_seed, ids) for model, count, own_seed in asked]
        for k in range(m):
            yield next(turns[k % len(models)])

    def quantile(self, X: Any, q: Any) -> Any:
        """Fill the holes with quantiles of what they may be.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.
        q : float or sequence of float
            Probabilities from 0 to 1.

        Returns
        -------
        table or list of tables
            Of the same kind as X, one for each probability. Cells of levels without an order stay missing; see
            `predict_proba` for those.

        Raises
        ------
        ParameterError
            When a probability is not between 0 and 1.

        Notes
        -----
        With ``calibrate=True``, the stated quantiles are moved by what cells that were held out of the fit said of
        them, column by column: of new cells like those at most a share q is below the quantile (above it from one half
        on), however good or bad the model is, and however few cells there were.
        """
        check_is_fitted(self)
        asked = np.asarray(q, dtype=np.float64)
        if asked.ndim > 1 or not asked.size or not ((asked >= 0) & (asked <= 1)).all():
            raise ParameterError(f"q is {q!r}, but has to be a number from 0 to 1, or several of them.")
        tables = self._quantiles(X, np.atleast_1d(asked))
        return tables if asked.ndim else tables[0]

    def interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Return two tables between which a share of the missing cells lies.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.
        level : float, default=0.9
            The share, above 0 and below 1; as much is left out below as above.

        Returns
        -------
        low, high : table
            Of the same kind as X. Observed cells are the same in both. Cells of levels without an order stay missing.

        Raises
        ------
        ParameterError
            When the level is not between 0 and 1.

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
        """Move the filled cells of a column by some amounts, and see what becomes of an analysis.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.
        column : object
            Name of the column, its position for numpy.
        deltas : sequence of float
            By how much its filled cells are moved.
        **how : object
            Those of `mcflow.imputers.sensitivity.sensitivity`: ``analysis``, ``m``, ``random_state``, ``level``,
            ``row_ids``, and arguments of `mcflow.pool.fit_pooled` such as ``target`` or ``formula``.

        Returns
        -------
        Sensitivity
            Draws and, with an analysis, pooled results for every delta, and the tipping point of a term.
        """
        from mcflow.imputers.sensitivity import sensitivity

        check_is_fitted(self)
        return sensitivity(self, X, column, deltas, **how)

    def trace(self, X: Any, n_steps: int = 300, random_state: RandomState = None) -> ChainTrace:
        """Follow the Monte-Carlo chains of some rows from their start, for a look at how they mix.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            A few rows with holes, with the same columns as at fit.
        n_steps : int, default=300
            Moves to follow.
        random_state : int, Generator, RandomState or None
            As for `draw`, whose chains these are.

        Returns
        -------
        ChainTrace
            For `mcflow.report.plot_trace`.

        Raises
        ------
        ParameterError
            When the preset draws without a chain, as "default" does.
        """
        check_is_fitted(self)
        check_parameter("n_steps", n_steps, Interval(int, 1))
        if not hasattr(self.model_, "trace"):
            raise ParameterError(
                "This preset draws without a chain, so there is none to follow; preset='paper' has one."
            )
        _, values = self._read(X)
        found: ChainTrace = self.model_.trace(self._seen_by_model(values), seed_from(random_state), int(n_steps))
        names = [self.schema_.columns[p].name for p in self.schema_.model]
        return found._replace(names=tuple(f"row {row}, {names[column]}" for row, column in found.cells))

    def _quantiles(self, X: Any, probabilities: FloatArray) -> list[Any]:
        frame, values = self._read(X)
        series = list(self.model_.quantiles(self._seen_by_model(values), probabilities))
        if len(series) > 1:  # two ends that meet in the middle may have passed each other
            order = np.argsort(probabilities, kind="stable")
            for before, after in itertools.pairwise(order):
                series[after] = np.fmax(series[before], series[after])
        return list(self._tables(frame, values, series, rules=False))


def _warn_of_equal_rows(values: FloatArray) -> None:
    holed = values[np.isnan(values).any(axis=1)]
    if not len(holed):
        return
    n_equal = len(holed) - len(np.unique(hash_rows(holed, 0)))
    if n_equal > max(EQUAL_ROWS, EQUAL_SHARE * len(holed)):
        warnings.warn(
            f"{n_equal} of {len(holed)} rows with holes are equal to another one cell by cell, and get the same draws. "
            "Give row_ids= (--row-ids), a number for each row, to draw them apart.",
            McflowWarning,
            stacklevel=3,
        )

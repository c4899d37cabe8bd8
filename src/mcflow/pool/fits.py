"""Fit a model to every completed table, and pool the fits."""

from __future__ import annotations

__all__ = ["PooledFit", "fit_pooled"]

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from mcflow.errors import DataError, ParameterError
from mcflow.pool.analyses import Analysis, Called, Coded, Formula, is_table
from mcflow.pool.estimates import read_estimates
from mcflow.pool.predictions import pool_predictions
from mcflow.pool.regressions import Reading
from mcflow.pool.rules import PooledResult, WaldTest, pool_estimates, warn_of_one


@dataclass(frozen=True, repr=False, eq=False)
class PooledFit(PooledResult):
    """What the models of m completed tables say together, and what they predict.

    Parameters
    ----------
    results : tuple
        The m fitted models, or what the analysis returned.
    analysis : Analysis
        How they were made.
    reason : str
        Why there are no terms, when the models are pooled for predictions only.

    See Also
    --------
    PooledResult : The other fields.
    """

    results: tuple[Any, ...] = ()
    analysis: Analysis | None = None
    reason: str = ""

    @property
    def classes(self) -> Any:
        """Return the classes, in the order of the columns of predicted probabilities; None for a regression."""
        return getattr(self.results[0], "classes_", None)

    def predict(self, X: Any, *, return_std: bool = False) -> Any:
        """Average what the models predict.

        Parameters
        ----------
        X : array-like or data frame, or iterable of m of them
            One table, which all models are given; or m completed draws of the same rows, one for each model.
        return_std : bool, default=False
            Also return the standard deviation between the models.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_classes)
            Probabilities of a classifier's classes, in the order of `classes`.
        std : ndarray
            When asked for. It is what the missing cells bring, without the noise of an outcome.

        Raises
        ------
        DataError
            When there are not as many draws as models, or a cell is missing.
        ParameterError
            When the models cannot predict.
        """
        tables = _each(X, len(self.results))
        return pool_predictions(self._predictions(tables), return_std=return_std)

    def _predictions(self, tables: Iterator[Any]) -> Iterator[Any]:
        assert self.analysis is not None
        for model, table in zip(self.results, tables, strict=True):
            yield self.analysis.predict(model, table)

    def table(self) -> Any:
        """Return the terms as a table; see `PooledResult.table`.

        Raises
        ------
        ParameterError
            When the models are pooled for predictions only.
        """
        self._need_terms()
        return super().table()

    def wald(self, terms: Sequence[str] | None = None, value: Any = 0.0) -> WaldTest:
        """Test several terms together; see `PooledResult.wald`."""
        self._need_terms()
        return super().wald(terms, value)

    def _need_terms(self) -> None:
        if self.reason:
            raise ParameterError(self.reason)

    def __str__(self) -> str:
        return f"Pooled over {self.m} tables. {self.reason}" if self.reason else super().__str__()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<p>{self}</p>" if self.reason else super()._repr_html_()


def fit_pooled(
    estimator: Any,
    draws: Iterable[Any],
    *,
    formula: str | None = None,
    target: Any = None,
    features: Sequence[Any] | None = None,
    df_complete: float | Literal["residual"] | None = "residual",
    level: float = 0.95,
    **options: Any,
) -> PooledFit:
    """Fit a model to every completed table and pool the fits by Rubin's rules.

    Parameters
    ----------
    estimator : str, callable or scikit-learn estimator
        A formula for least squares; a function of `statsmodels.formula.api`, with ``formula``; a function that takes
        a completed table and returns results of statsmodels, a pair (estimates, variances or covariance), a dict
        ``{name: (estimate, variance)}`` or a fitted scikit-learn model; or a scikit-learn estimator, with ``target``.
    draws : iterable of tables
        Such as ``imputer.draw(X, m=20)``: numpy, pandas, polars or pyarrow. They are read one after the other.
    formula : str, optional
        Such as ``"bmi ~ age + sex"``. Columns of numpy are called x0, x1 and so on.
    target : object, optional
        Name of the outcome, its position for numpy.
    features : sequence, optional
        Names of the other columns of the model, by default all. Levels become terms against the first of them:
        ``sex[T.male]``.
    df_complete : float, "residual" or None, default="residual"
        Degrees of freedom of the analysis if no cell were missing. By default what the analyses say, rows less
        coefficients; None is infinite.
    level : float, default=0.95
        Of the intervals.
    **options : object
        Further arguments of a formula's model, such as ``family``.

    Returns
    -------
    PooledFit
        The table of terms, the m models and their predictions.

    Raises
    ------
    ParameterError
        When the estimator cannot be used in this way, or there is no such column.
    DataError
        When the tables do not give the same terms, have missing cells, or a model cannot be fitted to one of them.
    MissingExtraError
        When a formula is given and statsmodels is not installed.

    Warns
    -----
    McflowWarning
        When there is one table only.

    See Also
    --------
    pool : Rubin's rules for estimates from elsewhere.

    Notes
    -----
    `LinearRegression` and a `LogisticRegression` without a penalty (``C=np.inf``) have classical standard errors. Other
    estimators are pooled for predictions only. A `Pipeline` gets the columns as they are, any other estimator gets
    levels as zeros and ones.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from mcflow.baselines import make
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(200, 2)) @ [[1.0, 2.0], [0.0, 1.0]]
    >>> rows[rng.random(200) < 0.3, 1] = np.nan
    >>> draws = make("em", random_state=0).fit(rows).draw(rows, m=10, random_state=0)
    >>> fit = fit_pooled(LinearRegression(), draws, target=1)
    >>> fit.names, fit.m, bool(abs(fit.estimate[1] - 2) < 0.3)
    (('Intercept', 'x0'), 10, True)
    >>> fit.predict(np.array([[1.0, np.nan]])).round(0)
    array([2.])
    """
    analysis = _analysis(estimator, formula, target, features, options)
    models, readings = [], []
    for number, table in enumerate(_tables(draws), 1):
        try:
            model = analysis.fit(table)
            readings.append(analysis.read(model, table))
        except DataError as error:
            raise DataError(f"Table {number}: {error}") from error
        models.append(model)
    if not models:
        raise DataError("There are no completed tables. Give some, such as imputer.draw(X, m=20).")
    _check_classes(models)
    reasons = [reading for reading in readings if isinstance(reading, str)]
    warn_of_one(len(models))
    if reasons:
        return _without_terms(models, analysis, reasons[0], level)
    return _with_terms(models, analysis, [r for r in readings if isinstance(r, Reading)], df_complete, level)


def _analysis(
    estimator: Any, formula: str | None, target: Any, features: Sequence[Any] | None, options: dict[str, Any]
) -> Analysis:
    """Return how the tables are to be analysed."""
    model = hasattr(estimator, "fit") and hasattr(estimator, "get_params") and not isinstance(estimator, type)
    if formula is not None or isinstance(estimator, str):
        if formula is not None and (model or not callable(estimator)):
            raise ParameterError(
                f"A formula needs a function of statsmodels.formula.api, not {estimator!r}. "
                'For least squares give the formula alone: fit_pooled("y ~ x", draws).'
            )
        return Formula(estimator, None, options) if formula is None else Formula(formula, estimator, options)
    if options:
        raise ParameterError(f"{', '.join(options)}: further arguments are those of a formula's model.")
    if model:
        return Coded(estimator, target, features)
    if not callable(estimator) or isinstance(estimator, type):
        raise ParameterError(
            f"The estimator is {estimator!r}. Give a formula, a function of a table, or a scikit-learn estimator such "
            "as LinearRegression()."
        )
    return Called(estimator, target, features)


def _tables(draws: Any) -> Iterator[Any]:
    if is_table(draws):
        raise ParameterError(
            "draws is one table. Give several completed ones, such as imputer.draw(X, m=20); for a single one write "
            "[table]."
        )
    if isinstance(draws, str) or not isinstance(draws, Iterable):
        raise ParameterError(f"draws is {draws!r}. Give completed tables, such as imputer.draw(X, m=20).")
    return iter(draws)


def _check_classes(models: Sequence[Any]) -> None:
    first = getattr(models[0], "classes_", None)
    for number, model in enumerate(models, 1):
        if first is not None and not np.array_equal(first, model.classes_):
            raise DataError(
                f"Table 1 has the classes {list(first)} and table {number} {list(model.classes_)}. Every table has to "
                "have the same; join rare ones before the imputation."
            )


def _with_terms(
    models: list[Any],
    analysis: Analysis,
    readings: list[Reading],
    df_complete: float | Literal["residual"] | None,
    level: float,
) -> PooledFit:
    names = readings[0].names
    for number, reading in enumerate(readings, 1):
        if reading.names != names:
            raise DataError(
                f"Table 1 gives the terms {', '.join(names)}, and table {number} {', '.join(reading.names)}. Every "
                "table has to give the same; join rare levels before the imputation."
            )
    given = read_estimates([r.values for r in readings], [r.spread for r in readings], names)
    known = [reading.df for reading in readings if reading.df is not None]
    df = (min(known) if known else None) if df_complete == "residual" else df_complete
    pooled = pool_estimates(given, df_complete=df, level=level)
    own = {field.name: getattr(pooled, field.name) for field in fields(PooledResult)}
    return PooledFit(**own, results=tuple(models), analysis=analysis)


def _without_terms(models: list[Any], analysis: Analysis, reason: str, level: float) -> PooledFit:
    none = np.empty(0)
    return PooledFit(
        names=(),
        m=len(models),
        estimate=none,
        within=none,
        between=none,
        total=none,
        df=none,
        df_complete=np.inf,
        riv=none,
        lambda_=none,
        fmi=none,
        level=level,
        results=tuple(models),
        analysis=analysis,
        reason=reason,
    )


def _each(given: Any, m: int) -> Iterator[Any]:
    """Return a table for each of m models: the same for all, or one draw for each."""
    several = isinstance(given, Iterator) or (isinstance(given, list | tuple) and given and is_table(given[0]))
    if not several and not (isinstance(given, np.ndarray) and given.ndim == 3):
        yield from [given] * m
        return
    count = 0
    for count, table in enumerate(given, 1):
        if count > m:
            break
        yield table
    if count != m:
        raise DataError(
            f"There are {m} models and {'more' if count > m else count} draws. Give one draw for each model."
        )

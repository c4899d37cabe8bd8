"""Pooled model fits and predictions over completed tables."""

from __future__ import annotations

__all__ = ["PooledFit", "fit_pooled", "pool_predictions"]

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, overload

import numpy as np

from mcflow.config import Options, check_parameter
from mcflow.errors import DataError, ParameterError
from mcflow.pool import rules
from mcflow.pool.analyses import Analysis, Coefficients, EstimatorAnalysis, FormulaAnalysis, FunctionAnalysis, is_table
from mcflow.pool.rules import Estimates, PooledResult, WaldTest
from mcflow.typing import FloatArray


@dataclass(frozen=True, repr=False, eq=False)
class PooledFit(PooledResult):
    """Pooled fit of one model per completed table, with pooled predictions; see `PooledResult` for the other fields."""

    results: tuple[Any, ...] = ()  #: The m fitted models, or the results of the analysis function.
    analysis: Analysis | None = None  #: The analysis of one table.
    reason: str = ""  #: Why there are no pooled terms, if the models are pooled for predictions only.
    coefficients: tuple[Coefficients, ...] = ()  #: The terms of every model.

    @property
    def classes(self) -> Any:
        """Classes in the order of the columns of predicted probabilities; None for a regression."""
        return getattr(self.results[0], "classes_", None)

    def predict(self, X: Any, *, return_std: bool = False) -> Any:
        """Average the predictions of the models.

        Parameters
        ----------
        X : array-like or data frame, or iterable of m of them
            One table for all models, or m completed draws of the same rows, one per model.
        return_std : bool, default=False
            Whether to return the standard deviation between the models as well.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_classes)
            Mean predictions; for a classifier, probabilities in the order of `classes`.
        std : ndarray
            Standard deviation between the models, if `return_std`. It measures the uncertainty due to the missing
            cells and does not include the noise of the outcome.

        Raises
        ------
        DataError
            When the numbers of draws and models differ, or a cell is missing.
        ParameterError
            When the models cannot predict.
        """
        assert self.analysis is not None
        pairs = zip(self.results, _each(X, len(self.results)), strict=True)
        return pool_predictions((self.analysis.predict(model, table) for model, table in pairs), return_std=return_std)

    def compare(self, smaller: PooledFit, method: str = "D1") -> WaldTest:
        """Test whether the terms that a nested model lacks are all 0.

        Parameters
        ----------
        smaller : PooledFit
            A fit of fewer terms to the same completed tables.
        method : {"D1", "D2", "D3"}, default="D1"
            "D1" is the Wald test of the pooled terms; "D2" pools the Wald statistics of the tables; "D3" pools
            likelihood ratios and needs models of statsmodels.

        Returns
        -------
        WaldTest
            Statistic, degrees of freedom and p value.

        Raises
        ------
        ParameterError
            If the models are not nested, were fitted to different numbers of tables, or have no likelihood.

        Notes
        -----
        D1 is the best choice for most analyses. D2 loses power with few tables. D3 is invariant to transformations of
        the parameters.

        References
        ----------
        S. van Buuren, "Flexible Imputation of Missing Data", 2018, section 5.3.
        """
        self._need_terms()
        check_parameter("method", method, Options(("D1", "D2", "D3")))
        if not isinstance(smaller, PooledFit):
            raise ParameterError(f"smaller is {smaller!r}, but has to be the result of fit_pooled.")
        extra = [name for name in self.names if name not in smaller.names]
        unknown = [name for name in smaller.names if name not in self.names]
        if unknown or not extra or smaller.m != self.m:
            raise ParameterError(
                f"The models are not nested: this one has {len(extra)} terms more, lacks {unknown or 'none'}, and they "
                f"were fitted to {self.m} and {smaller.m} tables. Fit both to the same draws, kept in a list."
            )
        if method == "D1" or self.m == 1:
            return self.wald(extra)
        if method == "D2":
            return _pooled_wald_statistics(self.coefficients, extra)
        if not all(hasattr(one, "llf") and hasattr(one, "model") for one in (*self.results, *smaller.results)):
            raise ParameterError("D3 needs likelihoods: fit both models with a formula, or use D1 or D2.")
        return _pooled_likelihood_ratio(self.results, smaller.results, extra)

    def _need_terms(self) -> None:
        if self.reason:
            raise ParameterError(self.reason)

    def _columns(self) -> dict[str, Any]:
        self._need_terms()
        return super()._columns()

    def _covariances(self) -> tuple[FloatArray, FloatArray]:
        self._need_terms()
        return super()._covariances()

    def __str__(self) -> str:
        return f"Pooled over {self.m} tables. {self.reason}" if self.reason else super().__str__()

    def _repr_html_(self) -> str:
        return f"<p>{self}</p>" if self.reason else super()._repr_html_()


def _pooled_wald_statistics(coefficients: Sequence[Coefficients], terms: Sequence[str]) -> WaldTest:
    r"""Pool the Wald statistics of the tables, by Li, Meng, Raghunathan and Rubin (1991).

    With the statistics :math:`d_j` of m tables, :math:`r = (1 + 1/m) \operatorname{var}(\sqrt{d_j})` and

    .. math:: D_2 = \frac{\bar d / k - r (m + 1) / (m - 1)}{1 + r},\quad \nu = k^{-3/m} (m - 1) (1 + 1/r)^2.
    """
    m, k, distances = len(coefficients), len(terms), []
    for found in coefficients:
        if found.variances.ndim < 2:
            raise ParameterError("The tests of nested models need covariances, but the analysis gives variances only.")
        places = [found.names.index(term) for term in terms]
        values = found.values[places]
        distances.append(values @ np.linalg.solve(found.variances[np.ix_(places, places)], values))
    riv = float((1 + 1 / m) * np.var(np.sqrt(distances), ddof=1))
    statistic = float((np.mean(distances) / k - riv * (m + 1) / (m - 1)) / (1 + riv))
    df = k ** (-3 / m) * (m - 1) * (1 + 1 / riv) ** 2 if riv > 0 else np.inf
    return rules.f_test(terms, max(statistic, 0.0), float(df), riv)


def _pooled_likelihood_ratio(larger: Sequence[Any], smaller: Sequence[Any], terms: Sequence[str]) -> WaldTest:
    r"""Pool likelihood ratios, by Meng and Rubin (1992).

    With the mean ratio :math:`\bar d` at the estimates of each table and :math:`\tilde d` at the pooled estimates,
    :math:`r = (m + 1) (\bar d - \tilde d) / (k (m - 1))` and :math:`D_3 = \tilde d / (k (1 + r))`.
    """
    m, k = len(larger), len(terms)
    most, least = (np.mean([np.asarray(one.params) for one in models], axis=0) for models in (larger, smaller))
    pairs = list(zip(larger, smaller, strict=True))
    own = np.mean([2 * (one.llf - none.llf) for one, none in pairs])
    pooled = np.mean([2 * (float(one.model.loglike(most)) - float(none.model.loglike(least))) for one, none in pairs])
    riv = float(max((m + 1) / (k * (m - 1)) * (own - pooled), 0.0))
    statistic = max(float(pooled / (k * (1 + riv))), 0.0)
    return rules.f_test(terms, statistic, rules.wald_df(k, m, riv, np.inf), riv)


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
    """Fit a model to each completed table and pool the fits by Rubin's rules.

    Parameters
    ----------
    estimator : str, callable or scikit-learn estimator
        One of: a formula for least squares; a function of `statsmodels.formula.api`, with ``formula``; a function of a
        completed table that returns statsmodels results, a pair (estimates, variances or covariance), a dict
        ``{name: (estimate, variance)}`` or a fitted scikit-learn model; a scikit-learn estimator, with ``target``.
    draws : iterable of tables
        Completed numpy, pandas, polars or pyarrow tables, such as ``imputer.draw(X, m=20)``. They are read one by one.
    formula : str, optional
        A formula such as ``"bmi ~ age + sex"``. Columns of numpy arrays are named x0, x1 and so on.
    target : object, optional
        Name of the outcome, or its position for numpy.
    features : sequence, optional
        Names of the predictors, by default all other columns. Categories are coded against the first one, as in
        ``sex[T.male]``.
    df_complete : float, "residual" or None, default="residual"
        Degrees of freedom of the complete-data analysis. By default the residual degrees of freedom of the analyses;
        None is infinite.
    level : float, default=0.95
        Level of the confidence intervals.
    **options : object
        Further arguments of a formula's model. ``family="binomial"`` (logistic), "poisson", "gamma", "gaussian" or a
        family of statsmodels fits a generalised linear model. A binomial outcome of two categories is coded as in R:
        the probability of the second category, in sorted order, is modelled.

    Returns
    -------
    PooledFit
        Pooled terms, the m models and their predictions.

    Raises
    ------
    ParameterError
        When the estimator or its arguments are invalid, or a column is unknown.
    DataError
        When the terms of the tables differ, a cell is missing, or a model cannot be fitted to a table.
    MissingExtraError
        When a formula is given and statsmodels is not installed.

    Warns
    -----
    McflowWarning
        When there is only one table.

    See Also
    --------
    pool : Rubin's rules for given estimates and variances.

    Notes
    -----
    `LinearRegression` and a `LogisticRegression` without a penalty (``C=np.inf``) have classical standard errors. Other
    estimators are pooled for predictions only. A `Pipeline` receives the columns unchanged; for other estimators,
    categories are dummy coded.

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
    if is_table(draws):
        raise ParameterError(
            "draws is one table. Give several completed tables, such as imputer.draw(X, m=20), or [table] for a "
            "single one."
        )
    if isinstance(draws, str) or not isinstance(draws, Iterable):
        raise ParameterError(f"draws is {draws!r}. Give completed tables, such as imputer.draw(X, m=20).")
    models, results = [], []
    for number, table in enumerate(draws, 1):
        try:
            model = analysis.fit(table)
            results.append(analysis.read(model, table))
        except DataError as error:
            raise DataError(f"Table {number}: {error}") from error
        models.append(model)
    if not models:
        raise DataError("There are no completed tables. Give some, such as imputer.draw(X, m=20).")
    _check_classes(models)
    rules.warn_of_one(len(models))
    reason = next((result for result in results if isinstance(result, str)), "")
    coefficients = [] if reason else [result for result in results if isinstance(result, Coefficients)]
    residual = min((one.df for one in coefficients if one.df is not None), default=None)
    df = residual if df_complete == "residual" else df_complete
    pooled = rules.pool_estimates(_estimates(coefficients, len(models)), df_complete=df, level=level)
    own = {field.name: getattr(pooled, field.name) for field in fields(PooledResult)}
    return PooledFit(**own, results=tuple(models), analysis=analysis, reason=reason, coefficients=tuple(coefficients))


def _analysis(
    estimator: Any, formula: str | None, target: Any, features: Sequence[Any] | None, options: dict[str, Any]
) -> Analysis:
    model = hasattr(estimator, "fit") and hasattr(estimator, "get_params") and not isinstance(estimator, type)
    if formula is not None or isinstance(estimator, str):
        if formula is not None and (model or not callable(estimator)):
            raise ParameterError(
                f"A formula needs a function of statsmodels.formula.api, not {estimator!r}. "
                'For least squares give the formula alone: fit_pooled("y ~ x", draws).'
            )
        text, function = (estimator, None) if formula is None else (formula, estimator)
        return FormulaAnalysis(text, function, options)
    if options:
        raise ParameterError(f"{', '.join(options)}: further arguments are only allowed with a formula.")
    if model:
        return EstimatorAnalysis(estimator, target, features)
    if not callable(estimator) or isinstance(estimator, type):
        raise ParameterError(
            f"The estimator is {estimator!r}. Give a formula, a function of a table, or a scikit-learn estimator such "
            "as LinearRegression()."
        )
    return FunctionAnalysis(estimator, target, features)


def _check_classes(models: Sequence[Any]) -> None:
    first = getattr(models[0], "classes_", None)
    for number, model in enumerate(models, 1):
        if first is not None and not np.array_equal(first, model.classes_):
            raise DataError(
                f"Table 1 has the classes {list(first)} and table {number} {list(model.classes_)}. Every table has to "
                "have the same classes; join rare ones before the imputation."
            )


def _estimates(coefficients: Sequence[Coefficients], m: int) -> Estimates:
    """Return the terms of all tables, or none if the models have no coefficients."""
    if not coefficients:
        return Estimates((), np.empty((m, 0)), np.empty((m, 0)), None)
    names = coefficients[0].names
    for number, found in enumerate(coefficients, 1):
        if found.names != names:
            raise DataError(
                f"Table 1 gives the terms {', '.join(names)}, and table {number} {', '.join(found.names)}. Every "
                "table has to give the same terms; join rare categories before the imputation."
            )
    return rules.read_estimates([one.values for one in coefficients], [one.variances for one in coefficients], names)


def _each(given: Any, m: int) -> Iterator[Any]:
    """Yield a table for each of m models: the same for all, or one draw per model."""
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
        raise DataError(f"There are {m} models and {'more' if count > m else count} draws. Give one draw per model.")


@overload
def pool_predictions(predictions: Iterable[Any], *, return_std: Literal[False] = ...) -> FloatArray: ...


@overload
def pool_predictions(predictions: Iterable[Any], *, return_std: bool) -> Any: ...


def pool_predictions(predictions: Iterable[Any], *, return_std: bool = False) -> Any:
    """Average the predictions of several models.

    Parameters
    ----------
    predictions : iterable of array-like
        Numbers or probabilities, all of one shape. They are read one by one.
    return_std : bool, default=False
        Whether to return the standard deviation between the models as well.

    Returns
    -------
    mean : ndarray
        Mean predictions, with the shape of one prediction.
    std : ndarray
        Standard deviations, if `return_std`; NaN for a single model.

    Raises
    ------
    DataError
        When there are no predictions, shapes differ, or predictions are not numbers.

    Notes
    -----
    The standard deviation measures the uncertainty due to the missing cells. It includes neither the uncertainty of a
    single model nor the noise of the outcome.

    Examples
    --------
    >>> mean, std = pool_predictions([[0.2, 0.8], [0.4, 0.6]], return_std=True)
    >>> mean.round(2), std.round(3)
    (array([0.3, 0.7]), array([0.141, 0.141]))
    """
    count, mean, squares = 0, np.zeros(0), np.zeros(0)
    for prediction in predictions:
        try:
            values: FloatArray = np.asarray(prediction, dtype=np.float64)
        except (TypeError, ValueError) as error:
            words = f"Prediction {count + 1} cannot be averaged: {error}."
            raise DataError(f"{words} Give numbers; for classes give their probabilities.") from error
        if not count:
            mean, squares = np.zeros(values.shape), np.zeros(values.shape)
        if values.shape != mean.shape:
            raise DataError(f"Prediction {count + 1} has shape {values.shape}, but those before it have {mean.shape}.")
        count += 1
        step = values - mean
        mean = mean + step / count
        squares = squares + step * (values - mean)
    if not count:
        raise DataError("There are no predictions to pool. Give one array per model.")
    if not return_std:
        return mean
    return mean, np.sqrt(squares / (count - 1)) if count > 1 else np.full(mean.shape, np.nan)

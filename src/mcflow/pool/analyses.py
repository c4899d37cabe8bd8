"""The analysis of one completed table: a model of scikit-learn, a formula, or a function."""

from __future__ import annotations

__all__ = ["Analysis", "Called", "Coded", "Formula", "is_table"]

import abc
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np

from mcflow.data.frames import Frame, convert, read_frame, select
from mcflow.errors import DataError, MissingExtraError, ParameterError
from mcflow.pool.coding import Coding, read_coding, read_target
from mcflow.pool.estimates import in_order
from mcflow.pool.regressions import Reading, linear, logistic, reason_without

_INSTALL = "Formulas need statsmodels and pandas: pip install 'mcflow[stats]'"


def is_table(given: Any) -> bool:
    """Tell whether something is one table: a data frame or an array of two dimensions."""
    frame = nw.from_native(given, eager_only=True, pass_through=True)
    return isinstance(frame, nw.DataFrame) or (isinstance(given, np.ndarray) and given.ndim == 2)


class Analysis(abc.ABC):
    """How a table is analysed, and how the model predicts."""

    @abc.abstractmethod
    def fit(self, table: Any) -> Any:
        """Return the model of one completed table."""

    @abc.abstractmethod
    def read(self, model: Any, table: Any) -> Reading | str:
        """Return the coefficients of a model, or why it has none."""

    @abc.abstractmethod
    def predict(self, model: Any, table: Any) -> Any:
        """Return numbers or probabilities for the rows of a table."""


class Coded(Analysis):
    """A scikit-learn estimator, cloned for each table.

    Parameters
    ----------
    estimator : object
        Not fitted, or to be fitted anew.
    target : object
        Name or position of the outcome.
    features : sequence or None
        Names or positions; None for all but the target.
    """

    def __init__(self, estimator: Any, target: Any, features: Sequence[Any] | None) -> None:
        from sklearn.base import is_classifier
        from sklearn.pipeline import Pipeline

        if target is None:
            raise ParameterError(f"{type(estimator).__name__} needs an outcome. Give target='name of a column'.")
        self.estimator, self.target, self.features = estimator, target, features
        self.classes = bool(is_classifier(estimator))
        self.whole = isinstance(estimator, Pipeline)  # which may choose its columns by name
        self.coding: Coding | None = None

    def fit(self, table: Any) -> Any:
        """Clone the estimator and fit it."""
        from sklearn.base import clone

        frame = read_frame(table)
        target = read_target(frame, self.target, classes=self.classes)
        return clone(self.estimator).fit(self._features(frame), target)

    def _features(self, frame: Frame) -> Any:
        if self.whole:
            names = self.features or [name for name in frame.names if name != self.target]
            places = [frame.names.index(name) for name in names]
            return frame.native[:, places] if frame.container == "numpy" else select(frame.native, places)
        if self.coding is None:
            self.coding = read_coding(frame, self.features, self.target)
        return self.coding.matrix(frame)

    def read(self, model: Any, table: Any) -> Reading | str:
        """Return coefficients and their classical covariance."""
        reason = reason_without(model)
        if reason:
            return reason
        frame = read_frame(table)
        target = read_target(frame, self.target, classes=hasattr(model, "classes_"))
        matrix = self._features(frame)
        if self.coding is None or matrix.shape[1] != model.n_features_in_:
            raise DataError(
                f"The model was fitted to {model.n_features_in_} features and the table gives {matrix.shape[1]}. "
                "Name those of the model in features=."
            )
        way = logistic if hasattr(model, "classes_") else linear
        return way(model, matrix, target, self.coding.terms)

    def predict(self, model: Any, table: Any) -> Any:
        """Return predictions, of a classifier the probabilities of its classes."""
        if self.classes and not hasattr(model, "predict_proba"):
            raise ParameterError(
                f"{type(model).__name__} has no predict_proba, and classes cannot be averaged. Use a classifier that "
                "gives probabilities."
            )
        features = self._features(read_frame(table))
        return model.predict_proba(features) if self.classes else model.predict(features)


class Formula(Analysis):
    """A model of statsmodels that is written as a formula.

    Parameters
    ----------
    formula : str
        Such as ``"bmi ~ age + sex"``. Columns of numpy are called x0, x1 and so on.
    model : callable or None
        A function of `statsmodels.formula.api`; None for least squares.
    options : mapping
        Its further arguments.
    """

    def __init__(self, formula: str, model: Callable[..., Any] | None, options: Mapping[str, Any]) -> None:
        self.formula, self.options = formula, dict(options)
        self.model = model if model is not None else _least_squares()

    def fit(self, table: Any) -> Any:
        """Fit the formula."""
        model = self.model(self.formula, data=_pandas(table), **self.options)
        silent = {"disp": 0} if "disp" in inspect.signature(model.fit).parameters else {}
        return model.fit(**silent)

    def read(self, model: Any, table: Any) -> Reading | str:
        """Return the coefficients and their covariance."""
        return _statsmodels(model)

    def predict(self, model: Any, table: Any) -> Any:
        """Return the expected outcomes."""
        return model.predict(_pandas(table))


class Called(Analysis):
    """A function of the caller's that analyses one table.

    Parameters
    ----------
    function : callable
        Takes a completed table and returns results of statsmodels, (estimates, variances or covariance),
        ``{name: (estimate, variance)}``, or a fitted regression of scikit-learn.
    target, features : object
        Where the outcome and the features of a scikit-learn model are.
    """

    def __init__(self, function: Callable[[Any], Any], target: Any, features: Sequence[Any] | None) -> None:
        self.function, self.target, self.features = function, target, features

    def fit(self, table: Any) -> Any:
        """Call the function."""
        return self.function(table)

    def read(self, model: Any, table: Any) -> Reading | str:
        """Return what the function's result says of its coefficients."""
        if hasattr(model, "params") and hasattr(model, "cov_params"):
            return _statsmodels(model)
        if isinstance(model, Mapping):
            pairs = {str(name): _pair(value) for name, value in model.items()}
            values, spread = (np.array([pair[place] for pair in pairs.values()], dtype=float) for place in (0, 1))
            return Reading(tuple(pairs), values, spread, None)
        if isinstance(model, tuple | list):
            return _named(*_pair(model), None)
        if not hasattr(model, "predict"):
            raise ParameterError(
                f"The analysis returned {type(model).__name__}. Return results of statsmodels, a pair (estimates, "
                "variances or covariance), a dict {name: (estimate, variance)}, or a fitted scikit-learn model."
            )
        return reason_without(model) or self._coded(model).read(model, table)

    def _coded(self, model: Any) -> Coded:
        own = getattr(model, "feature_names_in_", None)
        features = self.features if self.features is not None or own is None else list(own)
        return Coded(model, self.target, features)

    def predict(self, model: Any, table: Any) -> Any:
        """Return what the function's result predicts."""
        if not hasattr(model, "predict"):
            raise ParameterError("The analysis returned numbers, which cannot predict. Return the fitted model.")
        if hasattr(model, "cov_params"):
            return model.predict(table if isinstance(table, np.ndarray) else _pandas(table))
        return model.predict_proba(table) if hasattr(model, "predict_proba") else model.predict(table)


def _pair(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ParameterError(f"The analysis gave {value!r} where a pair (estimate, variance) is needed.")
    return value[0], value[1]


def _statsmodels(result: Any) -> Reading:
    """Read results of statsmodels; those of several equations have a column of coefficients each."""
    params, covariance = result.params, result.cov_params()
    if np.ndim(params) == 2:
        labels = covariance.index if hasattr(covariance, "index") else range(np.size(params))
        params = dict(zip(map(_label, labels), np.asarray(params).ravel(order="F"), strict=True))
        covariance = np.asarray(covariance)
    elif not hasattr(params, "loc"):
        names = getattr(result.model, "exog_names", None) or []
        names = names if len(names) == len(params) else [f"term{number + 1}" for number in range(len(params))]
        params = dict(zip(map(str, names), params, strict=True))
    return _named(params, covariance, getattr(result, "df_resid", None))


def _label(name: Any) -> str:
    return ":".join(map(str, name)) if isinstance(name, tuple) else str(name)


def _named(values: Any, spread: Any, df: float | None) -> Reading:
    """Read estimates that may carry names."""
    names = list(values) if isinstance(values, Mapping) else list(values.index) if hasattr(values, "loc") else None
    if names is not None:
        values, spread = in_order(values, names), in_order(spread, names)
    numbers = np.atleast_1d(np.asarray(values, dtype=np.float64))
    labels = map(_label, names) if names is not None else (f"term{number + 1}" for number in range(len(numbers)))
    spreads = np.atleast_1d(np.asarray(spread, dtype=np.float64))
    return Reading(tuple(labels), numbers, spreads, None if df is None else float(df))


def _least_squares() -> Callable[..., Any]:
    try:
        from statsmodels.formula.api import ols
    except ImportError as error:
        raise MissingExtraError(_INSTALL) from error
    function: Callable[..., Any] = ols
    return function


def _pandas(table: Any) -> Any:
    """Return a table as a data frame of pandas, which formulas read."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError(_INSTALL) from error
    frame = read_frame(table)
    if frame.container != "numpy":
        return convert(frame.native, "pandas")
    return pd.DataFrame(frame.native, columns=[f"x{place}" for place in frame.names]).infer_objects()

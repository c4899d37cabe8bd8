"""Analyses of one completed table: a scikit-learn estimator, a statsmodels formula, or a function."""

from __future__ import annotations

__all__ = ["Analysis", "EstimatorAnalysis", "FormulaAnalysis", "FunctionAnalysis", "is_table"]

import abc
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np

from mcflow.columns.frames import Frame, convert, read_frame, select
from mcflow.errors import DataError, MissingExtraError, ParameterError, did_you_mean
from mcflow.installation import install_extra
from mcflow.pool.regressions import Coding, Coefficients, linear, logistic, read_coding, read_target, reason_without
from mcflow.pool.rules import in_order

_NEEDS = "Formulas need statsmodels"

#: Families of generalised linear models and their names in statsmodels.
FAMILIES = {"binomial": "Binomial", "gamma": "Gamma", "gaussian": "Gaussian", "poisson": "Poisson"}


def is_table(given: Any) -> bool:
    """Tell whether an object is one table: a data frame or a two-dimensional array."""
    frame = nw.from_native(given, eager_only=True, pass_through=True)
    return isinstance(frame, nw.DataFrame) or (isinstance(given, np.ndarray) and given.ndim == 2)


class Analysis(abc.ABC):
    """Fit, coefficients and predictions of a model for one table."""

    @abc.abstractmethod
    def fit(self, table: Any) -> Any:
        """Fit the model to one completed table."""

    @abc.abstractmethod
    def read(self, model: Any, table: Any) -> Coefficients | str:
        """Return the coefficients of a fitted model, or the reason why it has none."""

    @abc.abstractmethod
    def predict(self, model: Any, table: Any) -> Any:
        """Return predictions or class probabilities for the rows of a table."""


class EstimatorAnalysis(Analysis):
    """A scikit-learn estimator, cloned for each table."""

    def __init__(self, estimator: Any, target: Any, features: Sequence[Any] | None) -> None:
        from sklearn.base import is_classifier
        from sklearn.pipeline import Pipeline

        if target is None:
            raise ParameterError(f"{type(estimator).__name__} needs an outcome. Give target='name of a column'.")
        self.estimator, self.target, self.features = estimator, target, features
        self.classes = bool(is_classifier(estimator))
        self.whole = isinstance(estimator, Pipeline)  # a pipeline may select its columns by name
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
            positions = [frame.names.index(name) for name in names]
            return frame.native[:, positions] if frame.container == "numpy" else select(frame.native, positions)
        if self.coding is None:
            self.coding = read_coding(frame, self.features, self.target)
        return self.coding.matrix(frame)

    def read(self, model: Any, table: Any) -> Coefficients | str:
        """Return the coefficients and their classical covariance."""
        reason = reason_without(model)
        if reason:
            return reason
        frame = read_frame(table)
        target = read_target(frame, self.target, classes=hasattr(model, "classes_"))
        matrix = self._features(frame)
        if self.coding is None or matrix.shape[1] != model.n_features_in_:
            raise DataError(
                f"The model was fitted to {model.n_features_in_} features and the table gives {matrix.shape[1]}. "
                "Name the features of the model in features=."
            )
        coefficients = logistic if hasattr(model, "classes_") else linear
        return coefficients(model, matrix, target, self.coding.terms)

    def predict(self, model: Any, table: Any) -> Any:
        """Return predictions, or class probabilities for a classifier."""
        if self.classes and not hasattr(model, "predict_proba"):
            raise ParameterError(
                f"{type(model).__name__} has no predict_proba, and classes cannot be averaged. Use a classifier with "
                "probabilities."
            )
        features = self._features(read_frame(table))
        return model.predict_proba(features) if self.classes else model.predict(features)


class FormulaAnalysis(Analysis):
    """A statsmodels model with a formula."""

    def __init__(self, formula: str, model: Callable[..., Any] | None, options: Mapping[str, Any]) -> None:
        self.formula, self.options = formula, dict(options)
        family = self.options.get("family")
        if isinstance(family, str):
            self.options["family"] = _family(family)
        if model is None:
            model = _formula_function("ols" if family is None else "glm")
        self.model, self.binomial = model, type(self.options.get("family")).__name__ == "Binomial"

    def fit(self, table: Any) -> Any:
        """Fit the model of the formula."""
        data = _pandas(table)
        model = self.model(self.formula, data=self._coded(data) if self.binomial else data, **self.options)
        silent = {"disp": 0} if "disp" in inspect.signature(model.fit).parameters else {}
        return model.fit(**silent)

    def _coded(self, data: Any) -> Any:
        """Code an outcome of two categories as 0 and 1, as R does; formulas would model the first category."""
        name = self.formula.partition("~")[0].strip()
        if name not in data or data[name].dtype.kind in "iuf":
            return data
        categories = sorted(data[name].dropna().unique())
        if len(categories) != 2:
            raise DataError(
                f"The outcome {name!r} has {len(categories)} categories, but a binomial model needs two. Join some, or "
                "use another family."
            )
        return data.assign(**{name: (data[name] == categories[1]).astype(float)})

    def read(self, model: Any, table: Any) -> Coefficients | str:
        """Return the coefficients and their covariance."""
        return _statsmodels(model)

    def predict(self, model: Any, table: Any) -> Any:
        """Return the predicted means."""
        return model.predict(_pandas(table))


class FunctionAnalysis(Analysis):
    """A user's function of one table."""

    def __init__(self, function: Callable[[Any], Any], target: Any, features: Sequence[Any] | None) -> None:
        self.function, self.target, self.features = function, target, features

    def fit(self, table: Any) -> Any:
        """Call the function."""
        return self.function(table)

    def read(self, model: Any, table: Any) -> Coefficients | str:
        """Return the coefficients in the result of the function."""
        if hasattr(model, "params") and hasattr(model, "cov_params"):
            return _statsmodels(model)
        if isinstance(model, Mapping):
            pairs = {str(name): _pair(value) for name, value in model.items()}
            values, variances = (np.array([pair[k] for pair in pairs.values()], dtype=float) for k in (0, 1))
            return Coefficients(tuple(pairs), values, variances, None)
        if isinstance(model, tuple | list):
            return _named(*_pair(model), None)
        if not hasattr(model, "predict"):
            raise ParameterError(
                f"The analysis returned {type(model).__name__}. Return results of statsmodels, a pair (estimates, "
                "variances or covariance), a dict {name: (estimate, variance)}, or a fitted scikit-learn model."
            )
        return reason_without(model) or self._estimator_analysis(model).read(model, table)

    def _estimator_analysis(self, model: Any) -> EstimatorAnalysis:
        own = getattr(model, "feature_names_in_", None)
        features = self.features if self.features is not None or own is None else list(own)
        return EstimatorAnalysis(model, self.target, features)

    def predict(self, model: Any, table: Any) -> Any:
        """Return the predictions of the result of the function."""
        if not hasattr(model, "predict"):
            raise ParameterError("The analysis returned numbers, which cannot predict. Return the fitted model.")
        if hasattr(model, "cov_params"):
            return model.predict(table if isinstance(table, np.ndarray) else _pandas(table))
        return model.predict_proba(table) if hasattr(model, "predict_proba") else model.predict(table)


def _pair(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ParameterError(f"The analysis gave {value!r} where a pair (estimate, variance) is needed.")
    return value[0], value[1]


def _statsmodels(result: Any) -> Coefficients:
    """Return the coefficients of statsmodels results; those of several equations are two-dimensional."""
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


def _named(values: Any, variances: Any, df: float | None) -> Coefficients:
    """Return coefficients whose names, if any, are those of `values`."""
    names = list(values) if isinstance(values, Mapping) else list(values.index) if hasattr(values, "loc") else None
    if names is not None:
        values, variances = in_order(values, names), in_order(variances, names)
    numbers = np.atleast_1d(np.asarray(values, dtype=np.float64))
    labels = map(_label, names) if names is not None else (f"term{number + 1}" for number in range(len(numbers)))
    spread = np.atleast_1d(np.asarray(variances, dtype=np.float64))
    return Coefficients(tuple(labels), numbers, spread, None if df is None else float(df))


def _formula_function(name: str) -> Callable[..., Any]:
    try:
        from statsmodels.formula.api import glm, ols
    except ImportError as error:
        raise MissingExtraError(f"{_NEEDS}: {install_extra('stats')}") from error
    functions: dict[str, Callable[..., Any]] = {"glm": glm, "ols": ols}
    return functions[name]


def _family(name: str) -> Any:
    """Return the family of statsmodels with a name."""
    if name not in FAMILIES:
        hint = did_you_mean(name, FAMILIES)
        raise ParameterError(f"family is {name!r}, but has to be one of {', '.join(FAMILIES)}.{hint}")
    try:
        from statsmodels.genmod import families
    except ImportError as error:
        raise MissingExtraError(f"{_NEEDS}: {install_extra('stats')}") from error
    return getattr(families, FAMILIES[name])()


def _pandas(table: Any) -> Any:
    """Convert a table to pandas, as formulas need it."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError(f"{_NEEDS}: {install_extra('stats')}") from error
    frame = read_frame(table)
    if frame.container != "numpy":
        return convert(frame.native, "pandas")
    return pd.DataFrame(frame.native, columns=[f"x{position}" for position in frame.names]).infer_objects()

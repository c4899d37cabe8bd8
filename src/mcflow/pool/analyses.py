"""Analyses of one completed table: a scikit-learn estimator, a statsmodels formula, or a function."""

from __future__ import annotations

__all__ = ["Analysis", "Coefficients", "EstimatorAnalysis", "FormulaAnalysis", "FunctionAnalysis", "is_table"]

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy import special
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline

from mcflow.columns.frames import Frame, convert, is_text, read_frame, select
from mcflow.errors import DataError, MissingExtraError, ParameterError, did_you_mean
from mcflow.installation import install_extra
from mcflow.pool.rules import in_order
from mcflow.typing import Array, FloatArray

#: Families of generalised linear models and their names in statsmodels.
FAMILIES = {"binomial": "Binomial", "gamma": "Gamma", "gaussian": "Gaussian", "poisson": "Poisson"}
NEWTON_STEPS = 50  #: Maximum number of Newton steps of a logistic regression.
NEWTON_TOLERANCE = 1e-10  #: Relative change of the standardised coefficients below which Newton's method stops.
COLLINEAR = 1e-9  #: Norm of a scaled column, without its projection on earlier ones, that counts as collinear.


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of one fitted model."""

    names: tuple[str, ...]  # names of the terms
    values: FloatArray  # (k,) estimates
    variances: FloatArray  # (k,) variances or (k, k) covariances
    df: float | None  # residual degrees of freedom, if known


def is_table(given: Any) -> bool:
    """Tell whether an object is one table: a data frame or a two-dimensional array."""
    frame = nw.from_native(given, eager_only=True, pass_through=True)
    return isinstance(frame, nw.DataFrame) or (isinstance(given, np.ndarray) and given.ndim == 2)


class EstimatorAnalysis:
    """A scikit-learn estimator, cloned for each table."""

    def __init__(self, estimator: Any, target: Any, features: Sequence[Any] | None) -> None:
        if target is None:
            raise ParameterError(f"{type(estimator).__name__} needs an outcome. Give target='name of a column'.")
        self.estimator, self.target, self.features = estimator, target, features
        self.classes = bool(is_classifier(estimator))
        self.whole = isinstance(estimator, Pipeline)  # a pipeline may select its columns by name
        self.coding: list[_Feature] | None = None  # of the first table

    def fit(self, table: Any) -> Any:
        """Clone the estimator and fit it."""
        frame = read_frame(table)
        target = _read_target(frame, self.target, classes=self.classes)
        return clone(self.estimator).fit(self._matrix(frame), target)

    def _matrix(self, frame: Frame) -> Any:
        """Return the columns for a pipeline unchanged, and those for other estimators dummy coded."""
        names = [name for name in frame.names if name != self.target] if self.features is None else self.features
        if self.whole:
            positions = [frame.names.index(name) for name in names]
            return frame.native[:, positions] if frame.container == "numpy" else select(frame.native, positions)
        if self.coding is None:
            if self.target in names:
                raise ParameterError(f"The target {self.target!r} is among the features. Remove it from features.")
            self.coding = [_read_feature(frame, name) for name in names]
        return np.concatenate([np.empty((frame.n_rows, 0)), *(one.columns(frame) for one in self.coding)], axis=1)

    def read(self, model: Any, table: Any) -> Coefficients | str:
        """Return the coefficients and their classical covariance, or the reason why there are none."""
        if reason := _reason_without(model):
            return reason
        frame = read_frame(table)
        target = _read_target(frame, self.target, classes=hasattr(model, "classes_"))
        matrix = self._matrix(frame)
        if self.coding is None or matrix.shape[1] != model.n_features_in_:
            raise DataError(
                f"The model was fitted to {model.n_features_in_} features and the table gives {matrix.shape[1]}. "
                "Name the features of the model in features=."
            )
        names = [term for feature in self.coding for term in feature.terms]
        if model.fit_intercept:
            matrix, names = np.column_stack([np.ones(len(matrix)), matrix]), ["Intercept", *names]
        return (_logistic if hasattr(model, "classes_") else _linear)(model, matrix, target, names)

    def predict(self, model: Any, table: Any) -> Any:
        """Return predictions, or class probabilities for a classifier."""
        if self.classes and not hasattr(model, "predict_proba"):
            raise ParameterError(
                f"{type(model).__name__} has no predict_proba, and classes cannot be averaged. Use a classifier with "
                "probabilities."
            )
        features = self._matrix(read_frame(table))
        return model.predict_proba(features) if self.classes else model.predict(features)


class FormulaAnalysis:
    """A statsmodels model with a formula."""

    def __init__(self, formula: str, model: Callable[..., Any] | None, options: Mapping[str, Any]) -> None:
        self.formula, self.options = formula, dict(options)
        family = self.options.get("family")
        if isinstance(family, str):
            if family not in FAMILIES:
                hint = did_you_mean(family, FAMILIES)
                raise ParameterError(f"family is {family!r}, but has to be one of {', '.join(FAMILIES)}.{hint}")
            self.options["family"] = getattr(_imported("statsmodels.genmod.families"), FAMILIES[family])()
        if model is None:
            model = getattr(_imported("statsmodels.formula.api"), "ols" if family is None else "glm")
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


class FunctionAnalysis:
    """A user's function of one table."""

    def __init__(self, function: Callable[[Any], Any], target: Any, features: Sequence[Any] | None) -> None:
        self.fit, self.target, self.features = function, target, features

    def read(self, model: Any, table: Any) -> Coefficients | str:
        """Return the coefficients in the result of the function, or the reason why it has none."""
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
        if reason := _reason_without(model):
            return reason
        own = getattr(model, "feature_names_in_", None)
        features = self.features if self.features is not None or own is None else list(own)
        return EstimatorAnalysis(model, self.target, features).read(model, table)

    def predict(self, model: Any, table: Any) -> Any:
        """Return the predictions of the result of the function."""
        if not hasattr(model, "predict"):
            raise ParameterError("The analysis returned numbers, which cannot predict. Return the fitted model.")
        if hasattr(model, "cov_params"):
            return model.predict(table if isinstance(table, np.ndarray) else _pandas(table))
        return model.predict_proba(table) if hasattr(model, "predict_proba") else model.predict(table)


#: How to `fit` a model to one table, to `read` its coefficients, and to `predict` with it.
Analysis = EstimatorAnalysis | FormulaAnalysis | FunctionAnalysis


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


def _imported(module: str) -> Any:
    """Import a module of the extra that formulas need."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"Formulas need statsmodels: {install_extra('stats')}") from error


def _pandas(table: Any) -> Any:
    """Convert a table to pandas, as formulas need it."""
    frame = read_frame(table)
    if frame.container != "numpy":
        return convert(frame.native, "pandas")
    return pd.DataFrame(frame.native, columns=[f"x{position}" for position in frame.names]).infer_objects()


@dataclass(frozen=True)
class _Feature:
    """A predictor of a model, dummy coded with the first category as reference."""

    name: Any  # name of the column
    label: str  # name in the terms
    categories: tuple[Any, ...] | None = None  # None for numbers

    @property
    def terms(self) -> list[str]:
        if self.categories is None:
            return [self.label]
        return [f"{self.label}[T.{category}]" for category in self.categories[1:]]

    def columns(self, frame: Frame) -> FloatArray:
        """Return the columns of the design matrix, (n_rows, n_terms)."""
        array = _array(frame, self.name)
        if self.categories is None:
            return _floats(array, self.name)[:, None]
        plain = _plain(array)
        codes = pc.index_in(plain, value_set=pa.array(self.categories, plain.type))
        if codes.null_count:
            new = sorted(set(map(str, pc.unique(plain).to_pylist())) - set(map(str, self.categories)))
            raise DataError(
                f"Column {self.name!r} has categories that the first table did not have: {', '.join(new)}. Every "
                "table has to have the same categories; join rare ones before the imputation."
            )
        indices: Array = codes.to_numpy(zero_copy_only=False)
        return np.asarray(indices[:, None] == np.arange(1, len(self.categories)), dtype=np.float64)


def _read_feature(frame: Frame, name: Any) -> _Feature:
    array, label = _array(frame, name), f"x{name}" if frame.container == "numpy" else str(name)
    if not _is_categorical(array):
        return _Feature(name, label)
    found = set(pc.unique(_plain(array)).to_pylist())
    ordered = array.dictionary.to_pylist() if pa.types.is_dictionary(array.type) else sorted(found)
    return _Feature(name, label, tuple(category for category in ordered if category in found))


def _read_target(frame: Frame, target: Any, *, classes: bool) -> Array:
    """Return the outcome of a table, (n_rows,)."""
    array = _array(frame, target)
    if classes:
        return np.array(array.to_pylist()) if _is_categorical(array) else array.to_numpy(zero_copy_only=False)
    if _is_categorical(array):
        raise DataError(f"The target {target!r} is of type {array.type}, but a regression needs numbers.")
    return _floats(array, target)


def _array(frame: Frame, name: Any) -> pa.Array:
    """Return a column, which must not have missing cells."""
    if name not in frame.names:
        known = [str(column) for column in frame.names]
        raise ParameterError(
            f"There is no column {name!r}. The table has {', '.join(known)}.{did_you_mean(name, known)}"
        )
    array = frame.arrow(frame.names.index(name))
    if array is None:
        raise DataError(f"Column {name!r} holds cells of mixed types. Convert it to one type, or leave it out.")
    if array.null_count:
        raise DataError(
            f"Column {name!r} has {array.null_count} missing cell(s), but completed tables are needed, such as "
            "those of imputer.draw(X)."
        )
    return array


def _is_categorical(array: pa.Array) -> bool:
    kind = array.type
    return bool(pa.types.is_dictionary(kind) or pa.types.is_boolean(kind) or is_text(kind))


def _plain(array: pa.Array) -> pa.Array:
    """Return a categorical column without dictionary encoding."""
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    return plain.cast(pa.large_string()) if str(plain.type) == "string_view" else plain


def _floats(array: pa.Array, name: Any) -> FloatArray:
    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise DataError(
            f"Column {name!r} is of type {kind}, which a regression cannot use. Leave it out or convert it."
        )
    return np.asarray(array.cast(pa.float64(), safe=False))


def _reason_without(model: Any) -> str:
    """Return why a scikit-learn model has no classical standard errors, or an empty string if it has."""
    what = ""
    if type(model) is LinearRegression:
        what = "LinearRegression(positive=True)" if model.positive else ""
    elif type(model) is not LogisticRegression:
        what = type(model).__name__
    elif model.penalty is not None and not math.isinf(model.C):
        what = "A penalised LogisticRegression (C=np.inf is without a penalty)"
    elif model.class_weight is not None:
        what = "LogisticRegression with class weights"
    return f"{what} has no classical standard errors, so its fits are pooled for predictions only." if what else ""


def _linear(model: Any, design: FloatArray, target: Array, names: Sequence[str]) -> Coefficients:
    """Return the coefficients of a `LinearRegression` with covariance σ² (XᵀX)⁻¹; `design` is (n_rows, k)."""
    n_rows, k = design.shape
    if n_rows <= k:
        raise DataError(f"A regression with {k} coefficients needs more than {n_rows} rows.")
    values = np.append(model.intercept_, model.coef_) if model.fit_intercept else np.array(model.coef_, dtype=float)
    residual = target - design @ values
    covariance = residual @ residual / (n_rows - k) * _inverse(design, names)
    return Coefficients(tuple(names), values, covariance, float(n_rows - k))


def _logistic(model: Any, design: FloatArray, target: Array, names: Sequence[str]) -> Coefficients:
    r"""Return the coefficients of an unpenalised `LogisticRegression` with the inverse Fisher information.

    Newton's method starts from the coefficients of the model, so that the result does not depend on the tolerance of
    its solver. With the probabilities :math:`p_i` of all classes but the first, the information is
    :math:`\sum_i (\operatorname{diag}(p_i) - p_i p_i^\top) \otimes x_i x_i^\top`. `design` is (n_rows, k).
    """
    own, classes = np.atleast_2d(model.coef_).astype(float), list(model.classes_)
    start = np.column_stack([model.intercept_, own]) if model.fit_intercept else own
    if len(classes) > 2:
        start = start[1:] - start[0]
        names = [f"{label}:{name}" for label in classes[1:] for name in names]
    _inverse(design, names)
    labels = (np.asarray(target)[:, None] == np.asarray(classes[1:])).astype(float)
    scale = np.sqrt((design**2).mean(axis=0))
    values, covariance = _newton(start * scale, design / scale, labels)
    factors = np.tile(scale, len(classes) - 1)
    df = len(design) - float(len(names))
    return Coefficients(tuple(names), values.ravel() / factors, covariance / np.outer(factors, factors), df)


def _newton(values: FloatArray, design: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Maximise the likelihood; return the coefficients (n_classes - 1, k) and their covariance."""
    for _ in range(NEWTON_STEPS):
        scores = np.column_stack([np.zeros(len(design)), design @ values.T])
        probabilities = special.softmax(scores, axis=1)[:, 1:]
        score = ((labels - probabilities).T @ design).ravel()
        try:
            covariance = np.asarray(np.linalg.inv(_information(design, probabilities)), dtype=np.float64)
        except np.linalg.LinAlgError:
            break
        step = (covariance @ score).reshape(values.shape)
        if not np.isfinite(step).all() or np.abs(values).max() > 1e3:
            break
        values = values + step
        if np.abs(step).max() <= NEWTON_TOLERANCE * max(1.0, np.abs(values).max()):
            return values, covariance
    raise DataError(
        "The logistic regression has no finite solution: some terms predict the classes perfectly (separation). "
        "Leave terms out, join rare categories, or use a penalised model for predictions only."
    )


def _information(design: FloatArray, probabilities: FloatArray) -> FloatArray:
    n_classes, k = probabilities.shape[1], design.shape[1]
    blocks = np.empty((n_classes, k, n_classes, k))
    for a in range(n_classes):
        for b in range(n_classes):
            weight = probabilities[:, a] * ((a == b) - probabilities[:, b])
            blocks[a, :, b] = (design * weight[:, None]).T @ design
    return blocks.reshape(n_classes * k, n_classes * k)


def _inverse(design: FloatArray, names: Sequence[str]) -> FloatArray:
    """Return (XᵀX)⁻¹; raise `DataError` when a column is a linear combination of those before it."""
    scale = np.sqrt((design**2).sum(axis=0))
    triangle = np.linalg.qr(design / np.where(scale > 0, scale, 1.0), mode="r")
    weak = np.flatnonzero((np.abs(np.diagonal(triangle)) < COLLINEAR) | (scale == 0))
    if len(weak) or len(design) < design.shape[1]:
        collinear = ", ".join(repr(names[int(k)]) for k in weak) or "some"
        raise DataError(f"These terms are collinear with the terms before them: {collinear}. Leave them out.")
    root = np.linalg.inv(triangle) / scale[:, None]
    return np.asarray(root @ root.T)

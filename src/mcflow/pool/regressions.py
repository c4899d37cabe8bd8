"""Regressions of one completed table: design matrices and coefficients with classical covariances."""

from __future__ import annotations

__all__ = ["Coding", "Coefficients", "Feature", "linear", "logistic", "read_coding", "read_target", "reason_without"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.columns.frames import Frame, is_text
from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.typing import Array, FloatArray

#: Maximum number of Newton steps of a logistic regression.
NEWTON_STEPS = 50

#: Relative change of the standardised coefficients below which Newton's method stops.
NEWTON_TOLERANCE = 1e-10

#: Norm of the part of a scaled column not explained by the columns before it, below which it counts as collinear.
COLLINEAR = 1e-9


@dataclass(frozen=True)
class Feature:
    """A predictor of a model."""

    name: Any  # name of the column
    label: str  # name in the terms
    categories: tuple[Any, ...] | None = None  # categories, the first as reference; None for numbers

    @property
    def terms(self) -> list[str]:
        """Names of the terms of the predictor."""
        if self.categories is None:
            return [self.label]
        return [f"{self.label}[T.{category}]" for category in self.categories[1:]]


@dataclass(frozen=True)
class Coding:
    """Dummy coding of predictors, with the first category as reference."""

    features: tuple[Feature, ...]

    @property
    def terms(self) -> list[str]:
        """Names of the columns of `matrix`."""
        return [term for feature in self.features for term in feature.terms]

    def matrix(self, frame: Frame) -> FloatArray:
        """Return the design matrix of a table without intercept, (n_rows, n_terms)."""
        parts = [_coded(_array(frame, feature.name), feature) for feature in self.features]
        return np.concatenate(parts, axis=1) if parts else np.empty((frame.n_rows, 0))


def read_coding(frame: Frame, features: Sequence[Any] | None, target: Any) -> Coding:
    """Derive the coding of the predictors from a table."""
    chosen = [name for name in frame.names if name != target] if features is None else list(features)
    if target in chosen:
        raise ParameterError(f"The target {target!r} is among the features. Remove it from features.")
    return Coding(tuple(_feature(frame, name) for name in chosen))


def read_target(frame: Frame, target: Any, *, classes: bool) -> Array:
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


def _feature(frame: Frame, name: Any) -> Feature:
    array, label = _array(frame, name), f"x{name}" if frame.container == "numpy" else str(name)
    if not _is_categorical(array):
        _floats(array, name)
        return Feature(name, label)
    found = set(pc.unique(_plain(array)).to_pylist())
    if pa.types.is_dictionary(array.type):
        order = [category for category in array.dictionary.to_pylist() if category in found]
    else:
        order = sorted(found)
    return Feature(name, label, tuple(order))


def _plain(array: pa.Array) -> pa.Array:
    """Return a categorical column without dictionary encoding."""
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    return plain.cast(pa.large_string()) if str(plain.type) == "string_view" else plain


def _coded(array: pa.Array, feature: Feature) -> FloatArray:
    if feature.categories is None:
        return _floats(array, feature.name)[:, None]
    plain = _plain(array)
    codes = pc.index_in(plain, value_set=pa.array(feature.categories, plain.type))
    if codes.null_count:
        new = sorted(set(map(str, pc.unique(plain).to_pylist())) - set(map(str, feature.categories)))
        raise DataError(
            f"Column {feature.name!r} has categories that the first table did not have: {', '.join(new)}. Every "
            "table has to have the same categories; join rare ones before the imputation."
        )
    indices: Array = codes.to_numpy(zero_copy_only=False)
    coded: FloatArray = (indices[:, None] == np.arange(1, len(feature.categories))).astype(np.float64)
    return coded


def _floats(array: pa.Array, name: Any) -> FloatArray:
    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise DataError(
            f"Column {name!r} is of type {kind}, which a regression cannot use. Leave it out or convert it."
        )
    values: FloatArray = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of one fitted model."""

    names: tuple[str, ...]  # names of the terms
    values: FloatArray  # (k,) estimates
    variances: FloatArray  # (k,) variances or (k, k) covariances
    df: float | None  # residual degrees of freedom, if known


def reason_without(model: Any) -> str:
    """Return why a scikit-learn model has no classical standard errors, or an empty string if it has."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

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


def linear(model: Any, matrix: FloatArray, target: Array, terms: Sequence[str]) -> Coefficients:
    r"""Return the coefficients of a fitted `LinearRegression` with covariance :math:`\hat\sigma^2 (X^\top X)^{-1}`.

    Shapes: `matrix` (n_rows, n_terms), `target` (n_rows,).
    """
    design, names = _design(model, matrix, terms)
    n_rows, k = design.shape
    if n_rows <= k:
        raise DataError(f"A regression with {k} coefficients needs more than {n_rows} rows.")
    values = np.append(model.intercept_, model.coef_) if model.fit_intercept else np.array(model.coef_, dtype=float)
    residual = target - design @ values
    return Coefficients(names, values, residual @ residual / (n_rows - k) * _inverse(design, names), float(n_rows - k))


def logistic(model: Any, matrix: FloatArray, target: Array, terms: Sequence[str]) -> Coefficients:
    r"""Return the coefficients of an unpenalised `LogisticRegression` with the inverse Fisher information.

    Newton's method starts from the coefficients of the model, so that the result does not depend on the tolerance of
    its solver. With the probabilities :math:`p_i` of all classes but the first, the information is
    :math:`\sum_i (\operatorname{diag}(p_i) - p_i p_i^\top) \otimes x_i x_i^\top`.

    Shapes: `matrix` (n_rows, n_terms), `target` (n_rows,).
    """
    design, names = _design(model, matrix, terms)
    own, classes = np.atleast_2d(model.coef_).astype(float), list(model.classes_)
    start = np.column_stack([model.intercept_, own]) if model.fit_intercept else own
    if len(classes) > 2:
        start = start[1:] - start[0]
        names = tuple(f"{label}:{name}" for label in classes[1:] for name in names)
    _inverse(design, names)
    labels = (np.asarray(target)[:, None] == np.asarray(classes[1:])).astype(float)
    scale = np.sqrt((design**2).mean(axis=0))
    values, covariance = _newton(start * scale, design / scale, labels)
    factors = np.tile(scale, len(classes) - 1)
    n_rows = len(design)
    return Coefficients(
        names, values.ravel() / factors, covariance / np.outer(factors, factors), n_rows - float(len(names))
    )


def _newton(values: FloatArray, design: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Maximise the likelihood; return the coefficients (n_classes - 1, k) and their covariance."""
    for _ in range(NEWTON_STEPS):
        probabilities = _probabilities(design @ values.T)
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


def _probabilities(scores: FloatArray) -> FloatArray:
    """Return the probabilities of all classes but the first, (n_rows, n_classes - 1)."""
    whole = np.column_stack([np.zeros(len(scores)), scores])
    odds = np.exp(whole - whole.max(axis=1, keepdims=True))
    probabilities: FloatArray = (odds / odds.sum(axis=1, keepdims=True))[:, 1:]
    return probabilities


def _information(design: FloatArray, probabilities: FloatArray) -> FloatArray:
    n_classes, k = probabilities.shape[1], design.shape[1]
    blocks = np.empty((n_classes, k, n_classes, k))
    for a in range(n_classes):
        for b in range(n_classes):
            weight = probabilities[:, a] * ((a == b) - probabilities[:, b])
            blocks[a, :, b] = (design * weight[:, None]).T @ design
    return blocks.reshape(n_classes * k, n_classes * k)


def _design(model: Any, matrix: FloatArray, terms: Sequence[str]) -> tuple[FloatArray, tuple[str, ...]]:
    if not model.fit_intercept:
        return matrix, tuple(terms)
    return np.column_stack([np.ones(len(matrix)), matrix]), ("Intercept", *terms)


def _inverse(design: FloatArray, names: Sequence[str]) -> FloatArray:
    """Return (XᵀX)⁻¹; raise `DataError` when a column is a linear combination of those before it."""
    scale = np.sqrt((design**2).sum(axis=0))
    triangle = np.linalg.qr(design / np.where(scale > 0, scale, 1.0), mode="r")
    weak = np.flatnonzero((np.abs(np.diagonal(triangle)) < COLLINEAR) | (scale == 0))
    if len(weak) or len(design) < design.shape[1]:
        collinear = ", ".join(repr(names[int(k)]) for k in weak) or "some"
        raise DataError(f"These terms are collinear with the terms before them: {collinear}. Leave them out.")
    root = np.linalg.inv(triangle) / scale[:, None]
    inverse: FloatArray = root @ root.T
    return inverse

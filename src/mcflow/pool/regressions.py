"""Coefficients of fitted regressions with their classical covariance."""

from __future__ import annotations

__all__ = ["Reading", "linear", "logistic", "reason_without"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcflow.errors import DataError
from mcflow.typing import Array, FloatArray

#: Newton steps towards the largest likelihood, at most.
NEWTON_STEPS = 50

#: A step that moves no standardised coefficient by more than this is the last one.
NEWTON_TOLERANCE = 1e-10

#: A column whose part that the others do not explain is smaller than this share of it counts as a copy of them.
COLLINEAR = 1e-9

INTERCEPT = "Intercept"


@dataclass(frozen=True)
class Reading:
    """What one analysis gave.

    Parameters
    ----------
    names : tuple of str
        Of the terms.
    values : ndarray of shape (k,)
        The estimates.
    spread : ndarray of shape (k,) or (k, k)
        Variances or covariances.
    df : float or None
        Residual degrees of freedom, None when the analysis does not say.
    """

    names: tuple[str, ...]
    values: FloatArray
    spread: FloatArray
    df: float | None


def reason_without(model: Any) -> str:
    """Say why a scikit-learn model has no classical standard errors; nothing when it has.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression, Ridge
    >>> reason_without(LinearRegression())
    ''
    >>> reason_without(Ridge())
    'Ridge has no classical standard errors, so its fits are pooled for predictions only.'
    """
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


def linear(model: Any, matrix: FloatArray, target: Array, terms: Sequence[str]) -> Reading:
    r"""Return the coefficients of a fitted `LinearRegression` and :math:`\hat\sigma^2 (X^\top X)^{-1}`.

    Parameters
    ----------
    model : LinearRegression
        Fitted to matrix and target.
    matrix : ndarray of shape (n_rows, n_terms)
        Its features.
    target : ndarray of shape (n_rows,)
        Its outcome.
    terms : sequence of str
        Names of the features.

    Returns
    -------
    Reading
        The intercept first, where the model has one.

    Raises
    ------
    DataError
        When there are no more rows than coefficients, or columns are collinear.
    """
    design, names = _design(model, matrix, terms)
    n_rows, k = design.shape
    if n_rows <= k:
        raise DataError(f"A regression with {k} coefficients needs more than {n_rows} rows.")
    values = np.append(model.intercept_, model.coef_) if model.fit_intercept else np.array(model.coef_, dtype=float)
    residual = target - design @ values
    return Reading(names, values, residual @ residual / (n_rows - k) * _inverse(design, names), float(n_rows - k))


def logistic(model: Any, matrix: FloatArray, target: Array, terms: Sequence[str]) -> Reading:
    r"""Return the coefficients of an unpenalised `LogisticRegression` and the inverse of their Fisher information.

    Parameters
    ----------
    model : LogisticRegression
        Fitted to matrix and target.
    matrix : ndarray of shape (n_rows, n_terms)
        Its features.
    target : ndarray of shape (n_rows,)
        Its classes.
    terms : sequence of str
        Names of the features.

    Returns
    -------
    Reading
        The intercept first. With more than two classes every class but the first has its own coefficients, which say
        how it differs from the first.

    Raises
    ------
    DataError
        When the likelihood has no single largest value.

    Notes
    -----
    The model's coefficients are where Newton's method starts from; the answer does not depend on the tolerance at
    which the model stopped. With the probabilities :math:`p_i` of the classes but the first, the information is
    :math:`\sum_i (\operatorname{diag}(p_i) - p_i p_i^\top) \otimes x_i x_i^\top`.
    """
    design, names = _design(model, matrix, terms)
    own, classes = np.atleast_2d(model.coef_).astype(float), list(model.classes_)
    start = np.column_stack([model.intercept_, own]) if model.fit_intercept else own
    if len(classes) > 2:
        start = start[1:] - start[0]
        names = tuple(f"{level}:{name}" for level in classes[1:] for name in names)
    _inverse(design, names)
    wanted = (np.asarray(target)[:, None] == np.asarray(classes[1:])).astype(float)
    scale = np.sqrt((design**2).mean(axis=0))
    values, covariance = _newton(start * scale, design / scale, wanted)
    factors = np.tile(scale, len(classes) - 1)
    n_rows = len(design)
    return Reading(names, values.ravel() / factors, covariance / np.outer(factors, factors), n_rows - float(len(names)))


def _newton(values: FloatArray, design: FloatArray, wanted: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Climb to the largest likelihood; return coefficients of shape (n_classes - 1, k) and their covariance."""
    for _ in range(NEWTON_STEPS):
        chances = _chances(design @ values.T)
        score = ((wanted - chances).T @ design).ravel()
        try:
            covariance = np.asarray(np.linalg.inv(_information(design, chances)), dtype=np.float64)
        except np.linalg.LinAlgError:
            break
        step = (covariance @ score).reshape(values.shape)
        if not np.isfinite(step).all() or np.abs(values).max() > 1e3:
            break
        values = values + step
        if np.abs(step).max() <= NEWTON_TOLERANCE * max(1.0, np.abs(values).max()):
            return values, covariance
    raise DataError(
        "The logistic regression has no finite answer: some terms predict the classes without an error (separation). "
        "Leave terms out, join rare levels, or use a penalised model for predictions only."
    )


def _chances(scores: FloatArray) -> FloatArray:
    """Return the probabilities of the classes but the first, of shape (n_rows, n_classes - 1)."""
    whole = np.column_stack([np.zeros(len(scores)), scores])
    odds = np.exp(whole - whole.max(axis=1, keepdims=True))
    chances: FloatArray = (odds / odds.sum(axis=1, keepdims=True))[:, 1:]
    return chances


def _information(design: FloatArray, chances: FloatArray) -> FloatArray:
    n_classes, k = chances.shape[1], design.shape[1]
    blocks = np.empty((n_classes, k, n_classes, k))
    for a in range(n_classes):
        for b in range(n_classes):
            weight = chances[:, a] * ((a == b) - chances[:, b])
            blocks[a, :, b] = (design * weight[:, None]).T @ design
    return blocks.reshape(n_classes * k, n_classes * k)


def _design(model: Any, matrix: FloatArray, terms: Sequence[str]) -> tuple[FloatArray, tuple[str, ...]]:
    if not model.fit_intercept:
        return matrix, tuple(terms)
    return np.column_stack([np.ones(len(matrix)), matrix]), (INTERCEPT, *terms)


def _inverse(design: FloatArray, names: Sequence[str]) -> FloatArray:
    """Return (XᵀX)⁻¹; raise `DataError` when a column is explained by those before it."""
    scale = np.sqrt((design**2).sum(axis=0))
    triangle = np.linalg.qr(design / np.where(scale > 0, scale, 1.0), mode="r")
    weak = np.flatnonzero((np.abs(np.diagonal(triangle)) < COLLINEAR) | (scale == 0))
    if len(weak) or len(design) < design.shape[1]:
        copies = ", ".join(repr(names[int(place)]) for place in weak) or "some"
        raise DataError(f"These terms are told by the terms before them: {copies}. Leave them out.")
    root = np.linalg.inv(triangle) / scale[:, None]
    inverse: FloatArray = root @ root.T
    return inverse

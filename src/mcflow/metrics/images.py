"""How good filled images are: pixel by pixel, and as a set."""

from __future__ import annotations

__all__ = ["frechet_distance", "image_rmse", "psnr"]

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from mcflow.errors import DataError, ParameterError
from mcflow.typing import Array, BoolArray, FloatArray

#: White in types of whole numbers; black is 0.
_WHITE = {"uint8": 255.0, "uint16": 65535.0}

_IMAGES_AT_ONCE = 4096


def image_rmse(filled: npt.ArrayLike, truth: npt.ArrayLike, missing: npt.ArrayLike | None = None) -> float:
    """Return the root mean squared error of filled pixels, in units of the range from black to white.

    Parameters
    ----------
    filled, truth : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
        uint8 and uint16 count by the range of their type; floats count as they are, so their range has to be 1.
    missing : array-like of bool, optional
        True where a pixel was missing and is scored: of shape (n_images, height, width), or of that of the images. By
        default every pixel is scored.

    Returns
    -------
    float
        Over all channels of all scored pixels of all images together.

    Raises
    ------
    DataError
        When shapes differ, nothing is scored, or a scored pixel is not a finite number.

    Examples
    --------
    >>> truth = np.zeros((1, 2, 2))
    >>> filled = np.array([[[0.6, 0.8], [9.0, 9.0]]])
    >>> missing = np.array([[[True, True], [False, False]]])
    >>> round(image_rmse(filled, truth, missing), 4)
    0.7071
    """
    return math.sqrt(_mean_square(filled, truth, missing))


def psnr(
    filled: npt.ArrayLike, truth: npt.ArrayLike, missing: npt.ArrayLike | None = None, *, peak: float = 1.0
) -> float:
    r"""Return the peak signal-to-noise ratio of filled images in decibels; higher is better.

    Parameters
    ----------
    filled, truth : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
        uint8 and uint16 count by the range of their type, floats as they are.
    missing : array-like of bool, optional
        True where a pixel is scored. By default the whole images are, observed pixels and all.
    peak : float, default=1.0
        From black to white, for floats of another range.

    Returns
    -------
    float
        Infinite where nothing differs.

    Raises
    ------
    DataError
        When shapes differ, nothing is scored, or a scored pixel is not a finite number.
    ParameterError
        When the peak is not above 0.

    Notes
    -----
    .. math:: \mathrm{PSNR} = 10 \log_{10} \frac{\mathrm{peak}^2}{\mathrm{MSE}}

    with one mean squared error over all scored pixels of all images. At a missing rate r, that of whole images is
    :math:`-10 \log_{10} r` above that of the missing pixels, so a figure has to say which of them it is.

    Examples
    --------
    >>> truth = np.zeros((1, 2, 2), dtype=np.uint8)
    >>> round(psnr(truth + np.uint8(51), truth), 2)
    13.98
    """
    if not (peak > 0 and math.isfinite(peak)):
        raise ParameterError(f"peak is {peak!r}, but has to be a finite number above 0.")
    error = _mean_square(filled, truth, missing)
    return 10 * math.log10(peak**2 / error) if error > 0 else math.inf


def _mean_square(filled: npt.ArrayLike, truth: npt.ArrayLike, missing: npt.ArrayLike | None) -> float:
    total, count = 0.0, 0
    for errors in _errors(np.asarray(filled), np.asarray(truth), missing):
        total += float(np.square(errors).sum())
        count += errors.size
    if not count:
        raise DataError("No pixel is missing, so there is nothing to score. Give the mask of what was filled.")
    if not math.isfinite(total):
        raise DataError("A scored pixel is not a finite number, in what was filled or in the truth.")
    return total / count


def _errors(filled: Array, truth: Array, missing: npt.ArrayLike | None) -> Iterator[FloatArray]:
    """Yield the errors of scored pixels, some images at a time: float64 copies of all would fill the memory."""
    if filled.shape != truth.shape or filled.ndim not in (3, 4):
        raise DataError(
            f"filled has the shape {filled.shape} and truth {truth.shape}, but both have to have the same, "
            "(n_images, height, width) or (n_images, height, width, channels)."
        )
    mask = _scored(missing, truth)
    for first in range(0, len(truth), _IMAGES_AT_ONCE):
        part = slice(first, first + _IMAGES_AT_ONCE)
        errors = _unit(filled[part]) - _unit(truth[part])
        yield errors.ravel() if mask is None else errors[mask[part]].ravel()


def _scored(missing: npt.ArrayLike | None, truth: Array) -> BoolArray | None:
    if missing is None:
        return None
    mask: Array = np.asarray(missing)
    if mask.dtype != bool or mask.shape not in (truth.shape, truth.shape[:3]):
        raise DataError(
            f"missing is of shape {mask.shape} and type {mask.dtype}, but has to be boolean of shape "
            f"{truth.shape[:3]} or that of the images, True where a pixel is scored."
        )
    return mask


def _unit(images: Array) -> FloatArray:
    """Return images as float64, whole numbers between 0 and 1."""
    if np.issubdtype(images.dtype, np.floating):
        return images.astype(np.float64)
    if images.dtype.name not in _WHITE:
        raise DataError(f"Images are of type {images.dtype}, but have to be uint8, uint16 or floats.")
    return images / _WHITE[images.dtype.name]


def frechet_distance(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    r"""Return the Fréchet distance of two sets of features, each seen as a normal distribution; lower is closer.

    Parameters
    ----------
    a, b : array-like of shape (n_images, n_features)
        A network's features of filled and of true images; their numbers may differ.

    Returns
    -------
    float
        At least 0, and 0 for equal means and covariances.

    Raises
    ------
    DataError
        When the features are not finite numbers, differ in number, or belong to fewer than two images.

    Notes
    -----
    The squared 2-Wasserstein distance of two normal distributions, as Heusel et al. [1]_ use it:

    .. math::
        \lVert\mu_a - \mu_b\rVert^2 + \operatorname{tr}\Sigma_a + \operatorname{tr}\Sigma_b
        - 2\operatorname{tr}\bigl(\Sigma_a^{1/2} \Sigma_b \Sigma_a^{1/2}\bigr)^{1/2}

    Both square roots are of symmetric matrices and come from their eigenvalues, with those that rounding left below 0
    taken as 0; so singular covariances, of dead units or of few images, do no harm. Distances are comparable for
    features of the same network alone, and for sets of similar size: small sets are further apart.

    References
    ----------
    .. [1] Heusel et al. (2017), "GANs Trained by a Two Time-Scale Update Rule Converge to a Local Nash Equilibrium".

    Examples
    --------
    >>> features = np.array([[0.0], [2.0], [4.0]])
    >>> round(frechet_distance(features, features + 3), 6)
    9.0
    """
    first, second = _features("a", a), _features("b", b)
    if first.shape[1] != second.shape[1]:
        raise DataError(f"a has {first.shape[1]} features and b {second.shape[1]}, but both need the same number.")
    apart = first.mean(axis=0) - second.mean(axis=0)
    spread, other = _covariance(first), _covariance(second)
    values, vectors = np.linalg.eigh(spread)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    shared = np.linalg.eigvalsh(root @ other @ root)
    overlap = np.sqrt(np.maximum(shared, 0)).sum()
    return max(0.0, float(apart @ apart + np.trace(spread) + np.trace(other) - 2 * overlap))


def _features(name: str, given: npt.ArrayLike) -> FloatArray:
    features: FloatArray = np.asarray(given, dtype=np.float64)
    if features.ndim != 2 or len(features) < 2 or not np.isfinite(features).all():
        raise DataError(
            f"{name} has the shape {features.shape}, but has to be finite numbers of shape (n_images, n_features), of "
            "two images at least."
        )
    return features


def _covariance(features: FloatArray) -> FloatArray:
    centred = features - features.mean(axis=0)
    covariance: FloatArray = centred.T @ centred / (len(features) - 1)
    return covariance

"""Measures of filled images: per pixel, and between sets of images."""

from __future__ import annotations

__all__ = ["frechet_distance", "image_rmse", "psnr"]

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from mcflow.errors import DataError, ParameterError
from mcflow.typing import Array, BoolArray, FloatArray

#: Value of white in integer types; black is 0.
_WHITE = {"uint8": 255.0, "uint16": 65535.0}

#: Images that are scored at a time.
_BATCH_IMAGES = 4096


def image_rmse(filled: npt.ArrayLike, truth: npt.ArrayLike, missing: npt.ArrayLike | None = None) -> float:
    """Return the root mean squared error of filled pixels, in units of the range from black to white.

    Parameters
    ----------
    filled, truth : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
        Images of uint8 or uint16, which are divided by the maximum of their type, or floats from 0 to 1.
    missing : array-like of bool of shape (n_images, height, width) or the shape of the images, optional
        Pixels to score; by default all.

    Returns
    -------
    float
        The error over all channels of all scored pixels.

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
    filled, truth, missing
        As for `image_rmse`. By default whole images are scored, including observed pixels.
    peak : float, default=1.0
        Difference between black and white, for floats of another range.

    Returns
    -------
    float
        The ratio; infinite for equal images.

    Raises
    ------
    DataError
        As for `image_rmse`.
    ParameterError
        When the peak is not a positive number.

    Notes
    -----
    .. math:: \mathrm{PSNR} = 10 \log_{10} \frac{\mathrm{peak}^2}{\mathrm{MSE}}

    with one mean squared error over all scored pixels of all images. At a missing rate r, the ratio of whole images
    exceeds that of the missing pixels by :math:`-10 \log_{10} r`, so results have to state which of the two they are.

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
        raise DataError("No pixel is missing, so there is nothing to score. Give the mask of the filled pixels.")
    if not math.isfinite(total):
        raise DataError("A scored pixel of filled or truth is not a finite number.")
    return total / count


def _errors(filled: Array, truth: Array, missing: npt.ArrayLike | None) -> Iterator[FloatArray]:
    """Yield the errors of scored pixels batch by batch, to avoid float64 copies of all images."""
    if filled.shape != truth.shape or filled.ndim not in (3, 4):
        raise DataError(
            f"filled has the shape {filled.shape} and truth {truth.shape}, but both have to have the same, "
            "(n_images, height, width) or (n_images, height, width, channels)."
        )
    mask = _scored(missing, truth)
    for first in range(0, len(truth), _BATCH_IMAGES):
        part = slice(first, first + _BATCH_IMAGES)
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
    """Return images as float64, with integers scaled to [0, 1]."""
    if np.issubdtype(images.dtype, np.floating):
        return images.astype(np.float64)
    if images.dtype.name not in _WHITE:
        raise DataError(f"Images are of type {images.dtype}, but have to be uint8, uint16 or floats.")
    return images / _WHITE[images.dtype.name]


def frechet_distance(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    r"""Return the Fréchet distance between two sets of features, each modelled as a Gaussian; lower is closer.

    Parameters
    ----------
    a, b : array-like of shape (n_images, n_features)
        Features of filled and of true images, computed by a network; the sets may differ in size.

    Returns
    -------
    float
        The distance; 0 for equal means and covariances.

    Raises
    ------
    DataError
        When features are not finite, differ in number, or belong to fewer than two images.

    Notes
    -----
    The squared 2-Wasserstein distance between two Gaussians, as in Heusel et al. [1]_:

    .. math::
        \lVert\mu_a - \mu_b\rVert^2 + \operatorname{tr}\Sigma_a + \operatorname{tr}\Sigma_b
        - 2\operatorname{tr}\bigl(\Sigma_a^{1/2} \Sigma_b \Sigma_a^{1/2}\bigr)^{1/2}

    Both square roots are of symmetric matrices and are computed from eigenvalues, with negative ones set to 0, so the
    covariances may be singular. Distances are comparable only for features of the same network and sets of similar
    size: the distance between small sets is larger.

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
    shift = first.mean(axis=0) - second.mean(axis=0)
    cov_a, cov_b = _covariance(first), _covariance(second)
    values, vectors = np.linalg.eigh(cov_a)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    product = np.linalg.eigvalsh(root @ cov_b @ root)
    cross = np.sqrt(np.maximum(product, 0)).sum()
    return max(0.0, float(shift @ shift + np.trace(cov_a) + np.trace(cov_b) - 2 * cross))


def _features(name: str, given: npt.ArrayLike) -> FloatArray:
    features: FloatArray = np.asarray(given, dtype=np.float64)
    if features.ndim != 2 or len(features) < 2 or not np.isfinite(features).all():
        raise DataError(
            f"{name} has the shape {features.shape}, but has to be finite numbers of shape (n_images, n_features), for "
            "at least two images."
        )
    return features


def _covariance(features: FloatArray) -> FloatArray:
    centred = features - features.mean(axis=0)
    covariance: FloatArray = centred.T @ centred / (len(features) - 1)
    return covariance

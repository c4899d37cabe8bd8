"""The protocol for images: the same kind of holes in training and test images, a fit on the former, scores of both."""

from __future__ import annotations

__all__ = ["ImageSplit", "Judge", "image_scores", "split_images", "with_holes"]

import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from mcflow import metrics
from mcflow.benchmarks.keys import key_of
from mcflow.errors import ParameterError
from mcflow.masks import mask_images
from mcflow.metrics import Score
from mcflow.typing import Array, BoolArray, FloatArray

if TYPE_CHECKING:
    from mcflow.data.images import ImageSet

#: Training images, the first ones, that are filled and scored too.
MOST_TRAIN = 10_000

_IMAGES_AT_ONCE = 4096


class ImageSplit(NamedTuple):
    """Complete training and test images, the masks of their hidden pixels, and the test images' classes."""

    train: Array
    test: Array
    hidden_train: BoolArray
    hidden_test: BoolArray
    labels: Array | None


def split_images(image_set: ImageSet, mask: str, n_train: int | None = None, n_test: int | None = None) -> ImageSplit:
    """Take the first images of a set and hide pixels of them.

    Parameters
    ----------
    image_set : ImageSet
        Complete images.
    mask : str
        As `mcflow.masks.mask_images` reads it.
    n_train, n_test : int, optional
        How many, by default all.

    Returns
    -------
    ImageSplit

    Raises
    ------
    ParameterError
        When the set has fewer images.

    Notes
    -----
    The name of the set, the word for the mask and "train" or "test" seed the masks, so every method gets the same.

    Examples
    --------
    >>> from mcflow.data.images import ImageSet
    >>> black = np.zeros((9, 4, 4), np.uint8)
    >>> split = split_images(ImageSet("dots", black, black), "halves:left", n_train=5)
    >>> split.train.shape, split.hidden_test.mean().item()
    ((5, 4, 4), 0.5)
    """
    parts, masks = [], []
    for part, images, number in (("train", image_set.train, n_train), ("test", image_set.test, n_test)):
        if number is not None and number > len(images):
            raise ParameterError(f"n_{part} is {number}, but {image_set.name} has {len(images)} such images.")
        parts.append(images[:number])
        masks.append(mask_images(parts[-1].shape, mask, _seed(image_set.name, mask, part)))
    labels = image_set.test_labels
    return ImageSplit(parts[0], parts[1], masks[0], masks[1], None if labels is None else labels[:n_test])


def _seed(name: str, mask: str, part: str) -> int:
    return int(key_of({"set": name, "mask": mask, "part": part})[:8], 16)


def with_holes(images: Array, hidden: BoolArray) -> Array:
    """Return images with black where pixels are hidden, so that no method can look.

    Parameters
    ----------
    images : ndarray of shape (n_images, height, width) or (n_images, height, width, channels)
        Complete.
    hidden : ndarray of bool of shape (n_images, height, width)
        True where a pixel is hidden.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> with_holes(np.array([[[7, 8]]]), np.array([[[True, False]]])).tolist()
    [[[0, 8]]]
    """
    holed = images.copy()
    holed[hidden] = 0
    return holed


class Judge(Protocol):
    """What says which class an image has, and what its features are."""

    def accuracy(self, images: Array, labels: Array) -> float:
        """Return the share of images that are given their own class."""

    def features(self, images: Array) -> FloatArray:
        """Return features of images, by which sets of them are compared."""


def image_scores(
    filled: Array,
    truth: Array,
    hidden: BoolArray,
    *,
    labels: Array | None = None,
    judge: Judge | None = None,
    prefix: str = "",
) -> dict[str, Score]:
    r"""Score filled images.

    Parameters
    ----------
    filled, truth : ndarray of uint8 of shape (n_images, height, width) or (n_images, height, width, channels)
        What came out, and what it should have been.
    hidden : ndarray of bool of shape (n_images, height, width)
        True where a pixel was hidden.
    labels : ndarray of shape (n_images,), optional
        The classes of the images.
    judge : Judge, optional
        A classifier trained on complete images.
    prefix : str, default=""
        Put before the names.

    Returns
    -------
    dict of Score
        rmse and psnr over the hidden pixels, image_psnr over all; with a judge accuracy, and frechet, how far the
        features of the filled images are from those of the true ones as a distribution.

    Notes
    -----
    Standard errors take images for independent. That of the mean squared error is the one of a ratio of sums over
    images, and carries over to RMSE and PSNR by the delta method; the distance has none.
    """
    rmse = metrics.image_rmse(filled, truth, hidden)
    error = _error(filled, truth, hidden, rmse)
    psnr = metrics.psnr(filled, truth, hidden)
    decibels = 20 / math.log(10) * error / rmse if rmse > 0 else 0.0
    scores = {
        "rmse": Score(rmse, error),
        "psnr": Score(psnr, decibels),
        "image_psnr": Score(metrics.psnr(filled, truth), decibels),
    }
    if judge is not None and labels is not None:
        share = judge.accuracy(filled, labels)
        scores["accuracy"] = Score(share, math.sqrt(share * (1 - share) / len(labels)))
        distance = metrics.frechet_distance(judge.features(filled), judge.features(truth))
        scores["frechet"] = Score(distance, math.nan)
    return {prefix + name: score for name, score in scores.items()}


def _error(filled: Array, truth: Array, hidden: BoolArray, rmse: float) -> float:
    """Return the standard error of an RMSE, images being drawn, pixels not."""
    spread, count = 0.0, 0
    channels = truth[0].size // hidden[0].size
    for first in range(0, len(truth), _IMAGES_AT_ONCE):
        part = slice(first, first + _IMAGES_AT_ONCE)
        gaps = (filled[part].astype(np.float64) - truth[part]) / 255
        gaps[~hidden[part]] = 0
        squares = np.square(gaps).reshape(len(gaps), -1).sum(axis=1)
        numbers = hidden[part].sum(axis=(1, 2)) * channels
        spread += float(np.square(squares - rmse**2 * numbers).sum())
        count += int(numbers.sum())
    return math.sqrt(spread) / count / (2 * rmse) if rmse > 0 else 0.0

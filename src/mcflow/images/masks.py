"""Random masks of images: single pixels, blocks and halves."""

from __future__ import annotations

__all__ = ["hide_blocks", "hide_halves", "hide_pixels", "mask_images"]

import math
from collections.abc import Sequence

import numpy as np

from mcflow.config import Interval, Options, check_parameter
from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.random import seed_from
from mcflow.typing import BoolArray, RandomState

_SIDES = ("left", "right", "top", "bottom")
_SHARE = Interval(float, 0, 1)
_SIDE = Options((*_SIDES, "random"))


def hide_pixels(shape: Sequence[int], rate: float, rng: RandomState = None) -> BoolArray:
    """Hide pixels completely at random, with all their channels.

    Parameters
    ----------
    shape : tuple of int
        Shape of the images: (n_images, height, width) or (n_images, height, width, channels).
    rate : float
        Probability of hiding a pixel, from 0 to 1.
    rng : int, numpy Generator, numpy RandomState or None, default=None
        Source of randomness. An int gives a reproducible mask.

    Returns
    -------
    ndarray of bool of shape (n_images, height, width)
        True where a pixel is missing.

    Raises
    ------
    ParameterError
        If `rate` is out of range.
    DataError
        If `shape` is not that of images.

    Examples
    --------
    >>> mask = hide_pixels((100, 28, 28), 0.5, 0)
    >>> mask.shape, bool(abs(mask.mean() - 0.5) < 0.01)
    ((100, 28, 28), True)
    """
    size = _size(shape)
    check_parameter("rate", rate, _SHARE, "Give the fraction of pixels to hide, such as 0.5.")
    return np.random.default_rng(seed_from(rng)).random(size, dtype=np.float32) < rate


def hide_blocks(shape: Sequence[int], share: float, rng: RandomState = None) -> BoolArray:
    """Hide one rectangular block per image, with the proportions of the image, at a random position.

    Parameters
    ----------
    shape, rng
        As for `hide_pixels`, as are the result and the errors.
    share : float
        Fraction of the area of each image to hide, from 0 to 1.

    Notes
    -----
    The height of the block is that of the image times √share, rounded; its width is chosen so that the area is closest
    to the share. All positions inside the image are equally likely.

    Examples
    --------
    >>> mask = hide_blocks((5, 28, 28), 0.25, 0)
    >>> mask.sum(axis=(1, 2)).tolist()
    [196, 196, 196, 196, 196]
    """
    n_images, height, width = _size(shape)
    check_parameter("share", share, _SHARE, "Give the fraction of the area to hide, such as 0.25.")
    if share == 0:
        return np.zeros((n_images, height, width), dtype=bool)
    tall = min(height, max(1, round(height * math.sqrt(share))))
    wide = min(width, max(1, round(share * height * width / tall)))
    generator = np.random.default_rng(seed_from(rng))
    top = generator.integers(height - tall + 1, size=(n_images, 1, 1))
    left = generator.integers(width - wide + 1, size=(n_images, 1, 1))
    rows, columns = np.arange(height)[:, None], np.arange(width)
    return (rows >= top) & (rows < top + tall) & (columns >= left) & (columns < left + wide)


def hide_halves(shape: Sequence[int], side: str = "random", rng: RandomState = None) -> BoolArray:
    """Hide one half of every image.

    Parameters
    ----------
    shape, rng
        As for `hide_pixels`, as are the result and the errors.
    side : str, default="random"
        "left", "right", "top" or "bottom"; "random" chooses a side for each image. The middle row or column of an odd
        number is observed.

    Examples
    --------
    >>> hide_halves((1, 1, 4), "left").astype(int).tolist()
    [[[1, 1, 0, 0]]]
    """
    n_images, height, width = _size(shape)
    check_parameter("side", side, _SIDE, "Choose the half to hide.")
    rows, columns = np.indices((height, width))
    halves = {
        "left": columns < width // 2,
        "right": columns >= width - width // 2,
        "top": rows < height // 2,
        "bottom": rows >= height - height // 2,
    }
    if side != "random":
        return np.repeat(halves[side][None], n_images, axis=0)
    chosen = np.random.default_rng(seed_from(rng)).integers(len(_SIDES), size=n_images)
    return np.stack([halves[name] for name in _SIDES])[chosen]


def mask_images(shape: Sequence[int], word: str, rng: RandomState = None) -> BoolArray:
    """Hide parts of images as described by a string.

    Parameters
    ----------
    shape, rng
        As for `hide_pixels`, as are the result and the errors.
    word : str
        A rate alone or "pixels:RATE" for `hide_pixels`, "blocks:SHARE" for `hide_blocks`, "halves:SIDE" or "halves"
        for `hide_halves`.

    Examples
    --------
    >>> images = (3, 28, 28)
    >>> bool((mask_images(images, "0.5", 0) == mask_images(images, "pixels:0.5", 0)).all())
    True
    >>> mask_images(images, "halves:top").mean().item()
    0.5
    """
    text = str(word).strip()
    kind, _, rest = f"pixels:{text}".partition(":") if _is_number(text) else text.partition(":")
    rest = rest.strip()
    if kind == "halves":
        return hide_halves(shape, rest or "random", rng)
    if kind not in ("pixels", "blocks"):
        raise ParameterError(
            f"The mask {word!r} is not known. Give a rate such as '0.5', or 'pixels:0.5', 'blocks:0.25' or "
            f"'halves:left'.{did_you_mean(kind, ('pixels', 'blocks', 'halves'))}"
        )
    if not _is_number(rest):
        raise ParameterError(
            f"The mask '{kind}:{rest}' needs a number from 0 to 1 after the colon, as in '{kind}:0.5'."
        )
    return (hide_pixels if kind == "pixels" else hide_blocks)(shape, float(rest), rng)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _size(shape: Sequence[int]) -> tuple[int, int, int]:
    sizes = tuple(int(size) for size in shape)
    if len(sizes) not in (3, 4) or min(sizes) < 0:
        raise DataError(
            f"shape is {tuple(shape)}, but has to be (n_images, height, width) or (n_images, height, width, channels). "
            "One image is a batch of one."
        )
    return sizes[0], sizes[1], sizes[2]

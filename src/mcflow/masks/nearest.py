"""The first fill of images: a missing pixel starts as one of the nearest observed ones."""

from __future__ import annotations

__all__ = ["fill_nearest"]

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from mcflow.errors import DataError
from mcflow.random import cell_uniforms, hash_rows, seed_from
from mcflow.typing import Array, BoolArray, FloatArray, RandomState

#: Pixels that are worked on at a time: few enough for the caches of a processor.
_PIXELS_AT_ONCE = 1 << 16

#: Distances are taken within an image: neighbours are those of its own plane.
_WITHIN = np.zeros((3, 3, 3), dtype=bool)
_WITHIN[1] = True

_Places = npt.NDArray[np.int64]


def fill_nearest(
    images: npt.ArrayLike, missing: npt.ArrayLike | None = None, rng: RandomState = None, *, empty: Any = None
) -> Array:
    """Fill each missing pixel with one of the nearest observed pixels of its image, chosen at random.

    Parameters
    ----------
    images : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
        Whole numbers or floats; what stands in missing pixels is not looked at.
    missing : array-like of bool, optional
        True where a pixel is missing: of shape (n_images, height, width), or of that of the images. NaN is missing
        with or without it.
    rng : int, numpy Generator, numpy RandomState or None, default=None
        The seed. A fill depends on the seed and on the image itself, not on the images that it comes with.
    empty : float or array-like of shape (channels,), optional
        What images get that have nothing observed. By default the mean of what is observed in all images, or 0.

    Returns
    -------
    ndarray of the shape and type of images
        Complete; observed pixels as they were.

    Raises
    ------
    DataError
        When the arrays are not images and their mask.

    Notes
    -----
    Nearest are the observed pixels of the smallest square ring around the missing one that holds any, all at the same
    Chebyshev distance max(abs Δy, abs Δx); each has the same chance [1]_. All channels come from the same pixel,
    unless a mask tells channels apart; then each channel has rings of its own.

    A ring is two pieces of rows and two of columns. Running counts of observed pixels along rows and along columns say
    how many each piece holds and which is the k-th, so that the work does not grow with the ring.

    References
    ----------
    .. [1] Richardson et al. (2020), "MCFlow: Monte Carlo Flow Models for Data Imputation", CVPR.

    Examples
    --------
    >>> fill_nearest([[[1.0, np.nan, np.nan, 2.0]]], rng=0).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """
    given = np.asarray(images)
    holes = _holes(given, missing)
    filled = given.copy()
    seed = seed_from(rng)
    four = filled if filled.ndim == 4 else filled[..., None]
    at_once = max(1, _PIXELS_AT_ONCE // max(1, given[:1].size))
    for first in range(0, len(given), at_once):
        _fill_part(four[first : first + at_once], holes[first : first + at_once], seed)
    _fill_empty(four, holes, empty)
    return filled


def _holes(images: Array, missing: npt.ArrayLike | None) -> BoolArray:
    """Return which values are missing, of shape (n_images, height, width, channels), or 1 channel for all."""
    if images.ndim not in (3, 4) or not (np.issubdtype(images.dtype, np.number) or images.dtype == bool):
        raise DataError(
            f"Images have to be numbers of shape (n_images, height, width) or (n_images, height, width, channels), but "
            f"these are of shape {images.shape} and type {images.dtype}."
        )
    holes = np.zeros((*images.shape[:3], 1), dtype=bool)
    if missing is not None:
        mask: Array = np.asarray(missing)
        if mask.dtype != bool or mask.shape not in (images.shape, images.shape[:3]):
            raise DataError(
                f"missing is of shape {mask.shape} and type {mask.dtype}, but has to be boolean of shape "
                f"{images.shape[:3]} or that of the images, True where a pixel is missing."
            )
        holes = mask if mask.ndim == 4 else mask[..., None]
    if np.issubdtype(images.dtype, np.floating):
        holes = holes | np.isnan(images if images.ndim == 4 else images[..., None])
    together = holes.shape[3] > 1 and bool((holes == holes[..., :1]).all())
    return holes[..., :1] if together else holes


def _fill_part(images: Array, holes: BoolArray, seed: int) -> None:
    """Fill some images, of shape (n_images, height, width, channels), in place."""
    if not holes.any():
        return
    hashes = _hash_images(np.where(holes, np.nan, images.astype(np.float64)), seed)
    pixels = images.reshape(-1, images.shape[3])  # a view, as parts of a fresh copy lie together
    n_masks = holes.shape[3]
    for channel in range(n_masks):
        where, source = _donors(holes[..., channel], hashes)
        chosen = pixels if n_masks == 1 else pixels[:, channel : channel + 1]
        chosen[where] = chosen[source]


def _hash_images(values: FloatArray, seed: int) -> npt.NDArray[np.uint64]:
    """Hash each image with the seed: first its rows of pixels, then the rows' hashes."""
    n_images, height = values.shape[:2]
    rows = hash_rows(values.reshape(n_images * height, -1), seed)
    whole = (rows >> np.uint64(11)).astype(np.float64)  # 53 bits: exact
    return hash_rows(whole.reshape(n_images, height), seed)


class _Order(NamedTuple):
    """Pixels line by line: how many observed ones come before each, and where the observed ones are."""

    before: _Places
    places: _Places

    @classmethod
    def of_rows(cls, observed: BoolArray) -> _Order:
        """Read lines along the last axis of (n_images, height, width)."""
        before = np.zeros(observed.size + 1, dtype=np.int64)
        np.cumsum(observed.ravel(), out=before[1:])
        return cls(before, np.flatnonzero(observed))

    @classmethod
    def of_columns(cls, observed: BoolArray) -> _Order:
        """Read lines along the middle axis; places are those of the array as it is."""
        _, height, width = observed.shape
        before, places = cls.of_rows(observed.transpose(0, 2, 1))
        line, y = np.divmod(places, height)
        image, x = np.divmod(line, width)
        return cls(before, (image * height + y) * width + x)

    def piece(
        self, line: _Places, inside: BoolArray, length: int, first: _Places, last: _Places
    ) -> tuple[_Places, _Places]:
        """Return how many observed pixels come before a piece of a line, and how many it holds; none off the image."""
        begin = np.where(inside, line * length + first, 0)
        end = np.where(inside, line * length + last + 1, 0)
        start = self.before[begin]
        return start, self.before[end] - start


def _donors(holes: BoolArray, hashes: npt.NDArray[np.uint64]) -> tuple[_Places, _Places]:
    """Return flat places of missing pixels and of the observed ones that they take their values from."""
    _, height, width = holes.shape
    holes = holes & ~holes.all(axis=(1, 2), keepdims=True)
    where = np.flatnonzero(holes)
    if not len(where):
        return where, where
    ring = ndimage.distance_transform_cdt(holes, metric=_WITHIN).ravel()[where].astype(np.int64)
    uniform = cell_uniforms(hashes[where // (height * width)], where % (height * width), np.zeros(1, dtype=np.int64))
    return where, _chosen(~holes, where, ring, uniform[0])


def _chosen(observed: BoolArray, where: _Places, ring: _Places, uniform: FloatArray) -> _Places:
    """Choose an observed pixel of each ring: two pieces of rows with the corners, two of columns without."""
    _, height, width = observed.shape
    line, x = np.divmod(where, width)
    image, y = np.divmod(line, height)
    left, right = np.maximum(x - ring, 0), np.minimum(x + ring, width - 1)
    top, bottom = np.maximum(y - ring + 1, 0), np.minimum(y + ring - 1, height - 1)
    rows, columns, column = _Order.of_rows(observed), _Order.of_columns(observed), image * width + x
    pieces = [
        (rows, *rows.piece(line - ring, y >= ring, width, left, right)),
        (rows, *rows.piece(line + ring, y + ring < height, width, left, right)),
        (columns, *columns.piece(column - ring, x >= ring, height, top, bottom)),
        (columns, *columns.piece(column + ring, x + ring < width, height, top, bottom)),
    ]
    total = sum(count for _, _, count in pieces)
    rank = (uniform * total).astype(np.int64)
    found = np.zeros_like(where)
    for order, start, count in pieces:
        here = np.flatnonzero((rank >= 0) & (rank < count))
        found[here] = order.places[start[here] + rank[here]]
        rank = np.where(rank < 0, rank, rank - count)
    return found


def _fill_empty(images: Array, holes: BoolArray, empty: Any) -> None:
    """Fill images that have nothing observed, channel by channel, in place."""
    for channel in range(images.shape[3]):
        mask, values = holes[..., channel % holes.shape[3]], images[..., channel]
        bare = mask.all(axis=(1, 2))
        if bare.any():
            values[bare] = _level(values, mask, images.dtype) if empty is None else _said(empty, channel, images)


def _level(values: Array, mask: BoolArray, dtype: np.dtype[Any]) -> Any:
    if mask.all():
        return 0
    mean = values.mean(where=~mask, dtype=np.float64)
    return mean if np.issubdtype(dtype, np.floating) else np.rint(mean)


def _said(empty: Any, channel: int, images: Array) -> Any:
    try:
        return np.broadcast_to(np.asarray(empty), images.shape[3])[channel]
    except ValueError as error:
        raise DataError(
            f"empty has to be a number, or one for each of the {images.shape[3]} channels: {error}."
        ) from error

"""First fill of images: missing pixels take the value of a nearest observed pixel."""

from __future__ import annotations

__all__ = ["fill_nearest"]

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from mcflow.errors import DataError
from mcflow.images.pixels import missing_values
from mcflow.random import cell_uniforms, hash_rows, seed_from
from mcflow.typing import Array, BoolArray, FloatArray, RandomState

_PIXELS_AT_ONCE = 1 << 16  #: Pixels that are processed together; few enough for the caches of a processor.
_WITHIN = np.zeros((3, 3, 3), dtype=bool)  #: Neighbourhood for distances within an image, in a stack of images.
_WITHIN[1] = True

_Places = npt.NDArray[np.int64]


def fill_nearest(
    images: npt.ArrayLike, missing: npt.ArrayLike | None = None, rng: RandomState = None, *, empty: Any = None
) -> Array:
    """Fill each missing pixel with one of the nearest observed pixels of its image, chosen at random.

    Parameters
    ----------
    images : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
        Integers or floats; values of missing pixels are ignored.
    missing : array-like of bool, optional
        True where a pixel is missing, of shape (n_images, height, width) or that of `images`. NaN is always missing.
    rng : int, numpy Generator, numpy RandomState or None, default=None
        Source of randomness. The fill of an image depends on the seed and the image only, not on the other images.
    empty : float or array-like of shape (channels,), optional
        Value of images without an observed pixel. By default the mean of all observed pixels, or 0.

    Returns
    -------
    ndarray of the shape and type of `images`
        Complete images; observed pixels are unchanged.

    Raises
    ------
    DataError
        If the arrays are not images and their mask.

    Notes
    -----
    The nearest pixels are the observed ones at the smallest Chebyshev distance max(abs Δy, abs Δx); one of them is
    chosen with equal probabilities (Richardson et al. 2020). All channels come from the same pixel, unless the mask
    differs between channels; then channels are filled separately.

    Examples
    --------
    >>> fill_nearest([[[1.0, np.nan, np.nan, 2.0]]], rng=0).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """
    given = np.asarray(images)
    if given.ndim not in (3, 4) or not (np.issubdtype(given.dtype, np.number) or given.dtype == bool):
        raise DataError(
            f"Images have to be numbers of shape (n_images, height, width) or (n_images, height, width, channels), but "
            f"these are of shape {given.shape} and type {given.dtype}."
        )
    mask = missing_values(given, missing, "missing")
    if mask.shape[3] > 1 and bool((mask == mask[..., :1]).all()):
        mask = mask[..., :1]
    filled = given.copy()
    seed = seed_from(rng)
    four = filled if filled.ndim == 4 else filled[..., None]
    at_once = max(1, _PIXELS_AT_ONCE // max(1, given[:1].size))
    for first in range(0, len(given), at_once):
        _fill_part(four[first : first + at_once], mask[first : first + at_once], seed)
    _fill_empty(four, mask, empty)
    return filled


def _fill_part(images: Array, mask: BoolArray, seed: int) -> None:
    """Fill some images (n_images, height, width, channels) in place."""
    if not mask.any():
        return
    hashes = _hash_images(np.where(mask, np.nan, images.astype(np.float64)), seed)
    pixels = images.reshape(-1, images.shape[3])  # a view, as a slice of a fresh copy is contiguous
    n_masks = mask.shape[3]
    for channel in range(n_masks):
        where, source = _donors(mask[..., channel], hashes)
        chosen = pixels if n_masks == 1 else pixels[:, channel : channel + 1]
        chosen[where] = chosen[source]


def _hash_images(values: FloatArray, seed: int) -> npt.NDArray[np.uint64]:
    """Hash each image with the seed: first its rows of pixels, then the hashes of its rows."""
    n_images, height = values.shape[:2]
    rows = hash_rows(values.reshape(n_images * height, -1), seed)
    whole = (rows >> np.uint64(11)).astype(np.float64)  # 53 bits: exact
    return hash_rows(whole.reshape(n_images, height), seed)


class _Order(NamedTuple):
    """Cumulative counts of observed pixels by line, and their positions: the k-th of a segment in constant time."""

    before: _Places
    places: _Places

    @classmethod
    def of_rows(cls, observed: BoolArray) -> _Order:
        """Count along the last axis of (n_images, height, width)."""
        before = np.zeros(observed.size + 1, dtype=np.int64)
        np.cumsum(observed.ravel(), out=before[1:])
        return cls(before, np.flatnonzero(observed))

    @classmethod
    def of_columns(cls, observed: BoolArray) -> _Order:
        """Count along the middle axis; positions are those in the original array."""
        _, height, width = observed.shape
        before, places = cls.of_rows(observed.transpose(0, 2, 1))
        line, y = np.divmod(places, height)
        image, x = np.divmod(line, width)
        return cls(before, (image * height + y) * width + x)

    def segment(
        self, line: _Places, inside: BoolArray, length: int, first: _Places, last: _Places
    ) -> tuple[_Places, _Places]:
        """Return how many observed pixels are before a segment of a line and in it; 0 if it is outside the image."""
        begin = np.where(inside, line * length + first, 0)
        end = np.where(inside, line * length + last + 1, 0)
        start = self.before[begin]
        return start, self.before[end] - start


def _donors(mask: BoolArray, hashes: npt.NDArray[np.uint64]) -> tuple[_Places, _Places]:
    """Return flat positions of missing pixels and of the observed pixels whose values they take."""
    _, height, width = mask.shape
    mask = mask & ~mask.all(axis=(1, 2), keepdims=True)
    where = np.flatnonzero(mask)
    if not len(where):
        return where, where
    ring = ndimage.distance_transform_cdt(mask, metric=_WITHIN).ravel()[where].astype(np.int64)
    uniform = cell_uniforms(hashes[where // (height * width)], where % (height * width), np.zeros(1, dtype=np.int64))
    return where, _choose(~mask, where, ring, uniform[0])


def _choose(observed: BoolArray, where: _Places, ring: _Places, uniform: FloatArray) -> _Places:
    """Choose an observed pixel of each ring: two segments of rows with the corners, two of columns without."""
    _, height, width = observed.shape
    line, x = np.divmod(where, width)
    image, y = np.divmod(line, height)
    left, right = np.maximum(x - ring, 0), np.minimum(x + ring, width - 1)
    top, bottom = np.maximum(y - ring + 1, 0), np.minimum(y + ring - 1, height - 1)
    rows, columns, column = _Order.of_rows(observed), _Order.of_columns(observed), image * width + x
    segments = [
        (rows, *rows.segment(line - ring, y >= ring, width, left, right)),
        (rows, *rows.segment(line + ring, y + ring < height, width, left, right)),
        (columns, *columns.segment(column - ring, x >= ring, height, top, bottom)),
        (columns, *columns.segment(column + ring, x + ring < width, height, top, bottom)),
    ]
    total = sum(count for _, _, count in segments)
    rank = (uniform * total).astype(np.int64)
    found = np.zeros_like(where)
    for order, start, count in segments:
        here = np.flatnonzero((rank >= 0) & (rank < count))
        found[here] = order.places[start[here] + rank[here]]
        rank = np.where(rank < 0, rank, rank - count)
    return found


def _fill_empty(images: Array, mask: BoolArray, empty: Any) -> None:
    """Fill images without an observed pixel, channel by channel, in place."""
    n_channels = images.shape[3]
    for channel in range(n_channels):
        missing, values = mask[..., channel % mask.shape[3]], images[..., channel]
        bare = missing.all(axis=(1, 2))
        if not bare.any():
            continue
        if empty is None:
            mean = 0 if missing.all() else values.mean(where=~missing, dtype=np.float64)
            values[bare] = mean if np.issubdtype(values.dtype, np.floating) else np.rint(mean)
            continue
        try:
            values[bare] = np.broadcast_to(np.asarray(empty), n_channels)[channel]
        except ValueError as error:
            raise DataError(
                f"empty has to be a number, or one for each of the {n_channels} channels: {error}."
            ) from error

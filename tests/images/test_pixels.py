"""Tests of the conversion of images to pixels and back."""

from __future__ import annotations

import numpy as np
import pytest

from mcflow.errors import DataError
from mcflow.images.pixels import read_pixels


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 4, 5, 1), (3, 4, 5, 3)])
def test_images_are_restored_exactly(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    top = {"uint8": 255, "uint16": 65535}.get(dtype, 1)
    images = (rng.random(shape) * top).astype(dtype)
    codec, pixels, missing = read_pixels(images)
    assert pixels.shape == (3, shape[3] if len(shape) == 4 else 1, 4, 5)
    assert pixels.min() >= 0
    assert pixels.max() <= 1
    assert not missing.any()
    back = codec.images(pixels)
    assert back.dtype == images.dtype
    assert back.shape == images.shape
    np.testing.assert_allclose(back, images, atol=0 if dtype == "uint8" else 1e-6 * top)


def test_nan_and_mask_are_missing_and_leave_nothing_behind() -> None:
    images = np.full((2, 3, 3), 0.5)
    images[0, 1, 1] = np.nan
    mask = np.zeros((2, 3, 3), dtype=bool)
    mask[1, 0, 2] = True
    _, pixels, missing = read_pixels(images, mask)
    assert missing.sum() == 2
    assert missing[0, 0, 1, 1]
    assert missing[1, 0, 0, 2]
    assert (pixels[missing] == 0).all()


def test_mask_of_pixels_covers_all_channels_and_one_of_channels_does_not() -> None:
    images = np.zeros((1, 2, 2, 3), dtype=np.uint8)
    one = np.zeros((1, 2, 2), dtype=bool)
    one[0, 0, 1] = True
    assert read_pixels(images, one)[2].sum() == 3
    single = np.zeros(images.shape, dtype=bool)
    single[0, 0, 1, 2] = True
    found = read_pixels(images, single)[2]
    assert found.sum() == 1
    assert found[0, 2, 0, 1]


def test_range_of_floats_is_that_of_observed_pixels() -> None:
    images = np.array([[[-2.0, 6.0], [np.nan, 0.0]]])
    codec, pixels, _ = read_pixels(images)
    assert (codec.low, codec.high) == (-2, 6)
    assert pixels[0, 0, 1, 1] == pytest.approx(0.25)
    assert read_pixels(images, value_range=(-10, 10))[0].low == -10
    flat = read_pixels(np.full((1, 2, 2), 7.0))[0]
    assert flat.low < 7 < flat.high


@pytest.mark.parametrize(
    ("images", "mask", "word"),
    [
        (np.zeros((4, 4)), None, "images\\[None\\]"),
        (np.zeros((0, 4, 4)), None, "no pixel"),
        (np.zeros((1, 4, 4), dtype=int), None, "uint8"),
        (np.full((1, 4, 4), np.nan), None, "observed"),
        (np.full((1, 4, 4), np.inf), None, "infinite"),
        (np.zeros((1, 4, 4)), np.zeros((1, 4, 4)), "bool"),
        (np.zeros((1, 4, 4)), np.zeros((1, 4, 5), dtype=bool), "shape"),
    ],
)
def test_arrays_that_are_not_images_are_refused(images: np.ndarray, mask: np.ndarray | None, word: str) -> None:
    with pytest.raises(DataError, match=word):
        read_pixels(images, mask)


def test_images_of_another_size_or_type_than_at_fit_are_refused() -> None:
    codec, _, _ = read_pixels(np.zeros((2, 4, 4), dtype=np.uint8))
    with pytest.raises(DataError, match="resize"):
        codec.of(np.zeros((2, 4, 5), dtype=np.uint8))
    with pytest.raises(DataError, match="uint8"):
        codec.of(np.zeros((2, 4, 4), dtype=np.float32))
    floats, _, _ = read_pixels(np.zeros((2, 4, 4), dtype=np.float32))
    assert floats.of(np.zeros((2, 4, 4), dtype=np.float64))[1].dtype == np.float32

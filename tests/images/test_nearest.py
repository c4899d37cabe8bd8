"""The first fill of images against a slow and obvious search, and the properties that it promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcflow.errors import DataError
from mcflow.images.masks import hide_halves, hide_pixels
from mcflow.images.nearest import fill_nearest


def places(n: int, height: int, width: int) -> np.ndarray:
    """Images whose every pixel holds its own number, so that a fill tells where it came from."""
    return np.broadcast_to(
        np.arange(height * width, dtype=np.float64).reshape(height, width), (n, height, width)
    ).copy()


def nearest_of(missing: np.ndarray, y: int, x: int) -> set[int]:
    seen = np.argwhere(~missing)
    far = np.abs(seen - (y, x)).max(axis=1)
    return {int(a * missing.shape[1] + b) for a, b in seen[far == far.min()]}


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0.1, 0.98), st.integers(0, 2**31), st.sampled_from([1, 3]))
def test_every_fill_is_one_of_the_nearest_observed_pixels(height, width, rate, seed, n) -> None:
    missing = hide_pixels((n, height, width), rate, seed)
    missing[:, height // 2, width // 3] = False
    filled = fill_nearest(places(n, height, width), missing, seed)
    assert (filled[~missing] == places(n, height, width)[~missing]).all()
    for image, y, x in np.argwhere(missing):
        assert int(filled[image, y, x]) in nearest_of(missing[image], y, x)


def test_every_nearest_pixel_has_the_same_chance() -> None:
    missing = np.ones((1, 7, 7), dtype=bool)
    missing[0, [1, 1, 5, 3, 2, 4, 6], [1, 4, 5, 1, 5, 1, 6]] = False  # six in the ring of the middle, one beyond
    expected = sorted(nearest_of(missing[0], 3, 3))
    drawn = [int(fill_nearest(places(1, 7, 7), missing, seed)[0, 3, 3]) for seed in range(3000)]
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == expected
    assert len(expected) == 6
    chi_square = float(((counts - 500) ** 2 / 500).sum())
    assert chi_square < 25.7, "the 99.99 % point for 5 degrees of freedom"


def test_fill_depends_on_the_seed_and_the_image_alone() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (300, 11, 13, 3), dtype=np.uint8)
    missing = hide_pixels(images.shape, 0.7, 1)
    filled = fill_nearest(images, missing, 5)
    order = rng.permutation(300)
    assert (fill_nearest(images[order], missing[order], 5) == filled[order]).all()
    assert (fill_nearest(images[7:8], missing[7:8], 5) == filled[7:8]).all()
    assert (fill_nearest(images, missing, 6) != filled).any()
    scribbled = np.where(missing[..., None], 77, images).astype(np.uint8)
    assert (fill_nearest(scribbled, missing, 5) == filled).all(), "what stands in missing pixels does not matter"


def test_images_with_equal_masks_are_filled_independently() -> None:
    images = np.random.default_rng(0).random((500, 3, 3)) + places(500, 3, 3)
    missing = np.zeros(images.shape, dtype=bool)
    missing[:, 1, 1] = True
    source = fill_nearest(images, missing, 0)[:, 1, 1].astype(int)
    assert np.bincount(source, minlength=9).tolist()[4] == 0
    assert np.bincount(source, minlength=9)[[0, 1, 2, 3, 5, 6, 7, 8]].min() > 30


def test_channels_come_from_one_pixel() -> None:
    base = places(50, 8, 8)
    images = np.stack([base, base + 100, base + 200], axis=-1)
    missing = hide_pixels(images.shape, 0.8, 0)
    missing[:, 0, 0] = False
    filled = fill_nearest(images, missing, 0)
    assert (filled[..., 1] - filled[..., 0] == 100).all()
    assert (filled[..., 2] - filled[..., 0] == 200).all()
    whole_mask = np.repeat(missing[..., None], 3, axis=-1)
    assert (fill_nearest(images, whole_mask, 0) == filled).all()


def test_mask_that_tells_channels_apart_changes_only_the_images_it_does_so_in() -> None:
    images = np.random.default_rng(0).random((20, 8, 8, 3))
    missing = np.repeat(hide_pixels(images.shape, 0.5, 0)[..., None], 3, axis=-1)
    missing[:, 0, 0] = False
    together = fill_nearest(images, missing, 0)
    missing[3, 4, 4] = [False, True, True]
    apart = fill_nearest(images, missing, 0)
    others = np.arange(20) != 3
    assert (apart[others] == together[others]).all()
    assert apart[3, 4, 4, 0] == images[3, 4, 4, 0]
    assert not np.isnan(apart).any()
    assert apart[3, 4, 4, 1] in images[3, ..., 1][~missing[3, ..., 1]]


def test_nan_is_missing_with_and_without_a_mask_and_the_type_is_kept() -> None:
    images = np.array([[[1, np.nan, np.nan, 2]]], dtype=np.float32)
    for mask in (None, np.isnan(images), np.zeros(images.shape, dtype=bool)):
        filled = fill_nearest(images, mask, 0)
        assert filled.dtype == np.float32
        assert filled.tolist() == [[[1, 1, 2, 2]]]
    assert np.isnan(images[0, 0, 1]), "what was given is left alone"


def test_images_with_nothing_observed_get_the_mean_of_the_others_or_what_is_said() -> None:
    images = np.array([[[[1, 10]]], [[[3, 21]]], [[[200, 200]]]], dtype=np.uint8)
    missing = np.array([False, False, True]).reshape(3, 1, 1)
    assert fill_nearest(images, missing, 0)[2].tolist() == [[[2, 16]]]
    assert fill_nearest(images, missing, 0, empty=7)[2].tolist() == [[[7, 7]]]
    assert fill_nearest(images, missing, 0, empty=[7, 9])[2].tolist() == [[[7, 9]]]
    assert fill_nearest(images, np.ones((3, 1, 1), dtype=bool), 0).tolist() == np.zeros((3, 1, 1, 2)).tolist()
    with pytest.raises(DataError, match="each of the 2 channels"):
        fill_nearest(images, missing, 0, empty=[1, 2, 3])


def test_channel_with_nothing_observed_gets_its_own_mean() -> None:
    images = np.stack([places(2, 2, 2), places(2, 2, 2) + 10], axis=-1)
    missing = np.zeros(images.shape, dtype=bool)
    missing[0, ..., 1] = True
    filled = fill_nearest(images, missing, 0)
    assert (filled[0, ..., 1] == 11.5).all()
    assert (filled[0, ..., 0] == images[0, ..., 0]).all()


def test_wide_gaps_take_the_edge_of_the_observed_pixels() -> None:
    missing = hide_halves((1, 6, 20), "left")
    filled = fill_nearest(places(1, 6, 20), missing, 0)
    assert set((filled[missing] % 20).astype(int)) == {10}


@pytest.mark.parametrize(
    ("images", "missing", "message"),
    [
        (np.zeros((3, 3)), None, "Images have to be"),
        (np.zeros((1, 3, 3), dtype="U1"), None, "Images have to be"),
        (np.zeros((1, 3, 3)), np.zeros((1, 3, 3)), "has to be of type bool"),
        (np.zeros((1, 3, 3)), np.zeros((1, 3, 4), dtype=bool), "has to be of type bool"),
    ],
)
def test_arrays_that_are_not_images_and_a_mask_are_refused(images, missing, message) -> None:
    with pytest.raises(DataError, match=message):
        fill_nearest(images, missing)


def test_no_images_give_no_images() -> None:
    assert fill_nearest(np.zeros((0, 3, 3)), rng=0).shape == (0, 3, 3)

"""Tests of random masks of images: rates, positions, strings and errors."""

from __future__ import annotations

import numpy as np
import pytest

from mcflow.errors import DataError, ParameterError
from mcflow.images.masks import hide_blocks, hide_halves, hide_pixels, mask_images

SHAPE = (400, 9, 12)


def test_pixels_have_the_rate_everywhere_and_no_channels() -> None:
    mask = hide_pixels((4000, 5, 6, 3), 0.3, 0)
    assert mask.shape == (4000, 5, 6)
    assert mask.dtype == bool
    assert np.abs(mask.mean(axis=0) - 0.3).max() < 5 * np.sqrt(0.3 * 0.7 / 4000), "every pixel has the same probability"
    assert not hide_pixels(SHAPE, 0, 0).any()
    assert hide_pixels(SHAPE, 1, 0).all()


@pytest.mark.parametrize(("share", "tall", "wide"), [(0.25, 4, 7), (1.0, 9, 12), (1e-6, 1, 1), (0.5, 6, 9)])
def test_blocks_are_one_rectangle_of_the_share_an_image(share, tall, wide) -> None:
    mask = hide_blocks(SHAPE, share, 0)
    assert (mask.any(axis=2).sum(axis=1) == tall).all()
    assert (mask.any(axis=1).sum(axis=1) == wide).all()
    assert (mask.sum(axis=(1, 2)) == tall * wide).all(), "the rectangle is complete"
    rows, columns = mask.any(axis=2), mask.any(axis=1)
    assert (np.abs(np.diff(rows.astype(int), axis=1)).sum(axis=1) <= 2).all()
    assert (np.abs(np.diff(columns.astype(int), axis=1)).sum(axis=1) <= 2).all()


def test_blocks_reach_every_place_where_they_fit() -> None:
    mask = hide_blocks(SHAPE, 0.25, 0)
    corners = set(zip(mask.any(axis=2).argmax(axis=1).tolist(), mask.any(axis=1).argmax(axis=1).tolist(), strict=True))
    assert corners == {(y, x) for y in range(6) for x in range(6)}
    assert not hide_blocks(SHAPE, 0, 0).any()


def test_halves_are_the_named_side_and_leave_the_middle_of_odd_numbers() -> None:
    top, bottom = hide_halves(SHAPE, "top"), hide_halves(SHAPE, "bottom")
    assert top[:, :4].all()
    assert not top[:, 4:].any()
    assert (bottom == top[:, ::-1]).all()
    left, right = hide_halves(SHAPE, "left"), hide_halves(SHAPE, "right")
    assert left[:, :, :6].all()
    assert (right == ~left).all()


def test_random_halves_are_each_side_about_as_often() -> None:
    mask = hide_halves(SHAPE, "random", 0)
    sides = [hide_halves((1, 9, 12), side)[0] for side in ("left", "right", "top", "bottom")]
    counts = [int((mask == side).all(axis=(1, 2)).sum()) for side in sides]
    assert sum(counts) == 400
    assert min(counts) > 70


@pytest.mark.parametrize("word", ["0.5", "pixels:0.5", "blocks:0.25", "halves:random", "halves"])
def test_same_seed_gives_the_same_mask_and_another_seed_another(word) -> None:
    assert (mask_images(SHAPE, word, 3) == mask_images(SHAPE, word, 3)).all()
    assert (mask_images(SHAPE, word, 3) != mask_images(SHAPE, word, 4)).any()
    generators = np.random.default_rng(5), np.random.default_rng(5)
    assert (mask_images(SHAPE, word, generators[0]) == mask_images(SHAPE, word, generators[1])).all()


def test_strings_select_their_functions() -> None:
    assert (mask_images(SHAPE, "0.4", 1) == hide_pixels(SHAPE, 0.4, 1)).all()
    assert (mask_images(SHAPE, " pixels:0.4", 1) == hide_pixels(SHAPE, 0.4, 1)).all()
    assert (mask_images(SHAPE, "blocks: 0.2", 1) == hide_blocks(SHAPE, 0.2, 1)).all()
    assert (mask_images(SHAPE, "halves:left", 1) == hide_halves(SHAPE, "left")).all()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("block:0.2", "Did you mean 'blocks'"),
        ("half", "is not known"),
        ("pixels:", "needs a number from 0 to 1"),
        ("pixels:many", "needs a number from 0 to 1"),
        ("1.5", "at most 1"),
        ("nan", "at most 1"),
        ("halves:lft", "Did you mean 'left'"),
        ("", "is not known"),
    ],
)
def test_unknown_strings_are_refused(word, message) -> None:
    with pytest.raises(ParameterError, match=message):
        mask_images(SHAPE, word)


@pytest.mark.parametrize("shape", [(3, 3), (1, 2, 3, 4, 5), (-1, 3, 3)])
def test_shapes_that_are_not_of_images_are_refused(shape) -> None:
    with pytest.raises(DataError, match="shape is"):
        hide_pixels(shape, 0.5)

"""Tests of the sizes that depend on images, and of the order in which pixels are drawn."""

from __future__ import annotations

import numpy as np

from mcflow.images.config import ImageConfig
from mcflow.images.model import bayer_rounds


def test_rounds_cover_every_pixel_once_with_their_shares() -> None:
    rounds = bayer_rounds(8, 8, (0.25, 0.5, 1.0))
    assert [int(places.sum()) for places in rounds] == [16, 16, 32]
    np.testing.assert_array_equal(np.sum(bayer_rounds(5, 11), axis=0), 1)


def test_epochs_follow_from_the_number_of_images() -> None:
    assert ImageConfig().for_images(60_000, (28, 28)).max_epochs == 2
    assert ImageConfig().for_images(10, (28, 28)).max_epochs == 60
    assert ImageConfig(max_epochs=7).for_images(10, (28, 28)).max_epochs == 7

"""Random masks resemble the masks of the images."""

from __future__ import annotations

import pytest
import torch

from mcflow.images.trainer import MaskGenerator


def blocks(n_images: int) -> torch.Tensor:
    missing = torch.zeros(n_images, 1, 16, 16, dtype=torch.bool)
    for k in range(n_images):
        missing[k, :, k % 8 : k % 8 + 8, 3:11] = True
    return missing


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_scattered_pixels_are_not_taken_for_shapes(rate: float, generator: torch.Generator) -> None:
    assert not MaskGenerator(torch.rand((64, 1, 16, 16), generator=generator) < rate).shaped


def test_blocks_and_halves_are_shapes() -> None:
    half = torch.zeros(4, 1, 16, 16, dtype=torch.bool)
    half[..., :8] = True
    assert MaskGenerator(blocks(8)).shaped
    assert MaskGenerator(half).shaped
    assert not MaskGenerator(torch.zeros_like(half)).shaped


@pytest.mark.parametrize("shaped", [True, False])
def test_only_observed_pixels_are_hidden(shaped: bool, generator: torch.Generator) -> None:
    missing = blocks(32) if shaped else torch.rand((32, 1, 16, 16), generator=generator) < 0.4
    hidden = MaskGenerator(missing)(~missing, generator)
    assert hidden.any()
    assert not (hidden & missing).any()


def test_shapes_are_copied_whole(generator: torch.Generator) -> None:
    hidden = MaskGenerator(blocks(8))(torch.ones(8, 1, 16, 16, dtype=torch.bool), generator)
    assert hidden.flatten(1).sum(1).tolist() == [64] * 8
    assert len({tuple(image.flatten().tolist()) for image in hidden}) > 4


def test_channels_of_a_pixel_are_hidden_together_if_they_are_missing_together(generator: torch.Generator) -> None:
    together = (torch.rand((16, 1, 8, 8), generator=generator) < 0.3).expand(-1, 3, -1, -1)
    apart = torch.rand((16, 3, 8, 8), generator=generator) < 0.3
    seen = torch.ones(16, 3, 8, 8, dtype=torch.bool)
    hidden = MaskGenerator(together)(seen, generator)
    assert (hidden == hidden[:, :1]).all()
    hidden = MaskGenerator(apart)(seen, generator)
    assert not (hidden == hidden[:, :1]).all()

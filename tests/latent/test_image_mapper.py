"""H of images: what is not shown has no say, and any size will do."""

from __future__ import annotations

import pytest
import torch

from mcflow.latent.image_mapper import PARTS, ImageMapper


@pytest.mark.parametrize(("n_channels", "height", "width", "n_scales"), [(1, 28, 28, 3), (3, 7, 10, 3), (2, 1, 5, 1)])
def test_answers_have_the_size_of_the_image(
    n_channels: int, height: int, width: int, n_scales: int, generator: torch.Generator
) -> None:
    mapper = ImageMapper(n_channels, 8, n_scales=n_scales, generator=generator)
    shown = torch.ones(2, n_channels, height, width)
    answer = mapper(torch.rand(shown.shape, generator=generator), shown)
    assert answer.direct.shape == shown.shape
    assert answer.context.shape == (2, 8, height, width)
    assert answer.parameters.shape == (*shown.shape, 3 * PARTS)


def test_pixels_that_are_not_shown_have_no_say(generator: torch.Generator) -> None:
    mapper = ImageMapper(1, 8, generator=generator)
    pixels = torch.rand((1, 1, 12, 12), generator=generator)
    shown = (torch.rand(pixels.shape, generator=generator) < 0.5).float()
    other = torch.where(shown.bool(), pixels, 1 - pixels)
    assert torch.equal(mapper(pixels, shown).direct, mapper(other, shown).direct)
    assert not torch.equal(mapper(pixels, shown).direct, mapper(pixels, torch.ones_like(shown)).direct)


def test_images_do_not_mix(generator: torch.Generator) -> None:
    mapper = ImageMapper(1, 8, generator=generator)
    pixels = torch.rand((4, 1, 9, 9), generator=generator)
    shown = torch.ones_like(pixels)
    torch.testing.assert_close(mapper(pixels, shown).direct[2:3], mapper(pixels[2:3], shown[2:3]).direct)


def test_network_without_generator_is_zero() -> None:
    assert all(bool((parameter == 0).all()) for parameter in ImageMapper(1, 8).parameters())

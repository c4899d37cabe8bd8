"""Tests of the U-net H of images."""

from __future__ import annotations

import pytest
import torch

from mcflow.images.networks import UNet


@pytest.mark.parametrize(("n_channels", "height", "width", "n_scales"), [(1, 28, 28, 3), (3, 7, 10, 3), (2, 1, 5, 1)])
def test_predictions_have_the_size_of_the_image(
    n_channels: int, height: int, width: int, n_scales: int, generator: torch.Generator
) -> None:
    network = UNet(n_channels, 8, n_scales=n_scales, generator=generator)
    shown = torch.ones(2, n_channels, height, width)
    predicted = network(torch.rand(shown.shape, generator=generator), shown)
    assert predicted.direct.shape == shown.shape
    assert predicted.context.shape == (2, 8, height, width)
    assert predicted.parameters.shape == (*shown.shape, 9)


def test_pixels_that_are_not_shown_have_no_effect(generator: torch.Generator) -> None:
    network = UNet(1, 8, generator=generator)
    pixels = torch.rand((1, 1, 12, 12), generator=generator)
    shown = (torch.rand(pixels.shape, generator=generator) < 0.5).float()
    other = torch.where(shown.bool(), pixels, 1 - pixels)
    assert torch.equal(network(pixels, shown).direct, network(other, shown).direct)
    assert not torch.equal(network(pixels, shown).direct, network(pixels, torch.ones_like(shown)).direct)


def test_images_do_not_mix(generator: torch.Generator) -> None:
    network = UNet(1, 8, generator=generator)
    pixels = torch.rand((4, 1, 9, 9), generator=generator)
    shown = torch.ones_like(pixels)
    torch.testing.assert_close(network(pixels, shown).direct[2:3], network(pixels[2:3], shown[2:3]).direct)


def test_network_without_generator_is_zero() -> None:
    assert all(bool((parameter == 0).all()) for parameter in UNet(1, 8).parameters())

"""Tests of the training of H and G on images."""

from __future__ import annotations

import math

import pytest
import torch

from mcflow.images.config import ImageConfig
from mcflow.images.networks import GREY_LEVELS, ImageFlow, PixelPrediction, UNet, normal_scores
from mcflow.images.trainer import ImageTrainer, fit_flow
from mcflow.random import Streams


def ramps(n_images: int, generator: torch.Generator) -> torch.Tensor:
    """Return smooth images: planes with random slopes."""
    a, b = (torch.rand((n_images, 1, 1, 1), generator=generator) for _ in range(2))
    steps = torch.arange(8) / 7
    planes = a * steps[:, None] + b * (1 - steps)
    return ((planes / 2) * (GREY_LEVELS - 1)).round() / (GREY_LEVELS - 1)


@pytest.fixture(scope="module")
def fitted() -> tuple[ImageTrainer, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    pixels = ramps(256, generator)
    missing = torch.rand(pixels.shape, generator=generator) < 0.3
    config = ImageConfig(max_epochs=12, batch_size=16, learning_rate=2e-3)
    streams = Streams(0)
    network = UNet(1, 8, n_scales=2, generator=streams.weights)
    trainer = ImageTrainer(config, network, pixels.masked_fill(missing, 9.0), missing, streams)
    trainer.train()
    return trainer, pixels, missing


def test_missing_pixels_are_learned_without_being_seen(
    fitted: tuple[ImageTrainer, torch.Tensor, torch.Tensor],
) -> None:
    trainer, pixels, missing = fitted
    with torch.inference_mode():
        found = trainer.network(pixels, (~missing).float()).direct
    error = (found - pixels)[missing].square().mean().sqrt()
    spread = pixels[missing].std()
    assert error < 0.4 * spread
    losses = trainer.history.column("latent_loss")
    assert losses[-1] < losses[0]


def test_validation_pixels_are_observed_and_their_error_is_measured(
    fitted: tuple[ImageTrainer, torch.Tensor, torch.Tensor],
) -> None:
    trainer, _, missing = fitted
    assert trainer.validation.any()
    assert not (trainer.validation & missing[: len(trainer.validation)]).any()
    squares = [
        (predicted.direct[mask].clamp(0, 1) - truth[mask]).square()
        for predicted, truth, mask in trainer.predict_validation()
    ]
    assert trainer.best_error == pytest.approx(float(torch.cat(squares).mean()), rel=1e-4)


def test_images_have_equal_weights_however_much_is_hidden(
    fitted: tuple[ImageTrainer, torch.Tensor, torch.Tensor],
) -> None:
    predicted = PixelPrediction(torch.zeros(2, 1, 8, 8), torch.full((2, 1, 8, 8), 0.5), torch.zeros(2, 1, 8, 8, 9))
    hidden = torch.zeros(2, 1, 8, 8, dtype=torch.bool)
    hidden[0, :, :2] = True
    hidden[1] = True
    one, other = torch.full((2, 1, 8, 8), 0.5), torch.full((2, 1, 8, 8), 0.5)
    one[0], other[1] = 1.0, 1.0
    first, second = (fitted[0]._loss(predicted, pixels, hidden) for pixels in (one, other))
    torch.testing.assert_close(first, second)


def test_scores_of_truths_are_normal_where_the_distribution_is_right(generator: torch.Generator) -> None:
    parameters = torch.tensor([0.0, -0.1, 0.2]).expand(1, 1, 64, 64, 3)
    predicted = PixelPrediction(torch.zeros(1, 1, 64, 64), torch.zeros(1, 1, 64, 64), parameters)
    p = torch.rand(4096, generator=generator)
    centre, scale = 0.4, math.exp(-1.8)
    values = (centre + scale * torch.logit(p.clamp(1e-6, 1 - 1e-6))).clamp(0, 1)
    pixels = ((values * (GREY_LEVELS - 1)).round() / (GREY_LEVELS - 1)).reshape(1, 1, 64, 64)
    chosen = torch.ones_like(pixels, dtype=torch.bool)
    scores = normal_scores(predicted, pixels, chosen, torch.rand(4096, generator=generator))
    assert scores.mean().item() == pytest.approx(0, abs=0.06)
    assert scores.std().item() == pytest.approx(1, abs=0.06)


def test_flow_learns_that_neighbours_are_correlated(generator: torch.Generator) -> None:
    network = UNet(1, 4, n_scales=1)  # predicts the same for every pixel
    tints = torch.rand((128, 1, 1, 1), generator=generator).expand(-1, 1, 8, 8)
    pixels = (tints * (GREY_LEVELS - 1)).round() / (GREY_LEVELS - 1)
    missing = torch.zeros_like(pixels, dtype=torch.bool)
    flow = ImageFlow(1, 4, n_scales=1, width=16, generator=generator)
    chosen = torch.rand(pixels.shape, generator=generator) < 0.4
    predicted = network(pixels, torch.zeros_like(pixels))
    scores = normal_scores(predicted, pixels, chosen, torch.full((int(chosen.sum()),), 0.5)).detach()
    before = flow.log_prob(scores, chosen, predicted.context).mean()
    fit_flow(ImageTrainer(ImageConfig(), network, pixels, missing, Streams(0)), flow, 150, integers=True)
    after = flow.log_prob(scores, chosen, predicted.context).mean()
    assert after > before + 0.2 * chosen.float().sum() / len(chosen)

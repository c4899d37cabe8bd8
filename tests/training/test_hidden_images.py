"""H and G of images learn what is hidden."""

from __future__ import annotations

import math

import pytest
import torch

from mcflow.config import LatentConfig, Settings, TrainConfig
from mcflow.flows.image_flow import ImageFlow
from mcflow.flows.logistic import LEVELS
from mcflow.latent.image_mapper import ImageAnswer, ImageMapper
from mcflow.random import Streams
from mcflow.training.hidden_images import HiddenImageTrainer
from mcflow.training.holes import HoleMaker
from mcflow.training.image_density import fit_image_density, image_scores


def ramps(n_images: int, generator: torch.Generator) -> torch.Tensor:
    """Return smooth images: planes with random slopes."""
    a, b = (torch.rand((n_images, 1, 1, 1), generator=generator) for _ in range(2))
    steps = torch.arange(8) / 7
    planes = a * steps[:, None] + b * (1 - steps)
    return ((planes / 2) * (LEVELS - 1)).round() / (LEVELS - 1)


@pytest.fixture(scope="module")
def fitted() -> tuple[HiddenImageTrainer, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    pixels = ramps(256, generator)
    missing = torch.rand(pixels.shape, generator=generator) < 0.3
    train = TrainConfig(max_epochs=12, batch_size=16, learning_rate=2e-3)
    settings = Settings(latent=LatentConfig(masked=True), train=train)
    streams = Streams(0)
    mapper = ImageMapper(1, 8, n_scales=2, generator=streams.weights)
    trainer = HiddenImageTrainer(settings, mapper, pixels.masked_fill(missing, 9.0), missing, streams)
    trainer.train()
    return trainer, pixels, missing


def test_missing_pixels_are_learned_without_being_seen(
    fitted: tuple[HiddenImageTrainer, torch.Tensor, torch.Tensor],
) -> None:
    trainer, pixels, missing = fitted
    with torch.inference_mode():
        found = trainer.mapper(pixels, (~missing).float()).direct
    error = (found - pixels)[missing].square().mean().sqrt()
    spread = pixels[missing].std()
    assert error < 0.4 * spread
    losses = trainer.history.column("latent_loss")
    assert losses[-1] < losses[0]


def test_held_out_pixels_are_observed_ones_and_their_error_is_measured(
    fitted: tuple[HiddenImageTrainer, torch.Tensor, torch.Tensor],
) -> None:
    trainer, _, missing = fitted
    assert trainer.held.any()
    assert not (trainer.held & missing[: len(trainer.held)]).any()
    squares = [(answer.direct[held].clamp(0, 1) - truth[held]).square() for answer, truth, held in trainer.held_looks()]
    assert trainer.best_error == pytest.approx(float(torch.cat(squares).mean()), rel=1e-4)


def test_images_count_alike_however_much_is_hidden() -> None:
    answer = ImageAnswer(torch.zeros(2, 1, 8, 8), torch.full((2, 1, 8, 8), 0.5), torch.zeros(2, 1, 8, 8, 9))
    hidden = torch.zeros(2, 1, 8, 8, dtype=torch.bool)
    hidden[0, :, :2] = True
    hidden[1] = True
    one, other = torch.full((2, 1, 8, 8), 0.5), torch.full((2, 1, 8, 8), 0.5)
    one[0], other[1] = 1.0, 1.0
    first, second = (HiddenImageTrainer._loss(answer, pixels, hidden) for pixels in (one, other))
    torch.testing.assert_close(first, second)


def test_scores_of_truths_are_normal_where_the_distribution_is_right(generator: torch.Generator) -> None:
    parameters = torch.tensor([0.0, -0.1, 0.2]).expand(1, 1, 64, 64, 3)
    answer = ImageAnswer(torch.zeros(1, 1, 64, 64), torch.zeros(1, 1, 64, 64), parameters)
    shares = torch.rand(4096, generator=generator)
    centre, scale = 0.4, math.exp(-1.8)
    values = (centre + scale * torch.logit(shares.clamp(1e-6, 1 - 1e-6))).clamp(0, 1)
    pixels = ((values * (LEVELS - 1)).round() / (LEVELS - 1)).reshape(1, 1, 64, 64)
    chosen = torch.ones_like(pixels, dtype=torch.bool)
    scores = image_scores(answer, pixels, chosen, torch.rand(4096, generator=generator))
    assert scores.mean().item() == pytest.approx(0, abs=0.06)
    assert scores.std().item() == pytest.approx(1, abs=0.06)


def test_flow_learns_that_neighbours_go_together(generator: torch.Generator) -> None:
    mapper = ImageMapper(1, 4, n_scales=1)  # says the same of every pixel
    tints = torch.rand((128, 1, 1, 1), generator=generator).expand(-1, 1, 8, 8)
    pixels = (tints * (LEVELS - 1)).round() / (LEVELS - 1)
    missing = torch.zeros_like(pixels, dtype=torch.bool)
    flow = ImageFlow(1, 4, n_scales=1, width=16, generator=generator)
    chosen = torch.rand(pixels.shape, generator=generator) < 0.4
    answer = mapper(pixels, torch.zeros_like(pixels))
    scores = image_scores(answer, pixels, chosen, torch.full((int(chosen.sum()),), 0.5)).detach()
    before = flow.log_prob(scores, chosen, answer.context).mean()
    fit_image_density(
        mapper,
        flow,
        pixels,
        missing,
        holes=HoleMaker(missing),
        streams=Streams(0),
        n_steps=150,
        batch_size=16,
        whole=True,
    )
    after = flow.log_prob(scores, chosen, answer.context).mean()
    assert after > before + 0.2 * chosen.float().sum() / len(chosen)

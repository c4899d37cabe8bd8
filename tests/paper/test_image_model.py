"""Tests of the paper's method on images: fill, stages, draws, quantiles, time limit and files."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import torch

from mcflow.images.nearest import fill_nearest
from mcflow.images.pixels import PixelCodec
from mcflow.imputers.presets import IMAGE_PRESETS, resolve
from mcflow.paper import image_model as module
from mcflow.paper.config import PaperConfig
from mcflow.paper.image_model import PaperImageModel
from mcflow.paper.networks import RealNVP
from mcflow.random import Streams

CODEC = PixelCodec(6, 6, 1, "uint8", 0.0, 255.0, True)
Images = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def smooth_images(n_images: int, channels: int = 1, rate: float = 0.4, seed: int = 0) -> Images:
    """Return soft edges of random directions: pixels, the mask of missing ones, and the complete images."""
    rng = np.random.default_rng(seed)
    y, x = np.meshgrid(np.linspace(-1, 1, 6), np.linspace(-1, 1, 6), indexing="ij")
    angle = rng.uniform(0, 2 * np.pi, size=(n_images, channels, 1, 1))
    truth = torch.from_numpy(0.5 + 0.45 * np.tanh(2 * (np.cos(angle) * y + np.sin(angle) * x))).float()
    missing = torch.from_numpy(rng.random((n_images, 1, 6, 6)) < rate).expand_as(truth).contiguous()
    return torch.where(missing, 0.0, truth), missing, truth


def fit_model(pixels: torch.Tensor, missing: torch.Tensor, *, calibrates: bool = False, **fields) -> PaperImageModel:
    codec = PixelCodec(6, 6, pixels.shape[1], "uint8", 0.0, 255.0, pixels.shape[1] == 1)
    config = resolve("paper", IMAGE_PRESETS, **fields)
    model = PaperImageModel.prepare(codec, pixels, missing, 0, config, first_fill=fill_nearest)
    model.calibrates = calibrates
    model.fit(pixels, missing, Streams(0), torch.device("cpu"), ())
    return model


@pytest.fixture(scope="module")
def images() -> Images:
    return smooth_images(60, seed=1)


@pytest.fixture(scope="module")
def model() -> PaperImageModel:
    pixels, missing, _ = smooth_images(600)
    return fit_model(pixels, missing, calibrates=True, max_epochs=32, learning_rate=1e-3, batch_size=32)


@pytest.fixture(scope="module")
def drawn(model: PaperImageModel, images: Images) -> list[torch.Tensor]:
    return list(model.draws(*images[:2], 3, 5, np.arange(60, dtype=np.uint64)))


def error_of(filled: torch.Tensor, images: Images) -> float:
    return float((filled - images[2])[images[1]].square().mean().sqrt())


def test_fill_beats_the_first_fill_on_new_images(model, images) -> None:
    pixels, missing, _ = images
    first = fill_nearest(pixels[:, 0].numpy(), missing[:, 0].numpy(), 0)
    assert error_of(model.fill(pixels, missing), images) < 0.8 * error_of(torch.from_numpy(first)[:, None], images)


def test_fill_keeps_observed_pixels_and_stays_between_black_and_white(model, images) -> None:
    pixels, missing, _ = images
    filled = model.fill(pixels, missing)
    assert torch.equal(filled[~missing], pixels[~missing])
    assert filled.min() >= 0
    assert filled.max() <= 1


def test_fill_of_an_image_does_not_depend_on_those_it_comes_with(model, images) -> None:
    pixels, missing, _ = images
    missing = missing.clone()
    missing[3] = True  # nothing observed: filled from the mean of the training images
    whole = model.fill(pixels, missing)
    torch.testing.assert_close(model.fill(pixels[3:5], missing[3:5]), whole[3:5], atol=1e-5, rtol=0)


def test_stages_are_kept_at_powers_of_two(model) -> None:
    assert len(model.stages) == 6
    assert model.history.ending == "max_epochs"


def test_draws_fill_every_missing_pixel_and_differ(drawn, images) -> None:
    pixels, missing, _ = images
    for one in drawn:
        assert torch.equal(one[~missing], pixels[~missing])
        assert one.min() >= 0
        assert one.max() <= 1
    assert (drawn[0] != drawn[1])[missing].float().mean() > 0.9


def test_draws_depend_on_neither_order_nor_company(model, images, drawn, monkeypatch) -> None:
    some = np.random.default_rng(0).permutation(60)[:23]
    monkeypatch.setattr(module, "IMAGES_TOGETHER", 7)
    pixels, missing, _ = images
    again = model.draws(pixels[some], missing[some], 3, 5, some.astype(np.uint64))
    for one, whole in zip(again, drawn, strict=True):
        torch.testing.assert_close(one, whole[some], atol=1e-6, rtol=0)


def test_draws_depend_on_seed_and_hash(model, images, drawn) -> None:
    pixels, missing, _ = images
    hashes = np.arange(60, dtype=np.uint64)
    high = hashes + np.uint64(2**63)  # words that differ in their first bit alone
    for seed, words in ((6, hashes), (5, high)):
        other = next(model.draws(pixels, missing, 1, seed, words))
        assert (other != drawn[0])[missing].float().mean() > 0.9


def test_chains_move_and_settle_within_the_burn_in(model, images) -> None:
    pixels, missing, _ = images
    chain = model._sampler(pixels, missing, np.arange(60, dtype=np.uint64)).warm_up(np.arange(60))
    before, moved = chain.current.mean(), []
    for _ in range(20):
        chain.advance(1)
        moved.append(chain.accepted.mean())
    assert 0.4 < np.mean(moved) < 0.95
    assert chain.current.mean() == pytest.approx(before, abs=3)


def test_quantiles_rise_and_cover_the_truth(model, images) -> None:
    pixels, missing, truth = images
    low, middle, high = model.quantiles(pixels, missing, (0.1, 0.5, 0.9))
    assert torch.equal(low[~missing], pixels[~missing])
    assert (low <= middle).all()
    assert (middle <= high).all()
    inside = ((low <= truth) & (truth <= high))[missing].float().mean()
    assert float(inside) == pytest.approx(0.8, abs=0.12)


def test_complete_images_need_no_chain(model, images) -> None:
    truth, nothing = images[2], torch.zeros_like(images[1])
    hashes = np.zeros(60, dtype=np.uint64)
    answers = (model.fill(truth, nothing), *model.draws(truth, nothing, 2, 0, hashes))
    for answer in (*answers, *model.quantiles(truth, nothing, (0.1, 0.9))):
        assert torch.equal(answer, truth)


def test_log_density_is_that_of_the_images_units(model, images) -> None:
    truth = images[2]
    flow = model.stages[-1].flow
    expected = flow.log_prob(truth.flatten(1)).detach().numpy() - 36 * np.log(255)
    found = model.log_density(truth)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    noise = torch.rand(truth.shape, generator=torch.Generator().manual_seed(0))
    assert np.median(model.log_density(noise)) < np.median(found)


def test_samples_are_images_and_repeat(model) -> None:
    sampled = model.sample(5, 3)
    assert sampled.shape == (5, 1, 6, 6)
    assert 0 <= sampled.min() <= sampled.max() <= 1
    assert torch.equal(sampled, model.sample(5, 3))


def test_tensors_hold_the_whole_model(model, images) -> None:
    pixels, missing, truth = images
    header = {"seed": model.seed}
    again = PaperImageModel.from_tensors(
        model.tensors(), CODEC, model.config, header, torch.device("cpu"), first_fill=fill_nearest
    )
    hashes = np.arange(60, dtype=np.uint64)
    assert torch.equal(again.fill(pixels, missing), model.fill(pixels, missing))
    assert torch.equal(
        next(again.draws(pixels, missing, 1, 0, hashes)), next(model.draws(pixels, missing, 1, 0, hashes))
    )
    assert torch.equal(again.quantiles(pixels, missing, [0.05])[0], model.quantiles(pixels, missing, [0.05])[0])
    np.testing.assert_array_equal(again.log_density(truth), model.log_density(truth))


def test_colours_and_masks_of_single_channels_are_filled() -> None:
    _, missing, truth = smooth_images(40, channels=3)
    missing[:5, 1] = True
    model = fit_model(torch.where(missing, 0.0, truth), missing, max_epochs=2)
    filled = model.fill(torch.where(missing, 0.0, truth), missing)
    assert filled.shape == (40, 3, 6, 6)
    assert torch.equal(filled[~missing], truth[~missing])
    assert (filled[missing] != 0).float().mean() > 0.9


def test_one_image_is_enough() -> None:
    pixels, missing, _ = smooth_images(1)
    model = fit_model(pixels, missing, calibrates=True, max_epochs=1)
    assert model.fill(pixels, missing).isfinite().all()


def test_same_seed_gives_the_same_bits() -> None:
    pixels, missing, _ = smooth_images(50)
    one, other = (fit_model(pixels, missing, max_epochs=2).fill(pixels, missing) for _ in range(2))
    assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("rate", "shape", "config", "learning_rate", "batch_size"),
    [
        (0.5, (1, 28, 28), resolve("paper", IMAGE_PRESETS), 1e-4, 128),
        (0.7, (1, 28, 28), resolve("paper", IMAGE_PRESETS), 1e-3, 128),
        (0.7, (1, 28, 28), resolve("paper", IMAGE_PRESETS, learning_rate=5e-4), 5e-4, 128),
        (0.7, (1, 28, 28), resolve("paper", IMAGE_PRESETS, learning_rate=1e-4), 1e-4, 128),
        (0.5, (3, 32, 32), resolve("paper", IMAGE_PRESETS), 1e-4, 128),
        (0.5, (3, 64, 64), resolve("paper", IMAGE_PRESETS), 1e-4, 128),
        (0.5, (3, 32, 32), resolve("paper", IMAGE_PRESETS, batch_size=64), 1e-4, 64),
        (0.5, (3, 32, 32), resolve("paper", IMAGE_PRESETS, batch_size=128), 1e-4, 128),
        (0.7, (3, 32, 32), PaperConfig(), 1e-4, 128),
    ],
)
def test_rate_and_batch_follow_the_paper_unless_given(rate, shape, config, learning_rate, batch_size) -> None:
    missing = torch.zeros(10, *shape, dtype=torch.bool)
    missing[: int(10 * rate)] = True
    codec = PixelCodec(*shape[1:], shape[0], "uint8", 0.0, 255.0, False)
    model = PaperImageModel.prepare(codec, torch.zeros(10, *shape), missing, 0, config, first_fill=fill_nearest)
    assert model.config.learning_rate == learning_rate
    assert model.config.batch_size == batch_size
    assert not model.stages


def test_likelihood_weight_is_scaled_to_the_images_unless_given() -> None:
    assert IMAGE_PRESETS["paper"].for_images(1600, 0.5).likelihood_weight == pytest.approx(1e-5)
    assert PaperConfig().for_images(1600, 0.5).likelihood_weight == 1e-3
    assert PaperConfig(learning_rate=0).for_images(784, 0.7).learning_rate == 1e-3


def test_time_limit_ends_an_epoch_and_reduces_the_calibration(monkeypatch) -> None:
    ticks = itertools.count(0.0, 0.01)  # reading the clock takes a hundredth of a second
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    pixels, missing, _ = smooth_images(300)
    model = fit_model(pixels, missing, calibrates=True, max_epochs=100, max_time=1.0, batch_size=1)
    assert next(ticks) < 1.0
    assert model.history.ending == "max_time"
    assert len(model.history.epochs) == 1
    assert model.calibration is not None
    assert len(model.calibration.below) < 100  # of 1,500 that it has without a limit
    assert model.fill(pixels[:5], missing[:5]).isfinite().all()


def test_step_sizes_are_conditional_deviations_within_limits() -> None:
    normal = module.FlowDensity(RealNVP(torch.tensor([[True, False], [False, True]])))
    steps = module.conditional_steps(normal, np.array([[2.5, 0.0], [0.0, 5.0]]))
    np.testing.assert_allclose(steps, [module.MAX_STEP, 2**0.5 / 5])


def test_chains_of_a_normal_flow_have_its_distribution() -> None:
    """Without observed pixels and with a standard normal density, reflected draws have its mean and deviation."""
    pixels, missing, _ = smooth_images(40)
    model = fit_model(pixels, missing, max_epochs=1)
    with torch.no_grad():
        model.stages[-1].flow.theta.zero_()  # the identity: a standard normal in every pixel
    model.stages, model.steps = model.stages[-1:], np.full(36, 0.5)
    nothing = torch.zeros(200, 1, 6, 6), torch.ones(200, 1, 6, 6, dtype=torch.bool)
    drawn = torch.cat(list(model.draws(*nothing, 3, 0, np.arange(200, dtype=np.uint64)))).numpy()
    # A standard normal cut to [0, 1] has mean (φ(0) - φ(1)) / (Φ(1) - Φ(0)) = 0.4599 and deviation 0.2828.
    assert drawn.mean() == pytest.approx(0.4599, abs=0.01)
    assert drawn.std() == pytest.approx(0.2828, abs=0.01)

"""GAIN on images: the contract of imputers of images, the loop that games share, and the simple fills beside it."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pytest
import torch
from torch import nn

from mcflow.errors import DataError, ParameterError
from mcflow.fitting.callbacks import Callback
from mcflow.fitting.progress import ProgressDisplay
from mcflow.random import Streams
from mcflow_bench.rivals.gain import GainGame, discriminator_loss, draw_hint, generator_loss
from mcflow_bench.rivals.gain_images import GainImageImputer
from mcflow_bench.rivals.image_games import GameTraining, image_uniforms, split_validation_images
from mcflow_bench.rivals.image_methods import IMAGE_METHODS, make_image_baseline

QUICK = {"max_epochs": 1, "width": 8, "batch_size": 32}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def ramps(n_images: int = 300, shape: tuple[int, ...] = (6, 6), seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Grey images, each of one level with a slope to the right, and which pixels are missing."""
    rng = np.random.default_rng(seed)
    level, slope = rng.uniform(0.3, 0.7, size=(2, n_images, 1, 1))
    grey = level + 0.4 * (slope - 0.5) * np.linspace(-1, 1, shape[1]) + np.zeros((n_images, *shape[:2]))
    images = np.rint(255 * grey).astype(np.uint8)
    missing = rng.random(images.shape) < 0.4
    return (np.stack([images] * shape[2], axis=-1) if len(shape) == 3 else images), missing


def make(name: str, **parameters):
    return make_image_baseline(name, random_state=0, **(QUICK if name in ("gain", "misgan") else {}) | parameters)


@pytest.mark.parametrize("name", IMAGE_METHODS)
@pytest.mark.parametrize("shape", [(6, 6), (7, 9, 3)])
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_images_come_back_in_kind_with_only_missing_pixels_filled(name, shape, kind) -> None:
    images, missing = ramps(50, shape)
    given = images if kind == "uint8" else np.where(missing if len(shape) == 2 else missing[..., None], np.nan, images)
    given = given.astype(kind)
    mask = missing if kind == "uint8" else None
    filled = make(name).fit_transform(given, mask=mask)
    assert filled.dtype == given.dtype
    assert filled.shape == given.shape
    np.testing.assert_array_equal(filled[~missing], given[~missing])
    assert not np.isnan(filled.astype(float)).any()


@pytest.mark.parametrize("name", IMAGE_METHODS)
def test_same_seed_gives_the_same_bits_and_neighbours_do_not_matter(name) -> None:
    images, missing = ramps(60)
    one, two = (make(name).fit(images, mask=missing) for _ in range(2))
    filled = one.transform(images, mask=missing)
    assert filled.tobytes() == two.transform(images, mask=missing).tobytes()
    alone = one.transform(images[7:9], mask=missing[7:9])
    np.testing.assert_allclose(alone.astype(int), filled[7:9].astype(int), atol=1)


@pytest.mark.parametrize("name", IMAGE_METHODS)
def test_images_that_are_few_or_without_an_observed_pixel_are_filled(name) -> None:
    images = np.array([[[0.2, np.nan], [0.4, 0.6]], [[np.nan, np.nan], [np.nan, np.nan]]])
    filled = make(name).fit_transform(images)
    assert (filled >= 0).all()
    assert (filled <= 1).all()


@pytest.mark.parametrize("name", ["gain", "misgan"])
def test_draws_differ_from_one_another_but_not_with_the_neighbours(name) -> None:
    images, missing = ramps(60)
    images = images / 255
    imputer = make(name).fit(images, mask=missing)
    first, second = imputer.draw(images, m=2, random_state=1, mask=missing)
    assert (first != second)[missing].mean() > 0.9
    np.testing.assert_array_equal(first[~missing], images[~missing])
    alone = next(imputer.draw(images[7:9], m=1, random_state=1, mask=missing[7:9]))
    np.testing.assert_allclose(alone, first[7:9], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["gain", "misgan"])
def test_time_that_is_up_ends_training_and_is_told(name) -> None:
    images, missing = ramps(60)
    imputer = make(name, max_epochs=10_000, max_time=0.3).fit(images, mask=missing)
    assert imputer.history_.ending == "max_time"
    assert sum(imputer.history_.column("seconds")) < 3


def test_verbose_shows_epochs_and_the_ending(capsys) -> None:
    images, missing = ramps(60)
    GainImageImputer(**QUICK, verbose=True, random_state=0).fit(images, mask=missing)
    assert "trained 1 epoch " in capsys.readouterr().err


@pytest.mark.parametrize(("name", "wrong"), [("gain", {"hint_rate": 2.0}), ("misgan", {"n_draws": 0})])
def test_parameter_out_of_range_is_refused(name, wrong) -> None:
    images, missing = ramps(5)
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        make(name, **wrong).fit(images, mask=missing)


@pytest.mark.parametrize(("name", "given", "match"), [("gian", {}, "gain"), ("gain", {"hint": 1}, "hint_rate")])
def test_unknown_name_or_argument_is_answered_with_the_closest(name, given, match) -> None:
    with pytest.raises(ParameterError, match=f"Did you mean '{match}'"):
        make_image_baseline(name, **given)


def test_draw_of_images_of_another_size_is_refused_at_once() -> None:
    images, missing = ramps(20)
    imputer = make("gain").fit(images, mask=missing)
    with pytest.raises(DataError, match="shape"):
        imputer.draw(images[:, :4])


def test_mean_is_that_of_the_observed_values_and_of_the_channel_where_there_is_none() -> None:
    images = np.array([[[0.2, np.nan, 1.0]], [[0.4, np.nan, np.nan]], [[np.nan, np.nan, 0.0]]])
    filled = make("mean").fit_transform(images)
    np.testing.assert_allclose(filled[2, 0], [0.3, 0.4, 0.0], atol=1e-6)
    np.testing.assert_allclose(filled[1, 0], [0.4, 0.4, 0.5], atol=1e-6)


def test_nearest_takes_the_only_observed_pixel_or_the_level_of_the_fit() -> None:
    images = np.full((3, 3, 3), np.nan)
    images[0, 1, 1], images[1, 0, 2] = 0.25, 0.75
    filled = make("nearest").fit_transform(images)
    assert (filled[0] == 0.25).all()
    assert (filled[1] == 0.75).all()
    np.testing.assert_allclose(filled[2], 0.5, atol=1e-6)


def rmse(filled, images, missing) -> float:
    return float(np.sqrt(((filled.astype(float) - images)[missing] ** 2).mean()))


def test_training_beats_the_pixel_mean_by_far_on_ramps() -> None:
    images, missing = ramps(400)
    by_mean = make("mean").fit_transform(images, mask=missing)
    imputer = GainImageImputer(max_epochs=60, width=64, batch_size=64, learning_rate=3e-3, random_state=0)
    filled = imputer.fit_transform(images, mask=missing)
    assert rmse(filled, images, missing) < 0.5 * rmse(by_mean, images, missing)


def test_step_s_loss_is_that_of_the_formula() -> None:
    rules = GainImageImputer(width=8, alpha=7.0, hint_rate=0.5)
    rows, mask = torch.rand(9, 4, generator=seeded(1)), (torch.rand(9, 4, generator=seeded(2)) < 0.6).float()
    found = GainGame(rules, torch.full((4,), 0.5), Streams(3)).step(rows, mask, mask)

    game = GainGame(rules, torch.full((4,), 0.5), Streams(3))
    hint = draw_hint(mask, 0.5, game.random)
    output = game.generator(rows, mask, torch.rand(rows.shape, generator=game.random))
    filled = mask * rows + (1 - mask) * output
    loss = discriminator_loss(game.discriminator(torch.cat([filled.detach(), hint], 1)), mask, hint)
    loss.backward()
    game.optimisers[0].step()
    squares = [(output[i, j] - rows[i, j]).item() ** 2 for i, j in itertools.product(range(9), range(4)) if mask[i, j]]
    fooled = generator_loss(game.discriminator(torch.cat([filled, hint], 1)), mask, hint).item()
    assert found == pytest.approx(fooled + 7 * np.mean(squares), rel=1e-4)


def test_validation_images_are_not_learned_and_hide_observed_pixels_in_all_channels() -> None:
    pixels = torch.arange(200.0)[:, None, None, None].expand(200, 3, 8, 8)
    mask = (torch.rand(200, 1, 8, 8, generator=seeded()) < 0.7).float().expand(200, 3, 8, 8)
    left, left_mask, validation = split_validation_images(pixels, mask, 0.1, seeded(1))
    assert sorted([*left[:, 0, 0, 0].tolist(), *validation.rows[:, 0, 0, 0].tolist()]) == list(range(200))
    torch.testing.assert_close(validation.mask + validation.hidden, mask[validation.rows[:, 0, 0, 0].long()])
    torch.testing.assert_close(left_mask, mask[left[:, 0, 0, 0].long()])
    assert (validation.hidden == validation.hidden[:, :1]).all()
    assert (validation.hidden.sum() / (validation.hidden + validation.mask).sum()).item() == pytest.approx(
        0.2, abs=0.05
    )


def test_few_images_are_all_learned() -> None:
    pixels = torch.rand(30, 1, 4, 4, generator=seeded())
    left, _, validation = split_validation_images(pixels, torch.ones_like(pixels), 0.5, seeded())
    assert len(left) == 30
    assert len(validation.rows) == 0


def test_noise_of_an_image_depends_on_its_mask_and_the_seed() -> None:
    pixels, missing = torch.zeros(2, 1, 3, 3), torch.zeros(2, 1, 3, 3, dtype=torch.bool)
    missing[1, 0, 0, 0] = True
    one, two = image_uniforms(pixels, missing, 0)
    assert (one != two).all()
    assert (image_uniforms(pixels, missing, 1)[0] != one).all()


class Counter:
    """A game that counts its steps."""

    def __init__(self) -> None:
        self.filler, self.shares = nn.Linear(1, 1), []

    def step(self, feed, done: float) -> float:
        self.shares.append(done)
        return float(len(feed()[0]))


def test_training_plays_all_epochs_and_tells_the_share_that_is_done() -> None:
    game, ones = Counter(), torch.ones(10, 1, 1, 1)
    training = GameTraining(game, lambda _: 0.0, max_epochs=2)
    training.run(ones, ones, 4, seeded(), Callback())
    assert game.shares == pytest.approx([0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6])
    assert training.history.ending == "max_epochs"
    assert training.history.column("latent_loss") == pytest.approx([10 / 3, 10 / 3])


def test_display_hears_of_a_training() -> None:
    from rich.console import Console

    text, ones = io.StringIO(), torch.ones(10, 1, 1, 1)
    display = ProgressDisplay(Console(file=text), every_seconds=0)
    GameTraining(Counter(), lambda _: 0.0, max_epochs=2).run(ones, ones, 4, seeded(), display)
    assert "epoch 2/2: loss 3.33" in text.getvalue()

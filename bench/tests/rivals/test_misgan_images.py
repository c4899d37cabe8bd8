"""MisGAN on images: its networks, its games on four axes, and its passes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import leaky_relu

from mcflow_bench.rivals.image_networks import ImageFiller, ImageGenerator, MaskGenerator, PatchCritic, joined, patches
from mcflow_bench.rivals.misgan import MisganGame
from mcflow_bench.rivals.misgan_images import MisGANImageImputer, image_networks


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_images(n: int = 6, channels: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    pixels = torch.rand(n, channels, 5, 6, generator=seeded(1))
    mask = (torch.rand(n, 1, 5, 6, generator=seeded(2)) < 0.6).float().expand_as(pixels).contiguous()
    return pixels * mask, mask


def stripes(n_images: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images that are bright in their left or in their right half."""
    rng = np.random.default_rng(seed)
    left = rng.random((n_images, 1, 1)) < 0.5
    images = np.where(left == (np.arange(8) < 4), 0.9, 0.1) + np.zeros((n_images, 8, 8))
    return images, rng.random(images.shape) < 0.5


def test_patches_hold_neighbouring_pixels_as_channels() -> None:
    images = torch.arange(2.0 * 3 * 8 * 8).view(2, 3, 8, 8)
    cut = patches(images)
    assert cut[1, 16:32, 1, 0].tolist() == images[1, 1, 4:8, 0:4].flatten().tolist()
    torch.testing.assert_close(joined(patches(images[..., :5, :7]), 5, 7), images[..., :5, :7])


def test_networks_start_at_means_and_shares() -> None:
    mean, share = torch.rand(3, 6, 7, generator=seeded()) * 0.8 + 0.1, torch.full((1, 6, 7), 0.7)
    filler = ImageFiller(mean, 8, 2, 0.1, seeded(1))
    filled = filler(torch.zeros(2, 3, 6, 7), torch.zeros(2, 3, 6, 7))
    torch.testing.assert_close(filled, mean.expand_as(filled))
    made = ImageGenerator(mean, 4, 8, seeded(1))(torch.zeros(2, 4))
    torch.testing.assert_close(made, mean.expand_as(made))
    masks = MaskGenerator(share, 3, 8, seeded(1))
    drawn = masks(torch.randn(4000, masks.noise, generator=seeded(2)))
    assert drawn.shape == (4000, 3, 6, 7)
    assert (drawn > 0.5).float().mean().item() == pytest.approx(0.7, abs=0.02)
    assert (drawn == drawn[:, :1]).all()


def test_filler_shrinks_noise_in_missing_pixels_and_leaves_pixels() -> None:
    pixels, mask = some_images(4)
    uniforms = torch.rand(pixels.shape, generator=seeded(3))
    quiet, loud = (ImageFiller(torch.full((2, 5, 6), 0.5), 8, 1, noise, seeded()) for noise in (0.25, 1.0))
    given = torch.where(mask > 0, pixels, uniforms)
    torch.testing.assert_close(quiet(given, mask), loud(torch.where(mask > 0, pixels, 0.25 * uniforms), mask))


def test_critic_agrees_with_its_layers_one_image_at_a_time() -> None:
    critic, images = PatchCritic((2, 5, 6), 4, seeded()), torch.rand(3, 2, 5, 6, generator=seeded(1))
    whole = torch.zeros(3, 2, 8, 8)
    whole[..., :5, :6] = images
    for number, image in zip(critic(images), whole, strict=True):
        cut = torch.stack([image[c, i::4, j::4] for c in range(2) for i in range(4) for j in range(4)])
        inner = leaky_relu(critic.middle(leaky_relu(critic.enter(cut[None]), 0.2)), 0.2)
        torch.testing.assert_close(number, inner.flatten() @ critic.leave.weight[0] + critic.leave.bias)


@pytest.mark.parametrize("penalised", [1.0, 0.5])
def test_critics_loss_agrees_with_one_image_at_a_time(penalised) -> None:
    (pixels, mask), rules = some_images(), MisGANImageImputer(tau=0.3, penalty=5.0)
    networks = image_networks(pixels, mask, seeded(), width=4)
    found = MisganGame(networks, rules, seeded(7), penalised=penalised).critics_loss(pixels, mask).item()

    slow = MisganGame(networks, rules, seeded(7))
    made, masks, completed = slow._made(pixels, mask)
    real_masked, fake_masked = pixels * mask + 0.3 * (1 - mask), made * masks + 0.3 * (1 - masks)
    games = [(real_masked, fake_masked), (mask, masks), (made, completed)]
    expected, some = 0.0, round(6 * penalised)
    for critic, (real, fake) in zip(networks.critics, games, strict=True):
        shares = torch.rand(some, generator=slow.random)
        slopes = [
            torch.autograd.functional.jacobian(critic, (r + s * (f - r))[None]).norm().item()
            for r, f, s in zip(real[:some], fake[:some], shares, strict=True)
        ]
        steep = np.mean([(slope - 1) ** 2 for slope in slopes])
        expected += critic(fake).mean().item() - critic(real).mean().item() + 5 * steep
    assert found == pytest.approx(expected, rel=1e-4)


def test_imputer_s_loss_never_looks_at_values_that_are_missing() -> None:
    pixels, mask = some_images()
    networks, rules = image_networks(pixels, mask, seeded(), width=4), MisGANImageImputer()
    plain = MisganGame(networks, rules, seeded(7)).generators_loss(pixels, mask).item()
    other = MisganGame(networks, rules, seeded(7)).generators_loss(torch.where(mask > 0, pixels, 9.0), mask).item()
    assert plain == other


def test_recall_adds_the_squared_error_of_observed_pixels_that_were_hidden() -> None:
    pixels, mask = some_images()
    networks, rules = image_networks(pixels, mask, seeded(), width=4), MisGANImageImputer()
    shown = []
    networks.imputer.register_forward_hook(lambda _, given, made: shown.append((*given, made)))
    game = MisganGame(networks, rules, seeded(7), recall=3.0)
    loss = game.generators_loss(pixels, mask, imputes=False).item()
    plain = MisganGame(networks, rules, seeded(7)).generators_loss(pixels, mask, imputes=False).item()
    [(given, left, made)] = shown
    hidden = (mask > 0) & (left == 0)
    assert 0.1 < hidden.sum() / mask.sum() < 0.3
    assert torch.equal(hidden[:, 0] & hidden[:, 1], (left[:, 0] == 0) & (mask[:, 0] > 0)), "channels go together"
    assert not (given == pixels)[hidden].any(), "the imputer does not see what it is to recall"
    assert loss - plain == pytest.approx(3 * (made - pixels)[hidden].square().mean().item(), rel=1e-3)


def test_recall_never_looks_at_values_that_are_missing() -> None:
    pixels, mask = some_images()
    networks, rules = image_networks(pixels, mask, seeded(), width=4), MisGANImageImputer()
    losses = [
        MisganGame(networks, rules, seeded(7), recall=3.0).generators_loss(given, mask).item()
        for given in (pixels, torch.where(mask > 0, pixels, 9.0))
    ]
    assert losses[0] == losses[1]


def test_masks_of_channels_are_made_one_by_one_only_where_they_differ() -> None:
    pixels, mask = some_images()
    assert image_networks(pixels, mask, seeded(), width=4).mask_noise == 16 + 30
    mask[0, 0, 0, 0] = 1 - mask[0, 0, 0, 0]
    assert image_networks(pixels, mask, seeded(), width=4).mask_noise == 16 + 60


def test_transform_is_the_mean_of_passes() -> None:
    images, missing = stripes(60)
    imputer = MisGANImageImputer(max_epochs=1, width=4, n_draws=2, random_state=0).fit(images, mask=missing)
    pixels, mask = torch.rand(3, 1, 8, 8, generator=seeded()), torch.zeros(3, 1, 8, 8)
    uniforms = torch.rand(3, 1, 8, 8, generator=seeded(1))
    passes = [imputer.network_(noise, mask) for noise in (uniforms, (uniforms + 0.5) % 1)]
    torch.testing.assert_close(imputer._point(imputer.network_, pixels, mask, uniforms), sum(passes) / 2)


def test_short_training_beats_the_pixel_mean() -> None:
    images, missing = stripes(160)
    imputer = MisGANImageImputer(max_epochs=6, width=8, learning_rate=1e-2, random_state=0)
    filled = imputer.fit_transform(images, mask=missing)
    by_mean = np.where(missing, np.nanmean(np.where(missing, np.nan, images), axis=0), images)
    errors = [((some - images)[missing] ** 2).mean() for some in (filled, by_mean)]
    assert errors[0] < 0.8 * errors[1]


def test_imputer_rests_while_the_generators_warm_up() -> None:
    pixels, mask = some_images()
    networks, rules = image_networks(pixels, mask, seeded(), width=4), MisGANImageImputer(tau=0.3)
    loss = MisganGame(networks, rules, seeded(7)).generators_loss(pixels, mask, imputes=False)
    loss.backward()
    made, masks, _ = MisganGame(networks, rules, seeded(7))._made(pixels, mask, imputes=False)
    masked = made * masks + 0.3 * (1 - masks)
    expected = -networks.mask_critic(masks).mean() - networks.data_critic(masked).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert all(weight.grad is None for weight in networks.imputer.parameters())
    assert all(weight.grad is not None for weight in networks.data_generator.parameters())


def test_block_masks_are_learned_by_their_generator() -> None:
    images, _ = stripes(200)
    missing = np.zeros(images.shape, dtype=bool)
    missing[:, 2:6, 2:6] = True
    filled = MisGANImageImputer(max_epochs=2, width=4, random_state=0).fit_transform(images, mask=missing)
    assert np.isfinite(filled).all()
    np.testing.assert_array_equal(filled[~missing], images[~missing])

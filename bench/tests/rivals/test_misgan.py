"""MisGAN: the penalty, the weights between the games, and networks of one's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mcflow_bench.rivals.misgan import MisganGame, MisganImputer, gradient_penalty, table_networks, weighted


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def line(n_rows: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    whole = rng.normal(size=(n_rows, 1)) @ np.ones((1, 4)) + 0.05 * rng.normal(size=(n_rows, 4))
    return whole, np.where(rng.random(whole.shape) < 0.2, np.nan, whole)


def small_networks(n_places: int):
    return table_networks(torch.full((n_places,), 0.5), torch.full((n_places,), 0.8), seeded(), width=8, noise=4)


def share_of_the_mean_s_error(filled: np.ndarray, whole: np.ndarray, incomplete: np.ndarray) -> float:
    missing = np.isnan(incomplete)
    by_mean = np.where(missing, np.nanmean(incomplete, axis=0), incomplete)
    return float(((filled - whole)[missing] ** 2).mean() / ((by_mean - whole)[missing] ** 2).mean())


def test_short_training_is_no_worse_than_the_mean() -> None:
    whole, incomplete = line()
    filled = MisganImputer(max_steps=30, n_critic=1, learning_rate=0.02, random_state=0).fit_transform(incomplete)
    assert share_of_the_mean_s_error(filled, whole, incomplete) < 1.1


def test_penalty_of_a_linear_critic_is_its_slope_s_distance_to_one() -> None:
    critic = nn.Linear(3, 1).requires_grad_(False)
    critic.weight.copy_(torch.tensor([[3.0, 0.0, 4.0]]))
    rows = torch.rand(5, 3, generator=seeded())
    assert gradient_penalty(critic, rows, 1 - rows, torch.rand(5)).item() == pytest.approx(16.0, rel=1e-5)


def test_penalty_agrees_with_slopes_taken_row_by_row() -> None:
    critic = small_networks(3).data_critic
    real, fake, shares = (torch.rand(*size, generator=seeded(k)) for k, size in enumerate([(6, 3), (6, 3), (6,)]))
    expected = []
    for r, f, s in zip(real, fake, shares, strict=True):
        slope = torch.autograd.functional.jacobian(critic, r + s * (f - r))
        expected.append((slope.norm().item() - 1) ** 2)
    assert gradient_penalty(critic, real, fake, shares).item() == pytest.approx(np.mean(expected), rel=1e-4)


def test_weighted_cells_keep_their_value_and_scale_their_gradient() -> None:
    cells = torch.tensor([0.3, 0.6], requires_grad=True)
    changed = weighted(cells, 0.2)
    (changed * torch.tensor([1.0, 10.0])).sum().backward()
    assert changed.tolist() == pytest.approx([0.3, 0.6])
    assert cells.grad.tolist() == pytest.approx([0.2, 2.0])


def test_each_generator_has_the_gradient_of_its_own_loss() -> None:
    networks, rules = small_networks(3), MisganImputer(alpha=0.3, beta=0.4, tau=0.25)
    rows, mask = torch.rand(6, 3, generator=seeded(1)), torch.ones(6, 3)
    mask[::2, 1] = 0
    MisganGame(networks, rules, seeded(2)).generators_loss(rows, mask).backward()
    found = [[p.grad.clone() for p in part.parameters()] for part in networks.generators]

    made, masks, completed = MisganGame(networks, rules, seeded(2))._made(rows, mask)
    of_rows = -networks.data_critic(made * masks + 0.25 * (1 - masks)).mean()
    of_masks = -networks.mask_critic(masks).mean()
    of_imputer = networks.imputer_critic(made).mean() - networks.imputer_critic(completed).mean()
    losses = [of_rows + 0.4 * of_imputer, of_masks + 0.3 * of_rows, of_imputer]
    for part, loss, gradients in zip(networks.generators, losses, found, strict=True):
        for one, two in zip(
            gradients, torch.autograd.grad(loss, list(part.parameters()), retain_graph=True), strict=True
        ):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


def test_networks_of_one_s_own_are_built_for_the_width_and_used() -> None:
    asked = []

    def build(n_places: int):
        asked.append(n_places)
        return small_networks(n_places)

    _, incomplete = line(50)
    imputer = MisganImputer(networks=build, max_steps=3, random_state=0).fit(incomplete)
    assert asked == [4]
    assert imputer.network_.layers[0].weight.shape == (8, 8)


def test_same_seed_gives_the_same_bits() -> None:
    _, incomplete = line(60)
    one, two = (MisganImputer(max_steps=4, random_state=5).fit_transform(incomplete) for _ in range(2))
    assert one.tobytes() == two.tobytes()


def test_draws_differ_from_one_another_but_not_with_the_neighbours() -> None:
    _, incomplete = line(60)
    imputer = MisganImputer(max_steps=4, random_state=0).fit(incomplete)
    first, second = imputer.draw(incomplete, m=2, random_state=1)
    assert (first != second)[np.isnan(incomplete)].all()
    alone = next(imputer.draw(incomplete[7:9], m=1, random_state=1))
    np.testing.assert_allclose(alone, first[7:9], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "incomplete",
    [np.array([[1.0, np.nan], [np.nan, np.nan], [4.0, 1.0], [2.0, 3.0]]), np.array([[1.0], [np.nan], [2.5]])],
)
def test_tiny_tables_are_filled_within_their_range(incomplete) -> None:
    filled = MisganImputer(max_steps=3, random_state=0).fit_transform(incomplete)
    assert (filled >= np.nanmin(incomplete, axis=0)).all()
    assert (filled <= np.nanmax(incomplete, axis=0)).all()

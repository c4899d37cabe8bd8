"""GAIN: hints, losses, and what the fit keeps."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from mcflow_bench.rivals.gain import GainImputer, discriminator_loss, draw_hint, generator_loss
from mcflow_bench.rivals.networks import BestAverage, dense_network, start_at


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def line(n_rows: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    whole = rng.normal(size=(n_rows, 2)) @ rng.normal(size=(2, 5)) + 0.05 * rng.normal(size=(n_rows, 5))
    return whole, np.where(rng.random(whole.shape) < 0.2, np.nan, whole)


def test_linear_table_is_filled_far_better_than_by_the_mean() -> None:
    whole, incomplete = line()
    missing = np.isnan(incomplete)
    filled = GainImputer(max_steps=400, learning_rate=1e-2, random_state=0).fit_transform(incomplete)
    by_mean = np.where(missing, np.nanmean(incomplete, axis=0), incomplete)
    ratio = ((filled - whole)[missing] ** 2).mean() / ((by_mean - whole)[missing] ** 2).mean()
    assert ratio < 0.65**2


def test_hint_tells_the_given_share_and_half_elsewhere() -> None:
    mask = (torch.rand(50_000, 2, generator=seeded(1)) < 0.7).float()
    hint = draw_hint(mask, 0.9, seeded())
    untold = hint == 0.5
    assert untold.float().mean().item() == pytest.approx(0.1, abs=0.005)
    assert untold[mask == 0].float().mean().item() == pytest.approx(0.1, abs=0.01)
    assert (hint[~untold] == mask[~untold]).all()


def slow_losses(logits, mask, hint) -> tuple[float, float]:
    judge, fool = [], []
    for logit, m, h in zip(logits.flatten().tolist(), mask.flatten().tolist(), hint.flatten().tolist(), strict=True):
        observed = 1 / (1 + math.exp(-logit))
        if h == 0.5:
            judge.append(-math.log(observed) if m == 1 else -math.log(1 - observed))
            if m == 0:
                fool.append(-math.log(observed))
    return sum(judge) / len(judge), sum(fool) / len(fool)


def test_losses_count_the_cells_that_the_hint_leaves_open() -> None:
    logits = torch.randn(40, 3, generator=seeded())
    mask = (torch.rand(40, 3, generator=seeded(1)) < 0.6).float()
    hint = draw_hint(mask, 0.5, seeded(2))
    judge, fool = slow_losses(logits, mask, hint)
    assert discriminator_loss(logits, mask, hint).item() == pytest.approx(judge, rel=1e-5)
    assert generator_loss(logits, mask, hint).item() == pytest.approx(fool, rel=1e-5)


def test_losses_are_zero_when_no_cell_is_asked_for() -> None:
    mask = torch.ones(4, 2)
    assert generator_loss(torch.zeros(4, 2), mask, torch.full((4, 2), 0.5)).item() == 0
    assert discriminator_loss(torch.zeros(4, 2), mask, mask).item() == 0


def test_best_average_returns_the_weights_of_the_lowest_score() -> None:
    network = nn.Linear(1, 1, bias=False).requires_grad_(False)
    keeper = BestAverage(network, lambda average: abs(average.weight.item() - 3), every=1, decay=0.0)
    for weight in (1.0, 3.25, 8.0):
        network.weight.fill_(weight)
        keeper.update()
    assert keeper.best().weight.item() == 3.25


def test_best_average_follows_the_formula_of_a_running_mean() -> None:
    network = nn.Linear(1, 1, bias=False).requires_grad_(False)
    network.weight.fill_(0.0)
    keeper = BestAverage(network, lambda average: 0.0, decay=0.9)
    expected = 0.0
    for step in range(1, 200):
        network.weight.fill_(float(step))
        keeper.update()
        keep = min(0.9, step / (step + 10))
        expected = keep * expected + (1 - keep) * step
    assert keeper.best().weight.item() == pytest.approx(expected, rel=1e-5)


def test_network_starts_at_the_given_answers() -> None:
    mean = torch.tensor([0.1, 0.7])
    network = start_at(dense_network([3, 4, 2], seeded(), output=nn.Sigmoid), mean)
    assert network(torch.zeros(1, 3))[0].tolist() == pytest.approx(mean.tolist())


def test_same_seed_gives_the_same_bits() -> None:
    _, incomplete = line(60)
    one, two = (GainImputer(max_steps=20, random_state=5).fit_transform(incomplete) for _ in range(2))
    assert one.tobytes() == two.tobytes()


def test_draws_differ_from_one_another_but_not_with_the_neighbours() -> None:
    _, incomplete = line(60)
    imputer = GainImputer(max_steps=50, random_state=0).fit(incomplete)
    first, second = imputer.draw(incomplete, m=2, random_state=1)
    assert (first != second)[np.isnan(incomplete)].all()
    alone = next(imputer.draw(incomplete[7:9], m=1, random_state=1))
    np.testing.assert_allclose(alone, first[7:9], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "incomplete",
    [np.array([[1.0, np.nan], [2.0, 3.0], [np.nan, np.nan], [4.0, 1.0]]), np.array([[1.0], [np.nan], [2.5]])],
)
def test_tiny_tables_are_filled_within_their_range(incomplete) -> None:
    filled = GainImputer(max_steps=5, random_state=0).fit_transform(incomplete)
    assert (filled >= np.nanmin(incomplete, axis=0)).all()
    assert (filled <= np.nanmax(incomplete, axis=0)).all()


def test_category_that_follows_from_a_number_is_found() -> None:
    number = np.random.default_rng(0).random(300)
    category = pd.Series(np.where(number > 0.66, "high", np.where(number > 0.33, "middle", "low")), dtype=object)
    table = pd.DataFrame({"number": number, "category": category.mask(np.arange(300) % 5 == 0)})
    filled = GainImputer(max_steps=300, learning_rate=1e-2, width=32, dropout=0.3, random_state=0).fit_transform(table)
    assert (filled["category"] == category)[::5].mean() > 0.7

"""Mixtures of logistics over the levels of a pixel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import logistic

from mcflow.flows.logistic import LEVELS, LogisticMixture


@pytest.fixture
def mixture(generator: torch.Generator) -> LogisticMixture:
    return LogisticMixture(2 * torch.randn((5, 9), generator=generator, dtype=torch.float64))


def test_masses_of_all_levels_sum_to_one(mixture: LogisticMixture) -> None:
    total = sum(mixture.log_mass(torch.full((5,), level)).exp() for level in range(LEVELS))
    torch.testing.assert_close(total, torch.ones(5, dtype=torch.float64), rtol=1e-5, atol=1e-5)


def test_mass_of_one_part_is_that_of_scipy() -> None:
    parameters = torch.tensor([[0.0, -0.2, 0.5]], dtype=torch.float64)
    found = LogisticMixture(parameters)
    centre, scale = 0.3, math.exp(-1.5)
    edges = (np.array([10, 11]) - 0.5) / 255
    low, high = logistic.cdf(edges, centre, scale)
    assert found.log_mass(torch.tensor([10])).exp().item() == pytest.approx(high - low, rel=1e-9)
    assert found.below(torch.tensor([10])).item() == pytest.approx(low, rel=1e-9)


def test_outermost_levels_have_all_that_is_beyond(mixture: LogisticMixture) -> None:
    first, last = torch.zeros(5, dtype=torch.int64), torch.full((5,), LEVELS - 1)
    torch.testing.assert_close(mixture.log_mass(first).exp(), mixture.below(first + 1), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(mixture.log_mass(last).exp(), 1 - mixture.below(last), rtol=1e-6, atol=1e-8)


def test_values_undo_shares(generator: torch.Generator) -> None:
    mixture = LogisticMixture(torch.randn((400, 9), generator=generator, dtype=torch.float64) - 0.2)
    shares = torch.rand(400, generator=generator, dtype=torch.float64).clamp(0.01, 0.99)
    levels, places = mixture.values(shares)
    assert ((levels >= 0) & (levels < LEVELS)).all()
    torch.testing.assert_close(mixture.shares(levels, places), shares, rtol=1e-6, atol=1e-6)


def test_samples_follow_the_masses(generator: torch.Generator) -> None:
    parameters = torch.tensor([[1.0, 0.0, -0.4, 0.3, -1.0, 0.2]]).repeat(20_000, 1)
    mixture = LogisticMixture(parameters)
    drawn = mixture.sample(generator)
    for level in (0, 40, 128, 255):
        expected = mixture.below(torch.full((20_000,), level + 1))[0].item()
        assert (drawn <= level).float().mean().item() == pytest.approx(expected, abs=0.015)


def test_gradients_are_finite_far_from_the_truth() -> None:
    parameters = torch.tensor([[0.0, 60.0, -40.0], [0.0, -60.0, -40.0], [0.0, 0.0, 90.0]], requires_grad=True)
    LogisticMixture(parameters).log_mass(torch.tensor([0, 255, 100])).sum().backward()
    assert torch.isfinite(parameters.grad).all()

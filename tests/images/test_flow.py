"""Tests of the flow G of images and of the mixtures of logistic distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import logistic

from mcflow.images.networks import GREY_LEVELS, ImageFlow, LogisticMixture


def random_flow(n_channels: int, n_scales: int) -> ImageFlow:
    """Return a flow whose couplings all differ from the identity."""
    generator = torch.Generator().manual_seed(1)
    flow = ImageFlow(n_channels, 4, n_scales=n_scales, width=8, generator=generator).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return flow


SIZES = [(1, 0, 1, 1), (1, 1, 2, 2), (1, 2, 8, 8), (3, 2, 5, 6), (2, 2, 9, 3)]


@pytest.mark.parametrize(("n_channels", "n_scales", "height", "width"), SIZES)
def test_inverse_undoes_forward(
    n_channels: int, n_scales: int, height: int, width: int, generator: torch.Generator
) -> None:
    flow = random_flow(n_channels, n_scales)
    shape = (3, n_channels, height, width)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    chosen = torch.rand(shape, generator=generator) < 0.6
    context = torch.randn((3, 4, height, width), generator=generator, dtype=torch.float64)
    z, _ = flow(scores, chosen, context)
    assert not torch.allclose(z, scores * chosen) or not chosen.any()
    assert z[~chosen].eq(0).all()
    torch.testing.assert_close(flow.inverse(z, chosen, context), scores * chosen, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("n_channels", "n_scales", "height", "width"), SIZES)
def test_log_determinant_is_that_of_the_jacobian(
    n_channels: int, n_scales: int, height: int, width: int, generator: torch.Generator
) -> None:
    flow = random_flow(n_channels, n_scales)
    shape = (1, n_channels, height, width)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    chosen = torch.rand(shape, generator=generator) < 0.7
    chosen[0, 0, 0, 0] = True
    context = torch.randn((1, 4, height, width), generator=generator, dtype=torch.float64)
    where = chosen.flatten().nonzero()[:, 0]

    def latent(values: torch.Tensor) -> torch.Tensor:
        whole = scores.flatten().index_put((where,), values).reshape(shape)
        return flow(whole, chosen, context)[0].flatten()[where]

    jacobian = torch.autograd.functional.jacobian(latent, scores.flatten()[where])
    expected = torch.linalg.slogdet(jacobian)[1]
    torch.testing.assert_close(flow(scores, chosen, context)[1][0], expected, rtol=1e-9, atol=1e-9)


def test_pixels_that_are_not_chosen_have_no_effect(generator: torch.Generator) -> None:
    flow = random_flow(1, 2)
    scores = torch.randn((1, 1, 8, 8), generator=generator, dtype=torch.float64)
    chosen = torch.rand(scores.shape, generator=generator) < 0.5
    context = torch.zeros((1, 4, 8, 8), dtype=torch.float64)
    other = torch.where(chosen, scores, scores + 7)
    torch.testing.assert_close(flow.log_prob(scores, chosen, context), flow.log_prob(other, chosen, context))


def test_pixels_are_independent_in_a_new_flow(generator: torch.Generator) -> None:
    flow = ImageFlow(1, 4, generator=generator)
    scores = torch.randn((2, 1, 6, 6), generator=generator)
    chosen = torch.ones(scores.shape, dtype=torch.bool)
    expected = torch.distributions.Normal(0.0, 1.0).log_prob(scores).flatten(1).sum(1)
    torch.testing.assert_close(flow.log_prob(scores, chosen, torch.zeros(2, 4, 6, 6)).detach(), expected)


@pytest.fixture
def mixture(generator: torch.Generator) -> LogisticMixture:
    return LogisticMixture(2 * torch.randn((5, 9), generator=generator, dtype=torch.float64))


def test_masses_of_all_levels_sum_to_one(mixture: LogisticMixture) -> None:
    total = sum(mixture.log_mass(torch.full((5,), level)).exp() for level in range(GREY_LEVELS))
    torch.testing.assert_close(total, torch.ones(5, dtype=torch.float64), rtol=1e-5, atol=1e-5)


def test_mass_of_one_component_is_that_of_scipy() -> None:
    parameters = torch.tensor([[0.0, -0.2, 0.5]], dtype=torch.float64)
    found = LogisticMixture(parameters)
    centre, scale = 0.3, math.exp(-1.5)
    edges = (np.array([10, 11]) - 0.5) / 255
    low, high = logistic.cdf(edges, centre, scale)
    assert found.log_mass(torch.tensor([10])).exp().item() == pytest.approx(high - low, rel=1e-9)
    assert found.mass_below(torch.tensor([10])).item() == pytest.approx(low, rel=1e-9)


def test_outermost_levels_have_the_tails(mixture: LogisticMixture) -> None:
    first, last = torch.zeros(5, dtype=torch.int64), torch.full((5,), GREY_LEVELS - 1)
    torch.testing.assert_close(mixture.log_mass(first).exp(), mixture.mass_below(first + 1), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(mixture.log_mass(last).exp(), 1 - mixture.mass_below(last), rtol=1e-6, atol=1e-8)


def test_quantiles_undo_cdf(generator: torch.Generator) -> None:
    mixture = LogisticMixture(torch.randn((400, 9), generator=generator, dtype=torch.float64) - 0.2)
    p = torch.rand(400, generator=generator, dtype=torch.float64).clamp(0.01, 0.99)
    levels, positions = mixture.quantiles(p)
    assert ((levels >= 0) & (levels < GREY_LEVELS)).all()
    torch.testing.assert_close(mixture.cdf(levels, positions), p, rtol=1e-6, atol=1e-6)


def test_gradients_are_finite_far_from_the_truth() -> None:
    parameters = torch.tensor([[0.0, 60.0, -40.0], [0.0, -60.0, -40.0], [0.0, 0.0, 90.0]], requires_grad=True)
    LogisticMixture(parameters).log_mass(torch.tensor([0, 255, 100])).sum().backward()
    assert torch.isfinite(parameters.grad).all()

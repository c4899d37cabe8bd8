"""The flow over pixels: an exact density of any chosen ones."""

from __future__ import annotations

import pytest
import torch

from mcflow.flows.image_flow import ImageFlow


def moved(n_channels: int, n_scales: int) -> ImageFlow:
    """Return a flow whose couplings all do something."""
    generator = torch.Generator().manual_seed(1)
    flow = ImageFlow(n_channels, 4, n_scales=n_scales, width=8, generator=generator).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return flow


SIZES = [(1, 0, 1, 1), (1, 1, 2, 2), (1, 2, 8, 8), (3, 2, 5, 6), (2, 2, 9, 3)]


@pytest.mark.parametrize(("n_channels", "n_scales", "height", "width"), SIZES)
def test_flow_there_and_back_gives_the_scores_again(
    n_channels: int, n_scales: int, height: int, width: int, generator: torch.Generator
) -> None:
    flow = moved(n_channels, n_scales)
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
    flow = moved(n_channels, n_scales)
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


def test_pixels_that_are_not_chosen_have_no_say(generator: torch.Generator) -> None:
    flow = moved(1, 2)
    scores = torch.randn((1, 1, 8, 8), generator=generator, dtype=torch.float64)
    chosen = torch.rand(scores.shape, generator=generator) < 0.5
    context = torch.zeros((1, 4, 8, 8), dtype=torch.float64)
    other = torch.where(chosen, scores, scores + 7)
    torch.testing.assert_close(flow.log_prob(scores, chosen, context), flow.log_prob(other, chosen, context))


def test_new_flow_takes_pixels_for_independent(generator: torch.Generator) -> None:
    flow = ImageFlow(1, 4, generator=generator)
    scores = torch.randn((2, 1, 6, 6), generator=generator)
    chosen = torch.ones(scores.shape, dtype=torch.bool)
    expected = torch.distributions.Normal(0.0, 1.0).log_prob(scores).flatten(1).sum(1)
    torch.testing.assert_close(flow.log_prob(scores, chosen, torch.zeros(2, 4, 6, 6)).detach(), expected)

"""Tests of the losses: formulas and gradients against autograd, and a plain implementation as the oracle."""

from __future__ import annotations

import pytest
import torch

from epoch import PlainTrainer
from mcflow.fitting.initialisation import draw_masks
from mcflow.paper.algorithm import FlatAdam, gradients, seen_weights
from mcflow.paper.networks import LatentMapper, RealNVP

LAMBDA = 0.05


@pytest.fixture
def networks(generator: torch.Generator) -> tuple[RealNVP, LatentMapper]:
    return RealNVP(draw_masks(6, 5, generator), generator=generator), LatentMapper(5, generator=generator)


@pytest.fixture
def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    missing = torch.rand(32, 5, generator=generator) < 0.3
    missing[0] = True
    return torch.rand(32, 5, generator=generator), missing


def autograd_losses(flow: RealNVP, mapper: LatentMapper, rows: torch.Tensor, missing: torch.Tensor):
    """Compute equations 6 and 7 of the paper literally, with the second encoding of Algorithm 1."""
    z = flow(rows)[0]
    x_hat = flow.inverse(mapper(z))[0]
    flow_loss = -flow.log_prob(rows).mean()
    terms = []
    for row, row_hat, mask in zip(rows, x_hat, missing, strict=True):
        seen = ~mask
        error = (row[seen] - row_hat[seen]).square().mean() if seen.any() else row_hat.sum() * 0
        terms.append(error - LAMBDA * flow.log_prob(row_hat[None])[0])
    return flow_loss, torch.stack(terms).mean()


def test_losses_equal_the_paper_s_formulas(networks, batch) -> None:
    losses = gradients(*networks, batch[0], seen_weights(batch[1]), LAMBDA)
    expected = autograd_losses(*networks, *batch)
    torch.testing.assert_close(losses, tuple(loss.detach() for loss in expected))


def test_only_the_loss_of_the_flow_changes_theta(networks, batch) -> None:
    flow, mapper = networks
    gradients(flow, mapper, batch[0], seen_weights(batch[1]), LAMBDA)
    ours = flow.gradient.clone()
    flow_loss, latent_loss = autograd_losses(flow, mapper, *batch)
    of_flow = torch.autograd.grad(flow_loss, flow.theta, retain_graph=True)[0]
    of_latent = torch.autograd.grad(latent_loss, flow.theta)[0]
    assert of_latent.abs().max() > 1e-4, "the loss of H has a gradient by θ that must not be used"
    torch.testing.assert_close(ours, of_flow, rtol=1e-4, atol=1e-6)


def test_only_the_loss_of_the_latent_network_changes_phi(networks, batch) -> None:
    flow, mapper = networks
    gradients(flow, mapper, batch[0], seen_weights(batch[1]), LAMBDA)
    ours = mapper.gradient.clone()
    flow_loss, latent_loss = autograd_losses(flow, mapper, *batch)
    assert torch.autograd.grad(flow_loss, mapper.phi, allow_unused=True, retain_graph=True)[0] is None
    of_latent = torch.autograd.grad(latent_loss, mapper.phi)[0]
    torch.testing.assert_close(ours, of_latent, rtol=1e-4, atol=1e-6)


def test_missing_cells_do_not_enter_the_squared_error(batch) -> None:
    weights = seen_weights(batch[1])
    assert torch.equal(weights == 0, batch[1])
    sums = weights.sum(1)
    torch.testing.assert_close(sums[1:], torch.ones(31))
    assert sums[0] == 0, "a row without an observed cell has no squared error"


def test_fifty_steps_agree_with_the_plain_implementation(generator: torch.Generator) -> None:
    flow, mapper = RealNVP(draw_masks(6, 8, generator), generator=generator), LatentMapper(8, generator=generator)
    plain = PlainTrainer(flow, mapper, 1e-4, 1e-3)
    adams = FlatAdam(flow.theta.detach(), 1e-4), FlatAdam(mapper.phi.detach(), 1e-4)
    for _ in range(50):
        rows = torch.rand(128, 8, generator=generator)
        seen = seen_weights(torch.rand(128, 8, generator=generator) < 0.2)
        with torch.inference_mode():
            ours = gradients(flow, mapper, rows, seen, 1e-3)
            adams[0].step(flow.gradient)
            adams[1].step(mapper.gradient)
        theirs = plain.step(rows, seen)
        for mine, other in zip(ours, theirs, strict=True):
            assert float(mine) == pytest.approx(float(other), abs=1e-4)

"""Contract of the flow G and the network H: inverse, density and gradients."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
import zuko
from torch.distributions import AffineTransform

from epoch import PlainFlow, PlainTrainer
from mcflow.fitting.initialisation import draw_masks
from mcflow.paper.networks import LatentMapper, RealNVP

#: Masks that are not complements of each other, one of which keeps nothing and one everything.
ODD_MASKS = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 1, 1], [1, 0, 1], [0, 0, 1]]).bool()


def make_flow(n_columns: int, generator: torch.Generator, *, n_couplings: int = 6, scale: float = 1.0) -> RealNVP:
    flow = RealNVP(draw_masks(n_couplings, n_columns, generator), generator=generator)
    with torch.no_grad():
        flow.theta.mul_(scale)
    return flow


@pytest.fixture(params=["1 column", "2 columns", "16 columns", "one coupling", "odd masks"])
def flow(request: pytest.FixtureRequest, generator: torch.Generator) -> RealNVP:
    if request.param == "odd masks":
        return RealNVP(ODD_MASKS, generator=generator)
    if request.param == "one coupling":
        return make_flow(5, generator, n_couplings=1)
    return make_flow(int(request.param.split()[0]), generator, scale=1.5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_round_trip_returns_the_rows(flow: RealNVP, dtype: torch.dtype, tolerance: float) -> None:
    flow = flow.to(dtype)
    x = torch.rand(64, flow.n_columns, dtype=dtype)
    z, log_det = flow(x)
    back, inverse_log_det = flow.inverse(z)
    assert (back - x).abs().max() < tolerance
    assert (log_det + inverse_log_det).abs().max() < tolerance
    x, _ = flow.inverse(z)
    assert (flow(x)[0] - z).abs().max() < tolerance * 10


def test_log_det_equals_the_jacobian_of_autograd(flow: RealNVP) -> None:
    flow = flow.double()
    rows = torch.rand(5, flow.n_columns, dtype=torch.float64)
    log_dets = flow(rows)[1]
    for row, log_det in zip(rows, log_dets, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda x: flow(x[None])[0][0], row)
        assert torch.linalg.slogdet(jacobian)[1] == pytest.approx(float(log_det.detach()), abs=1e-10)


def test_forward_differs_from_the_identity(flow: RealNVP) -> None:
    x = torch.rand(8, flow.n_columns)
    assert not torch.allclose(flow(x)[0], x)


@pytest.mark.parametrize("inverse", [False, True])
def test_gradients_equal_finite_differences(flow: RealNVP, inverse: bool) -> None:
    flow = flow.double()
    x = torch.rand(4, flow.n_columns, dtype=torch.float64, requires_grad=True)
    direction = flow.inverse if inverse else flow.forward
    assert torch.autograd.gradcheck(direction, (x,))
    out_weight, det_weight = torch.randn(4, flow.n_columns).double(), torch.randn(4).double()

    def loss() -> torch.Tensor:
        out, log_det = direction(x.detach())
        return (out * out_weight).sum() + (log_det * det_weight).sum()

    (gradient,) = torch.autograd.grad(loss(), flow.theta)
    step = 1e-6
    with torch.no_grad():
        for k in range(0, len(gradient), max(1, len(gradient) // 60)):
            flow.theta[k] += step
            above = loss()
            flow.theta[k] -= 2 * step
            below = loss()
            flow.theta[k] += step
            assert (above - below) / (2 * step) == pytest.approx(float(gradient[k]), abs=1e-6)


def test_flow_equals_zuko_with_the_same_weights(generator: torch.Generator) -> None:
    flow = make_flow(7, generator).double()
    transforms = []
    for mask, coupling in zip(flow.masks, flow.couplings, strict=True):

        def affine(kept: torch.Tensor, weights: list[torch.Tensor] = coupling.networks.weights) -> AffineTransform:
            state = [kept, kept]
            for layer in range(0, len(weights), 2):
                state = [state[k] @ weights[layer][k] + weights[layer + 1][k] for k in range(2)]
                if layer < len(weights) - 2:
                    state = [torch.nn.functional.leaky_relu(s) for s in state]
            return AffineTransform(state[1], state[0].tanh().exp(), event_dim=1)

        transforms.append(zuko.transforms.CouplingTransform(affine, mask))
    oracle = zuko.transforms.ComposedTransform(*transforms)
    x = torch.rand(32, 7, dtype=torch.float64)
    with torch.no_grad():
        z, log_det = flow(x)
        expected, expected_log_det = oracle.call_and_ladj(x)
    torch.testing.assert_close(z, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(log_det, expected_log_det, rtol=0, atol=1e-12)
    normal = zuko.distributions.DiagNormal(torch.zeros(7).double(), torch.ones(7).double())
    density = zuko.distributions.NormalizingFlow(oracle, normal).log_prob(x)
    torch.testing.assert_close(flow.log_prob(x).detach(), density, rtol=0, atol=1e-12)


def test_flow_equals_the_plain_structure_with_element_wise_masks(generator: torch.Generator) -> None:
    flow = make_flow(9, generator)
    plain: PlainFlow = PlainTrainer(flow, LatentMapper(9, generator=generator), 1e-4, 0.0).flow
    x = torch.rand(20, 9)
    z, log_p = plain.log_prob(x)
    torch.testing.assert_close(flow(x)[0], z)
    torch.testing.assert_close(flow.log_prob(x), log_p)


def test_log_prob_integrates_to_one(generator: torch.Generator) -> None:
    flow = make_flow(2, generator)
    axis = torch.linspace(-40, 40, 1001)
    grid = torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        mass = flow.log_prob(grid).exp().sum() * float(axis[1] - axis[0]) ** 2
    assert float(mass) == pytest.approx(1, abs=1e-3)


def test_sample_has_the_density_it_claims(generator: torch.Generator) -> None:
    flow = make_flow(3, generator, scale=2.0)
    rows = flow.sample(20_000, generator)
    z = flow(rows)[0].detach()
    assert z.mean(0).abs().max() < 0.03
    assert (z.std(0) - 1).abs().max() < 0.03
    again = flow.sample(20_000, torch.Generator().manual_seed(5))
    assert torch.equal(again, flow.sample(20_000, torch.Generator().manual_seed(5)))


def test_masks_come_in_complementary_pairs_that_split_the_columns(generator: torch.Generator) -> None:
    masks = draw_masks(6, 3, generator)
    assert masks.shape == (6, 3)
    for k in range(0, 6, 2):
        assert bool((masks[k] ^ masks[k + 1]).all())
    assert bool(((masks.sum(1) > 0) & (masks.sum(1) < 3)).all())
    share = torch.stack([draw_masks(1, 50, generator)[0] for _ in range(400)]).float().mean()
    assert float(share) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda flow: pickle.loads(pickle.dumps(flow))])
def test_copy_is_equal_and_independent(generator: torch.Generator, duplicate) -> None:
    flow = make_flow(4, generator)
    twin = duplicate(flow)
    x = torch.rand(6, 4)
    assert torch.equal(twin(x)[0], flow(x)[0])
    with torch.no_grad():
        twin.theta.add_(1)
    assert not torch.allclose(twin(x)[0], flow(x)[0])


def test_reset_draws_weights_within_the_bounds_of_a_linear_layer(generator: torch.Generator) -> None:
    flow = make_flow(25, generator)
    assert float(flow.theta.detach().abs().max()) <= 1 / math.sqrt(25)
    assert float(flow.theta.detach().std()) == pytest.approx(0.2 / math.sqrt(3), rel=0.05)


def test_latent_mapper_equals_a_plain_perceptron(generator: torch.Generator) -> None:
    mapper = LatentMapper(6, generator=generator)
    layers = []
    for weight, bias in zip(mapper.network.weights[::2], mapper.network.weights[1::2], strict=True):
        layer = torch.nn.Linear(6, 6)
        layer.weight.data, layer.bias.data = weight[0].T.clone(), bias[0, 0].clone()
        layers += [layer, torch.nn.LeakyReLU()]
    plain = torch.nn.Sequential(*layers[:-1])
    assert len(layers) == 10
    z, d_out = torch.randn(11, 6), torch.randn(11, 6)
    torch.testing.assert_close(mapper(z), plain(z))
    out, hidden = mapper.run(z)
    torch.testing.assert_close(out, plain(z))
    mapper.run_back(d_out, hidden)
    theirs = torch.autograd.grad((plain(z) * d_out).sum(), list(plain.parameters()))
    flat = torch.cat([(g.T if g.ndim == 2 else g).flatten() for g in theirs])
    torch.testing.assert_close(mapper.gradient, flat)
    torch.testing.assert_close(torch.autograd.grad((mapper(z) * d_out).sum(), mapper.phi)[0], flat)

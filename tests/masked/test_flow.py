"""The flow G: invertible, with a correct density, blind to cells that are not chosen, and fitted to dependence."""

from __future__ import annotations

import math
import time

import pytest
import torch
from torch import Tensor, nn

from mcflow.errors import McflowWarning, TrainingError
from mcflow.masked.encoding import PointMarginals
from mcflow.masked.flow import ConditionalFlow, JointDensity
from mcflow.masked.network import Answer
from mcflow.random import Streams

# --- the flow


N_CONTEXT = 6


def make_flow(n_columns: int, generator: torch.Generator, **sizes) -> ConditionalFlow:
    """Return a flow far from the identity."""
    flow = ConditionalFlow(n_columns, N_CONTEXT, generator=generator, **sizes)
    with torch.no_grad():
        for weight in [*list(flow.weights)[2::3], *list(flow.biases)[2::3]]:
            weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    return flow


@pytest.fixture(params=[1, 2, 7])
def flow(request: pytest.FixtureRequest, generator: torch.Generator) -> ConditionalFlow:
    return make_flow(request.param, generator)


def some_rows(n_columns: int, generator: torch.Generator, n_rows: int = 40) -> tuple[Tensor, Tensor, Tensor]:
    scores = torch.randn(n_rows, n_columns, generator=generator)
    chosen = torch.rand(n_rows, n_columns, generator=generator) < 0.6
    return scores, chosen, torch.randn(n_rows, N_CONTEXT, generator=generator)


def test_round_trip_returns_the_chosen_scores_and_zeros(flow, generator) -> None:
    scores, chosen, context = some_rows(flow.n_columns, generator)
    z, _ = flow(scores, chosen, context)
    assert not torch.allclose(z, scores * chosen, atol=1e-2)
    torch.testing.assert_close(flow.inverse(z, chosen, context), scores * chosen, atol=1e-5, rtol=0)
    assert torch.equal(z[~chosen], torch.zeros(int((~chosen).sum())))


def test_log_det_is_that_of_the_jacobian_over_the_chosen_cells(flow, generator) -> None:
    flow = flow.double()
    scores, chosen, context = (part.double() for part in some_rows(flow.n_columns, generator, n_rows=12))
    _, log_det = flow(scores, chosen, context)
    for row in range(len(scores)):
        here = slice(row, row + 1)
        jacobian = torch.autograd.functional.jacobian(
            lambda x, at=here: flow(x, chosen[at], context[at])[0], scores[here]
        )
        cells = chosen[row].bool()
        inner = jacobian[0, :, 0][cells][:, cells]
        torch.testing.assert_close(torch.linalg.slogdet(inner).logabsdet, log_det[row])


def test_log_prob_integrates_to_one_over_two_chosen_cells(generator) -> None:
    flow = make_flow(3, generator).double()
    axis = torch.linspace(-24, 24, 241, dtype=torch.float64)
    scores = torch.zeros(241**2, 3, dtype=torch.float64)
    scores[:, [0, 2]] = torch.cartesian_prod(axis, axis)
    chosen = torch.tensor([[True, False, True]]).expand(len(scores), -1)
    context = torch.randn(1, N_CONTEXT, generator=generator).double().expand(len(scores), -1)
    with torch.no_grad():
        total = flow.log_prob(scores, chosen, context).exp().sum() * 0.2**2
    assert float(total) == pytest.approx(1, abs=1e-3)


def test_cells_that_are_not_chosen_change_nothing_whatever_they_hold(generator) -> None:
    flow = make_flow(5, generator)
    scores, chosen, context = some_rows(5, generator)
    expected = flow(scores, chosen, context)
    other = torch.where(chosen, scores, torch.nan)
    for found, wanted in zip(flow(other, chosen, context), expected, strict=True):
        assert torch.equal(found, wanted)
    assert torch.equal(flow.inverse(other, chosen, context), flow.inverse(scores, chosen, context))


def test_row_with_no_chosen_cell_has_a_log_density_of_zero(flow, generator) -> None:
    scores, chosen, context = some_rows(flow.n_columns, generator)
    assert torch.equal(flow.log_prob(scores, torch.zeros_like(chosen), context), torch.zeros(len(scores)))


def test_choice_as_numbers_is_the_choice_as_truth(generator) -> None:
    flow = make_flow(4, generator)
    scores, chosen, context = some_rows(4, generator)
    assert torch.equal(flow.log_prob(scores, chosen.float(), context), flow.log_prob(scores, chosen, context))


def test_rows_do_not_depend_on_the_rows_they_come_with(generator) -> None:
    flow = make_flow(5, generator)
    scores, chosen, context = some_rows(5, generator)
    together = flow.log_prob(scores, chosen, context)
    order = torch.randperm(len(scores), generator=generator)
    shuffled = flow.log_prob(scores[order], chosen[order], context[order])
    torch.testing.assert_close(shuffled, together[order], atol=1e-5, rtol=0)
    alone = flow.log_prob(scores[:1], chosen[:1], context[:1])
    torch.testing.assert_close(alone, together[:1], atol=1e-5, rtol=0)


def test_new_flow_is_the_identity_and_its_cells_independent(generator) -> None:
    flow = ConditionalFlow(4, N_CONTEXT, generator=generator)
    scores, chosen, context = some_rows(4, generator)
    z, log_det = flow(scores, chosen, context)
    assert torch.equal(z, scores * chosen)
    assert torch.equal(log_det, torch.zeros(len(scores)))
    normal = -0.5 * (scores.square() + math.log(2 * math.pi))
    torch.testing.assert_close(flow.log_prob(scores, chosen, context), (normal * chosen).sum(1))


def test_context_and_choice_move_the_answer(generator) -> None:
    flow = make_flow(4, generator)
    scores, _, context = some_rows(4, generator)
    chosen = torch.ones(40, 4, dtype=torch.bool)
    z, _ = flow(scores, chosen, context)
    assert not torch.allclose(flow(scores, chosen, context + 1)[0], z, atol=1e-3)
    fewer = chosen.clone()
    fewer[:, 0] = False
    assert not torch.allclose(flow(scores, fewer, context)[0][:, 1:], z[:, 1:], atol=1e-3)


def test_flow_without_a_generator_loads_the_state_of_another(generator) -> None:
    flow = make_flow(5, generator, n_couplings=3, width=16, n_projected=4)
    copy = ConditionalFlow(5, N_CONTEXT, n_couplings=3, width=16, n_projected=4)
    assert not any(parameter.any() for parameter in copy.parameters())
    copy.load_state_dict(flow.state_dict())
    rows = some_rows(5, generator)
    assert torch.equal(copy.log_prob(*rows), flow.log_prob(*rows))


def test_same_seed_gives_the_same_flow() -> None:
    first, second = (ConditionalFlow(3, 4, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])


def test_flow_without_couplings_is_the_identity(generator) -> None:
    flow = ConditionalFlow(3, N_CONTEXT, n_couplings=0, generator=generator)
    scores, chosen, context = some_rows(3, generator)
    z, log_det = flow(scores, chosen, context)
    assert torch.equal(z, scores * chosen)
    assert torch.equal(log_det, torch.zeros(len(scores)))
    assert torch.equal(flow.inverse(z, chosen, context), scores * chosen)


# --- the joint density


#: Covariance of three Gaussian columns, the first two of which are strongly correlated.
COVARIANCE = torch.tensor([[1.0, 0.8, 0.5], [0.8, 1.0, 0.3], [0.5, 0.3, 1.0]], dtype=torch.float64)

#: Cut points that turn a number into a category.
CUTS = torch.tensor([-0.5, 0.7])

N_POINTS = 81


class GaussianNetwork(nn.Module):
    """Stands in for H: knows the exact distribution of every cell of the Gaussian table given the shown ones."""

    n_members = 2

    def __init__(self) -> None:
        super().__init__()
        self.points = torch.linspace(-5, 5, N_POINTS)
        self.asked = 0

    def forward(self, units: Tensor, shown: Tensor) -> Answer:
        self.asked += 1
        means, variances = zip(
            *(conditional(u, s) for u, s in zip(units[0], shown[0].bool(), strict=True)), strict=True
        )
        mean, variance = torch.stack(means), torch.stack(variances)
        logits = -0.5 * (self.points - mean[..., None]).square() / variance[..., None]
        context = torch.cat([units[0] * shown[0], shown[0]], 1)
        return Answer(context.expand(2, -1, -1), logits.expand(2, -1, -1, -1), mean.expand(2, -1, -1))


def conditional(row: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of every cell of a row given the shown ones, by the textbook."""
    weights = COVARIANCE[:, shown] @ torch.linalg.inv(COVARIANCE[shown][:, shown])
    variance = COVARIANCE.diagonal() - (weights * COVARIANCE[:, shown]).sum(1)
    return (weights @ row[shown].double()).float(), variance.clamp(min=1e-4).float()


class FixedNetwork(nn.Module):
    """Stands in for H: answers the same distribution for every row."""

    n_members = 1

    def __init__(self, p: Tensor) -> None:
        super().__init__()
        self.p = p

    def forward(self, units: Tensor, shown: Tensor) -> Answer:
        logits = self.p.log().clamp(min=-1e4).expand(1, units.shape[1], -1, -1)
        return Answer(torch.cat([units * shown, shown], -1), logits, units)


def gaussian_rows(n_rows: int, seed: int) -> Tensor:
    normals = torch.randn(n_rows, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (normals @ torch.linalg.cholesky(COVARIANCE).T).float().clamp(-4.9, 4.9)


def correlation(columns: Tensor) -> float:
    return float(torch.corrcoef(columns.T)[0, 1])


def grid_marginals(n_columns: int) -> PointMarginals:
    points = torch.linspace(-5, 5, N_POINTS).expand(n_columns, -1)
    return PointMarginals(points, torch.full((n_columns,), N_POINTS), torch.zeros(n_columns, dtype=torch.bool))


def empty_shares(n_columns: int) -> Tensor:
    p = (-0.5 * torch.linspace(-5, 5, N_POINTS).square()).softmax(0)
    return p.expand(n_columns, -1).clone()


@pytest.fixture(scope="module")
def fitted() -> tuple[FixedNetwork, PointMarginals, ConditionalFlow, list[float]]:
    """Fit G on the Gaussian table, with an H that knows each column alone and leaves the rest to G."""
    network, marginals = FixedNetwork(empty_shares(3)), grid_marginals(3)
    flow = ConditionalFlow(3, 6, generator=torch.Generator().manual_seed(1))
    rows = gaussian_rows(4000, seed=0)
    how = {"n_steps": 500, "batch_size": 128, "learning_rate": 3e-3}
    losses = JointDensity(network, marginals, flow).fit(rows, rows > -9, Streams(0).order, **how)
    return network, marginals, flow, losses


def test_loss_falls_below_that_of_independent_cells(fitted) -> None:
    losses = fitted[3]
    assert len(losses) == 500
    independent = 0.5 * (1 + math.log(2 * math.pi))
    assert losses[0] == pytest.approx(independent, abs=0.15)
    assert sum(losses[-50:]) / 50 < independent - 0.1


def test_draws_of_two_missing_cells_are_correlated_as_the_table(fitted, generator) -> None:
    network, marginals, flow, _ = fitted
    rows = gaussian_rows(20_000, seed=3)
    shown = torch.tensor([[False, False, True]]).expand(rows.shape)
    normals = torch.randn(rows.shape, generator=generator)
    drawn = JointDensity(network, marginals, flow).draw(torch.where(shown, rows, 0.0), shown, ~shown, normals)
    assert torch.equal(drawn[:, 2], rows[:, 2])
    assert correlation(drawn[:, [0, 1]]) == pytest.approx(0.8, abs=0.05)
    assert correlation(drawn[:, [0, 2]]) == pytest.approx(0.5, abs=0.06)
    assert drawn.mean(0).abs().max() < 0.06
    torch.testing.assert_close(drawn.std(0), torch.ones(3), atol=0.06, rtol=0)
    untrained = ConditionalFlow(3, 6, generator=generator)
    apart = JointDensity(network, marginals, untrained).draw(torch.where(shown, rows, 0.0), shown, ~shown, normals)
    assert abs(correlation(apart[:, [0, 1]])) < 0.05


@pytest.mark.parametrize("missing", [[0, 1], [0, 1, 2], [2]])
def test_log_density_is_close_to_the_true_one_on_average(fitted, missing) -> None:
    network, marginals, flow, _ = fitted
    rows = gaussian_rows(4000, seed=5)
    chosen = torch.zeros(3, dtype=torch.bool)
    chosen[missing] = True
    found = JointDensity(network, marginals, flow).log_density(
        rows, (~chosen).expand(rows.shape), chosen.expand(rows.shape), torch.rand(rows.shape)
    )
    assert not found.requires_grad
    true = joint(rows) - (joint(rows, (~chosen).nonzero()[:, 0].tolist()) if not chosen.all() else 0.0)
    assert float((found - true).mean()) == pytest.approx(0, abs=0.06)
    assert float((found - true).abs().mean()) < 0.25


def joint(rows: Tensor, columns: list[int] | None = None) -> Tensor:
    """Return the true log-density of some columns."""
    columns = [0, 1, 2] if columns is None else columns
    covariance = COVARIANCE[columns][:, columns]
    normal = torch.distributions.MultivariateNormal(torch.zeros(len(columns), dtype=torch.float64), covariance)
    return normal.log_prob(rows[:, columns].double())


def test_log_density_with_an_exact_h_and_one_missing_cell_is_the_conditional_density() -> None:
    network, marginals = GaussianNetwork(), grid_marginals(3)
    flow = ConditionalFlow(3, 6, generator=torch.Generator().manual_seed(1))
    rows = gaussian_rows(300, seed=7)
    chosen = torch.tensor([[True, False, False]]).expand(rows.shape)
    found = JointDensity(network, marginals, flow).log_density(rows, ~chosen, chosen, torch.rand(rows.shape))
    true = joint(rows) - joint(rows, [1, 2])
    torch.testing.assert_close(found.double(), true, atol=0.08, rtol=0)


def test_flow_on_top_of_an_exact_h_learns_what_is_left_between_the_cells(generator) -> None:
    network, marginals = GaussianNetwork(), grid_marginals(3)
    flow = ConditionalFlow(3, 6, generator=torch.Generator().manual_seed(1))
    rows = gaussian_rows(1000, seed=0)
    seen = torch.rand(rows.shape, generator=generator) < 0.9
    JointDensity(network, marginals, flow).fit(
        rows, seen, Streams(0).order, n_steps=150, batch_size=64, learning_rate=5e-3
    )
    new = gaussian_rows(1500, seed=2)
    shown = torch.tensor([[False, False, True]]).expand(new.shape)
    network.asked = 0
    drawn = JointDensity(network, marginals, flow).draw(new, shown, ~shown, torch.randn(new.shape, generator=generator))
    assert network.asked == 1
    # residuals of the first two columns given the third
    rest = drawn[:, :2] - new[:, 2:] * torch.tensor([0.5, 0.3])
    expected = (0.8 - 0.15) / math.sqrt((1 - 0.25) * (1 - 0.09))
    assert correlation(rest) == pytest.approx(expected, abs=0.12)


def test_category_beside_a_number_keeps_its_shares_and_its_relation(generator) -> None:
    number = torch.randn(4000, generator=generator)
    noisy = 0.9 * number + math.sqrt(1 - 0.81) * torch.randn(4000, generator=generator)
    rows = torch.stack([number.clamp(-4.9, 4.9), torch.bucketize(noisy, CUTS).float()], 1)
    shares = torch.bincount(rows[:, 1].long(), minlength=3) / 4000
    p = empty_shares(2)
    p[1] = 0.0
    p[1, :3] = shares
    points = torch.linspace(-5, 5, N_POINTS).repeat(2, 1)
    points[1] = torch.arange(N_POINTS).clamp(max=2)
    marginals = PointMarginals(points, torch.tensor([N_POINTS, 3]), torch.tensor([False, True]))
    network, flow = FixedNetwork(p), ConditionalFlow(2, 4, generator=torch.Generator().manual_seed(1))
    losses = JointDensity(network, marginals, flow).fit(
        rows, rows > -9, Streams(0).order, n_steps=500, learning_rate=3e-3
    )
    assert sum(losses[-50:]) < sum(losses[:50])
    nothing = torch.zeros(rows.shape, dtype=torch.bool)
    drawn = JointDensity(network, marginals, flow).draw(
        rows, nothing, ~nothing, torch.randn(rows.shape, generator=generator)
    )
    assert set(drawn[:, 1].tolist()) == {0.0, 1.0, 2.0}
    # Affine couplings cannot reproduce the truncated scores of a category: its frequency is off by 0.02 to 0.04 after
    # training, with eight couplings as with four, and exact before.
    torch.testing.assert_close(torch.bincount(drawn[:, 1].long()) / 4000, shares, atol=0.06, rtol=0)
    for category in range(3):
        wanted, found = (table[table[:, 1] == category, 0].mean() for table in (rows, drawn))
        assert float(found) == pytest.approx(float(wanted), abs=0.2)


def test_mass_of_a_category_is_the_mean_over_the_uniform_numbers(generator) -> None:
    """However G bends the scores, the masses of all categories come to 1."""
    marginals = PointMarginals(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([3]), torch.tensor([True]))
    network, flow = FixedNetwork(torch.tensor([[0.2, 0.5, 0.3]])), ConditionalFlow(1, 2, generator=generator)
    with torch.no_grad():
        flow.biases[2].copy_(torch.tensor([0.4, -0.3]))
    uniforms = (torch.arange(20_000) + 0.5)[:, None] / 20_000
    nothing = torch.zeros(20_000, 1, dtype=torch.bool)
    masses = [
        JointDensity(network, marginals, flow)
        .log_density(torch.full((20_000, 1), category), nothing, ~nothing, uniforms)
        .exp()
        .mean()
        for category in (0.0, 1.0, 2.0)
    ]
    assert float(sum(masses)) == pytest.approx(1, abs=1e-3)
    assert float(masses[0]) != pytest.approx(0.2, abs=0.02)
    drawn = JointDensity(network, marginals, flow).draw(
        uniforms, nothing, ~nothing, torch.randn(20_000, 1, generator=generator)
    )
    found = torch.bincount(drawn[:, 0].long(), minlength=3) / 20_000
    torch.testing.assert_close(found, torch.stack(masses), atol=0.015, rtol=0)


def test_prediction_takes_the_mean_over_members_and_the_first_context() -> None:
    class TwoMinds(nn.Module):
        n_members = 2

        def forward(self, units: Tensor, shown: Tensor) -> Answer:
            logits = torch.tensor([[0.2, 0.8], [0.6, 0.4]]).log()[:, None, None].expand(2, units.shape[1], 1, 2)
            return Answer(torch.arange(2.0)[:, None, None].expand(2, units.shape[1], 3), logits, units)

    p, context = JointDensity(TwoMinds(), grid_marginals(1), ConditionalFlow(1, 3)).predict_points(
        torch.zeros(4, 1), torch.zeros(4, 1, dtype=torch.bool)
    )
    torch.testing.assert_close(p[0, 0], torch.tensor([0.4, 0.6]))
    assert torch.equal(context, torch.zeros(4, 3))


def short_fit(**options) -> tuple[list[float], ConditionalFlow]:
    flow = ConditionalFlow(3, 6, generator=torch.Generator().manual_seed(1))
    rows = gaussian_rows(200, seed=0)
    network, steps = FixedNetwork(empty_shares(3)), {"n_steps": 15, "batch_size": 32} | options
    losses = JointDensity(network, grid_marginals(3), flow).fit(rows, rows > -9, Streams(4).order, **steps)
    return losses, flow


def test_fit_with_the_same_streams_gives_the_same_bits() -> None:
    (first, flow), (second, other) = short_fit(), short_fit()
    assert first == second
    for name, value in flow.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


def test_fit_after_its_deadline_does_nothing() -> None:
    losses, flow = short_fit(deadline=time.perf_counter() - 1)
    assert losses == []
    assert not flow.weights[2].any()


def test_fit_with_a_near_deadline_ends_by_then() -> None:
    start = time.perf_counter()
    losses, _ = short_fit(n_steps=10**6, deadline=start + 0.5)
    assert losses
    assert time.perf_counter() - start < 3


def test_fit_without_any_seen_cell_does_nothing() -> None:
    flow = ConditionalFlow(3, 6, generator=torch.Generator().manual_seed(1))
    rows = gaussian_rows(10, seed=0)
    network = FixedNetwork(empty_shares(3))
    assert JointDensity(network, grid_marginals(3), flow).fit(rows, rows > 9, Streams(0).order, n_steps=5) == []


def test_flow_without_couplings_has_nothing_to_learn_and_its_cells_are_independent(generator) -> None:
    flow = ConditionalFlow(3, 6, n_couplings=0, generator=generator)
    rows, network, marginals = gaussian_rows(4000, seed=0), FixedNetwork(empty_shares(3)), grid_marginals(3)
    assert JointDensity(network, marginals, flow).fit(rows, rows > -9, Streams(0).order, n_steps=5) == []
    nothing = torch.zeros(rows.shape, dtype=torch.bool)
    found = JointDensity(network, marginals, flow).log_density(
        rows, nothing, ~nothing, torch.rand(rows.shape, generator=generator)
    )
    alone = sum(joint(rows, [k]) for k in range(3))
    torch.testing.assert_close(found.double(), alone, atol=0.08, rtol=0)
    drawn = JointDensity(network, marginals, flow).draw(
        rows, nothing, ~nothing, torch.randn(rows.shape, generator=generator)
    )
    assert abs(correlation(drawn[:, :2])) < 0.05


def test_fit_whose_losses_are_never_finite_raises(monkeypatch) -> None:
    monkeypatch.setattr(JointDensity, "_loss", lambda *_, **__: torch.tensor(math.nan))
    with pytest.raises(TrainingError, match="first 20 steps"):
        short_fit(n_steps=100)


def test_fit_with_some_losses_that_are_not_finite_skips_them(monkeypatch) -> None:
    true_loss, count = JointDensity._loss, iter(range(100))
    monkeypatch.setattr(
        JointDensity, "_loss", lambda *a, **k: true_loss(*a, **k) * (math.nan if next(count) < 3 else 1.0)
    )
    with pytest.warns(McflowWarning, match="3 of 15 steps"):
        losses, flow = short_fit()
    assert len(losses) == 12
    assert all(parameter.isfinite().all() for parameter in flow.parameters())

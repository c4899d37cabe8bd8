"""The joint density of missing cells: it finds what goes together, and its draws show it."""

from __future__ import annotations

import math
import time

import pytest
import torch
from torch import Tensor, nn

from mcflow.errors import McflowWarning, TrainingError
from mcflow.flows.conditional import ConditionalFlow
from mcflow.flows.marginals import PointMarginals
from mcflow.latent.masked import Answer
from mcflow.random import Streams
from mcflow.training import density
from mcflow.training.density import draw, fit_density, log_density, look

#: Of three normal columns, the first two of which are close.
COVARIANCE = torch.tensor([[1.0, 0.8, 0.5], [0.8, 1.0, 0.3], [0.5, 0.3, 1.0]], dtype=torch.float64)

#: Where the levels of a fourth column begin, on the scale of the first.
CUTS = torch.tensor([-0.5, 0.7])

N_POINTS = 81


class NormalMapper(nn.Module):
    """Stands in for H: knows the exact distribution of every cell of the normal table given the shown ones."""

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


class FixedMapper(nn.Module):
    """Stands in for H: answers the same distribution for every row."""

    n_members = 1

    def __init__(self, p: Tensor) -> None:
        super().__init__()
        self.p = p

    def forward(self, units: Tensor, shown: Tensor) -> Answer:
        logits = self.p.log().clamp(min=-1e4).expand(1, units.shape[1], -1, -1)
        return Answer(torch.cat([units * shown, shown], -1), logits, units)


def normal_rows(n_rows: int, seed: int) -> Tensor:
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
def fitted() -> tuple[FixedMapper, PointMarginals, ConditionalFlow, list[float]]:
    """Fit G on the normal table, with an H that knows each column alone and leaves the rest to G."""
    mapper, marginals = FixedMapper(empty_shares(3)), grid_marginals(3)
    flow = ConditionalFlow(3, 6, generator=torch.Generator().manual_seed(1))
    rows = normal_rows(4000, seed=0)
    how = {"n_steps": 500, "batch_size": 128, "learning_rate": 3e-3}
    losses = fit_density(mapper, marginals, flow, rows, rows > -9, Streams(0), **how)
    return mapper, marginals, flow, losses


def test_loss_falls_below_that_of_independent_cells(fitted) -> None:
    losses = fitted[3]
    assert len(losses) == 500
    independent = 0.5 * (1 + math.log(2 * math.pi))
    assert losses[0] == pytest.approx(independent, abs=0.15)
    assert sum(losses[-50:]) / 50 < independent - 0.1


def test_draws_of_two_missing_cells_are_correlated_as_the_table(fitted, generator) -> None:
    mapper, marginals, flow, _ = fitted
    rows = normal_rows(20_000, seed=3)
    shown = torch.tensor([[False, False, True]]).expand(rows.shape)
    normals = torch.randn(rows.shape, generator=generator)
    drawn = draw(mapper, marginals, flow, torch.where(shown, rows, 0.0), shown, ~shown, normals)
    assert torch.equal(drawn[:, 2], rows[:, 2])
    assert correlation(drawn[:, [0, 1]]) == pytest.approx(0.8, abs=0.05)
    assert correlation(drawn[:, [0, 2]]) == pytest.approx(0.5, abs=0.06)
    assert drawn.mean(0).abs().max() < 0.06
    torch.testing.assert_close(drawn.std(0), torch.ones(3), atol=0.06, rtol=0)
    untrained = ConditionalFlow(3, 6, generator=generator)
    apart = draw(mapper, marginals, untrained, torch.where(shown, rows, 0.0), shown, ~shown, normals)
    assert abs(correlation(apart[:, [0, 1]])) < 0.05


@pytest.mark.parametrize("missing", [[0, 1], [0, 1, 2], [2]])
def test_log_density_is_close_to_the_true_one_on_average(fitted, missing) -> None:
    mapper, marginals, flow, _ = fitted
    rows = normal_rows(4000, seed=5)
    chosen = torch.zeros(3, dtype=torch.bool)
    chosen[missing] = True
    found = log_density(
        mapper, marginals, flow, rows, (~chosen).expand(rows.shape), chosen.expand(rows.shape), torch.rand(rows.shape)
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
    mapper, marginals = NormalMapper(), grid_marginals(3)
    flow = ConditionalFlow(3, 6, generator=torch.Generator().manual_seed(1))
    rows = normal_rows(300, seed=7)
    chosen = torch.tensor([[True, False, False]]).expand(rows.shape)
    found = log_density(mapper, marginals, flow, rows, ~chosen, chosen, torch.rand(rows.shape))
    true = joint(rows) - joint(rows, [1, 2])
    torch.testing.assert_close(found.double(), true, atol=0.08, rtol=0)


def test_flow_on_top_of_an_exact_h_learns_what_is_left_between_the_cells(generator) -> None:
    mapper, marginals = NormalMapper(), grid_marginals(3)
    flow = ConditionalFlow(3, 6, generator=torch.Generator().manual_seed(1))
    rows = normal_rows(1000, seed=0)
    seen = torch.rand(rows.shape, generator=generator) < 0.9
    fit_density(mapper, marginals, flow, rows, seen, Streams(0), n_steps=150, batch_size=64, learning_rate=5e-3)
    new = normal_rows(1500, seed=2)
    shown = torch.tensor([[False, False, True]]).expand(new.shape)
    mapper.asked = 0
    drawn = draw(mapper, marginals, flow, new, shown, ~shown, torch.randn(new.shape, generator=generator))
    assert mapper.asked == 1
    # what the third column leaves unsaid of the first two
    rest = drawn[:, :2] - new[:, 2:] * torch.tensor([0.5, 0.3])
    expected = (0.8 - 0.15) / math.sqrt((1 - 0.25) * (1 - 0.09))
    assert correlation(rest) == pytest.approx(expected, abs=0.12)


def test_level_beside_a_number_keeps_its_shares_and_its_relation(generator) -> None:
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
    mapper, flow = FixedMapper(p), ConditionalFlow(2, 4, generator=torch.Generator().manual_seed(1))
    losses = fit_density(mapper, marginals, flow, rows, rows > -9, Streams(0), n_steps=500, learning_rate=3e-3)
    assert sum(losses[-50:]) < sum(losses[:50])
    nothing = torch.zeros(rows.shape, dtype=torch.bool)
    drawn = draw(mapper, marginals, flow, rows, nothing, ~nothing, torch.randn(rows.shape, generator=generator))
    assert set(drawn[:, 1].tolist()) == {0.0, 1.0, 2.0}
    # affine couplings cannot follow the cut edges of a level's scores: its share is off by 0.02 to 0.04 after training,
    # with eight couplings as with four, and by nothing before it
    torch.testing.assert_close(torch.bincount(drawn[:, 1].long()) / 4000, shares, atol=0.06, rtol=0)
    for level in range(3):
        wanted, found = (table[table[:, 1] == level, 0].mean() for table in (rows, drawn))
        assert float(found) == pytest.approx(float(wanted), abs=0.2)


def test_mass_of_a_level_is_the_mean_over_the_uniform_numbers(generator) -> None:
    """However G bends the scores, the masses of all levels come to 1."""
    marginals = PointMarginals(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([3]), torch.tensor([True]))
    mapper, flow = FixedMapper(torch.tensor([[0.2, 0.5, 0.3]])), ConditionalFlow(1, 2, generator=generator)
    with torch.no_grad():
        flow.biases[2].copy_(torch.tensor([0.4, -0.3]))
    uniforms = (torch.arange(20_000) + 0.5)[:, None] / 20_000
    nothing = torch.zeros(20_000, 1, dtype=torch.bool)
    masses = [
        log_density(mapper, marginals, flow, torch.full((20_000, 1), level), nothing, ~nothing, uniforms).exp().mean()
        for level in (0.0, 1.0, 2.0)
    ]
    assert float(sum(masses)) == pytest.approx(1, abs=1e-3)
    assert float(masses[0]) != pytest.approx(0.2, abs=0.02)
    drawn = draw(mapper, marginals, flow, uniforms, nothing, ~nothing, torch.randn(20_000, 1, generator=generator))
    found = torch.bincount(drawn[:, 0].long(), minlength=3) / 20_000
    torch.testing.assert_close(found, torch.stack(masses), atol=0.015, rtol=0)


def test_look_takes_the_mean_over_members_and_the_first_context() -> None:
    class TwoMinds(nn.Module):
        n_members = 2

        def forward(self, units: Tensor, shown: Tensor) -> Answer:
            logits = torch.tensor([[0.2, 0.8], [0.6, 0.4]]).log()[:, None, None].expand(2, units.shape[1], 1, 2)
            return Answer(torch.arange(2.0)[:, None, None].expand(2, units.shape[1], 3), logits, units)

    p, context = look(TwoMinds(), torch.zeros(4, 1), torch.zeros(4, 1, dtype=torch.bool))
    torch.testing.assert_close(p[0, 0], torch.tensor([0.4, 0.6]))
    assert torch.equal(context, torch.zeros(4, 3))


def short_fit(**options) -> tuple[list[float], ConditionalFlow]:
    flow = ConditionalFlow(3, 6, generator=torch.Generator().manual_seed(1))
    rows = normal_rows(200, seed=0)
    mapper, steps = FixedMapper(empty_shares(3)), {"n_steps": 15, "batch_size": 32} | options
    losses = fit_density(mapper, grid_marginals(3), flow, rows, rows > -9, Streams(4), **steps)
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
    rows = normal_rows(10, seed=0)
    mapper = FixedMapper(empty_shares(3))
    assert fit_density(mapper, grid_marginals(3), flow, rows, rows > 9, Streams(0), n_steps=5) == []


def test_flow_without_couplings_has_nothing_to_learn_and_its_cells_are_independent(generator) -> None:
    flow = ConditionalFlow(3, 6, n_couplings=0, generator=generator)
    rows, mapper, marginals = normal_rows(4000, seed=0), FixedMapper(empty_shares(3)), grid_marginals(3)
    assert fit_density(mapper, marginals, flow, rows, rows > -9, Streams(0), n_steps=5) == []
    nothing = torch.zeros(rows.shape, dtype=torch.bool)
    found = log_density(mapper, marginals, flow, rows, nothing, ~nothing, torch.rand(rows.shape, generator=generator))
    alone = sum(joint(rows, [k]) for k in range(3))
    torch.testing.assert_close(found.double(), alone, atol=0.08, rtol=0)
    drawn = draw(mapper, marginals, flow, rows, nothing, ~nothing, torch.randn(rows.shape, generator=generator))
    assert abs(correlation(drawn[:, :2])) < 0.05


def test_fit_whose_losses_are_never_finite_raises(monkeypatch) -> None:
    monkeypatch.setattr(density, "_loss", lambda *_, **__: torch.tensor(math.nan))
    with pytest.raises(TrainingError, match="first 20 steps"):
        short_fit(n_steps=100)


def test_fit_with_some_losses_that_are_not_finite_leaves_them_out(monkeypatch) -> None:
    true_loss, count = density._loss, iter(range(100))
    monkeypatch.setattr(density, "_loss", lambda *a, **k: true_loss(*a, **k) * (math.nan if next(count) < 3 else 1.0))
    with pytest.warns(McflowWarning, match="3 of 15 steps"):
        losses, flow = short_fit()
    assert len(losses) == 12
    assert all(parameter.isfinite().all() for parameter in flow.parameters())

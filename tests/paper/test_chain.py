"""Tests of chains: their distribution against closed forms, their bounds, and what they depend on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import kstest, truncnorm

from mcflow.columns.codecs import CategoryCode, KnotScale, TableCodec
from mcflow.columns.marginals import Marginals
from mcflow.columns.schema import Column
from mcflow.fitting.initialisation import draw_masks
from mcflow.paper.algorithm import Box
from mcflow.paper.chain import MOVES, Chain, FlowDensity, Jumps, quantile_at, rank_of
from mcflow.paper.networks import RealNVP
from mcflow.random import hash_rows


class Normal:
    def __init__(self, mean: np.ndarray, covariance: np.ndarray) -> None:
        self.mean, self.precision = mean, np.linalg.inv(covariance)

    def value(self, rows: np.ndarray) -> np.ndarray:
        return -0.5 * ((rows - self.mean) @ self.precision * (rows - self.mean)).sum(axis=1)

    def slope(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.value(rows), -(rows - self.mean) @ self.precision


def number_jumps(n_columns: int) -> Jumps:
    """Jumps of columns of numbers, two thirds of which lie in the lower half."""
    codec = TableCodec([Column(k, "double", "continuous") for k in range(n_columns)], [unit()] * n_columns)
    seen = np.concatenate([np.linspace(0, 0.5, 200), np.linspace(0.5, 1, 100)])
    return Jumps(codec, Marginals(np.repeat(seen[:, None], n_columns, axis=1)))


def unit() -> KnotScale:
    return KnotScale(np.array([0.0, 1.0]), np.array([0.0, 1.0]))


def box_of(low: float, high: float, n_places: int = 1) -> Box:
    return Box(torch.full((n_places,), low), torch.full((n_places,), high))


def make(density, rows, missing, *, box=None, jumps=None, seed=0, numbers=None, **how) -> Chain:
    numbers = np.arange(len(rows)) if numbers is None else numbers
    hashes = hash_rows(numbers[:, None].astype(np.float64), seed)
    n_places = rows.shape[1]
    jumps = number_jumps(n_places) if jumps is None else jumps
    box = box_of(-9.0, 9.0, n_places) if box is None else box
    steps = np.full(n_places, 0.25)
    return Chain(density, rows, missing, jumps=jumps, steps=steps, box=box, hashes=hashes, **{"burn_in": 90} | how)


def correlated(n_rows: int = 2000) -> tuple[Normal, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A normal of three places of which two are missing: density, rows, mask, conditional mean and covariance."""
    mean = np.array([0.4, 0.5, 0.6])
    covariance = 0.02 * np.array([[1.0, 0.7, 0.8], [0.7, 1.0, 0.5], [0.8, 0.5, 1.0]])
    rows = np.tile([0.1, 0.9, 0.7], (n_rows, 1))
    missing = np.tile([True, True, False], (n_rows, 1))
    gain = covariance[:2, 2] / covariance[2, 2]
    expected = mean[:2] + gain * (0.7 - mean[2])
    return Normal(mean, covariance), rows, missing, expected, covariance[:2, :2] - np.outer(gain, covariance[2, :2])


def test_two_missing_places_when_jointly_normal_have_the_conditional_mean_and_covariance() -> None:
    density, rows, missing, mean, covariance = correlated()
    chain = make(density, rows, missing)
    chain.advance(90)
    states = []
    for _ in range(5):
        chain.advance(9)
        states.append(chain.rows[:, :2].copy())
    drawn = np.concatenate(states)
    error = np.sqrt(np.diag(covariance) / len(rows))
    assert (np.abs(drawn.mean(axis=0) - mean) < 4 * error).all()
    np.testing.assert_allclose(drawn.var(axis=0), np.diag(covariance), rtol=0.08)
    expected = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert np.corrcoef(drawn.T)[0, 1] == pytest.approx(expected, abs=0.04)


def test_states_some_moves_apart_are_nearly_independent() -> None:
    density, rows, missing, mean, covariance = correlated()
    chain = make(density, rows, missing)
    chain.advance(90)
    before = chain.rows[:, 0] - mean[0]
    chain.advance(9)
    assert abs((before * (chain.rows[:, 0] - mean[0])).mean() / covariance[0, 0]) < 0.25


@pytest.mark.parametrize("ends", [(0.0, 1.0), (0.0, np.inf), (-np.inf, 1.0)])
@pytest.mark.parametrize("move", ["jump", "walk", "glide"])
def test_exact_draws_stay_exact_draws_under_every_move(move, ends) -> None:
    n_rows, mean, deviation = 8000, 0.9, 0.3
    law = truncnorm((ends[0] - mean) / deviation, (ends[1] - mean) / deviation, mean, deviation)
    start = law.rvs((n_rows, 1), random_state=np.random.default_rng(0))
    density = Normal(np.array([mean]), np.array([[deviation**2]]))
    chain = make(density, start, np.ones((n_rows, 1), dtype=bool), box=box_of(*ends), burn_in=0, moves=(move,))
    moved = np.zeros(n_rows, dtype=bool)
    for _ in range(8):
        chain.advance(1)
        moved |= chain.accepted
    assert moved.mean() > 0.5
    assert kstest(chain.rows[:, 0], law.cdf).pvalue > 0.01


def test_flow_in_a_box_is_drawn_as_its_density_says(generator) -> None:
    flow = RealNVP(draw_masks(6, 3, generator), generator=generator)
    with torch.no_grad():
        flow.theta.mul_(3.0)  # far from linear
    density, n_rows = FlowDensity(flow), 1500
    rows, missing = np.full((n_rows, 3), 0.3), np.tile([True, False, True], (n_rows, 1))
    chain = make(density, rows, missing, box=Box.unit(3))
    chain.advance(60)
    middles = (np.arange(60) + 0.5) / 60
    a, b = (part.ravel() for part in np.meshgrid(middles, middles, indexing="ij"))
    weights = np.exp(density.value(np.column_stack([a, np.full(a.size, 0.3), b])))
    weights /= weights.sum()
    for drawn, grid in ((chain.rows[:, 0], a), (chain.rows[:, 2], b), (chain.rows[:, 0] * chain.rows[:, 2], a * b)):
        mean = weights @ grid
        spread = np.sqrt(weights @ (grid - mean) ** 2)
        assert abs(drawn.mean() - mean) < 4 * spread / np.sqrt(n_rows)
        assert drawn.std() == pytest.approx(spread, rel=0.08)


def test_flow_s_density_has_the_gradient_of_autograd(generator) -> None:
    flow = RealNVP(draw_masks(6, 4, generator), generator=generator)
    rows = np.random.default_rng(0).random((7, 4))
    value, gradient = FlowDensity(flow).slope(rows)
    x = torch.from_numpy(rows).float().requires_grad_()
    flow.log_prob(x).sum().backward()
    np.testing.assert_allclose(value, flow.log_prob(x).detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(gradient, x.grad.numpy(), atol=1e-4)
    np.testing.assert_array_equal(FlowDensity(flow).value(rows), value)
    assert flow.theta.dtype == torch.float32


class Codewords:
    """A density in which each category has its weight around its codeword, and other places have almost none."""

    def __init__(self, coder: CategoryCode, weights: np.ndarray) -> None:
        self.words, self.weights = coder.codewords > 0.5, weights

    def value(self, rows: np.ndarray) -> np.ndarray:
        same = ((rows > 0.5)[:, None, :] == self.words).all(axis=2)
        return np.log(same @ self.weights + 1e-6)

    def slope(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.value(rows), np.zeros(rows.shape)


@pytest.mark.parametrize(("n_categories", "max_one_hot"), [(2, 16), (4, 16), (5, 2)])
def test_categories_are_visited_as_often_as_their_weight(n_categories, max_one_hot) -> None:
    names = tuple(range(n_categories))
    codec = TableCodec([Column("a", "string", "category", categories=names)], [None], max_one_hot)
    coder = codec.coders[0]
    weights = np.arange(1.0, n_categories + 1) ** 2
    seen = np.repeat(np.arange(n_categories), np.arange(n_categories, 0, -1) * 10).astype(np.float64)[:, None]
    jumps = Jumps(codec, Marginals(seen))
    rows = codec.encode(np.zeros((2000, 1)))
    chain = make(
        Codewords(coder, weights), rows, np.ones((2000, 1), dtype=bool), jumps=jumps, box=Box.unit(codec.n_places)
    )
    chain.advance(150)
    found = np.bincount(coder.decode(chain.rows).astype(int), minlength=n_categories) / 2000
    np.testing.assert_allclose(found, weights / weights.sum(), atol=0.04)


def test_jumps_propose_what_was_seen_and_correct_for_it() -> None:
    jumps = number_jumps(2)
    uniforms = (np.arange(4000) + 0.5) / 4000
    start = np.tile([0.25, 0.75], (4000, 1))
    proposed, correction = jumps.propose(start, np.full(4000, 1), uniforms)
    np.testing.assert_array_equal(proposed[:, 0], 0.25)
    assert (proposed[:, 1] < 0.5).mean() == pytest.approx(0.95 * 2 / 3 + 0.025, abs=0.01)
    back = jumps.propose(proposed, np.full(4000, 1), np.full(4000, uniforms[-1]))[1]
    there = jumps.propose(start, np.full(4000, 1), np.full(4000, uniforms[-1]))[1]
    np.testing.assert_allclose(correction + back, there, atol=1e-12)  # q(x)/q(x') · q(x')/q(y) = q(x)/q(y)


def test_a_place_outside_the_proposals_never_jumps() -> None:
    proposed, correction = number_jumps(1).propose(np.array([[1.5]]), np.array([0]), np.array([0.5]))
    assert correction[0] == -np.inf
    assert 0 <= proposed[0, 0] <= 1


def test_observed_places_stay_and_missing_ones_stay_inside() -> None:
    density, rows, missing, _, _ = correlated(300)
    chain = make(density, rows, missing, box=box_of(0.0, 0.92, 3))
    for _ in range(120):
        chain.advance(1)
        assert (chain.rows[:, 2] == 0.7).all()
        assert ((chain.rows[:, :2] >= 0) & (chain.rows[:, :2] <= 0.92)).all()


def test_rows_do_not_depend_on_those_they_come_with() -> None:
    density, rows, missing, _, _ = correlated(60)
    missing[::3, 1] = False
    together = make(density, rows, missing)
    together.advance(150)
    some = np.random.default_rng(0).permutation(60)[:17]
    apart = make(density, rows[some], missing[some], numbers=some)
    apart.advance(150)
    np.testing.assert_allclose(apart.rows, together.rows[some], atol=1e-10)


def test_round_off_does_not_grow(generator) -> None:
    flow = RealNVP(draw_masks(6, 4, generator), generator=generator)
    with torch.no_grad():
        flow.theta.mul_(3.0)

    class Disturbed(FlowDensity):
        def slope(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            value, gradient = super().slope(rows)
            return value * (1 + 1e-14), gradient * (1 - 1e-14)

    missing = np.tile([True, True, False, True], (100, 1))
    chains = [make(density, np.full((100, 4), 0.4), missing) for density in (FlowDensity(flow), Disturbed(flow))]
    for chain in chains:
        chain.advance(200)
    np.testing.assert_allclose(chains[0].rows, chains[1].rows, atol=1e-6)


def test_a_seed_decides_every_bit() -> None:
    density, rows, missing, _, _ = correlated(40)
    first, again, other = (make(density, rows, missing, seed=seed) for seed in (0, 0, 1))
    for chain in (first, again, other):
        chain.advance(60)
    np.testing.assert_array_equal(first.rows, again.rows)
    assert (first.rows[:, 0] != other.rows[:, 0]).all()


def test_step_sizes_are_adapted_in_the_burn_in_and_frozen_after_it() -> None:
    density, rows, missing, _, _ = correlated(200)
    chain = make(density, rows, missing, burn_in=60)
    start = chain._log_walk.copy(), chain._log_glide.copy()
    chain.advance(60)
    adapted = chain._log_walk.copy(), chain._log_glide.copy()
    assert all((a != b).mean() > 0.9 for a, b in zip(start, adapted, strict=True))
    chain.advance(60)
    np.testing.assert_array_equal(chain._log_walk, adapted[0])
    np.testing.assert_array_equal(chain._log_glide, adapted[1])


def test_burn_in_brings_acceptance_near_its_target() -> None:
    density, rows, missing, _, _ = correlated(400)
    density.precision = density.precision * 100  # far narrower than the initial step sizes
    chain = make(density, rows, missing)
    chain.advance(90)
    accepted = {move: [] for move in MOVES}
    for _ in range(60):
        move = MOVES[chain.step % 3]
        chain.advance(1)
        accepted[move].append(chain.accepted.mean())
    assert 0.25 < np.mean(accepted["walk"]) < 0.65
    assert 0.5 < np.mean(accepted["glide"]) < 0.95


def test_a_row_without_a_density_stays_where_it_is() -> None:
    class Nowhere(Normal):
        def value(self, rows: np.ndarray) -> np.ndarray:
            return np.full(len(rows), np.nan)

    chain = make(Nowhere(np.zeros(1), np.eye(1)), np.full((5, 1), 0.5), np.ones((5, 1), dtype=bool))
    chain.advance(12)
    np.testing.assert_array_equal(chain.rows, 0.5)


def test_rank_of_undoes_quantile_at() -> None:
    states = np.sort(np.random.default_rng(0).normal(size=(101, 40)), axis=0)
    rank = np.random.default_rng(1).uniform(0, 100, size=40)
    np.testing.assert_allclose(rank_of(states, quantile_at(states, rank)), rank, atol=1e-6)
    np.testing.assert_array_equal(rank_of(states, np.full(40, -9.0)), 0)
    np.testing.assert_array_equal(rank_of(states, np.full(40, 9.0)), 100)

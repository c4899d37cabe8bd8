"""The mask-aware H: encoding, targets and loss against slow, obvious versions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from mcflow.masked.network import MAX_INPUT_UNITS, MaskedNetwork, cross_entropy

KNOTS = torch.tensor([[-1.0, 0.0, 0.5, 2.0], [0.0, 3.0, 3.0, 3.0], [-2.0, -2.0, 0.0, 1.0]], dtype=torch.float64)
POINTS = torch.tensor([[-1.0, 0.0, 0.5, 2.0], [0.0, 3.0, 3.0, 3.0], [-2.0, 0.0, 1.0, 1.0]], dtype=torch.float64)
N_POINTS = torch.tensor([4, 2, 3])
ASINH_PARAMS = torch.tensor([[2.0, 1.0, 0.5, 3.0], [0.0, 0.0, 0.0, 1.0], [0.5, -1.0, 0.1, 0.7]], dtype=torch.float64)


def make(seed: int = 0, **sizes) -> MaskedNetwork:
    generator = torch.Generator().manual_seed(seed)
    return MaskedNetwork(
        KNOTS, POINTS, N_POINTS, ASINH_PARAMS, **{"n_members": 2, "width": 16} | sizes, generator=generator
    )


def shaken(seed: int = 0, **sizes) -> MaskedNetwork:
    """A network whose heads are not zero either."""
    network = make(seed, **sizes)
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for weight in network.weights:
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return network.eval()


def rows(n_rows: int = 7, n_members: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    units = 3 * torch.randn(n_members, n_rows, 3, generator=generator)
    return units, (torch.rand(units.shape, generator=generator) < 0.6).float()


def slow_encoding(unit: float, shown: float, knots: np.ndarray) -> list[float]:
    intervals = []
    for low, high in itertools.pairwise(knots):
        if high > low:
            share = 0.0 if unit < low else 1.0 if unit > high else (unit - low) / (high - low)
            intervals.append(share * shown)
    return intervals


def test_encoding_equals_the_slow_version_cell_by_cell() -> None:
    network = make()
    units, shown = rows()
    units[0, 0] = torch.tensor([50.0, -50.0, 0.25])
    found = network.encode(units, shown).numpy()
    for member in range(2):
        for row in range(7):
            cells = list(zip(units[member, row].tolist(), shown[member, row].tolist(), strict=True))
            wanted = [p for k, (unit, there) in enumerate(cells) for p in slow_encoding(unit, there, KNOTS[k].numpy())]
            wanted += [min(max(unit, -MAX_INPUT_UNITS), MAX_INPUT_UNITS) * there for unit, there in cells]
            bent = zip(cells, ASINH_PARAMS.tolist(), strict=True)
            wanted += [(math.asinh(a * unit + b) - m) / s * there for (unit, there), (a, b, m, s) in bent]
            np.testing.assert_allclose(found[member, row], wanted, rtol=1e-5, atol=1e-6)


def test_encoding_leaves_what_it_was_given_alone() -> None:
    units, shown = rows()
    before = units.clone(), shown.clone()
    make().encode(units, shown)
    assert torch.equal(units, before[0])
    assert torch.equal(shown, before[1])


def test_cell_that_is_not_shown_changes_no_answer() -> None:
    network = shaken()
    units, shown = rows()
    other = torch.where(shown.bool(), units, 100 * units + 7)
    for one, two in zip(network(units, shown), network(other, shown), strict=True):
        assert torch.equal(one, two)


def test_cell_that_is_shown_changes_answers() -> None:
    network = shaken()
    units, shown = rows()
    other = torch.where(shown.bool(), units + 0.3, units)
    assert not torch.equal(network(units, shown).logits, network(other, shown).logits)


def test_lowest_and_the_mean_value_differ_from_a_missing_cell() -> None:
    network = shaken()
    for units in (KNOTS[:, 0].float().expand(2, 1, -1).contiguous(), torch.zeros(2, 1, 3)):
        shown, hidden = network(units, torch.ones(2, 1, 3)), network(units, torch.zeros(2, 1, 3))
        assert not torch.equal(shown.logits, hidden.logits)


def test_members_do_not_see_each_other() -> None:
    network = shaken()
    units, shown = rows()
    other = units.clone()
    other[1] += 1
    one, two = network(units, shown), network(other, shown)
    assert torch.equal(one.logits[0], two.logits[0])
    assert not torch.equal(one.logits[1], two.logits[1])


def test_forward_equals_the_layers_written_out() -> None:
    network = shaken(n_blocks=1)
    units, shown = rows()
    weight = list(network.weights)
    for member in range(2):
        read = network.encode(units, shown)[member]
        state = read @ weight[0][member] + weight[1][member]
        normed = (state - state.mean(1, keepdim=True)) / (state.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        inner = functional.gelu(normed @ weight[2][member] + weight[3][member])
        state = state + inner @ weight[4][member] + weight[5][member]
        context = (state - state.mean(1, keepdim=True)) / (state.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        logits = (context @ weight[6][member] + weight[7][member]).reshape(7, 3, 4)
        answer = network(units, shown)
        torch.testing.assert_close(answer.context[member], context, rtol=1e-4, atol=1e-4)
        for k, count in enumerate(N_POINTS):
            found = answer.logits[member, :, k, :count]
            torch.testing.assert_close(found, logits[:, k, :count], rtol=1e-4, atol=1e-4)
        straight = context @ weight[8][member] + weight[9][member]
        torch.testing.assert_close(answer.direct[member], straight, rtol=1e-4, atol=1e-4)


def test_points_that_a_column_does_not_have_get_no_probability() -> None:
    network = shaken()
    chances = network(*rows()).logits.softmax(-1)
    assert (chances[:, :, 1, 2:] == 0).all()
    assert (chances[:, :, 2, 3] == 0).all()
    torch.testing.assert_close(chances.sum(-1), torch.ones(2, 7, 3))


def test_empty_row_gets_the_columns_own_shares_at_the_start() -> None:
    network = make()
    shares = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.0, 0.0], [0.6, 0.2, 0.2, 0.0]])
    network.start_at(shares)
    chances = network(torch.zeros(2, 1, 3), torch.zeros(2, 1, 3)).logits.softmax(-1)
    torch.testing.assert_close(chances, shares.expand(2, 1, 3, 4), atol=1e-3, rtol=0)


def test_targets_lie_between_neighbours_and_have_the_unit_as_their_mean() -> None:
    network = make()
    units = torch.rand(200, 3, generator=torch.Generator().manual_seed(0)) * 3 - 1
    low, high = POINTS.float().amin(1), POINTS.float().amax(1)
    inside = torch.minimum(torch.maximum(units, low), high)
    inside[0], inside[1] = low, high
    below, share = network.targets(inside)
    assert (below >= 0).all()
    assert (below <= N_POINTS - 2).all()
    assert ((share >= 0) & (share <= 1)).all()
    columns = torch.arange(3)
    points = POINTS.float()
    mean = (1 - share) * points[columns, below] + share * points[columns, below + 1]
    torch.testing.assert_close(mean, inside, atol=1e-6, rtol=1e-6)


def test_targets_beyond_the_points_are_the_outermost_ones() -> None:
    below, share = make().targets(torch.tensor([[-9.0, -9.0, -9.0], [9.0, 9.0, 9.0]]))
    assert below.tolist() == [[0, 0, 0], [2, 0, 1]]
    assert share.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_targets_of_a_column_with_one_point_are_that_point() -> None:
    network = MaskedNetwork(torch.zeros(1, 2), torch.zeros(1, 3), torch.tensor([1]))
    below, _ = network.targets(torch.tensor([[-1.0], [0.0], [4.0]]))
    assert below.tolist() == [[0], [0], [0]]


def plain_cross_entropy(logits: torch.Tensor, below: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    target = torch.zeros_like(logits)
    cells = torch.arange(len(logits))
    target[cells, below] += 1 - share
    above = (below + 1).clamp(max=logits.shape[1] - 1)
    target[cells, above] += share
    return -(target * logits.log_softmax(-1)).sum(1).mean()


def test_cross_entropy_and_its_gradient_equal_the_plain_version() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(40, 6, generator=generator, dtype=torch.float64)).requires_grad_()
    below = torch.randint(0, 5, (40,), generator=generator)
    share = torch.rand(40, generator=generator, dtype=torch.float64)
    share[:2] = torch.tensor([0.0, 1.0])
    ours, plain = cross_entropy(logits, below, share), plain_cross_entropy(logits, below, share)
    assert ours.item() == pytest.approx(plain.item(), rel=1e-12)
    gradients = [torch.autograd.grad(7 * loss, logits)[0] for loss in (ours, plain)]
    torch.testing.assert_close(*gradients, atol=1e-14, rtol=1e-12)


def test_cross_entropy_gradient_passes_finite_differences() -> None:
    logits = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    below, share = torch.tensor([0, 1, 2, 0, 2]), torch.tensor([0.0, 0.5, 1.0, 0.25, 0.1], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda given: cross_entropy(given, below, share), logits)


def test_cross_entropy_is_least_where_the_probabilities_are_the_target_s() -> None:
    below, share = torch.tensor([1]), torch.tensor([0.3])
    target = torch.tensor([[1e-9, 0.7, 0.3]]).log()
    best = cross_entropy(target, below, share)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        assert cross_entropy(target + torch.randn(1, 3, generator=generator), below, share) >= best


def test_same_generator_gives_the_same_weights_and_none_gives_zeros() -> None:
    one, two, other = make(0), make(0), make(1)
    assert all(torch.equal(a, b) for a, b in zip(one.weights, two.weights, strict=True))
    assert not torch.equal(one.weights[0], other.weights[0])
    assert not torch.equal(one.weights[0][0], one.weights[0][1]), "members differ"
    blank = MaskedNetwork(KNOTS, POINTS, N_POINTS, width=16)
    assert all(bool((weight == 0).all()) for weight in blank.weights)

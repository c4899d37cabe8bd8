"""The flow over chosen cells: invertible, with the right density, and blind to every other cell."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mcflow.flows.conditional import ConditionalFlow

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

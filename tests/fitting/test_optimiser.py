"""AdamW against that of torch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from mcflow.fitting.trainer import BETAS, EPSILON, AdamW

SHAPES = [(3, 17, 5), (3, 1, 5), (40,), (1,)]


def weights() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in SHAPES]


def gradients(step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return [10.0 ** (step % 5 - 2) * torch.randn(shape, generator=generator) for shape in SHAPES]


def take_steps(optimiser: AdamW | torch.optim.Optimizer, given: list[torch.Tensor], n_steps: int = 30) -> None:
    for step in range(n_steps):
        rate = 0.01 * (1 + step % 3)
        if isinstance(optimiser, AdamW):
            optimiser.rate = rate
        else:
            optimiser.param_groups[0]["lr"] = rate
        for weight, gradient in zip(given, gradients(step), strict=True):
            weight.grad = gradient
        optimiser.step()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_weights_equal_those_of_torch_to_the_bit(weight_decay) -> None:
    ours, theirs = weights(), weights()
    optimiser = AdamW(ours, 0.01, weight_decay)
    other = torch.optim.AdamW(theirs, lr=0.01, betas=BETAS, eps=EPSILON, weight_decay=weight_decay, fused=True)
    take_steps(optimiser, ours)
    take_steps(other, theirs)
    for k, (one, two) in enumerate(zip(ours, theirs, strict=True)):
        assert torch.equal(one, two)
        for name, held in optimiser.state[k].items():
            assert torch.equal(held, other.state[two][name])


def test_formula_for_other_devices_agrees_with_the_kernel(monkeypatch) -> None:
    ours, plain = weights(), weights()
    take_steps(AdamW(ours, 0.01, 0.1), ours)
    elsewhere = AdamW(plain, 0.01, 0.1)

    def no_kernel(*_given: object, **_more: object) -> None:
        raise AssertionError("the fused kernel was called")

    monkeypatch.setattr(torch, "_fused_adamw_", no_kernel)
    # The device of the first weight decides, so pretend that it is another one.
    pretended = [_Elsewhere(weight) for weight in plain]
    elsewhere.weights = pretended  # type: ignore[assignment]
    for step in range(30):
        elsewhere.rate = 0.01 * (1 + step % 3)
        for weight, gradient in zip(pretended, gradients(step), strict=True):
            weight.grad = gradient
        elsewhere.step()
    for one, two in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


class _Elsewhere:
    """A weight that names another device."""

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight, self.grad, self.device = weight, None, SimpleNamespace(type="mps")

    def __getattr__(self, name: str) -> object:
        return getattr(self._weight, name)


def test_weight_without_a_gradient_stays_as_it_is() -> None:
    given = weights()
    before = given[1].detach().clone()
    optimiser = AdamW(given, 0.1, 0.1)
    for k, (weight, gradient) in enumerate(zip(given, gradients(0), strict=True)):
        weight.grad = None if k == 1 else gradient
    optimiser.step()
    assert torch.equal(given[1], before)
    assert [float(state["step"]) for state in optimiser.state] == [1, 0, 1, 1]
    optimiser.zero_grad()
    assert all(weight.grad is None for weight in given)
    optimiser.step()
    assert [float(state["step"]) for state in optimiser.state] == [1, 0, 1, 1]

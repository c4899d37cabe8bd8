"""The latent network H, and the heads that turn its completed rows into probabilities of categories."""

from __future__ import annotations

__all__ = ["CategoryHead", "LatentMapper"]

import torch
from torch import Tensor, nn

from mcflow.paper.coupling import FlatModule, NetworkBatch


class LatentMapper(FlatModule):
    r"""The network H, :math:`\hat z = h_\phi(\dot z)`: linear layers as wide as the data, with LeakyReLU between.

    Examples
    --------
    >>> mapper = LatentMapper(3, generator=torch.Generator().manual_seed(0))
    >>> mapper(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, n_columns: int, n_layers: int = 5, generator: torch.Generator | None = None) -> None:
        self.network = NetworkBatch(1, [n_columns] * (n_layers + 1))
        super().__init__([self.network])
        if generator is not None:
            with torch.no_grad():
                self.network.reset(generator)

    @property
    def phi(self) -> nn.Parameter:
        """All weights, the paper's φ."""
        return self.flat

    def run(self, z: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Map latent points outside autograd; return them and the activations that `run_back` needs."""
        outputs, hidden = self.network.forward(z)
        return outputs[0], hidden

    def run_back(self, d_out: Tensor, hidden: list[Tensor]) -> None:
        """Backpropagate a gradient (n_rows, n_columns) of the output into `gradient`, the gradient by `phi`."""
        self.network.backward(d_out[None], hidden, weights=True, inputs=False)

    def forward(self, z: Tensor) -> Tensor:
        """Map latent points (n_rows, n_columns) under autograd."""
        return self.network.forward(z, self.network.views(self.phi))[0][0]


class CategoryHead:
    r"""Multinomial logistic regression on completed rows: :math:`p(k) \propto \exp(x W_k + b_k)`.

    The completed row contains H's own prediction of the category. The head is fitted on cells that were hidden from
    the networks, so that its probabilities are valid for missing cells.

    Shapes: `weight` (n_places, n_categories), `bias` (n_categories,).
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight = weight
        self.bias = bias

    @classmethod
    def fit(cls, rows: Tensor, categories: Tensor, counts: Tensor, max_steps: int = 60) -> CategoryHead:
        """Fit a head on completed rows, their hidden categories and the counts of the observed categories.

        Shapes: `rows` (n_rows, n_places), `categories` (n_rows,), `counts` (n_categories,).
        """
        prior = ((counts + 1) / (counts + 1).sum()).log()
        with torch.inference_mode(False), torch.enable_grad():
            x, y = rows.clone(), categories.clone()
            weight = torch.zeros(x.shape[1], len(counts), device=x.device, requires_grad=True)
            shift = torch.zeros(len(counts), device=x.device, requires_grad=True)
            optimiser = torch.optim.LBFGS(
                [weight, shift], max_iter=max_steps, line_search_fn="strong_wolfe", tolerance_grad=1e-6
            )

            def loss() -> Tensor:
                optimiser.zero_grad()
                logits = x @ weight + shift + prior
                penalty = (weight.square().sum() + shift.square().sum()) / 2
                value = torch.nn.functional.cross_entropy(logits, y) + penalty / max(len(y), 1)
                value.backward()
                return value

            if len(y):
                optimiser.step(loss)
        return cls(weight.detach(), (shift.detach() + prior))

    def probabilities(self, rows: Tensor) -> Tensor:
        """Return the probabilities (n_rows, n_categories) of the categories."""
        return (rows @ self.weight + self.bias).softmax(1)

"""Probabilities of levels, read off the rows that the latent network completed."""

from __future__ import annotations

__all__ = ["LevelHead"]

import torch
from torch import Tensor


class LevelHead:
    r"""A linear map of a completed row to one log-odds a level: :math:`p(k) \propto \exp(x W_k + b_k)`.

    Parameters
    ----------
    weight : Tensor of shape (n_places, n_levels)
    bias : Tensor of shape (n_levels,)

    Notes
    -----
    The latent network's own answer for a level is one of the numbers that the head reads. The head is fitted on cells
    that were hidden from the network on purpose, so its probabilities are those of cells that nobody has seen.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight = weight
        self.bias = bias

    @classmethod
    def fit(cls, rows: Tensor, levels: Tensor, counts: Tensor, max_steps: int = 60) -> LevelHead:
        """Learn from completed rows and the levels that were hidden from them.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, n_places)
            Completed rows, in network units.
        levels : Tensor of shape (n_rows,)
            The hidden levels' codes.
        counts : Tensor of shape (n_levels,)
            How often each level was observed; where nothing else is known, the head follows these.
        max_steps : int, default=60
            Steps of L-BFGS, at most.

        Returns
        -------
        LevelHead
        """
        prior = ((counts + 1) / (counts + 1).sum()).log()
        with torch.inference_mode(False), torch.enable_grad():
            x, y = rows.clone(), levels.clone()
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
        """Return each level's probability, of shape (n_rows, n_levels)."""
        return (rows @ self.weight + self.bias).softmax(1)

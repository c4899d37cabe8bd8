"""Adam on one flat vector: a handful of kernels, and a state that is easy to store."""

from __future__ import annotations

__all__ = ["FlatAdam"]

import math

import torch
from torch import Tensor


class FlatAdam:
    r"""Adam (Kingma & Ba 2015) for a single vector of weights.

    .. math:: \theta \leftarrow \theta - \eta\, \hat m / (\sqrt{\hat v} + \epsilon)

    Parameters
    ----------
    weights : Tensor of shape (n_weights,)
        Updated in place.
    learning_rate : float
        The rate η.

    Notes
    -----
    The same numbers as `torch.optim.Adam` with its defaults, to round-off. At the size of these networks the general
    optimiser spends ten times longer on its bookkeeping than on its arithmetic.
    """

    BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8

    def __init__(self, weights: Tensor, learning_rate: float) -> None:
        self.weights = weights
        self.learning_rate = learning_rate
        self.steps = 0
        self.mean = torch.zeros_like(weights)
        self.square = torch.zeros_like(weights)

    def step(self, gradient: Tensor) -> None:
        """Move the weights against a gradient of the same shape."""
        self.steps += 1
        self.mean.lerp_(gradient, 1 - self.BETA_1)
        self.square.mul_(self.BETA_2).addcmul_(gradient, gradient, value=1 - self.BETA_2)
        root = math.sqrt(1 - self.BETA_2**self.steps)
        spread = self.square.sqrt().div_(root).add_(self.EPSILON)
        self.weights.addcdiv_(self.mean, spread, value=-self.learning_rate / (1 - self.BETA_1**self.steps))

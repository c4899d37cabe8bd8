"""G of the default preset: couplings over the missing cells of a row, whichever they are, given what H says of it."""

from __future__ import annotations

__all__ = ["ConditionalFlow"]

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from mcflow.flows.realnvp import draw_masks

#: The logarithm of a scale lies between plus and minus this.
MAX_LOG_SCALE = 2.0


class ConditionalFlow(nn.Module):
    r"""An invertible map from the normal scores of any chosen cells of a row to as many standard normal numbers.

    Each coupling keeps some columns, D, and moves the others, where they are chosen:

    .. math::

        z_D = e_D, \qquad z_j = e_j \exp s_j(e_D, m, c) + t_j(e_D, m, c), \qquad
        \log p(e) = \log N(z; 0, I) + \sum_j s_j

    with the choice m and a projection of H's context c. A cell that is not chosen is zero on both sides. Before the
    first coupling every column's scores are divided by a deviation of their own.

    Parameters
    ----------
    n_columns : int
        Of the table.
    n_context : int
        Width of what H gives for a row.
    n_couplings : int, default=4
        How many; every second keeps what the one before it moved.
    width : int, default=64
        Of the two hidden layers of s and t, which share them.
    n_projected : int, default=32
        Numbers that the context is brought down to, once for all couplings.
    generator : torch.Generator, optional
        Draws masks and weights; without it all are zero, for a state that is loaded.

    Notes
    -----
    The last layers start at zero, so that the cells are independent at first. Logarithms of scales go through
    :math:`2 \tanh(\cdot / 2)`, which keeps the inverse within round-off [1]_.

    References
    ----------
    .. [1] Dinh, L., Sohl-Dickstein, J., & Bengio, S. (2017). Density estimation using Real NVP. ICLR.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> flow = ConditionalFlow(3, 8, generator=generator)
    >>> chosen = torch.tensor([[True, True, False]])
    >>> flow.log_prob(torch.zeros(1, 3), chosen, torch.zeros(1, 8)).detach()
    tensor([-1.8379])
    """

    masks: Tensor
    scale: Tensor

    def __init__(
        self,
        n_columns: int,
        n_context: int,
        *,
        n_couplings: int = 4,
        width: int = 64,
        n_projected: int = 32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_columns = n_columns
        masks = torch.zeros(n_couplings, n_columns, dtype=torch.bool)
        if generator is not None and n_columns and n_couplings:
            masks = draw_masks(n_couplings, n_columns, generator)
        self.register_buffer("masks", masks)
        self.register_buffer("scale", torch.ones(n_columns))
        self.project = nn.Parameter(_drawn(n_context, n_projected, generator))
        sizes = [(2 * n_columns + n_projected, width), (width, width), (width, 2 * n_columns)]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for _ in range(n_couplings):
            for k, (n_in, n_out) in enumerate(sizes):
                self.weights.append(nn.Parameter(_drawn(n_in, n_out, generator if k < 2 else None)))
                self.biases.append(nn.Parameter(torch.zeros(n_out)))

    def standardise(self, scale: Tensor) -> None:
        """Say which deviation the scores of each column have, of shape (n_columns,)."""
        self.scale.copy_(scale)

    def forward(self, scores: Tensor, chosen: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Map scores to the latent space.

        Parameters
        ----------
        scores : Tensor of shape (n_rows, n_columns)
            Anything where a cell is not chosen.
        chosen : Tensor of shape (n_rows, n_columns)
            True or 1 where a cell takes part.
        context : Tensor of shape (n_rows, n_context)
            What H says of the row.

        Returns
        -------
        z : Tensor of shape (n_rows, n_columns)
            Zero where a cell is not chosen.
        log_det : Tensor of shape (n_rows,)
            The logarithm of the determinant of the Jacobian over the chosen cells.
        """
        there, marks, z, given = self._enter(scores / self.scale, chosen, context)
        log_det = -(marks * self.scale.log()).sum(1)
        for k in range(len(self.masks)):
            log_scale, shift = self._coupling(k, z, marks, given, there)
            z = z * log_scale.exp() + shift
            log_det = log_det + log_scale.sum(1)
        return z, log_det

    def inverse(self, z: Tensor, chosen: Tensor, context: Tensor) -> Tensor:
        """Map latent points to scores: undo `forward`; a cell that is not chosen is zero."""
        there, marks, scores, given = self._enter(z, chosen, context)
        for k in reversed(range(len(self.masks))):
            log_scale, shift = self._coupling(k, scores, marks, given, there)
            scores = (scores - shift) * (-log_scale).exp()
        return self.scale * scores

    def log_prob(self, scores: Tensor, chosen: Tensor, context: Tensor) -> Tensor:
        """Return the joint log-density of the chosen scores, of shape (n_rows,); see `forward` for the parameters."""
        z, log_det = self.forward(scores, chosen, context)
        n_chosen = chosen.to(z.dtype).sum(1)
        return log_det - 0.5 * (z.square().sum(1) + n_chosen * math.log(2 * math.pi))

    def _enter(self, cells: Tensor, chosen: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the choice as truth and as numbers, the cells with all others at zero, and the projected context."""
        there = chosen.bool()
        return there, there.to(self.project.dtype), cells.masked_fill(~there, 0.0), context @ self.project

    def _coupling(self, k: int, cells: Tensor, marks: Tensor, given: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-scales and shifts of one coupling, zero where it moves nothing."""
        kept = self.masks[k]
        state = torch.cat([cells * kept, marks, given], 1)
        for layer in range(3 * k, 3 * k + 3):
            state = torch.addmm(self.biases[layer], state, self.weights[layer])
            state = functional.gelu(state) if layer < 3 * k + 2 else state
        log_scale, shift = state.chunk(2, dim=1)
        moves = there & ~kept
        log_scale = MAX_LOG_SCALE * torch.tanh(log_scale / MAX_LOG_SCALE)
        return log_scale * moves, shift * moves


def _drawn(n_in: int, n_out: int, generator: torch.Generator | None) -> Tensor:
    """Return weights as `torch.nn.Linear` would draw them, or zeros."""
    if generator is None:
        return torch.zeros(n_in, n_out)
    return (2 * torch.rand(n_in, n_out, generator=generator) - 1) / math.sqrt(max(n_in, 1))

"""The two losses of the paper, each with its gradient."""

from __future__ import annotations

__all__ = ["Losses", "gradients", "seen_weights"]

from typing import NamedTuple

from torch import Tensor

from mcflow.flows.realnvp import RealNVP
from mcflow.latent.mapper import LatentMapper


class Losses(NamedTuple):
    """The loss of G and the loss of H on one batch."""

    flow: Tensor
    latent: Tensor


def seen_weights(missing: Tensor) -> Tensor:
    """Return each cell's weight in its row's mean squared error over the observed cells.

    Parameters
    ----------
    missing : Tensor of shape (n_rows, n_columns)
        Boolean mask, True where missing.

    Returns
    -------
    Tensor of shape (n_rows, n_columns)
        Float32: zero where missing, one over the row's observed cells elsewhere.
    """
    seen = (~missing).float()
    return seen / seen.sum(1, keepdim=True).clamp_(min=1)


def gradients(flow: RealNVP, mapper: LatentMapper, rows: Tensor, weights: Tensor, likelihood_weight: float) -> Losses:
    r"""Compute both losses on a batch, and leave θ's gradient in `flow.gradient`, φ's in `mapper.gradient`.

    .. math::

        L_G(\theta) &= -\frac1N \sum_i \log p_X(\dot x^{(i)}) \\
        L_H(\phi) &= \frac1N \sum_i \left[\mathrm{MSE}(\dot x^{(i)}_{\bar m}, \hat x^{(i)}_{\bar m})
                     - \lambda \log p_X(\hat x^{(i)})\right]

    Parameters
    ----------
    flow : RealNVP
        The flow G.
    mapper : LatentMapper
        The network H.
    rows : Tensor of shape (n_rows, n_columns)
        The filled rows :math:`\dot x`, scaled.
    weights : Tensor of shape (n_rows, n_columns)
        From `seen_weights`.
    likelihood_weight : float
        The paper's λ.

    Returns
    -------
    Losses
        Both as scalars.

    Notes
    -----
    L_H goes back through G's inverse but leaves θ alone, and L_G stops at G. Algorithm 1 encodes :math:`\hat x`
    once more for its density; as :math:`\hat x = g^{-1}(\hat z)`, that pass would return :math:`\hat z` and the
    inverse's own log-determinant with its sign changed, so both are taken from the inverse.
    """
    n_rows = len(rows)
    encoded = flow.run(rows)
    z = encoded.out
    z_hat, hidden = mapper.run(z)
    decoded = flow.run(z_hat, inverse=True)
    error = decoded.out - rows
    weighted = error * weights

    flow.run_back(encoded, z / n_rows, -1 / n_rows, weights=True)
    d_z_hat = flow.run_back(decoded, weighted * (2 / n_rows), likelihood_weight / n_rows, weights=False)
    d_z_hat.add_(z_hat, alpha=likelihood_weight / n_rows)
    mapper.run_back(d_z_hat, hidden, weights=True, inputs=False)

    log_density = flow.base_log_prob(z_hat) - decoded.log_det
    return Losses(
        -(flow.base_log_prob(z) + encoded.log_det).mean(),
        weighted.mul_(error).sum() / n_rows - likelihood_weight * log_density.mean(),
    )

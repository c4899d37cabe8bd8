"""The losses of G and H from the paper, with their gradients."""

from __future__ import annotations

__all__ = ["Losses", "gradients", "seen_weights"]

from typing import NamedTuple

from torch import Tensor

from mcflow.paper.latent import LatentMapper
from mcflow.paper.realnvp import RealNVP


class Losses(NamedTuple):
    """The loss of G and the loss of H on one batch."""

    flow: Tensor
    latent: Tensor


def seen_weights(missing: Tensor) -> Tensor:
    """Return the weights of cells in the mean squared error over the observed cells of their row.

    Shapes: `missing` (n_rows, n_columns), returns (n_rows, n_columns).
    """
    seen = (~missing).float()
    return seen / seen.sum(1, keepdim=True).clamp_(min=1)


def gradients(flow: RealNVP, mapper: LatentMapper, rows: Tensor, weights: Tensor, likelihood_weight: float) -> Losses:
    r"""Compute both losses on a batch; write their gradients into `flow.gradient` and `mapper.gradient`.

    .. math::

        L_G(\theta) &= -\frac1N \sum_i \log p_X(\dot x^{(i)}) \\
        L_H(\phi) &= \frac1N \sum_i \left[\mathrm{MSE}(\dot x^{(i)}_{\bar m}, \hat x^{(i)}_{\bar m})
                     - \lambda \log p_X(\hat x^{(i)})\right]

    The gradient of L_H passes through the inverse of G without changing θ. Algorithm 1 encodes :math:`\hat x` a second
    time for its density. As :math:`\hat x = g^{-1}(\hat z)`, that pass would return :math:`\hat z` and the negative
    log-determinant of the inverse, so both are taken from the inverse pass.

    Shapes: `rows` (n_rows, n_columns), `weights` (n_rows, n_columns).
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
    mapper.run_back(d_z_hat, hidden)

    log_density = flow.base_log_prob(z_hat) - decoded.log_det
    return Losses(
        -(flow.base_log_prob(z) + encoded.log_det).mean(),
        weighted.mul_(error).sum() / n_rows - likelihood_weight * log_density.mean(),
    )

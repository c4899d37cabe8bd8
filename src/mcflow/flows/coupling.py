"""The affine coupling: one half of the columns moves the other."""

from __future__ import annotations

__all__ = ["AffineCoupling", "CouplingTape"]

from typing import NamedTuple

import torch
from torch import Tensor

from mcflow.flows.networks import NetworkBatch


class CouplingTape(NamedTuple):
    """What one pass through a coupling leaves for its backward pass."""

    source: Tensor
    scale: Tensor
    factor: Tensor
    hidden: list[Tensor]


class AffineCoupling:
    r"""Move the columns outside D by an affine map whose coefficients are read from the columns in D.

    .. math:: y_D = x_D, \qquad y_{\lnot D} = x_{\lnot D} \odot \exp(s(x_D)) + t(x_D)

    Parameters
    ----------
    n_kept : int
        Columns in D.
    n_moved : int
        Columns outside D.
    width : int
        Hidden width of s and t.
    n_layers : int
        Linear layers of s and t; s ends in tanh, t is linear.

    Notes
    -----
    s and t run as one batch of two networks, which have weights only for the columns they read and write.
    """

    def __init__(self, n_kept: int, n_moved: int, width: int, n_layers: int) -> None:
        self.networks = NetworkBatch(2, [n_kept, *[width] * (n_layers - 1), n_moved])
        self.n_kept = n_kept
        self.n_moved = n_moved

    def _coefficients(self, kept: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        outputs, hidden = self.networks.forward(kept)
        scale, shift = outputs.unbind(0)
        return scale.tanh_(), shift, hidden

    def forward(self, kept: Tensor, moved: Tensor) -> tuple[Tensor, CouplingTape]:
        """Map towards the latent space.

        Parameters
        ----------
        kept : Tensor of shape (n_rows, n_kept)
        moved : Tensor of shape (n_rows, n_moved)

        Returns
        -------
        Tensor of shape (n_rows, n_moved)
            The moved columns' new values.
        CouplingTape
            Its `scale` holds each moved column's log-derivative.
        """
        scale, shift, hidden = self._coefficients(kept)
        factor = scale.exp()
        return torch.addcmul(shift, moved, factor), CouplingTape(moved, scale, factor, hidden)

    def inverse(self, kept: Tensor, moved: Tensor) -> tuple[Tensor, CouplingTape]:
        """Map towards the data; see `forward`, whose log-derivatives it returns with the sign unchanged."""
        scale, shift, hidden = self._coefficients(kept)
        factor = scale.neg().exp_()
        source = (moved - shift).mul_(factor)
        return source, CouplingTape(source, scale, factor, hidden)

    def forward_backward(
        self, d_kept: Tensor, d_moved: Tensor, d_scale: Tensor, tape: CouplingTape, weights: bool
    ) -> tuple[Tensor, Tensor]:
        """Carry gradients back through `forward`.

        Parameters
        ----------
        d_kept, d_moved : Tensor
            The loss's gradient by the two halves that came out.
        d_scale : Tensor of shape (n_rows, 1)
            Its gradient by each log-derivative.
        tape : CouplingTape
            From `forward`.
        weights : bool
            Also write the weights' gradients.

        Returns
        -------
        tuple of Tensor
            The gradients by the two halves that went in.
        """
        d_source = d_moved * tape.factor
        d_outputs = self._outputs_gradient(torch.addcmul(d_scale, d_source, tape.source), d_moved, tape)
        return self._kept_gradient(d_kept, d_outputs, tape, weights), d_source

    def inverse_backward(
        self, d_kept: Tensor, d_source: Tensor, d_scale: Tensor, tape: CouplingTape, weights: bool
    ) -> tuple[Tensor, Tensor]:
        """Carry gradients back through `inverse`; see `forward_backward`."""
        d_moved = d_source * tape.factor
        d_log = torch.addcmul(d_scale, d_source, tape.source, value=-1)
        d_outputs = self._outputs_gradient(d_log, d_moved.neg(), tape)
        return self._kept_gradient(d_kept, d_outputs, tape, weights), d_moved

    @staticmethod
    def _outputs_gradient(d_scale: Tensor, d_shift: Tensor, tape: CouplingTape) -> Tensor:
        return torch.stack((torch.ops.aten.tanh_backward(d_scale, tape.scale), d_shift))

    def _kept_gradient(self, d_kept: Tensor, d_outputs: Tensor, tape: CouplingTape, weights: bool) -> Tensor:
        through = self.networks.backward(d_outputs, tape.hidden, weights=weights, inputs=True)
        assert through is not None
        return through.add_(d_kept)

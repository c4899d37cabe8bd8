"""G of the default preset for images: couplings at several scales over any chosen pixels, given what H says of them."""

from __future__ import annotations

__all__ = ["ImageFlow"]

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from mcflow.flows.networks import draw_weights

#: The logarithm of a scale lies between plus and minus this.
MAX_LOG_SCALE = 2.0


class ImageFlow(nn.Module):
    r"""An invertible map from the normal scores of chosen pixels of an image to as many standard normal numbers.

    At each scale two couplings keep the black and the white squares of a checkerboard in turn; then every two by two
    pixels become four channels, two couplings keep one half of the channels and the other in turn, and one half leaves
    while the other goes on to the next scale [1]_. A coupling moves the chosen pixels that it does not keep:

    .. math::

        z_j = e_j \exp s_j(e_D, m, c) + t_j(e_D, m, c), \qquad \log p(e) = \log N(z; 0, I) + \sum_j s_j

    by convolutions of those it keeps, of the choice m and of H's context c. A pixel that is not chosen is zero on both
    sides.

    Parameters
    ----------
    n_channels : int
        Of an image.
    n_context : int
        Channels of what H gives for an image.
    n_scales : int, default=2
        How often four pixels become channels.
    width : int, default=32
        Channels inside the couplings.
    n_projected : int, default=8
        Channels that the context is brought down to.
    generator : torch.Generator, optional
        Draws the weights; without it they stay zero.

    Notes
    -----
    The last layers start at zero, so that pixels are independent at first. Images whose sides do not fit the scales
    are made larger by pixels that are not chosen.

    References
    ----------
    .. [1] Dinh, L., Sohl-Dickstein, J., & Bengio, S. (2017). Density estimation using Real NVP. ICLR.

    Examples
    --------
    >>> flow = ImageFlow(1, 4, generator=torch.Generator().manual_seed(0))
    >>> chosen = torch.ones(1, 1, 3, 5, dtype=torch.bool)
    >>> flow.log_prob(torch.zeros(1, 1, 3, 5), chosen, torch.zeros(1, 4, 3, 5)).detach()
    tensor([-13.7841])
    """

    def __init__(
        self,
        n_channels: int,
        n_context: int,
        *,
        n_scales: int = 2,
        width: int = 32,
        n_projected: int = 8,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_scales = n_scales
        self.project = nn.Conv2d(n_context, n_projected, 1)
        self.checkered, self.halved, self.shrink = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for k in range(n_scales + 1):
            channels = n_channels * 2**k
            self.checkered.extend(_network(2 * channels + n_projected, width, 2 * channels) for _ in range(2))
            if k < n_scales:
                self.shrink.append(nn.Conv2d(n_projected, n_projected, 2, stride=2))
                self.halved.extend(_network(8 * channels + n_projected, width, 8 * channels) for _ in range(2))
        draw_weights(self, generator, [network[-1].weight for network in (*self.checkered, *self.halved)])

    def forward(self, scores: Tensor, chosen: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Map scores to the latent space.

        Parameters
        ----------
        scores : Tensor of shape (n_images, n_channels, height, width)
            Anything where a pixel is not chosen.
        chosen : Tensor of the same shape
            True or 1 where a pixel takes part.
        context : Tensor of shape (n_images, n_context, height, width)
            What H says of the image.

        Returns
        -------
        z : Tensor of the shape of scores
            Zero where a pixel is not chosen.
        log_det : Tensor of shape (n_images,)
            The logarithm of the determinant of the Jacobian over the chosen pixels.
        """
        state, marks, given = self._enter(scores, chosen, context)
        z, log_det = self._down(state, marks, given, 0)
        return z[..., : scores.shape[2], : scores.shape[3]], log_det

    def inverse(self, z: Tensor, chosen: Tensor, context: Tensor) -> Tensor:
        """Map latent points to scores: undo `forward`; a pixel that is not chosen is zero."""
        state, marks, given = self._enter(z, chosen, context)
        return self._up(state, marks, given, 0)[..., : z.shape[2], : z.shape[3]]

    def log_prob(self, scores: Tensor, chosen: Tensor, context: Tensor) -> Tensor:
        """Return the joint log-density of the chosen scores, of shape (n_images,); see `forward` for the parameters."""
        z, log_det = self.forward(scores, chosen, context)
        n_chosen = chosen.to(z.dtype).flatten(1).sum(1)
        return log_det - 0.5 * (z.square().flatten(1).sum(1) + n_chosen * math.log(2 * math.pi))

    def _enter(self, pixels: Tensor, chosen: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return pixels with those not chosen at zero, the choice as numbers, and the projected context, all padded."""
        step = 2**self.n_scales
        pad = (0, -pixels.shape[3] % step, 0, -pixels.shape[2] % step)
        there = chosen.bool()
        given = functional.pad(self.project(context), pad)
        return functional.pad(pixels.masked_fill(~there, 0.0), pad), functional.pad(there.to(given.dtype), pad), given

    def _down(self, state: Tensor, marks: Tensor, given: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Go from scale k to the last one, and put what leaves on the way back to its place."""
        log_det = torch.zeros(len(state), dtype=state.dtype, device=state.device)
        for turn in range(2):
            state, gained = _moved(self.checkered[2 * k + turn], state, marks, given, _squares(state, turn))
            log_det = log_det + gained
        if k == self.n_scales:
            return state, log_det
        state, marks = (functional.pixel_unshuffle(part, 2) for part in (state, marks))
        given = self.shrink[k](given)
        for turn in range(2):
            state, gained = _moved(self.halved[2 * k + turn], state, marks, given, _halves(state, turn))
            log_det = log_det + gained
        left, stays = state.chunk(2, dim=1)
        stays, gained = self._down(stays, marks.chunk(2, dim=1)[1], given, k + 1)
        return functional.pixel_shuffle(torch.cat([left, stays], 1), 2), log_det + gained

    def _up(self, z: Tensor, marks: Tensor, given: Tensor, k: int) -> Tensor:
        """Undo `_down`."""
        if k < self.n_scales:
            z, small = (functional.pixel_unshuffle(part, 2) for part in (z, marks))
            inner = self.shrink[k](given)
            left, stays = z.chunk(2, dim=1)
            z = torch.cat([left, self._up(stays, small.chunk(2, dim=1)[1], inner, k + 1)], 1)
            for turn in (1, 0):
                z = _moved_back(self.halved[2 * k + turn], z, small, inner, _halves(z, turn))
            z = functional.pixel_shuffle(z, 2)
        for turn in (1, 0):
            z = _moved_back(self.checkered[2 * k + turn], z, marks, given, _squares(z, turn))
        return z


def _network(n_in: int, width: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(n_in, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 1),
        nn.ReLU(),
        nn.Conv2d(width, n_out, 3, padding=1),
    )


def _squares(state: Tensor, turn: int) -> Tensor:
    """Return a checkerboard of the size of images, 1 where a coupling keeps a pixel."""
    height, width = state.shape[2:]
    rows, columns = (torch.arange(size, device=state.device) for size in (height, width))
    return ((rows[:, None] + columns + turn) % 2).to(state.dtype)[None]


def _halves(state: Tensor, turn: int) -> Tensor:
    """Return 1 for one half of the channels, and 0 for the other."""
    n_channels = state.shape[1]
    return ((torch.arange(n_channels, device=state.device) < n_channels // 2) == (turn == 0)).to(state.dtype)[
        :, None, None
    ]


def _coefficients(
    network: nn.Module, state: Tensor, marks: Tensor, given: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor]:
    """Return log-scales and shifts of one coupling, zero where it moves nothing."""
    log_scale, shift = network(torch.cat([state * kept, marks, given], 1)).chunk(2, dim=1)
    moves = marks * (1 - kept)
    return MAX_LOG_SCALE * torch.tanh(log_scale / MAX_LOG_SCALE) * moves, shift * moves


def _moved(network: nn.Module, state: Tensor, marks: Tensor, given: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    log_scale, shift = _coefficients(network, state, marks, given, kept)
    return state * log_scale.exp() + shift, log_scale.flatten(1).sum(1)


def _moved_back(network: nn.Module, z: Tensor, marks: Tensor, given: Tensor, kept: Tensor) -> Tensor:
    log_scale, shift = _coefficients(network, z, marks, given, kept)
    return (z - shift) * (-log_scale).exp()

"""Mixtures of logistic distributions over the levels of a pixel."""

from __future__ import annotations

__all__ = ["LEVELS", "LogisticMixture"]

import torch
from torch import Tensor
from torch.nn import functional

#: Values that a pixel may have; floats lie between the edges of the same cells.
LEVELS = 256

#: Logarithms of the scales lie between these: a part of a level, and many times the range.
LOWEST_SCALE, HIGHEST_SCALE = -7.0, 3.0

#: Probabilities closer to 0 or 1 than this are not told apart in single precision.
NEAREST = 1e-6

#: The logarithm of a smaller mass is the same for all, so that gradients are finite.
LEAST_GAP = 1e-6


class LogisticMixture:
    r"""What may stand in each of some pixels.

    Parameters
    ----------
    parameters : Tensor of shape (n_cells, 3 n_parts)
        Logits of the parts' weights, their centres less one half, and the logarithms of their scales plus two, in units
        of the range.

    Notes
    -----
    The mass of level k of 0 to 255 is what the mixture has between its edges, and the outermost levels have all that is
    beyond [1]_:

    .. math::

        P(k) = \sum_i w_i \left[\sigma\left(\frac{e_{k+1} - \mu_i}{s_i}\right) -
        \sigma\left(\frac{e_k - \mu_i}{s_i}\right)\right], \qquad e_k = \frac{k - 1/2}{255}, \quad e_0 = -\infty,
        \quad e_{256} = \infty

    A value is a level and a place in it between 0 and 1. Floats have the place that follows from them, whole numbers
    any.

    References
    ----------
    .. [1] Salimans, T., Karpathy, A., Chen, X., & Kingma, D. P. (2017). PixelCNN++. ICLR.

    Examples
    --------
    >>> mixture = LogisticMixture(torch.zeros(1, 6))
    >>> masses = [mixture.log_mass(torch.tensor([k])).exp().item() for k in range(LEVELS)]
    >>> round(sum(masses), 4)
    1.0
    """

    def __init__(self, parameters: Tensor) -> None:
        logits, centres, log_scales = parameters.chunk(3, dim=1)
        self.log_weights = torch.log_softmax(logits, 1)
        self.centres = centres + 0.5
        self.log_scales = (log_scales - 2.0).clamp(LOWEST_SCALE, HIGHEST_SCALE)

    def log_mass(self, levels: Tensor) -> Tensor:
        """Return the logarithm of the mass of one level of each pixel, of shape (n_cells,)."""
        inverse = (-self.log_scales).exp()
        edge = (levels[:, None].to(self.centres.dtype) - 0.5) / (LEVELS - 1)
        low = (edge - self.centres) * inverse
        width = inverse / (LEVELS - 1)
        first, last = (levels == 0)[:, None], (levels == LEVELS - 1)[:, None]
        inside = functional.logsigmoid(-low) + torch.log(-torch.expm1((-width).clamp(max=-LEAST_GAP)))
        above = torch.where(last, functional.logsigmoid(-low), functional.logsigmoid(low + width) + inside)
        parts = torch.where(first, functional.logsigmoid(low + width), above)
        return torch.logsumexp(parts + self.log_weights, 1)

    def below(self, levels: Tensor) -> Tensor:
        """Return the mass below each level, of shape (n_cells,); levels from 0 to 256."""
        edge = (levels[:, None].to(self.centres.dtype) - 0.5) / (LEVELS - 1)
        found = (torch.sigmoid((edge - self.centres) * (-self.log_scales).exp()) * self.log_weights.exp()).sum(1)
        found = found.masked_fill(levels <= 0, 0.0)
        return found.masked_fill(levels >= LEVELS, 1.0)

    def shares(self, levels: Tensor, places: Tensor) -> Tensor:
        """Return the mass below values, which are levels and places in them, of shape (n_cells,)."""
        low = self.below(levels)
        return (low + places * (self.below(levels + 1) - low)).clamp(NEAREST, 1 - NEAREST)

    def values(self, shares: Tensor) -> tuple[Tensor, Tensor]:
        """Return the levels and the places in them below which there are these masses: undo `shares`."""
        low, high = torch.zeros_like(shares, dtype=torch.int64), torch.full_like(shares, LEVELS, dtype=torch.int64)
        for _ in range(LEVELS.bit_length() - 1):
            middle = (low + high) // 2
            right = self.below(middle) <= shares
            low, high = torch.where(right, middle, low), torch.where(right, high, middle)
        start = self.below(low)
        places = (shares - start) / (self.below(low + 1) - start).clamp(min=1e-12)
        return low, places.clamp(0.0, 1.0)

    def sample(self, generator: torch.Generator) -> Tensor:
        """Draw a level of each pixel, of shape (n_cells,)."""
        device = self.centres.device
        chosen = torch.rand((len(self.centres), 1), generator=generator).to(device)
        part = (self.log_weights.exp().cumsum(1) < chosen).sum(1, keepdim=True).clamp(max=self.centres.shape[1] - 1)
        shares = torch.rand((len(self.centres), 1), generator=generator).to(device).clamp(NEAREST, 1 - NEAREST)
        drawn = self.centres.gather(1, part) + self.log_scales.gather(1, part).exp() * torch.logit(shares)
        return (drawn[:, 0] * (LEVELS - 1)).round().clamp(0, LEVELS - 1).to(torch.int64)

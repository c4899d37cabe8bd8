"""The flow G of images: the joint distribution of the missing pixels, given what H predicts of each."""

from __future__ import annotations

__all__ = ["GREY_LEVELS", "ImageFlow", "LogisticMixture", "fit_image_flow", "normal_scores"]

import math
import time

import torch
from torch import Tensor, nn
from torch.nn import functional

from mcflow.fitting.initialisation import draw_weights
from mcflow.fitting.trainer import cosine
from mcflow.images.mask_generator import MaskGenerator
from mcflow.images.unet import PixelPrediction, UNet
from mcflow.random import Streams

#: Values that a pixel may have; floats lie between the edges of the same cells.
GREY_LEVELS = 256

#: Smallest logarithm of a scale of a mixture, a fraction of a grey level.
MIN_LOG_SCALE = -7.0

#: Largest logarithm of a scale of a mixture, many times the range of grey levels.
MAX_LOG_SCALE = 3.0

#: Smallest distance of a probability from 0 and 1 in single precision.
MIN_PROBABILITY = 1e-6

#: Smallest width of a grey level in units of a scale, which keeps gradients finite.
MIN_WIDTH = 1e-6

#: Bound of the absolute log-scale of a coupling.
MAX_COUPLING_SCALE = 2.0

#: Fraction of the training of G in which the learning rate rises.
WARM_UP = 0.1

#: Gradient norm above which gradients of G are scaled down.
MAX_NORM = 1.0


class LogisticMixture:
    r"""Mixtures of logistic distributions over the grey levels of some pixels.

    The mass of level k of 0 to 255 is the mass of the mixture between its edges; the outermost levels get the tails
    (PixelCNN++, Salimans et al. 2017):

    .. math::

        P(k) = \sum_i w_i \left[\sigma\left(\frac{e_{k+1} - \mu_i}{s_i}\right) -
        \sigma\left(\frac{e_k - \mu_i}{s_i}\right)\right], \qquad e_k = \frac{k - 1/2}{255}, \quad e_0 = -\infty,
        \quad e_{256} = \infty

    A value is a level and a position between 0 and 1 in it. The position of a float follows from its value, that of an
    integer is arbitrary.

    Shapes: `parameters` (n_pixels, 3 n_components).

    Examples
    --------
    >>> mixture = LogisticMixture(torch.zeros(1, 6))
    >>> masses = [mixture.log_mass(torch.tensor([k])).exp().item() for k in range(GREY_LEVELS)]
    >>> round(sum(masses), 4)
    1.0
    """

    def __init__(self, parameters: Tensor) -> None:
        logits, centres, log_scales = parameters.chunk(3, dim=1)
        self.log_weights = torch.log_softmax(logits, 1)
        self.centres = centres + 0.5
        self.log_scales = (log_scales - 2.0).clamp(MIN_LOG_SCALE, MAX_LOG_SCALE)

    def log_mass(self, levels: Tensor) -> Tensor:
        """Return the log-probability (n_pixels,) of a level of each pixel."""
        inverse = (-self.log_scales).exp()
        edge = (levels[:, None].to(self.centres.dtype) - 0.5) / (GREY_LEVELS - 1)
        low = (edge - self.centres) * inverse
        width = inverse / (GREY_LEVELS - 1)
        first, last = (levels == 0)[:, None], (levels == GREY_LEVELS - 1)[:, None]
        inside = functional.logsigmoid(-low) + torch.log(-torch.expm1((-width).clamp(max=-MIN_WIDTH)))
        above = torch.where(last, functional.logsigmoid(-low), functional.logsigmoid(low + width) + inside)
        parts = torch.where(first, functional.logsigmoid(low + width), above)
        return torch.logsumexp(parts + self.log_weights, 1)

    def mass_below(self, levels: Tensor) -> Tensor:
        """Return the probability (n_pixels,) of all levels below one from 0 to 256."""
        edge = (levels[:, None].to(self.centres.dtype) - 0.5) / (GREY_LEVELS - 1)
        found = (torch.sigmoid((edge - self.centres) * (-self.log_scales).exp()) * self.log_weights.exp()).sum(1)
        found = found.masked_fill(levels <= 0, 0.0)
        return found.masked_fill(levels >= GREY_LEVELS, 1.0)

    def cdf(self, levels: Tensor, positions: Tensor) -> Tensor:
        """Return the cumulative probability (n_pixels,) at positions in levels."""
        low = self.mass_below(levels)
        p = low + positions * (self.mass_below(levels + 1) - low)
        return p.clamp(MIN_PROBABILITY, 1 - MIN_PROBABILITY)

    def quantiles(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return the levels and the positions in them (n_pixels,) with these cumulative probabilities."""
        low, high = torch.zeros_like(p, dtype=torch.int64), torch.full_like(p, GREY_LEVELS, dtype=torch.int64)
        for _ in range(GREY_LEVELS.bit_length() - 1):
            middle = (low + high) // 2
            right = self.mass_below(middle) <= p
            low, high = torch.where(right, middle, low), torch.where(right, high, middle)
        start = self.mass_below(low)
        positions = (p - start) / (self.mass_below(low + 1) - start).clamp(min=1e-12)
        return low, positions.clamp(0.0, 1.0)


class ImageFlow(nn.Module):
    r"""An invertible map from the normal scores of any chosen pixels of an image to as many standard normal numbers.

    At each scale, two couplings keep the pixels of either colour of a checkerboard. Then each block of two by two
    pixels becomes four channels, two couplings keep either half of the channels, and one half of the channels continues
    to the next scale (Dinh et al. 2017). A coupling transforms the chosen pixels that it does not keep,

    .. math::

        z_j = e_j \exp s_j(e_D, m, c) + t_j(e_D, m, c), \qquad \log p(e) = \log N(z; 0, I) + \sum_j s_j

    by convolutions of those it keeps, of the mask m of the chosen pixels and of H's context c. A pixel that is not
    chosen is zero on both sides.

    The last layers start at zero, so that pixels are independent at first. Images whose sides do not fit the scales
    are padded with pixels that are not chosen.

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

        Shapes: `scores`, `chosen` (n_images, n_channels, height, width), `context` (n_images, n_context, height,
        width), returns (n_images, n_channels, height, width), (n_images,).
        """
        state, mask, given = self._enter(scores, chosen, context)
        z, log_det = self._down(state, mask, given, 0)
        return z[..., : scores.shape[2], : scores.shape[3]], log_det

    def inverse(self, z: Tensor, chosen: Tensor, context: Tensor) -> Tensor:
        """Map latent points to scores; pixels that are not chosen are zero."""
        state, mask, given = self._enter(z, chosen, context)
        return self._up(state, mask, given, 0)[..., : z.shape[2], : z.shape[3]]

    def log_prob(self, scores: Tensor, chosen: Tensor, context: Tensor) -> Tensor:
        """Return the joint log-density (n_images,) of the chosen scores."""
        z, log_det = self.forward(scores, chosen, context)
        n_chosen = chosen.to(z.dtype).flatten(1).sum(1)
        return log_det - 0.5 * (z.square().flatten(1).sum(1) + n_chosen * math.log(2 * math.pi))

    def _enter(self, pixels: Tensor, chosen: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the chosen pixels with the others at zero, their mask, and the projected context, all padded."""
        step = 2**self.n_scales
        pad = (0, -pixels.shape[3] % step, 0, -pixels.shape[2] % step)
        chosen = chosen.bool()
        given = functional.pad(self.project(context), pad)
        kept = functional.pad(pixels.masked_fill(~chosen, 0.0), pad)
        return kept, functional.pad(chosen.to(given.dtype), pad), given

    def _down(self, state: Tensor, mask: Tensor, given: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Apply the scales from k on; return latent pixels in their original places and the log-determinant."""
        log_det = torch.zeros(len(state), dtype=state.dtype, device=state.device)
        for side in range(2):
            state, gained = _transform(self.checkered[2 * k + side], state, mask, given, _checkerboard(state, side))
            log_det = log_det + gained
        if k == self.n_scales:
            return state, log_det
        state, mask = (functional.pixel_unshuffle(part, 2) for part in (state, mask))
        given = self.shrink[k](given)
        for side in range(2):
            state, gained = _transform(self.halved[2 * k + side], state, mask, given, _half(state, side))
            log_det = log_det + gained
        done, rest = state.chunk(2, dim=1)
        rest, gained = self._down(rest, mask.chunk(2, dim=1)[1], given, k + 1)
        return functional.pixel_shuffle(torch.cat([done, rest], 1), 2), log_det + gained

    def _up(self, z: Tensor, mask: Tensor, given: Tensor, k: int) -> Tensor:
        """Undo `_down`."""
        if k < self.n_scales:
            z, small = (functional.pixel_unshuffle(part, 2) for part in (z, mask))
            inner = self.shrink[k](given)
            done, rest = z.chunk(2, dim=1)
            z = torch.cat([done, self._up(rest, small.chunk(2, dim=1)[1], inner, k + 1)], 1)
            for side in (1, 0):
                z = _invert(self.halved[2 * k + side], z, small, inner, _half(z, side))
            z = functional.pixel_shuffle(z, 2)
        for side in (1, 0):
            z = _invert(self.checkered[2 * k + side], z, mask, given, _checkerboard(z, side))
        return z


def _network(n_in: int, width: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(n_in, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 1),
        nn.ReLU(),
        nn.Conv2d(width, n_out, 3, padding=1),
    )


def _checkerboard(state: Tensor, side: int) -> Tensor:
    """Return a checkerboard (1, height, width), 1 where a coupling keeps a pixel."""
    height, width = state.shape[2:]
    rows, columns = (torch.arange(size, device=state.device) for size in (height, width))
    return ((rows[:, None] + columns + side) % 2).to(state.dtype)[None]


def _half(state: Tensor, side: int) -> Tensor:
    """Return a mask (n_channels, 1, 1), 1 for the first or the second half of the channels."""
    n_channels = state.shape[1]
    first = torch.arange(n_channels, device=state.device) < n_channels // 2
    return (first == (side == 0)).to(state.dtype)[:, None, None]


def _coefficients(
    network: nn.Module, state: Tensor, mask: Tensor, given: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor]:
    """Return log-scales and shifts of a coupling, zero for pixels that it keeps or that are not chosen."""
    log_scale, shift = network(torch.cat([state * kept, mask, given], 1)).chunk(2, dim=1)
    moves = mask * (1 - kept)
    return MAX_COUPLING_SCALE * torch.tanh(log_scale / MAX_COUPLING_SCALE) * moves, shift * moves


def _transform(network: nn.Module, state: Tensor, mask: Tensor, given: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    log_scale, shift = _coefficients(network, state, mask, given, kept)
    return state * log_scale.exp() + shift, log_scale.flatten(1).sum(1)


def _invert(network: nn.Module, z: Tensor, mask: Tensor, given: Tensor, kept: Tensor) -> Tensor:
    log_scale, shift = _coefficients(network, z, mask, given, kept)
    return (z - shift) * (-log_scale).exp()


def normal_scores(
    predicted: PixelPrediction, pixels: Tensor, chosen: Tensor, positions: Tensor | None = None
) -> Tensor:
    """Return the normal scores of chosen pixels under H's distributions, zero elsewhere.

    Shapes: `pixels`, `chosen` (n_images, n_channels, height, width), `positions` (n_chosen,).
    """
    scaled = pixels[chosen] * (GREY_LEVELS - 1)
    levels = scaled.round()
    positions = (scaled - levels + 0.5) if positions is None else positions
    p = LogisticMixture(predicted.parameters[chosen]).cdf(levels.to(torch.int64), positions)
    scores = torch.zeros_like(pixels)
    scores[chosen] = torch.special.ndtri(p)
    return scores


def fit_image_flow(
    network: UNet,
    flow: ImageFlow,
    pixels: Tensor,
    missing: Tensor,
    *,
    masks: MaskGenerator,
    streams: Streams,
    learning_rate: float,
    n_steps: int,
    batch_size: int,
    integers: bool,
    deadline: float | None = None,
) -> None:
    """Train G by maximum likelihood on pixels that are hidden from H; H is not changed.

    Shapes: `pixels`, `missing` (n_images, n_channels, height, width).
    """
    generator = streams.order
    start = time.perf_counter()
    optimiser = torch.optim.Adam(flow.parameters(), lr=learning_rate)
    for step in range(n_steps):
        done = step / n_steps
        if deadline is not None:
            done = max(done, (time.perf_counter() - start) / max(deadline - start, 1e-9))
        if done >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = learning_rate * min(1.0, (1 + step) / (1 + WARM_UP * n_steps)) * cosine(done)
        batch = torch.randint(len(pixels), (batch_size,), generator=generator).to(pixels.device)
        hidden = masks(~missing[batch], generator)
        positions = torch.rand(int(hidden.sum()), generator=generator).to(pixels.device) if integers else None
        if not bool(hidden.any()):
            continue
        with torch.no_grad():
            predicted = network(pixels[batch], (~missing[batch] & ~hidden).float())
            scores = normal_scores(predicted, pixels[batch], hidden, positions)
        loss = -flow.log_prob(scores, hidden, predicted.context).sum() / hidden.sum()
        if bool(torch.isfinite(loss)):
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(flow.parameters(), MAX_NORM)
            optimiser.step()

"""The networks of images: the U-net H predicts each pixel, and the flow G joins the predictions of missing ones."""

from __future__ import annotations

__all__ = ["GREY_LEVELS", "ImageFlow", "LogisticMixture", "PixelPrediction", "UNet", "normal_scores"]

import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from mcflow.fitting.initialisation import draw_weights

GREY_LEVELS = 256  #: Values that a pixel may have; floats lie between the edges of the same cells.
MIN_LOG_SCALE = -7.0  #: Smallest logarithm of a scale of a mixture, a fraction of a grey level.
MAX_LOG_SCALE = 3.0  #: Largest logarithm of a scale of a mixture, many times the range of grey levels.
MIN_PROBABILITY = 1e-6  #: Smallest distance of a probability from 0 and 1 in single precision.
MIN_WIDTH = 1e-6  #: Smallest width of a grey level in units of a scale, which keeps gradients finite.
MAX_COUPLING_SCALE = 2.0  #: Bound of the absolute log-scale of a coupling.


class PixelPrediction(NamedTuple):
    """Prediction of H for every pixel."""

    context: Tensor  # (n_images, width, image height, image width) features of the image
    direct: Tensor  # (n_images, n_channels, image height, image width) estimate of the conditional mean
    parameters: Tensor  # (n_images, n_channels, image height, image width, 3 n_components) of a `LogisticMixture`


class UNet(nn.Module):
    r"""A U-net for images of which only some pixels are shown.

    It reads the shown pixels and their mask. Each scale has residual blocks
    :math:`h \leftarrow h + W_2 * \mathrm{relu}(W_1 * \mathrm{relu}(h))`; the next scale has half the height and width
    and twice the channels. On the way up, the features of each scale are added to those from the scale below.
    """

    def __init__(
        self,
        n_channels: int,
        width: int = 32,
        *,
        n_scales: int = 3,
        n_blocks: int = 1,
        n_components: int = 3,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_channels, self.n_scales = n_channels, n_scales
        widths = [width * 2**k for k in range(n_scales)]
        self.enter = nn.Conv2d(2 * n_channels, width, 3, padding=1)
        self.down = nn.ModuleList(_blocks(wide, n_blocks) for wide in widths)
        self.shrink = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in itertools.pairwise(widths))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in itertools.pairwise(widths))
        self.up = nn.ModuleList(_blocks(wide, n_blocks) for wide in widths[:-1])
        self.leave = nn.Conv2d(width, n_channels * (1 + 3 * n_components), 3, padding=1)
        lasts = [weight for name, weight in self.named_parameters() if ".last." in name]
        draw_weights(self, generator, lasts)
        for parameter in self.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)

    def forward(self, pixels: Tensor, shown: Tensor) -> PixelPrediction:
        """Predict all pixels from the shown ones, both of shape (n_images, n_channels, height, width)."""
        height, width = pixels.shape[2:]
        state = self._features(torch.cat([(pixels - 0.5) * shown, shown], 1))[..., :height, :width]
        found = self.leave(state)
        parameters = found[:, self.n_channels :].unflatten(1, (self.n_channels, -1))
        return PixelPrediction(state, found[:, : self.n_channels] + 0.5, parameters.movedim(2, -1))

    def _features(self, inputs: Tensor) -> Tensor:
        """Pass images, padded to fit the scales, down and up all scales."""
        step = 2 ** (self.n_scales - 1)
        height, width = inputs.shape[2:]
        inputs = functional.pad(inputs, (0, -width % step, 0, -height % step))
        state: Tensor = self.enter(inputs.contiguous(memory_format=torch.channels_last))
        kept = []
        for k, blocks in enumerate(self.down):
            state = blocks(state)
            if k < len(self.shrink):
                kept.append(state)
                state = self.shrink[k](state)
        for k in reversed(range(len(self.grow))):
            state = self.up[k](self.grow[k](state) + kept[k])
        return state


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.last = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, state: Tensor) -> Tensor:
        change: Tensor = self.last(functional.relu(self.first(functional.relu(state))))
        return state + change


def _blocks(width: int, n_blocks: int) -> nn.Sequential:
    return nn.Sequential(*(_Block(width) for _ in range(n_blocks)))


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
    """

    def __init__(self, parameters: Tensor) -> None:  # (n_pixels, 3 n_components)
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
    are padded with pixels that are not chosen. Scores and masks have the shape (n_images, n_channels, height, width),
    the context (n_images, n_context, height, width).
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
        """Map scores to the latent space; also return the log-determinants (n_images,)."""
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
    """Return the normal scores (n_images, n_channels, height, width) of chosen pixels under H, zero elsewhere."""
    scaled = pixels[chosen] * (GREY_LEVELS - 1)
    levels = scaled.round()
    positions = (scaled - levels + 0.5) if positions is None else positions
    p = LogisticMixture(predicted.parameters[chosen]).cdf(levels.to(torch.int64), positions)
    scores = torch.zeros_like(pixels)
    scores[chosen] = torch.special.ndtri(p)
    return scores

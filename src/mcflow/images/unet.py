"""The network H of images: a U-net that reads the observed pixels and their mask."""

from __future__ import annotations

__all__ = ["PixelPrediction", "UNet"]

import itertools
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from mcflow.fitting.initialisation import draw_weights


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

    Examples
    --------
    >>> network = UNet(1, 8, generator=torch.Generator().manual_seed(0))
    >>> shown = torch.ones(2, 1, 9, 7)
    >>> network(torch.zeros(2, 1, 9, 7), shown).direct.shape
    torch.Size([2, 1, 9, 7])
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

"""G of images learns how the pixels that H is not shown go together."""

from __future__ import annotations

__all__ = ["fit_image_density", "image_scores"]

import time

import torch
from torch import Tensor

from mcflow.flows.image_flow import ImageFlow
from mcflow.flows.logistic import LEVELS, LogisticMixture
from mcflow.latent.image_mapper import ImageAnswer, ImageMapper
from mcflow.random import Streams
from mcflow.training.holes import HoleMaker
from mcflow.training.schedule import cosine

#: Adam's rate at its highest, and the share of the steps in which it rises.
RATE, WARM_UP = 1e-3, 0.1

#: The norm of a gradient is at most this.
LARGEST_GRADIENT = 1.0


def fit_image_density(
    mapper: ImageMapper,
    flow: ImageFlow,
    pixels: Tensor,
    missing: Tensor,
    *,
    holes: HoleMaker,
    streams: Streams,
    n_steps: int,
    batch_size: int,
    whole: bool,
    deadline: float | None = None,
) -> None:
    """Train G by the likelihood of pixels that are hidden from H, which stays as it is.

    Parameters
    ----------
    mapper : ImageMapper
        H.
    flow : ImageFlow
        G, trained in place.
    pixels, missing : Tensor of shape (n_images, n_channels, height, width)
        As in `HiddenImageTrainer`.
    holes : HoleMaker
        Chooses what is hidden, as it did for H.
    streams : Streams
        Where every random number comes from.
    n_steps, batch_size : int
        How long, and how many images a step.
    whole : bool
        Whether pixels are whole numbers, whose places inside their levels are drawn.
    deadline : float, optional
        When to end, by `time.perf_counter`.
    """
    generator = streams.order
    start = time.perf_counter()
    optimiser = torch.optim.Adam(flow.parameters(), lr=RATE)
    for step in range(n_steps):
        done = step / n_steps
        if deadline is not None:
            done = max(done, (time.perf_counter() - start) / max(deadline - start, 1e-9))
        if done >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (1 + step) / (1 + WARM_UP * n_steps)) * cosine(done)
        batch = torch.randint(len(pixels), (batch_size,), generator=generator).to(pixels.device)
        hidden = holes(~missing[batch], generator)
        places = torch.rand(int(hidden.sum()), generator=generator).to(pixels.device) if whole else None
        loss = _loss((mapper, flow), pixels[batch], ~missing[batch] & ~hidden, hidden, places)
        if loss is not None and bool(torch.isfinite(loss)):
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(flow.parameters(), LARGEST_GRADIENT)
            optimiser.step()


def _loss(
    networks: tuple[ImageMapper, ImageFlow], pixels: Tensor, shown: Tensor, hidden: Tensor, places: Tensor | None
) -> Tensor | None:
    """Return the mean negative log-density of the scores of hidden pixels; None if there are none."""
    mapper, flow = networks
    if not bool(hidden.any()):
        return None
    with torch.no_grad():
        answer = mapper(pixels, shown.float())
        scores = image_scores(answer, pixels, hidden, places)
    return -flow.log_prob(scores, hidden, answer.context).sum() / hidden.sum()


def image_scores(answer: ImageAnswer, pixels: Tensor, chosen: Tensor, places: Tensor | None = None) -> Tensor:
    """Return the normal scores of chosen pixels by H's distributions, zero elsewhere.

    Parameters
    ----------
    answer : ImageAnswer
        What H says.
    pixels, chosen : Tensor of shape (n_images, n_channels, height, width)
        The values, and which of them.
    places : Tensor of shape (n_chosen,), optional
        Where whole numbers are inside their levels, between 0 and 1; without it, where floats are.

    Returns
    -------
    Tensor of the shape of pixels
    """
    scaled = pixels[chosen] * (LEVELS - 1)
    levels = scaled.round()
    places = (scaled - levels + 0.5) if places is None else places
    shares = LogisticMixture(answer.parameters[chosen]).shares(levels.to(torch.int64), places)
    scores = torch.zeros_like(pixels)
    scores[chosen] = torch.special.ndtri(shares)
    return scores

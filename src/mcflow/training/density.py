"""G learns how the cells that H is asked for go together; then both give exact densities and draws."""

from __future__ import annotations

__all__ = ["draw", "fit_density", "log_density", "look"]

import math
import time
import warnings

import torch
from torch import Tensor

from mcflow.errors import McflowWarning, TrainingError
from mcflow.flows.conditional import ConditionalFlow
from mcflow.flows.marginals import PointMarginals
from mcflow.latent.masked import MaskedMapper
from mcflow.random import Streams
from mcflow.training.schedule import cosine

#: How often all cells of a row are hidden, and the least and the largest share of them otherwise.
ALL_HIDDEN, LEAST_HIDDEN, MOST_HIDDEN = 0.2, 0.1, 0.9

#: Steps at the beginning of which one has to have a loss that is a number.
FIRST_STEPS = 20

#: The largest norm of a gradient, and the share of the rate that is left at the end.
MAX_NORM, LAST_RATE = 1.0, 1e-2


def look(mapper: MaskedMapper, units: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
    """Ask H of some rows.

    Parameters
    ----------
    mapper : MaskedMapper
        H; no gradient reaches it.
    units : Tensor of shape (n_rows, n_columns)
        Any number where a cell is not shown.
    shown : Tensor of shape (n_rows, n_columns)
        Boolean.

    Returns
    -------
    p : Tensor of shape (n_rows, n_columns, n_points)
        Probabilities of the points, the mean over the members.
    context : Tensor of shape (n_rows, width)
        The first member's.
    """
    with torch.no_grad():
        rows = units.expand(mapper.n_members, -1, -1)
        answer = mapper(rows, shown.to(units.dtype).expand(rows.shape))
        return answer.logits.softmax(-1).mean(0), answer.context[0]


def log_density(  # noqa: PLR0917 - two networks, a row and its marks
    mapper: MaskedMapper,
    marginals: PointMarginals,
    flow: ConditionalFlow,
    units: Tensor,
    shown: Tensor,
    chosen: Tensor,
    uniforms: Tensor,
) -> Tensor:
    r"""Return the joint log-density of the chosen cells given the shown ones.

    Parameters
    ----------
    mapper, marginals, flow
        H, the cells' own distributions, and G.
    units : Tensor of shape (n_rows, n_columns)
        Any number where a cell is neither shown nor chosen.
    shown, chosen : Tensor of shape (n_rows, n_columns)
        Boolean; no cell is both.
    uniforms : Tensor of shape (n_rows, n_columns) or (n_places, n_rows, n_columns)
        In [0, 1]: where in the mass of its atom a chosen cell of a discrete column is; several places are averaged.

    Returns
    -------
    Tensor of shape (n_rows,)
        In units, without a gradient. The mean of its exponential over the uniforms is the density times the mass of the
        atoms; without discrete cells it is exact for any.

    Notes
    -----
    With scores e and each cell's own density f given what is shown

    .. math:: \log p(x_S) = \log p_G(e_S) + \sum_{j \in S} (\log f_j(x_j) - \log N(e_j))
    """
    p, context = look(mapper, units, shown)
    parts = []
    with torch.no_grad():
        for places in uniforms.reshape(-1, *units.shape):
            scores, log_slope = marginals.scores(units, p, places)
            joint = flow.log_prob(scores, chosen, context)
            parts.append(joint + log_slope.masked_fill(~chosen, 0.0).sum(1))
        return torch.stack(parts).logsumexp(0) - math.log(len(parts))


def draw(  # noqa: PLR0917 - as log_density
    mapper: MaskedMapper,
    marginals: PointMarginals,
    flow: ConditionalFlow,
    units: Tensor,
    shown: Tensor,
    chosen: Tensor,
    normals: Tensor,
) -> Tensor:
    """Draw the chosen cells jointly given the shown ones, in one pass.

    Parameters
    ----------
    mapper, marginals, flow
        H, the cells' own distributions, and G.
    units : Tensor of shape (n_rows, n_columns)
        Any number where a cell is not shown.
    shown, chosen : Tensor of shape (n_rows, n_columns)
        Boolean; no cell is both.
    normals : Tensor of shape (n_rows, n_columns)
        Standard normal numbers, which alone make the draw.

    Returns
    -------
    Tensor of shape (n_rows, n_columns)
        `units` with the chosen cells drawn.
    """
    p, context = look(mapper, units, shown)
    with torch.no_grad():
        scores = flow.inverse(normals, chosen, context)
        return torch.where(chosen, marginals.units_at(scores, p), units)


def fit_density(  # noqa: PLR0917 - as log_density
    mapper: MaskedMapper,
    marginals: PointMarginals,
    flow: ConditionalFlow,
    units: Tensor,
    seen: Tensor,
    streams: Streams,
    *,
    n_steps: int,
    batch_size: int = 256,
    learning_rate: float = 1e-3,
    deadline: float | None = None,
) -> list[float]:
    """Train G on cells that are hidden on purpose, by their joint likelihood; H stays as it is.

    Parameters
    ----------
    mapper, marginals : MaskedMapper, PointMarginals
        H, which is left in evaluation mode, and the cells' own distributions.
    flow : ConditionalFlow
        G, trained in place.
    units : Tensor of shape (n_rows, n_columns)
        Float32; any number where a cell is missing.
    seen : Tensor of shape (n_rows, n_columns)
        Boolean, True where observed.
    streams : Streams
        Where every random number comes from.
    n_steps : int
        Updates, at most.
    batch_size : int, default=256
        Rows of each, drawn with replacement.
    learning_rate : float, default=1e-3
        At the beginning; it falls along half a cosine.
    deadline : float, optional
        A time of `time.perf_counter` at which training ends.

    Returns
    -------
    list of float
        The loss of every step that counted: minus the mean log-density of the scores, for each cell.

    Raises
    ------
    TrainingError
        When none of the first 20 losses is a finite number.
    """
    mapper.eval()
    optimiser = torch.optim.Adam(flow.parameters(), lr=learning_rate)
    losses: list[float] = []
    skipped, start = 0, time.perf_counter()
    learns = bool(seen.any()) and len(flow.masks) > 0
    for k in range(n_steps if learns else 0):
        done = _progress(k / n_steps, start, deadline)
        if done >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = learning_rate * max(LAST_RATE, cosine(done))
        loss = _loss(mapper, marginals, flow, units, seen, generator=streams.order, batch_size=batch_size)
        if _step(flow, optimiser, loss):
            losses.append(float(loss.detach()))
            continue
        skipped += 1
        if skipped == k + 1 == min(FIRST_STEPS, n_steps):
            raise TrainingError(
                f"The density's loss was not a finite number in any of the first {skipped} steps. "
                "Look for values far outside the rest of their column."
            )
    if skipped:
        warnings.warn(
            f"{skipped} of {skipped + len(losses)} steps were left out, as their loss was not a finite number.",
            McflowWarning,
            stacklevel=2,
        )
    return losses


def _progress(share: float, start: float, deadline: float | None) -> float:
    """Return how much of the training is done, by steps or by time, whichever is further."""
    if deadline is None:
        return share
    now = time.perf_counter()
    return max(share, 1.0 if now >= deadline else (now - start) / (deadline - start))


def _loss(
    mapper: MaskedMapper,
    marginals: PointMarginals,
    flow: ConditionalFlow,
    units: Tensor,
    seen: Tensor,
    *,
    generator: torch.Generator,
    batch_size: int,
) -> Tensor:
    """Hide cells of some rows and return minus the mean log-density of their scores, a cell."""
    rows = torch.randint(len(units), (batch_size,), generator=generator).to(units.device)
    here, there = units[rows], seen[rows]
    shares, all_of_them = torch.rand(2, batch_size, 1, generator=generator)
    shares = LEAST_HIDDEN + (MOST_HIDDEN - LEAST_HIDDEN) * shares
    drawn, uniforms = torch.rand(2, *here.shape, generator=generator)
    hidden = (drawn < shares) | (all_of_them < ALL_HIDDEN)
    chosen = hidden.to(units.device) & there
    p, context = look(mapper, here, there & ~chosen)
    with torch.no_grad():
        scores, _ = marginals.scores(here, p, uniforms.to(units))
    loss: Tensor = -flow.log_prob(scores, chosen, context).sum() / chosen.sum().clamp(min=1)
    return loss


def _step(flow: ConditionalFlow, optimiser: torch.optim.Optimizer, loss: Tensor) -> bool:
    """Update G unless the loss or its gradient is not finite; return whether it was."""
    if not bool(loss.isfinite()):
        return False
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(flow.parameters(), MAX_NORM)
    if not bool(norm.isfinite()):
        return False
    optimiser.step()
    return True

"""The flow G of the default preset: the joint distribution of the missing cells of a row, given what H predicts."""

from __future__ import annotations

__all__ = ["ConditionalFlow", "JointDensity"]

import math
import time
import warnings
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from mcflow.errors import McflowWarning, TrainingError
from mcflow.fitting.initialisation import draw_masks
from mcflow.fitting.trainer import cosine
from mcflow.masked.encoding import PointMarginals
from mcflow.masked.network import MaskedNetwork

MAX_LOG_SCALE = 2.0  # bound of the absolute log-scale of a coupling
ALL_HIDDEN = 0.2  # probability with which all cells of a row are hidden in a training step
MIN_HIDDEN = 0.1  # smallest fraction of hidden cells of the other rows
MAX_HIDDEN = 0.9  # largest fraction of hidden cells of the other rows
FIRST_STEPS = 20  # steps at the start of the training, of which at least one must have a finite loss
MAX_NORM = 1.0  # gradient norm above which gradients are scaled down
FINAL_RATE = 1e-2  # learning rate at the end of the training, as a fraction of the first one


class ConditionalFlow(nn.Module):
    r"""An invertible map from the normal scores of any chosen cells of a row to independent standard normal scores.

    Each coupling keeps some columns, D, and transforms the chosen cells of the others:

    .. math::

        z_D = e_D, \qquad z_j = e_j \exp s_j(e_D, m, c) + t_j(e_D, m, c), \qquad
        \log p(e) = \log N(z; 0, I) + \sum_j s_j

    with the mask m of the chosen cells and a projection of H's context c. A cell that is not chosen is zero on both
    sides. Before the first coupling, the scores of each column are divided by their standard deviation.

    The last layers start at zero, so that the cells are independent at first. Log-scales pass through
    :math:`2 \tanh(\cdot / 2)`, which keeps the inverse accurate to round-off.
    """

    masks: Tensor
    scale: Tensor  # (n_columns,) standard deviation of the scores of each column

    def __init__(
        self,
        n_columns: int,
        n_context: int,
        *,
        n_couplings: int = 4,
        width: int = 64,
        n_projected: int = 32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_columns = n_columns
        masks = torch.zeros(n_couplings, n_columns, dtype=torch.bool)
        if generator is not None and n_columns and n_couplings:
            masks = draw_masks(n_couplings, n_columns, generator)
        self.register_buffer("masks", masks)
        self.register_buffer("scale", torch.ones(n_columns))
        self.project = nn.Parameter(_drawn(n_context, n_projected, generator))
        sizes = [(2 * n_columns + n_projected, width), (width, width), (width, 2 * n_columns)]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for _ in range(n_couplings):
            for k, (n_in, n_out) in enumerate(sizes):
                self.weights.append(nn.Parameter(_drawn(n_in, n_out, generator if k < 2 else None)))
                self.biases.append(nn.Parameter(torch.zeros(n_out)))

    def forward(self, scores: Tensor, chosen: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return latent points (n_rows, n_columns) and the log-determinant (n_rows,).

        Shapes: `scores`, `chosen` (n_rows, n_columns), `context` (n_rows, n_context).
        """
        there, marks, z, given = self._enter(scores / self.scale, chosen, context)
        log_det = -(marks * self.scale.log()).sum(1)
        for k in range(len(self.masks)):
            log_scale, shift = self._coupling(k, z, marks, given, there)
            z = z * log_scale.exp() + shift
            log_det = log_det + log_scale.sum(1)
        return z, log_det

    def inverse(self, z: Tensor, chosen: Tensor, context: Tensor) -> Tensor:
        """Return the scores of latent points, the inverse of `forward`; cells that are not chosen are zero."""
        there, marks, scores, given = self._enter(z, chosen, context)
        for k in reversed(range(len(self.masks))):
            log_scale, shift = self._coupling(k, scores, marks, given, there)
            scores = (scores - shift) * (-log_scale).exp()
        return self.scale * scores

    def log_prob(self, scores: Tensor, chosen: Tensor, context: Tensor) -> Tensor:
        """Return the joint log-density (n_rows,) of the chosen scores; see `forward` for the shapes."""
        z, log_det = self.forward(scores, chosen, context)
        n_chosen = chosen.to(z.dtype).sum(1)
        return log_det - 0.5 * (z.square().sum(1) + n_chosen * math.log(2 * math.pi))

    def _enter(self, cells: Tensor, chosen: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the mask as booleans and as numbers, the cells with all others at zero, and the projected context."""
        there = chosen.bool()
        return there, there.to(self.project.dtype), cells.masked_fill(~there, 0.0), context @ self.project

    def _coupling(self, k: int, cells: Tensor, marks: Tensor, given: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-scales and shifts of one coupling, zero for cells that it keeps."""
        kept = self.masks[k]
        state = torch.cat([cells * kept, marks, given], 1)
        for layer in range(3 * k, 3 * k + 3):
            state = torch.addmm(self.biases[layer], state, self.weights[layer])
            state = functional.gelu(state) if layer < 3 * k + 2 else state
        log_scale, shift = state.chunk(2, dim=1)
        moves = there & ~kept
        log_scale = MAX_LOG_SCALE * torch.tanh(log_scale / MAX_LOG_SCALE)
        return log_scale * moves, shift * moves


def _drawn(n_in: int, n_out: int, generator: torch.Generator | None) -> Tensor:
    """Return weights initialised as in `torch.nn.Linear`, or zeros without a generator."""
    if generator is None:
        return torch.zeros(n_in, n_out)
    return (2 * torch.rand(n_in, n_out, generator=generator) - 1) / math.sqrt(max(n_in, 1))


class JointDensity(NamedTuple):
    """Joint distribution of cells: H predicts their marginal distributions, and the flow G their dependence.

    Shapes: `units`, the masks `shown` and `chosen`, `normals` (n_rows, n_columns).
    """

    network: MaskedNetwork
    marginals: PointMarginals
    flow: ConditionalFlow

    def predict_points(self, units: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
        """Return H's probabilities (n_rows, n_columns, n_points) averaged over members, and context (n_rows, width)."""
        with torch.no_grad():
            rows = units.expand(self.network.n_members, -1, -1)
            answer = self.network(rows, shown.to(units.dtype).expand(rows.shape))
            return answer.logits.softmax(-1).mean(0), answer.context[0]

    def log_density(self, units: Tensor, shown: Tensor, chosen: Tensor, uniforms: Tensor) -> Tensor:
        r"""Return the joint log-density (n_rows,) of the chosen cells given the shown ones.

        With scores e and the marginal density f of each cell given the shown ones,

        .. math:: \log p(x_S) = \log p_G(e_S) + \sum_{j \in S} (\log f_j(x_j) - \log N(e_j))

        averaged over `uniforms` (n_rows, n_columns) or (n_places, n_rows, n_columns).
        """
        p, context = self.predict_points(units, shown)
        parts = []
        with torch.no_grad():
            for places in uniforms.reshape(-1, *units.shape):
                scores, log_slope = self.marginals.scores(units, p, places)
                joint = self.flow.log_prob(scores, chosen, context)
                parts.append(joint + log_slope.masked_fill(~chosen, 0.0).sum(1))
            return torch.stack(parts).logsumexp(0) - math.log(len(parts))

    def draw(self, units: Tensor, shown: Tensor, chosen: Tensor, normals: Tensor) -> Tensor:
        """Return rows with the chosen cells drawn jointly given the shown ones."""
        p, context = self.predict_points(units, shown)
        with torch.no_grad():
            scores = self.flow.inverse(normals, chosen, context)
            return torch.where(chosen, self.marginals.places_at(scores, p)[1], units)

    def fit(
        self,
        units: Tensor,
        seen: Tensor,
        generator: torch.Generator,
        *,
        n_steps: int,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        deadline: float | None = None,
    ) -> list[float]:
        """Train G on hidden cells of rows (n_rows, n_columns) by maximum likelihood; return the losses of the steps."""
        self.network.eval()
        optimiser = torch.optim.Adam(self.flow.parameters(), lr=learning_rate)
        losses: list[float] = []
        skipped, start = 0, time.perf_counter()
        learns = bool(seen.any()) and len(self.flow.masks) > 0
        for k in range(n_steps if learns else 0):
            done = _progress(k / n_steps, start, deadline)
            if done >= 1:
                break
            for group in optimiser.param_groups:
                group["lr"] = learning_rate * max(FINAL_RATE, cosine(done))
            loss = self._loss(units, seen, generator, batch_size)
            if _step(self.flow, optimiser, loss):
                losses.append(float(loss.detach()))
                continue
            skipped += 1
            if skipped == k + 1 == min(FIRST_STEPS, n_steps):
                raise TrainingError(
                    f"The loss of the density was not a finite number in any of the first {skipped} steps. "
                    "Check for values far outside the rest of their column."
                )
        if skipped:
            warnings.warn(
                f"{skipped} of {skipped + len(losses)} steps of the density were skipped, as their loss was not "
                "finite.",
                McflowWarning,
                stacklevel=2,
            )
        return losses

    def _loss(self, units: Tensor, seen: Tensor, generator: torch.Generator, batch_size: int) -> Tensor:
        """Return the mean negative log-density of hidden cells of a random batch."""
        rows = torch.randint(len(units), (batch_size,), generator=generator).to(units.device)
        here, there = units[rows], seen[rows]
        shares, all_of_them = torch.rand(2, batch_size, 1, generator=generator)
        shares = MIN_HIDDEN + (MAX_HIDDEN - MIN_HIDDEN) * shares
        drawn, uniforms = torch.rand(2, *here.shape, generator=generator)
        hidden = (drawn < shares) | (all_of_them < ALL_HIDDEN)
        chosen = hidden.to(units.device) & there
        p, context = self.predict_points(here, there & ~chosen)
        with torch.no_grad():
            scores, _ = self.marginals.scores(here, p, uniforms.to(units))
        loss: Tensor = -self.flow.log_prob(scores, chosen, context).sum() / chosen.sum().clamp(min=1)
        return loss


def _progress(share: float, start: float, deadline: float | None) -> float:
    """Return the completed fraction of the training, by steps or by time, whichever is larger."""
    if deadline is None:
        return share
    now = time.perf_counter()
    return max(share, 1.0 if now >= deadline else (now - start) / (deadline - start))


def _step(flow: ConditionalFlow, optimiser: torch.optim.Optimizer, loss: Tensor) -> bool:
    """Update G unless the loss or its gradient is not finite; return whether it was updated."""
    if not bool(loss.isfinite()):
        return False
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(flow.parameters(), MAX_NORM)
    if not bool(norm.isfinite()):
        return False
    optimiser.step()
    return True

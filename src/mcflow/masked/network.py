"""Network H of the default preset, which predicts all cells of partly observed rows, and its training."""

from __future__ import annotations

__all__ = [
    "MIN_THREAD_WIDTH",
    "TARGETS_AT_ONCE",
    "Answer",
    "MaskedNetwork",
    "MaskedTrainer",
    "ValidationCells",
    "cross_entropy",
    "patterns_of",
    "tracks_of",
]

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from mcflow.fitting.callbacks import Callback
from mcflow.fitting.distributed import ALONE, Workers
from mcflow.fitting.trainer import ValidatedTrainer
from mcflow.masked.config import MaskedConfig
from mcflow.random import Streams

MAX_INPUT_UNITS = 8.0  # absolute value at which units are clipped before the first layer
NOWHERE = -1e38  # stands for a hidden cell, below every knot; infinity times zero would be NaN
FEW_COLUMNS = 64  # columns up to which a matrix product copies cells to their intervals faster than indexing
MAX_ASINH = 1e18  # argument at which the inverse hyperbolic sine is clipped, so that squares are finite
TARGETS_AT_ONCE = 1 << 16  # rows whose targets are computed together, to limit the memory
VALIDATION_ROWS = 8192  # maximum number of rows with validation cells
ROWS_AT_ONCE = 2048  # validation rows that go through H together
KNOWN_CELLS = 1 << 26  # cells of a table up to which its targets are computed once; otherwise batch by batch
MAX_ERROR_UNITS = 10.0  # units at which the squared error of a cell is clipped
MAX_VALIDATION_SCALE = 2.0  # maximum number of validation cells by patterns, as a multiple of the requested number
PATTERN_ROWS = 50_000  # rows by which co-missing cells are detected
MIN_THREAD_WIDTH = 192  # width from which tracks train on threads of their own
MAX_TRACKS = 4  # maximum number of tracks, each of which has trees of its own
MAX_GROUPS = 4  # groups into which the validation cells of a row are divided
CO_MISSING = 0.5  # mean correlation of masks from which patterns of missing cells are used


class Answer(NamedTuple):
    """Output of H for all cells, by member."""

    context: Tensor  # (n_members, n_rows, width) representation of the row
    logits: Tensor  # (n_members, n_rows, n_columns, n_points) logits of the points, far below all others for padding
    direct: Tensor  # (n_members, n_rows, n_columns) direct estimate of the conditional mean, in units


class MaskedNetwork(nn.Module):
    r"""A residual network on partly observed rows.

    The inputs of a cell x are the fraction of each interval between knots that lies below it, its unit, and a transform
    close to its logarithm:

    .. math::

        e_k(x) = \mathrm{clip}\left(\frac{x - a_k}{a_{k+1} - a_k}, 0, 1\right), \qquad
        l(x) = \frac{\mathrm{arsinh}(a x + b) - m}{s}

    all multiplied by the mask, so that the inputs of a hidden cell are zero. Residual blocks
    :math:`h \leftarrow h + W_2 \,\mathrm{gelu}(W_1 \,\mathrm{norm}(h))` and two heads follow.

    The first head predicts a probability for each point. The target of a number between two points is split between
    both so that its mean is exact; hence the mean over the points estimates the conditional mean. A softmax over points
    learns faster than a squared error and gives the whole distribution.
    """

    start: Tensor
    asinh_params: Tensor  # (4, n_columns) parameters a, b, m and s of each column; without them the transform is zero
    scale: Tensor
    owner: Tensor
    copier: Tensor
    points: Tensor  # (n_columns, n_points) in units, increasing, padded with the last one
    padding: Tensor

    def __init__(
        self,
        knots: Tensor,
        points: Tensor,
        n_points: Tensor,
        asinh_params: Tensor | None = None,
        *,
        n_members: int = 1,
        width: int = 64,
        n_blocks: int = 2,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_members, self.width, self.n_blocks = n_members, width, n_blocks
        self.n_columns, self.n_points = points.shape
        gaps = knots.diff(dim=1)
        real = gaps > 0
        self.register_buffer("start", knots[:, :-1][real].float())
        self.register_buffer("scale", (1 / gaps[real]).float())
        self.register_buffer("owner", real.nonzero()[:, 0])
        few = self.n_columns if self.n_columns <= FEW_COLUMNS else 0
        copier = functional.one_hot(self.owner, self.n_columns).T[:few].float().contiguous()
        self.register_buffer("copier", copier, persistent=False)
        self.register_buffer("points", points.float())
        asinh_params = (
            torch.tensor([[0.0, 0.0, 0.0, 1.0]]).expand(len(points), -1) if asinh_params is None else asinh_params
        )
        self.register_buffer("asinh_params", asinh_params.float().T.contiguous())
        beyond = torch.arange(self.n_points) >= n_points[:, None]
        self.register_buffer("padding", torch.where(beyond, -1e4, 0.0))
        self.weights = nn.ParameterList(self._layers(generator))

    def members(self, some: slice) -> MaskedNetwork:
        """Return a network of some members that shares their weights with this one."""
        other = MaskedNetwork.__new__(MaskedNetwork)
        other.__dict__ = self.__dict__ | {"_modules": dict(self._modules)}
        other.weights = nn.ParameterList([nn.Parameter(weight.data[some]) for weight in self.weights])
        other.n_members = len(other.weights[0])
        return other

    def _layers(self, generator: torch.Generator | None) -> list[nn.Parameter]:
        """Return weights and biases of the first layer, two layers per block, and both heads, which start at zero."""
        n_inputs = len(self.owner) + 2 * self.n_columns
        sizes = [(n_inputs, self.width), *[(self.width, self.width)] * (2 * self.n_blocks)]
        heads = [(self.width, self.n_columns * self.n_points), (self.width, self.n_columns)]
        layers = []
        for k, (n_in, n_out) in enumerate([*sizes, *heads]):
            weight = torch.zeros(self.n_members, n_in, n_out)
            if generator is not None and k < len(sizes):
                weight = (2 * torch.rand(weight.shape, generator=generator) - 1) / math.sqrt(n_in)
            layers += [nn.Parameter(weight), nn.Parameter(torch.zeros(self.n_members, 1, n_out))]
        return layers

    def start_at(self, shares: Tensor) -> None:
        """Initialise the output for an empty row to the marginal frequencies (n_columns, n_points)."""
        with torch.no_grad():
            self.weights[-3].copy_(shares.clamp(min=1e-4).log().flatten())

    def encode(self, units: Tensor, shown: Tensor) -> Tensor:
        """Return the inputs of the first layer (n_members, n_rows, n_inputs).

        Shapes: `units`, `shown` (n_members, n_rows, n_columns).
        """
        cells = units.masked_fill(shown == 0, NOWHERE)
        intervals = cells @ self.copier if len(self.copier) else cells.index_select(-1, self.owner)
        intervals = intervals.sub_(self.start).mul_(self.scale).clamp_(0, 1)
        slope, shift, centre, spread = self.asinh_params
        logs = _asinh(units * slope + shift).sub_(centre).div_(spread).mul_(shown)
        return torch.cat([intervals, units.clamp(-MAX_INPUT_UNITS, MAX_INPUT_UNITS) * shown, logs], -1)

    def forward(self, units: Tensor, shown: Tensor) -> Answer:
        """Predict all cells of rows; see `encode` for the shapes. A leading dimension of 1 is shared by all members."""
        state = self._linear(0, self.encode(units, shown))
        for k in range(2, 2 + 4 * self.n_blocks, 4):
            inner = functional.gelu(self._linear(k, self._norm(state)))
            state = self._linear(k + 2, inner, onto=state)
        context = self._norm(state)
        logits = self._linear(-4, context, self.padding.flatten())
        return Answer(context, logits.unflatten(-1, (self.n_columns, self.n_points)), self._linear(-2, context))

    def _linear(self, k: int, rows: Tensor, shift: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
        """Apply layer `k` of each member to its rows (n_members or 1, n_rows, n_in).

        The result is added to `onto`, in place if no gradient is needed.
        """
        weight, bias = self.weights[k], self.weights[k + 1]
        if shift is not None:
            bias = bias + shift
        rows = rows.expand(self.n_members, -1, -1)
        if torch.is_grad_enabled():
            found = torch.baddbmm(bias, rows, weight)
            return found if onto is None else onto + found
        # Without gradients, one product per member is faster than a batched one, which copies the bias first.
        if onto is not None:
            for member in range(self.n_members):
                onto[member].add_(bias[member]).addmm_(rows[member], weight[member])
            return onto
        found = rows.new_empty(*rows.shape[:2], weight.shape[2])
        for member in range(self.n_members):
            torch.addmm(bias[member], rows[member], weight[member], out=found[member])
        return found

    def _norm(self, state: Tensor) -> Tensor:
        return functional.layer_norm(state, (self.width,))

    def targets(self, units: Tensor) -> tuple[Tensor, Tensor]:
        """Return the index (n_rows, n_columns) of the point at or below each cell, and the weight of the one above."""
        columns = units.mT.contiguous()
        last = (self.padding == 0).sum(1, keepdim=True) - 2
        below = torch.searchsorted(self.points, columns, right=True).sub_(1)
        below = below.clamp(min=0).minimum(last.clamp(min=0))
        low, high = (self.points.gather(1, (below + k).clamp(max=self.n_points - 1)) for k in (0, 1))
        share = (columns - low) / (high - low).clamp(min=1e-12)
        return below.mT.contiguous(), share.clamp(0, 1).mT.contiguous()


def _asinh(x: Tensor) -> Tensor:
    """Return the inverse hyperbolic sine by vectorised functions; torch.asinh is not vectorised on the CPU."""
    size = x.abs().clamp_(max=MAX_ASINH)
    square = size.square()
    return size.add_(square.div(square.add(1).sqrt_().add_(1))).log1p_().copysign_(x)


class _CrossEntropy(torch.autograd.Function):
    """Cross-entropy of cells whose target lies between two neighbouring points, with an explicit gradient."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, below: Tensor, share: Tensor) -> Tensor:
        log_p = logits.log_softmax(-1)
        here = below[:, None]
        both = log_p.gather(1, torch.cat([here, (here + 1).clamp(max=logits.shape[1] - 1)], 1))
        ctx.save_for_backward(log_p, below, share)
        return -torch.lerp(both[:, 0], both[:, 1], share).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        log_p, below, share = ctx.saved_tensors
        d_logits = log_p.exp()
        here = below[:, None]
        d_logits.scatter_add_(1, here, (share - 1)[:, None])
        d_logits.scatter_add_(1, (here + 1).clamp(max=log_p.shape[1] - 1), -share[:, None])
        return d_logits.mul_(grad / len(log_p)), None, None


def cross_entropy(logits: Tensor, below: Tensor, share: Tensor) -> Tensor:
    r"""Return the mean of :math:`-(1 - t) \log p_k - t \log p_{k+1}` over cells.

    Shapes: `logits` (n_cells, n_points), `below` (n_cells,), `share` (n_cells,).
    """
    loss: Tensor = _CrossEntropy.apply(logits, below, share)  # type: ignore[no-untyped-call]
    return loss


def tracks_of(n_members: int) -> list[slice]:
    """Return the members of each track; tracks are trained independently and have different validation cells."""
    n_tracks = min(n_members, MAX_TRACKS)
    ends = [k * n_members // n_tracks for k in range(n_tracks + 1)]
    return [slice(*some) for some in pairwise(ends)]


class ValidationCells:
    """Observed cells of some rows that are never targets of the training; every track has its own.

    Shapes: `seen` (n_rows, n_columns), `patterns` (n_patterns, n_columns), `rows` (n_validation_rows,), `cells`
    (n_tracks, n_validation_rows, n_columns).
    """

    def __init__(
        self,
        seen: Tensor,
        config: MaskedConfig,
        n_tracks: int,
        generator: torch.Generator,
        *,
        among: int | None = None,
        patterns: Tensor | None = None,
    ) -> None:
        among = len(seen) if among is None else among
        share = config.validation_share
        self.rows = torch.randperm(among, generator=generator)[:VALIDATION_ROWS].to(seen.device)
        drawn = torch.rand((n_tracks, len(self.rows), seen.shape[1]), generator=generator) < share
        drawn = drawn.to(seen.device)
        if patterns is not None and share:
            drawn = torch.where(*_taken(patterns, drawn.shape[:2], config.pattern_validation_share, generator), drawn)
            found = (drawn & seen[self.rows]).sum() / n_tracks / seen[:among].sum().clamp(min=1)
            most = MAX_VALIDATION_SCALE * share / max(float(found), 1e-9)
            drawn = drawn[:, : max(1, int(len(self.rows) * min(1.0, most)))]
            self.rows = self.rows[: drawn.shape[1]]
        self.cells = drawn & seen[self.rows]
        self.by_pattern = patterns is not None
        self._place = torch.full((among + 1,), -1, device=seen.device)  # the last one is for other rows
        self._place[self.rows] = torch.arange(len(self.rows), device=seen.device)

    def of(self, tracks: Tensor, batch: Tensor) -> Tensor:
        """Return the mask of the validation cells in the rows at `batch` (n_members, n_rows) of members' tracks."""
        place = self._place[batch.clamp(max=len(self._place) - 1)]
        found: Tensor = self.cells[tracks[:, None], place.clamp(min=0)] & (place >= 0)[..., None]
        return found

    def groups(self, track: int) -> list[Tensor]:
        """Return masks (n_validation_rows, n_columns) of validation cells that are hidden at the same time.

        Cells that are missing together are hidden together. Otherwise rows lose as few cells at a time as possible, so
        that they have as many missing cells as rows in which just this cell is missing.
        """
        cells = self.cells[track]
        if self.by_pattern:
            return [cells]
        rank = cells.cumsum(1).where(cells, 0)
        n_groups = min(max(int(rank.max()), 1) if rank.numel() else 1, MAX_GROUPS)
        return [cells & ((rank - 1) % n_groups == k) for k in range(n_groups)]


class MaskedTrainer(ValidatedTrainer):
    """Train H to predict cells that are hidden at every step.

    Shapes: `units` (n_rows, n_columns), `seen` (n_rows, n_columns).
    """

    config: MaskedConfig
    network: MaskedNetwork

    def __init__(
        self,
        config: MaskedConfig,
        network: MaskedNetwork,
        units: Tensor,
        seen: Tensor,
        streams: Streams,
        *,
        callbacks: Sequence[Callback] = (),
        seconds: float | None = None,
        validation_among: int | None = None,
        workers: Workers = ALONE,
    ) -> None:
        members = tracks_of(network.n_members)
        self.tracks = [network.members(some) for some in members]
        self._track_of = torch.tensor([k for k, some in enumerate(members) for _ in range(some.stop - some.start)])
        # Threads that run short kernels would wait for each other's interpreter lock; small members train in one batch.
        self._members = members if network.width >= MIN_THREAD_WIDTH else [slice(0, network.n_members)]
        self._networks = self.tracks if network.width >= MIN_THREAD_WIDTH else [network]
        super().__init__(*(config, network, len(units), streams), callbacks=callbacks, seconds=seconds, workers=workers)
        self.network, self.units, self.seen = network, units, seen
        self.patterns = patterns_of(seen)
        self.validation = ValidationCells(
            seen, config, len(self.tracks), streams.order, among=validation_among, patterns=self.patterns
        )
        few = validation_among in (None, len(units)) and units.numel() <= KNOWN_CELLS  # memory-mapped rows stay on disk
        self._known = _targets(network, units) if few else None

    def _independent_parts(self) -> list[list[nn.Parameter]]:
        return [list(network.parameters()) for network in self._networks]

    def _shuffled(self) -> Tensor:
        members = range(self.network.n_members)
        return torch.stack([torch.randperm(self.n_rows, generator=self.streams.order) for _ in members])

    def _step(self, part: int, batch: Tensor) -> Tensor:
        """Hide cells of the rows at `batch` (n_members, n_rows) and update the weights of some members."""
        network, batch = self._networks[part], batch[self._members[part]]
        n_rows = batch.shape[1]
        batch = batch[:, self.workers.part(n_rows)].to(self.units.device)
        seen, units = self.seen[batch], self.units[batch]
        targets = seen & ~self.validation.of(self._track_of[self._members[part]].to(batch.device), batch)
        hidden = self._hidden(targets, n_rows, self.generator(part))
        shown = (seen & ~hidden).to(units.dtype)
        hidden = hidden if self.config.hide_share else targets
        largest = 1 / math.sqrt(network.n_members)
        if not bool(hidden.any()):
            return self._update(part, None, largest, 0)
        answer = network(units, shown)
        below, share = self._targets(batch, units)
        loss = cross_entropy(answer.logits[hidden], below[hidden].long(), share[hidden])
        missed = answer.direct[hidden] - units[hidden].clamp(-MAX_ERROR_UNITS, MAX_ERROR_UNITS)
        loss = loss + self.config.direct_weight * missed.square().mean()
        return self._update(part, loss, largest, len(missed))

    def _targets(self, batch: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Return the targets of a batch."""
        if self._known is None:
            return _targets(self.network, units)
        return self._known[0][batch], self._known[1][batch]

    def _hidden(self, seen: Tensor, n_rows: int, generator: torch.Generator) -> Tensor:
        """Choose cells to hide: single cells, or those that are missing in another row.

        Random numbers are drawn for all `n_rows` rows of the batch, so that all workers draw the same.
        """
        shape, mine = (len(seen), n_rows), self.workers.part(n_rows)
        uniforms = torch.rand((*shape, seen.shape[2]), generator=generator)[:, mine].to(seen.device)
        share = self.config.hide_share
        hidden = (uniforms < share) & seen
        if self.patterns is None or not share:
            return hidden
        takes, pattern = (
            drawn[:, mine] for drawn in _taken(self.patterns, shape, self.config.pattern_share, generator)
        )
        other = (pattern | (uniforms < self.config.pattern_extra_share * share)) & seen
        return torch.where(takes & other.any(-1, keepdim=True), other, hidden)

    def _validation_error(self) -> float | None:
        parts = self._map(self._validation_answers, range(len(self.tracks)))
        histogram, direct, truth = (torch.cat(part) for part in zip(*parts, strict=True))
        truth = truth.clamp(-MAX_ERROR_UNITS, MAX_ERROR_UNITS)  # otherwise a few outliers would decide alone
        errors = [self._mean((estimate - truth).square()) for estimate in (histogram, direct)]
        return None if None in errors else min(error for error in errors if error is not None)

    def _validation_answers(self, track: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return both estimates of a track's validation cells, averaged over its members, and their units."""
        part = self.workers.part(len(self.validation.rows))
        rows, cells = self.validation.rows[part], self.validation.cells[track, part]
        network, found = self.tracks[track], []
        with torch.inference_mode():
            for some, own in zip(rows.split(ROWS_AT_ONCE), cells.split(ROWS_AT_ONCE), strict=True):
                units, shown = self.units[some], self.seen[some] & ~own
                answer = network(units[None], shown.to(units.dtype)[None])
                means = (answer.logits[:, own].softmax(-1) * network.points[own.nonzero()[:, 1]]).sum(-1)
                found.append(torch.stack([means.mean(0), answer.direct[:, own].mean(0), units[own]]))
        histogram, direct, truth = torch.cat(found, 1)
        return histogram, direct, truth


def _taken(patterns: Tensor, shape: Sequence[int], share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw for each row whether it takes a pattern of missing cells, and which."""
    chosen = torch.randint(len(patterns), shape, generator=generator).to(patterns.device)
    takes = torch.rand((*shape, 1), generator=generator).to(patterns.device) < share
    return takes, patterns[chosen]


def _targets(network: MaskedNetwork, units: Tensor) -> tuple[Tensor, Tensor]:
    """Return the targets of rows with any number of leading dimensions."""
    rows = units.reshape(-1, units.shape[-1])
    below, shares = torch.empty_like(rows, dtype=torch.int16), torch.empty_like(rows)
    for some, *found in zip(*(all_rows.split(TARGETS_AT_ONCE) for all_rows in (rows, below, shares)), strict=True):
        for place, answer in zip(found, network.targets(some), strict=True):
            place.copy_(answer)
    return below.view(units.shape), shares.view(units.shape)


def patterns_of(seen: Tensor) -> Tensor | None:
    """Return the patterns of missing cells (n_patterns, n_columns) if cells go missing together, else None.

    They do if the mask of an incomplete column correlates with that of another by more than `CO_MISSING`, on average
    over the missing cells.
    """
    missing = ~seen[:PATTERN_ROWS]
    rates = missing.float().mean(0)
    some = (rates > 0) & (rates < 1)
    if int(some.sum()) < 2:
        return None
    likeness = torch.corrcoef(missing[:, some].float().T).fill_diagonal_(0)
    weights = rates[some] / rates[some].sum()
    together = float((likeness.amax(1) * weights).sum())
    return missing[missing.any(1)] if together > CO_MISSING else None

"""Shared by the neural-network baselines: dense layers, batches, validation cells, and rows as tensors."""

from __future__ import annotations

__all__ = [
    "BestAverage",
    "NetworkBaseline",
    "RowImputer",
    "ValidationCells",
    "batches",
    "check_finite",
    "column_means",
    "count_steps",
    "dense_network",
    "hide_columns",
    "masked_mean",
    "set_learning_rate",
    "split_validation",
    "start_at",
    "take_step",
]

import abc
import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from mcflow.baselines.base import CodedBaseline
from mcflow.config import Interval, Options
from mcflow.errors import TrainingError
from mcflow.fitting.distributed import one_thread_when_small
from mcflow.fitting.trainer import cosine
from mcflow.random import Streams, row_uniforms, seed_from
from mcflow.typing import Array, FloatArray

#: Rows below which there are no validation cells, since they would be too few.
FEW_ROWS = 40

#: Cells that a network fills at a time.
CELLS_AT_ONCE = 1_000_000


def dense_network(
    widths: Sequence[int],
    generator: torch.Generator,
    hidden: type[nn.Module] = nn.ReLU,
    output: type[nn.Module] = nn.Identity,
) -> nn.Sequential:
    """Return fully connected layers whose initial weights come from `generator` alone.

    Examples
    --------
    >>> import torch
    >>> network = dense_network([3, 8, 2], torch.Generator().manual_seed(0))
    >>> network(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """
    layers: list[nn.Module] = []
    for k, (n_in, n_out) in enumerate(itertools.pairwise(widths)):
        layer = nn.utils.skip_init(nn.Linear, n_in, n_out)
        nn.init.xavier_uniform_(layer.weight, generator=generator)
        nn.init.zeros_(layer.bias)
        layers += [layer, hidden() if k < len(widths) - 2 else output()]
    return nn.Sequential(*layers)


def start_at(network: nn.Sequential, mean: Tensor) -> nn.Sequential:
    """Initialise a dense network that ends in a sigmoid so that its outputs are near given values.

    The last bias becomes their log-odds, and the last weights are divided by ten.

    Shapes: `mean` (n_outputs,).
    """
    last = network[-2]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.mul_(0.1)
        last.bias.copy_(mean.logit(eps=1e-3))
    return network


class RowImputer(nn.Module):
    """Dense layers that read a row and its mask, and are initialised at the column means.

    Shapes: `mean` (n_places,).
    """

    def __init__(self, mean: Tensor, width: int, generator: torch.Generator) -> None:
        super().__init__()
        layers = dense_network([2 * len(mean), width, width, len(mean)], generator, output=nn.Sigmoid)
        self.layers = start_at(layers, mean)

    def forward(self, rows: Tensor, mask: Tensor) -> Tensor:
        """Return proposals for all places."""
        proposal: Tensor = self.layers(torch.cat([rows, mask], 1))
        return proposal


def batches(n_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield batches of row positions without end, every epoch in a new order.

    Shapes: yields (n_batch,).

    Examples
    --------
    >>> import torch
    >>> endless = batches(5, 4, torch.Generator().manual_seed(0))
    >>> [len(next(endless)) for _ in range(3)]
    [4, 1, 4]
    """
    while True:
        yield from torch.randperm(n_rows, generator=generator).split(batch_size)


def count_steps(n_rows: int, batch_size: int, max_epochs: int, max_steps: int) -> int:
    """Return the number of training steps: those of `max_epochs` epochs, at most `max_steps`.

    Examples
    --------
    >>> count_steps(300, 128, 10, 1000), count_steps(10**6, 128, 10, 1000)
    (30, 1000)
    """
    return min(max_steps, max_epochs * math.ceil(n_rows / batch_size))


def set_learning_rate(optimiser: torch.optim.Optimizer, peak: float, done: float) -> None:
    r"""Set the learning rate to :math:`\tfrac12 (1 + \cos \pi s)` of its peak when a fraction s is done."""
    optimiser.param_groups[0]["lr"] = peak * cosine(done)


def take_step(optimiser: torch.optim.Optimizer, loss: Tensor) -> float:
    """Take a step of an optimiser by the gradient of a loss, and return the loss."""
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.item()


def hide_columns(like: Tensor, owner: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return a mask that hides each row's columns with one probability, all places of a column together.

    Shapes: `like` (n_rows, n_places), `owner` (n_places,), returns (n_rows, n_places).

    Examples
    --------
    >>> import torch
    >>> hidden = hide_columns(torch.zeros(4, 3), torch.tensor([0, 1, 1]), 0.5, torch.Generator().manual_seed(0))
    >>> bool((hidden[:, 1] == hidden[:, 2]).all())
    True
    """
    drawn = torch.rand(len(like), int(owner[-1]) + 1, generator=generator) < share
    return drawn[:, owner]


def masked_mean(cells: Tensor, mask: Tensor) -> Tensor:
    r"""Return the mean of the cells where the mask is 1, :math:`\sum m x / \max(\sum m, 1)`.

    Examples
    --------
    >>> import torch
    >>> float(masked_mean(torch.tensor([2.0, 4.0, 9.0]), torch.tensor([1.0, 1.0, 0.0])))
    3.0
    """
    return (cells * mask).sum() / mask.sum().clamp(min=1)


def column_means(rows: Tensor, seen: Tensor) -> Tensor:
    """Return the mean of each place over the rows in which it is observed.

    Shapes: `rows`, `seen` (n_rows, n_places), returns (n_places,).

    Examples
    --------
    >>> import torch
    >>> column_means(torch.tensor([[1.0, 9.0], [3.0, 9.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor([2.0000, 0.5000])
    """
    count = seen.sum(0)
    return torch.where(count > 0, (rows * seen).sum(0) / count.clamp(min=1), 0.5)


def check_finite(loss: float, step: int) -> None:
    """Raise `TrainingError` if a loss is not finite."""
    if not math.isfinite(loss):
        raise TrainingError(
            f"The loss at step {step} is {loss}. Lower learning_rate, and look for values far outside the rest of "
            "their column."
        )


@dataclass(frozen=True)
class ValidationCells:
    """Observed cells that are not trained on, by which the best network is chosen."""

    rows: Tensor  # (n_rows, n_places)
    mask: Tensor  # (n_rows, n_places) 1 where a cell is shown to the network
    hidden: Tensor  # (n_rows, n_places) 1 where a cell is predicted
    uniforms: Tensor  # (n_rows, n_places) noise, the same at every validation

    def error(self, fill: Callable[[Tensor, Tensor, Tensor], Tensor]) -> float:
        """Return the RMSE of `fill(rows, mask, uniforms)` on the validation cells; 0 if there are none."""
        shown = self.rows * self.mask
        missed = (fill(shown, self.mask, self.uniforms) - self.rows).square()
        return masked_mean(missed, self.hidden).sqrt().item()


def split_validation(
    rows: Tensor, owner: Tensor, share: float, generator: torch.Generator, most: int = 4096
) -> tuple[Tensor, ValidationCells]:
    """Choose validation cells; return the mask of the cells to train on, and the validation cells.

    Shapes: `rows` (n_rows, n_places), `owner` (n_places,), returns (n_rows, n_places).

    Examples
    --------
    >>> import torch
    >>> left, validation = split_validation(torch.ones(100, 3), torch.arange(3), 0.1, torch.Generator().manual_seed(0))
    >>> int(left.sum() + validation.hidden.sum())
    300
    """
    observed = ~rows.isnan()
    hidden = hide_columns(rows, owner, share if len(rows) >= FEW_ROWS else 0.0, generator) & observed
    left = (observed & ~hidden).float()
    chosen = hidden.any(1).nonzero()[:most, 0]
    some = rows[chosen].nan_to_num()
    uniforms = torch.rand(some.shape, generator=generator)
    return left, ValidationCells(some, left[chosen], hidden[chosen].float(), uniforms)


class BestAverage:
    """The running average of a network's weights that has the best validation score.

    The networks of an adversarial game circle around their equilibrium, and some games drift away from it. The averaged
    weights are nearer to the equilibrium than the weights (Yazıcı et al. 2019), and the score stops the drift.
    """

    def __init__(
        self, network: nn.Module, score: Callable[[nn.Module], float], every: int = 200, decay: float = 0.999
    ) -> None:
        self._network, self._score, self._every, self._decay = network, score, every, decay
        self._average = copy.deepcopy(network).requires_grad_(False)
        self._best, self._lowest, self._step = self._average, math.inf, 0
        self._validate()

    def update(self) -> None:
        """Update the average with the network's current weights, and validate it at intervals."""
        self._step += 1
        share = 1 - min(self._decay, self._step / (self._step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self._average.parameters()), list(self._network.parameters()), share)
            for mine, theirs in zip(self._average.buffers(), self._network.buffers(), strict=True):
                mine.copy_(theirs)
        if self._step % self._every == 0:
            self._validate()

    def _validate(self) -> None:
        with torch.no_grad():
            score = self._score(self._average)
        if score <= self._lowest:
            self._best, self._lowest = copy.deepcopy(self._average), score

    def best(self) -> nn.Module:
        """Return the average with the best score, the last one included."""
        self._validate()
        return self._best


class NetworkBaseline(CodedBaseline):
    """A baseline that trains networks on rows scaled to [0, 1], with one-hot categories and NaN in missing cells.

    A subclass trains in `_train` and fills in `_complete`. Networks run on the CPU in float32.
    """

    #: Constraints of the common parameters.
    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        "max_epochs": Interval(int, 1),
        "max_steps": Interval(int, 1),
        "batch_size": Interval(int, 1),
        "learning_rate": Interval(float, 0, 1, low_open=True),
    }
    batch_size: int
    seed_: int
    network_: nn.Module

    @abc.abstractmethod
    def _train(self, rows: Tensor, owner: Tensor, streams: Streams) -> nn.Module:
        """Return a network trained on rows of shape (n_rows, n_places); `owner` is the column of each place."""

    @abc.abstractmethod
    def _complete(self, rows: Tensor, uniforms: Tensor) -> Tensor:
        """Return completed rows, given uniform numbers of their shape; observed places may differ."""

    def _fit_rows(self, rows: FloatArray, owner: Array) -> None:
        seed = seed_from(self.random_state)
        with one_thread_when_small(min(len(rows), self.batch_size) * rows.shape[1]):
            network = self._train(torch.from_numpy(rows).float(), torch.from_numpy(owner), Streams(seed))
        self.seed_, self.network_ = seed, network

    def _fill_rows(self, rows: FloatArray) -> FloatArray:
        return self._completed_rows(rows, self._complete, self.seed_)

    @staticmethod
    def _completed_rows(rows: FloatArray, complete: Callable[[Tensor, Tensor], Tensor], seed: int) -> FloatArray:
        """Complete rows in parts, with noise that depends on the seed and on each row alone."""
        filled = np.empty_like(rows)
        for part in np.array_split(np.arange(len(rows)), math.ceil(rows.size / CELLS_AT_ONCE)):
            uniforms = torch.from_numpy(row_uniforms(rows[part], seed)).float()
            with torch.inference_mode(), one_thread_when_small(uniforms.numel()):
                filled[part] = complete(torch.from_numpy(rows[part]).float(), uniforms).double().numpy()
        return filled

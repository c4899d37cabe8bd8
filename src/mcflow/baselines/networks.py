"""What the baselines that are neural networks share: dense layers, batches, and rows as tensors with holes."""

from __future__ import annotations

__all__ = [
    "BestAverage",
    "HeldOut",
    "NetworkBaseline",
    "RowImputer",
    "batches",
    "check_finite",
    "column_means",
    "count_steps",
    "dense_network",
    "hide_columns",
    "hold_out",
    "masked_mean",
    "set_rate",
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
from mcflow.random import Streams, row_uniforms, seed_from
from mcflow.training.schedule import cosine
from mcflow.training.threads import one_thread_when_small
from mcflow.typing import Array, FloatArray

#: Rows below which no cell is held out: there are too few to choose by.
FEW_ROWS = 40

#: Cells that a network fills together.
CELLS_AT_ONCE = 1_000_000


def dense_network(
    widths: Sequence[int],
    generator: torch.Generator,
    hidden: type[nn.Module] = nn.ReLU,
    output: type[nn.Module] = nn.Identity,
) -> nn.Sequential:
    """Return fully connected layers whose first weights come from `generator` alone.

    Parameters
    ----------
    widths : sequence of int
        Of the input, of each hidden layer, and of the output.
    generator : torch.Generator
        Draws the weights (Glorot's uniform rule); biases start at 0.
    hidden, output : type of nn.Module
        What follows each hidden layer, and the last.

    Returns
    -------
    nn.Sequential

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
    """Let a dense network that ends in a sigmoid start near given answers.

    The last bias becomes their log-odds, the last weights a tenth of what they were.

    Parameters
    ----------
    network : nn.Sequential
        From `dense_network`, with `output=nn.Sigmoid`.
    mean : Tensor of shape (n_outputs,)
        Answers from 0 to 1.

    Returns
    -------
    nn.Sequential
        The same network.
    """
    last = network[-2]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.mul_(0.1)
        last.bias.copy_(mean.logit(eps=1e-3))
    return network


class RowImputer(nn.Module):
    """Dense layers that read a row and its mask side by side, and start near the column means.

    Parameters
    ----------
    mean : Tensor of shape (n_places,)
        Near which the proposals start.
    width : int
        Units of the two hidden layers.
    generator : torch.Generator
        Draws the first weights.
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
    """Give positions of rows, batch after batch without end, every pass over the rows in a new order.

    Parameters
    ----------
    n_rows : int
        Rows of the table.
    batch_size : int
        Rows a batch; the last of a pass may have fewer.
    generator : torch.Generator
        Draws the orders.

    Yields
    ------
    Tensor of shape (n_batch,)

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
    """Return how many steps a training takes: so many passes over the rows, and no more than `max_steps`.

    Parameters
    ----------
    n_rows, batch_size, max_epochs, max_steps : int
        All at least 1.

    Returns
    -------
    int

    Examples
    --------
    >>> count_steps(300, 128, 10, 1000), count_steps(10**6, 128, 10, 1000)
    (30, 1000)
    """
    return min(max_steps, max_epochs * math.ceil(n_rows / batch_size))


def set_rate(optimiser: torch.optim.Optimizer, peak: float, done: float) -> None:
    r"""Set an optimiser's rate to :math:`\tfrac12 (1 + \cos \pi s)` of its peak.

    Parameters
    ----------
    optimiser : torch.optim.Optimizer
        Of one group of parameters.
    peak : float
        The rate at the start.
    done : float
        The share s of the training that is over.
    """
    optimiser.param_groups[0]["lr"] = peak * cosine(done)


def take_step(optimiser: torch.optim.Optimizer, loss: Tensor) -> float:
    """Move an optimiser's weights against the gradient of a loss, and return the loss."""
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.item()


def hide_columns(like: Tensor, owner: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return a mask that hides each row's columns with one probability, all places of a column together.

    Parameters
    ----------
    like : Tensor of shape (n_rows, n_places)
        Gives the shape.
    owner : Tensor of shape (n_places,)
        Which column each place belongs to, from 0.
    share : float
        The probability.
    generator : torch.Generator
        Draws the mask.

    Returns
    -------
    Tensor of bool of shape (n_rows, n_places)

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
    r"""Return the mean of the cells where the mask is one, :math:`\sum m x / \max(\sum m, 1)`.

    Parameters
    ----------
    cells, mask : Tensor of one shape
        The mask holds zeros and ones.

    Returns
    -------
    Tensor
        A single number; 0 where the mask is nowhere one.

    Examples
    --------
    >>> import torch
    >>> float(masked_mean(torch.tensor([2.0, 4.0, 9.0]), torch.tensor([1.0, 1.0, 0.0])))
    3.0
    """
    return (cells * mask).sum() / mask.sum().clamp(min=1)


def column_means(rows: Tensor, seen: Tensor) -> Tensor:
    """Return the mean of each place where it is seen.

    Parameters
    ----------
    rows, seen : Tensor of shape (n_rows, n_places)
        `seen` holds zeros and ones.

    Returns
    -------
    Tensor of shape (n_places,)
        One half where nothing is seen.

    Examples
    --------
    >>> import torch
    >>> column_means(torch.tensor([[1.0, 9.0], [3.0, 9.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor([2.0000, 0.5000])
    """
    count = seen.sum(0)
    return torch.where(count > 0, (rows * seen).sum(0) / count.clamp(min=1), 0.5)


def check_finite(loss: float, step: int) -> None:
    """Stop a training whose loss is no longer a number.

    Parameters
    ----------
    loss : float
        The newest loss.
    step : int
        Which step had it.

    Raises
    ------
    TrainingError
        With what to do.
    """
    if not math.isfinite(loss):
        raise TrainingError(
            f"The loss at step {step} is {loss}. Lower learning_rate, and look for values far outside the rest of "
            "their column."
        )


@dataclass(frozen=True)
class HeldOut:
    """Observed cells that training does not see, to choose the best network by.

    Parameters
    ----------
    rows, mask : Tensor of shape (n_rows, n_places)
        Rows, and 1 where a network may look.
    hidden : Tensor of shape (n_rows, n_places)
        1 where the network is asked.
    uniforms : Tensor of shape (n_rows, n_places)
        Noise, the same at every time.
    """

    rows: Tensor
    mask: Tensor
    hidden: Tensor
    uniforms: Tensor

    def error(self, fill: Callable[[Tensor, Tensor, Tensor], Tensor]) -> float:
        """Return the root mean squared error of what `fill` makes of (rows, mask, uniforms); 0 without cells."""
        shown = self.rows * self.mask
        missed = (fill(shown, self.mask, self.uniforms) - self.rows).square()
        return masked_mean(missed, self.hidden).sqrt().item()


def hold_out(
    rows: Tensor, owner: Tensor, share: float, generator: torch.Generator, most: int = 4096
) -> tuple[Tensor, HeldOut]:
    """Set some observed cells aside.

    Parameters
    ----------
    rows : Tensor of shape (n_rows, n_places)
        NaN where missing.
    owner : Tensor of shape (n_places,)
        Which column each place belongs to.
    share : float
        Share of the observed cells to set aside; none when there are few rows.
    generator : torch.Generator
        Chooses them.
    most : int, default=4096
        Rows to judge by, at most.

    Returns
    -------
    Tensor of shape (n_rows, n_places)
        1 for the observed cells that are left to learn from.
    HeldOut
        The others.

    Examples
    --------
    >>> import torch
    >>> left, held = hold_out(torch.ones(100, 3), torch.arange(3), 0.1, torch.Generator().manual_seed(0))
    >>> int(left.sum() + held.hidden.sum())
    300
    """
    observed = ~rows.isnan()
    hidden = hide_columns(rows, owner, share if len(rows) >= FEW_ROWS else 0.0, generator) & observed
    left = (observed & ~hidden).float()
    judged = hidden.any(1).nonzero()[:most, 0]
    some = rows[judged].nan_to_num()
    return left, HeldOut(some, left[judged], hidden[judged].float(), torch.rand(some.shape, generator=generator))


class BestAverage:
    """The running average of a network's weights, as it was when it scored best.

    Parameters
    ----------
    network : nn.Module
        The network in training.
    score : callable
        Gives the error of a network, here on cells that training does not see. Of equal scores the latest wins.
    every : int, default=200
        Steps from one score to the next.
    decay : float, default=0.999
        Share of the average that a step keeps; less in the first steps.

    Notes
    -----
    The networks of an adversarial game circle around their balance, and some games drift away from it. The average
    of the weights is nearer to the balance than the weights (Yazıcı et al. 2019), and the score ends the drift.
    """

    def __init__(
        self, network: nn.Module, score: Callable[[nn.Module], float], every: int = 200, decay: float = 0.999
    ) -> None:
        self._network, self._score, self._every, self._decay = network, score, every, decay
        self._average = copy.deepcopy(network).requires_grad_(False)
        self._best, self._lowest, self._step = self._average, math.inf, 0
        self._look()

    def update(self) -> None:
        """Take the step that the network has just made into the average, and score it now and then."""
        self._step += 1
        share = 1 - min(self._decay, self._step / (self._step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self._average.parameters()), list(self._network.parameters()), share)
            for mine, theirs in zip(self._average.buffers(), self._network.buffers(), strict=True):
                mine.copy_(theirs)
        if self._step % self._every == 0:
            self._look()

    def _look(self) -> None:
        with torch.no_grad():
            score = self._score(self._average)
        if score <= self._lowest:
            self._best, self._lowest = copy.deepcopy(self._average), score

    def best(self) -> nn.Module:
        """Return the average that scored best, the last one included."""
        self._look()
        return self._best


class NetworkBaseline(CodedBaseline):
    """A baseline that trains networks on rows of numbers: scaled to [0, 1], levels as zeros and ones, NaN in holes.

    A subclass trains in `_train` and fills in `_complete`. Networks run on the CPU in float32.
    """

    #: What the parameters that all of them have may be.
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
        """Return what was learned from rows of shape (n_rows, n_places); `owner` is each place's column."""

    @abc.abstractmethod
    def _complete(self, rows: Tensor, uniforms: Tensor) -> Tensor:
        """Return rows without a hole, given uniform numbers of their shape; observed places may differ."""

    def _fit_rows(self, rows: FloatArray, owner: Array) -> None:
        seed = seed_from(self.random_state)
        with one_thread_when_small(min(len(rows), self.batch_size) * rows.shape[1]):
            network = self._train(torch.from_numpy(rows).float(), torch.from_numpy(owner), Streams(seed))
        self.seed_, self.network_ = seed, network

    def _fill_rows(self, rows: FloatArray) -> FloatArray:
        return self._completed_rows(rows, self._complete, self.seed_)

    @staticmethod
    def _completed_rows(rows: FloatArray, complete: Callable[[Tensor, Tensor], Tensor], seed: int) -> FloatArray:
        """Complete rows, some at a time, with noise that depends on the seed and on each row alone."""
        filled = np.empty_like(rows)
        for part in np.array_split(np.arange(len(rows)), math.ceil(rows.size / CELLS_AT_ONCE)):
            uniforms = torch.from_numpy(row_uniforms(rows[part], seed)).float()
            with torch.inference_mode(), one_thread_when_small(uniforms.numel()):
                filled[part] = complete(torch.from_numpy(rows[part]).float(), uniforms).double().numpy()
        return filled

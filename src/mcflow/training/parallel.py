"""Several processes fit one model: each learns from its part of every batch, and all take the same step.

How to use it. A fit is shared only inside a block of `joined`, never by accident:

    torch.distributed.init_process_group("gloo")    # Ray Train and others have done this already
    with joined() as workers:
        imputer.fit(table)                          # the same table in every process
        if workers.is_first:
            imputer.save("model.mcflow")

What holds inside the block.

- Every process calls the same fits, in the same order, with the same table, settings and seed. A seed that is not
  given is the first worker's; tables or settings that differ are an error on all.
- All draw the same random numbers for the whole batch, each computes the gradient of its rows, and the sum of these
  moves the weights. So N workers have the loss curve of one, to rounding, and a block of one worker is the fit without
  the block, bit for bit. A batch is not larger with more workers.
- The clock and the held-out error by which a fit ends are the same for all, so all end at the same step.
- Only the first worker shows progress and writes checkpoints; only its folder is read when a fit goes on. All others
  get its state at the beginning, and the fitted model at the end: every process has the same imputer after `fit`.
- An error in one process ends the fit of the others with `TrainingError`, when that process leaves the block or dies.
- Fits of the preset "paper" are refused. Those of images are not shared: each process does all of its own.
"""

from __future__ import annotations

__all__ = ["ALONE", "GradientMean", "Workers", "current", "joined", "torchrun"]

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, distributed

from mcflow.errors import ParameterError, TrainingError
from mcflow.training.shared import SharedSlots

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Thing = TypeVar("Thing")

#: Keeps the length of a gradient above zero.
TINY = 1e-6

#: How long a worker waits for the others; those that died are noticed at once.
TIMEOUT = timedelta(hours=2)


class Workers:
    """The processes that fit a model together, as one of them sees them.

    Parameters
    ----------
    group : ProcessGroup, optional
        Of torch; without one there is a single worker, and all methods do nothing.

    Attributes
    ----------
    number : int
        How many there are.
    rank : int
        Which one this is, from 0.

    Examples
    --------
    >>> ALONE.number, ALONE.is_first, ALONE.from_first(3), ALONE.gather("a")
    (1, True, 3, ['a'])
    """

    def __init__(self, group: ProcessGroup | None = None) -> None:
        self._group = group
        self._leaving: list[Callable[[], None]] = []
        self.number = 1 if group is None else distributed.get_world_size(group)
        self.rank = 0 if group is None else distributed.get_rank(group)

    @property
    def is_first(self) -> bool:
        """Tell whether this is the one that writes and prints."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Tell whether there are no others."""
        return self.number == 1

    def part(self, n_rows: int) -> slice:
        """Return which rows of a batch are this worker's; there may be none.

        Parameters
        ----------
        n_rows : int
            Of the batch.

        Returns
        -------
        slice

        Examples
        --------
        >>> ALONE.part(5)
        slice(0, 5, None)
        """
        ends = [n_rows * k // self.number for k in (self.rank, self.rank + 1)]
        return slice(*ends)

    def from_first(self, thing: Thing) -> Thing:
        """Return what the first worker has given.

        Parameters
        ----------
        thing : object
            Anything that can be pickled; what others give is not looked at.

        Returns
        -------
        object
        """
        if self.alone:
            return thing
        things = [thing if self.is_first else None]
        with self.in_touch():
            distributed.broadcast_object_list(things, 0, group=self._group, device=torch.device("cpu"))
        return things[0]  # type: ignore[return-value]

    def gather(self, thing: Thing) -> list[Thing]:
        """Return what all workers have given, in their order.

        Parameters
        ----------
        thing : object
            Anything that can be pickled.

        Returns
        -------
        list
        """
        found: list[Any] = [thing] * self.number
        if not self.alone:
            with self.in_touch():
                distributed.all_gather_object(found, thing, group=self._group)
        return found

    def add_up(self, numbers: Tensor) -> None:
        """Put the sum over all workers in place of each number; all get the same bits.

        Parameters
        ----------
        numbers : Tensor
            Of the same shape and type in all of them.
        """
        if not self.alone:
            with self.in_touch():
                distributed.all_reduce(numbers, group=self._group)

    def on_leaving(self, act: Callable[[], None]) -> None:
        """Have something done when this worker leaves the block of `joined`, whether the fit went well or not.

        Parameters
        ----------
        act : callable
            Without parameters.
        """
        self._leaving.append(act)

    def leave(self) -> None:
        """Do what was to be done when this worker leaves."""
        while self._leaving:
            self._leaving.pop()()

    @contextlib.contextmanager
    def in_touch(self) -> Iterator[None]:
        """Say that the others were lost when something inside the block fails.

        Yields
        ------
        None

        Raises
        ------
        TrainingError
            In place of RuntimeError.
        """
        try:
            yield
        except RuntimeError as error:
            raise TrainingError(
                f"Worker {self.rank + 1} of {self.number} lost the others: one of them failed or was stopped, and says "
                "why itself. With checkpoints the fit can go on from the last one."
            ) from error


#: A single process.
ALONE = Workers()

_CURRENT: ContextVar[Workers] = ContextVar("workers", default=ALONE)


def current() -> Workers:
    """Return the workers of the innermost block of `joined`; a single one outside of all.

    Returns
    -------
    Workers
    """
    return _CURRENT.get()


@contextlib.contextmanager
def joined(timeout: timedelta = TIMEOUT) -> Iterator[Workers]:
    """Share the fits inside the block with all processes of torch's default process group.

    Parameters
    ----------
    timeout : timedelta
        After which a worker that waits for the others gives up.

    Yields
    ------
    Workers
        A single one where there is no process group, or one of a single process.

    Examples
    --------
    >>> with joined() as workers:
    ...     workers.number
    1
    """
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        yield ALONE
        return
    # A group of its own: leaving the block ends it, and with it the waiting of the others.
    group = distributed.new_group(timeout=timeout, backend=_backend())
    workers = Workers(group)
    token = _CURRENT.set(workers)
    try:
        yield workers
        workers.gather(None)  # nobody leaves while another one still needs it
    finally:
        _CURRENT.reset(token)
        workers.leave()
        workers._group = None
        distributed.destroy_process_group(group)


@contextlib.contextmanager
def torchrun(device: str = "auto") -> Iterator[Workers]:
    """Start torch's process group as torchrun's environment says, and join it.

    Parameters
    ----------
    device : str
        Where to compute: unless it is "cpu", each worker of a machine has a graphics card of its own, if there are any.

    Yields
    ------
    Workers
        A single one when the process was not started by torchrun, or as the only one.

    Raises
    ------
    ParameterError
        When a machine has more workers than graphics cards.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "TORCHELASTIC_RUN_ID" not in os.environ:
        yield ALONE
        return
    # Builds of torch without these parts fit in one process.
    from torch.distributed.rendezvous import rendezvous

    from mcflow.training.meeting import fresh_store

    if device != "cpu" and torch.cuda.is_available():
        _take_card(int(os.environ["LOCAL_RANK"]), torch.cuda.device_count())
    found, rank, number = next(rendezvous("env://", timeout=TIMEOUT))
    store = fresh_store(found, rank, number)
    distributed.init_process_group(_backend(), store=store, rank=rank, world_size=number, timeout=TIMEOUT)
    try:
        with joined() as workers:
            yield workers
    finally:
        distributed.destroy_process_group()


def _take_card(place: int, number: int) -> None:
    if place >= number:
        raise ParameterError(
            f"This machine has {number} graphics cards, and more workers than that. Start torchrun with "
            f"--nproc-per-node {number}, or compute on the processor with --device cpu."
        )
    torch.cuda.set_device(place)


def _backend() -> str:
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


class GradientMean:
    """The mean of all workers' gradients.

    Parameters
    ----------
    workers : Workers
        More than one.
    parameters : sequence of Parameter
        Of the same shapes in all of them.

    Notes
    -----
    Workers of one machine add gradients up in shared memory, which takes a fraction of the time that a connection to
    the same machine does. Others send them in one piece.
    """

    def __init__(self, workers: Workers, parameters: Sequence[Tensor]) -> None:
        self._workers, self._parameters = workers, list(parameters)
        self._sizes = [weight.numel() for weight in self._parameters]
        self._slots = SharedSlots.open(workers, sum(self._sizes)) if self._parameters[0].device.type == "cpu" else None

    def average(self, largest: float, weight: float, *numbers: float) -> list[float]:
        """Put the sum of the gradients over the sum of the weights in place of the gradients.

        Parameters
        ----------
        largest : float
            Norm of the mean; a longer one is made as short.
        weight : float
            Of this worker's gradients, which are multiplied by it already; without any they count as zero.
        *numbers : float
            To be added up too.

        Returns
        -------
        list of float
            The sum of the weights and those of the numbers. If all weights are zero, so are the gradients.
        """
        if self._slots is None:
            flat = torch.cat([*self._gradients(), self._parameters[0].new_tensor([weight, *numbers])])
            flat = flat if flat.device.type == "cuda" else flat.cpu()
            self._workers.add_up(flat)
            sums: list[float] = flat[-1 - len(numbers) :].tolist()
        else:
            torch.cat(list(self._gradients()), out=self._slots.mine())
            with self._workers.in_touch():
                sums = self._slots.meet([weight, *numbers])
            flat = self._slots.total()
        flat = flat[: sum(self._sizes)]
        length = float(torch.linalg.vector_norm(flat))
        flat.mul_(min(1 / (sums[0] or 1.0), largest / (length + TINY)))
        for weights, part in zip(self._parameters, flat.split(self._sizes), strict=True):
            weights.grad = part.view(weights.shape).to(weights.device)
        return sums

    def _gradients(self) -> Iterator[Tensor]:
        for weight in self._parameters:
            yield (torch.zeros_like(weight) if weight.grad is None else weight.grad).flatten()

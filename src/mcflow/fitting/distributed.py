"""Work shared by threads of a process, and by several processes that fit one model.

Processes share the fits inside a block of `joined`: all make the same fits in the same order, with the same table and
settings, and with the seed, the clock and the validation error of the first worker. All draw the same random numbers
for the whole batch. Each computes the gradient of its rows, and their sum updates the weights, so that N workers have
the loss curve of one, up to rounding. When a process fails, the others raise `TrainingError`.
"""

from __future__ import annotations

__all__ = [
    "ALONE",
    "GradientMean",
    "Workers",
    "current",
    "fresh_store",
    "joined",
    "kernels_on_all_threads",
    "kernels_on_one_thread",
    "map_on_threads",
    "n_threads",
    "one_thread_when_small",
    "share_out",
    "thread_pool",
    "torchrun",
]

import contextlib
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, distributed

from mcflow.errors import ParameterError, TrainingError
from mcflow.fitting.shared_memory import SharedSlots
from mcflow.typing import Array

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import ProcessGroup, Store

Thing = TypeVar("Thing")
Part = TypeVar("Part")
Found = TypeVar("Found")

SMALL_BATCH = 10_000  # cells of a batch below which a second thread does not help, even on an idle machine
TIMEOUT = timedelta(hours=2)  # maximum time a worker waits for the others; dead workers are noticed at once
STORE_PAUSE = 0.02  # seconds between two reads of the store when processes meet


class Workers:
    """The processes that fit a model together, from the view of one of them."""

    def __init__(self, group: ProcessGroup | None = None) -> None:
        self._group, self._leaving = group, contextlib.ExitStack()
        self.number = 1 if group is None else distributed.get_world_size(group)
        self.rank = 0 if group is None else distributed.get_rank(group)

    @property
    def is_first(self) -> bool:
        """Whether this worker writes files and prints."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there are no other workers."""
        return self.number == 1

    def part(self, n_rows: int) -> slice:
        """Return the rows of a batch that belong to this worker, possibly none."""
        return slice(*(n_rows * k // self.number for k in (self.rank, self.rank + 1)))

    def from_first(self, thing: Thing) -> Thing:
        """Return the object that the first worker passes."""
        if self.alone:
            return thing
        things = [thing if self.is_first else None]
        with self.in_touch():
            distributed.broadcast_object_list(things, 0, group=self._group, device=torch.device("cpu"))
        return things[0]  # type: ignore[return-value]

    def gather(self, thing: Thing) -> list[Thing]:
        """Return the objects that all workers pass, in the order of their ranks."""
        found: list[Any] = [thing] * self.number
        if not self.alone:
            with self.in_touch():
                distributed.all_gather_object(found, thing, group=self._group)
        return found

    def add_up(self, numbers: Tensor) -> None:
        """Replace each number by its sum over all workers, the same bits for all."""
        if not self.alone:
            with self.in_touch():
                distributed.all_reduce(numbers, group=self._group)

    def on_leaving(self, act: Callable[[], None]) -> None:
        """Register a function to call when this worker leaves the block of `joined`, however it leaves."""
        self._leaving.callback(act)

    def leave(self) -> None:
        """Call the functions registered by `on_leaving`."""
        self._leaving.close()

    @contextlib.contextmanager
    def in_touch(self) -> Iterator[None]:
        """Convert a failure of communication inside the block to `TrainingError`."""
        try:
            yield
        except RuntimeError as error:
            raise TrainingError(
                f"Worker {self.rank + 1} of {self.number} lost the others: one of them failed or was stopped; see its "
                "own message. A fit with checkpoints can resume from the last one."
            ) from error


ALONE = Workers()  # the only worker of a fit that is not shared

_CURRENT: ContextVar[Workers] = ContextVar("workers", default=ALONE)


def current() -> Workers:
    """Return the workers of the innermost block of `joined`, or `ALONE` outside."""
    return _CURRENT.get()


@contextlib.contextmanager
def joined(timeout: timedelta = TIMEOUT) -> Iterator[Workers]:
    """Share the fits inside the block among all processes of torch's default process group."""
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        yield ALONE
        return
    # A separate group: destroying it when the block ends also ends the waiting of the others.
    group = distributed.new_group(timeout=timeout, backend=_backend())
    workers = Workers(group)
    token = _CURRENT.set(workers)
    try:
        yield workers
        workers.gather(None)  # no worker leaves while another still needs it
    finally:
        _CURRENT.reset(token)
        workers.leave()
        workers._group = None
        distributed.destroy_process_group(group)


@contextlib.contextmanager
def torchrun(device: str = "auto") -> Iterator[Workers]:
    """Start torch's process group from the environment of torchrun, and join it."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "TORCHELASTIC_RUN_ID" not in os.environ:
        yield ALONE
        return
    from torch.distributed.rendezvous import rendezvous  # missing in builds of torch for a single process

    if device != "cpu" and torch.cuda.is_available():
        place, number = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if place >= number:
            raise ParameterError(
                f"This machine has {number} graphics cards but more workers than that. Start torchrun with "
                f"--nproc-per-node {number}, or compute on the CPU with --device cpu."
            )
        torch.cuda.set_device(place)
    found, rank, number = next(rendezvous("env://", timeout=TIMEOUT))
    store = fresh_store(found, rank, number)
    distributed.init_process_group(_backend(), store=store, rank=rank, world_size=number, timeout=TIMEOUT)
    try:
        with joined() as workers:
            yield workers
    finally:
        distributed.destroy_process_group()


def fresh_store(store: Store, rank: int, number: int) -> Store:
    """Return an empty part of a store that all processes of the same start agree on.

    torchrun keeps its store when it restarts workers, so that gloo would find the addresses of dead processes in it.
    Each process therefore writes a random word. The first publishes the words that it reads until the others have
    acknowledged its own; the others wait until they find their own word among the published ones.
    """
    from torch.distributed.distributed_c10d import PrefixStore

    own = secrets.token_hex(8)
    store.set(f"mcflow/word/{rank}", own)
    while True:
        if rank == 0:
            words = [store.get(f"mcflow/word/{k}").decode() for k in range(number)]
            store.set("mcflow/words", " ".join(words))
            answers = [f"mcflow/answer/{k}" for k in range(1, number)]
            if store.check(answers) and all(store.get(name).decode() == own for name in answers):
                return PrefixStore(own, store)
        else:
            first, *others = store.get("mcflow/words").decode().split()
            if own in others:
                store.set(f"mcflow/answer/{rank}", first)
                return PrefixStore(first, store)
        time.sleep(STORE_PAUSE)


def _backend() -> str:
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


class GradientMean:
    """Average the gradients of all workers, in the shared memory of one machine or by sending them as one tensor."""

    def __init__(self, workers: Workers, parameters: Sequence[Tensor]) -> None:
        self._workers, self._parameters = workers, list(parameters)
        self._sizes = [weight.numel() for weight in self._parameters]
        self._slots = SharedSlots.open(workers, sum(self._sizes)) if self._parameters[0].device.type == "cpu" else None

    def average(self, largest: float, weight: float, *numbers: float) -> list[float]:
        """Replace the gradients by their weighted mean, clipped to the norm `largest`; return the sums of numbers."""
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
        flat.mul_(min(1 / (sums[0] or 1.0), largest / (length + 1e-6)))
        for weights, part in zip(self._parameters, flat.split(self._sizes), strict=True):
            weights.grad = part.view(weights.shape).to(weights.device)
        return sums

    def _gradients(self) -> Iterator[Tensor]:
        for weight in self._parameters:
            yield (torch.zeros_like(weight) if weight.grad is None else weight.grad).flatten()


@contextlib.contextmanager
def _kernels_on(number: int) -> Iterator[None]:
    """Run the kernels of the block on some threads, and restore the number of threads afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread_when_small(n_cells: int) -> contextlib.AbstractContextManager[None]:
    """Run the block on one thread if its batches are small: a second thread makes it slower when cores are busy."""
    return _kernels_on(1 if n_cells < SMALL_BATCH else torch.get_num_threads())


_THREADS: ContextVar[int] = ContextVar("threads", default=0)


def n_threads() -> int:
    """Return the number of threads for work in parallel, also where kernels use only one."""
    return _THREADS.get() or torch.get_num_threads()


@contextlib.contextmanager
def kernels_on_one_thread() -> Iterator[None]:
    """Run the kernels of the block on one thread each, because they are short; `thread_pool` still uses all threads."""
    token = _THREADS.set(n_threads())
    try:
        with _kernels_on(1):
            yield
    finally:
        _THREADS.reset(token)


def kernels_on_all_threads() -> contextlib.AbstractContextManager[None]:
    """Undo `kernels_on_one_thread` for a block with large kernels."""
    return _kernels_on(n_threads())


@contextlib.contextmanager
def thread_pool(at_most: int) -> Iterator[Callable[[Callable[[Part], Found], Sequence[Part]], list[Found]]]:
    """Yield a function that maps over parts, each part on one thread; a pool of one leaves the kernels theirs.

    This uses the cores better than splitting each kernel among threads, and numpy code runs in parallel too.
    """
    size = min(n_threads(), at_most)
    if size < 2:
        yield lambda function, parts: [function(part) for part in parts]
        return
    threads = ThreadPoolExecutor(size, initializer=torch.set_num_threads, initargs=(1,))
    with _kernels_on(torch.get_num_threads()), threads as pool:
        yield lambda function, parts: list(pool.map(function, parts))


def map_on_threads(function: Callable[[Part], Found], parts: Sequence[Part]) -> list[Found]:
    """Apply a function to parts in parallel, each part on one thread."""
    with thread_pool(len(parts)) as apply:
        return apply(function, parts)


def share_out(rows: Array, at_most: int) -> list[Array]:
    """Split rows (n_rows,) into parts for the threads, each with at most `at_most` rows."""
    size = max(1, min(at_most, math.ceil(len(rows) / n_threads())))
    return [rows[first : first + size] for first in range(0, len(rows), size)]

"""Measure the fraction of the machine's matrix-multiply rate that training and transform reach.

    python bench/speed/matmul.py [--rows 100000] [--train-rows 24000] [--epochs 4] [--boosted-rows 4000] [--dry]

The rate of float32 products, the epochs and the fills are measured in one run, on a made table like Letter. A profile
shows where the rest of the time goes, and loops of boosted trees fill some of the same rows for comparison.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import harness
from harness import Table
from mcflow import MCFlowImputer
from mcflow.baselines import make
from mcflow.fitting.callbacks import Callback
from mcflow.masked.network import MaskedNetwork

#: Kinds of operations, with parts of their names. The first kind that fits is used.
KINDS: dict[str, tuple[str, ...]] = {
    "encoding": ("mcflow::encode",),
    "optimiser": ("Optimizer.", "_fused_adam", "_foreach_", "linalg_vector_norm"),
    "softmax and cross-entropy": ("CrossEntropy", "softmax", "argmax"),
    "matrix multiplies": ("mm", "MmBackward"),  # mm, addmm, bmm, baddbmm
    "activations and norms": ("gelu", "layer_norm", "LayerNorm"),
    "choosing rows and cells": ("aten::index", "aten::_index", "Index", "nonzero", "rand", "aten::_unsafe_index"),
}

#: Operations of other names.
OTHER = "other kernels"
#: The time between operations, in which trees are evaluated too.
BETWEEN = "Python, numpy and trees"
#: The work around the model.
FRAMES = "reading and writing frames"

#: Epochs to warm up.
WARM_UP = 1
#: Epochs that are profiled.
PROFILED = 2


def kind_of(chain: Sequence[str]) -> str:
    """Return the kind of an operation from its name and those of the operations around it."""
    for kind, parts in KINDS.items():
        if any(part in name for name in chain for part in parts):
            return kind
    return OTHER


def shares(seconds: dict[str, float], total: float) -> dict[str, float]:
    """Return the fraction of each part, the largest first; the unexplained rest is the time between operations."""
    rest = total - sum(seconds.values())
    parts = seconds | {BETWEEN: seconds.get(BETWEEN, 0.0) + max(rest, 0.0)}
    return {kind: round(parts[kind] / total, 3) for kind in sorted(parts, key=lambda k: -parts[k])}


def parts_of_training(table: Table) -> dict[str, float]:
    """Return the fraction of an epoch that each kind of operation takes, on one thread."""
    listener = _Profiler()
    with _one_thread(), _marked():
        harness.watch_fit(table, listener)
    return shares(_seconds_by_kind(listener.profile), listener.seconds)


def parts_of_transform(imputer: MCFlowImputer, table: Table) -> dict[str, float]:
    """Return the fraction of filling that each kind of operation takes, on one thread."""
    fill, inside = imputer.model_.fill, [0.0]

    def timed(values: Any) -> Any:
        start = time.perf_counter()
        filled = fill(values)
        inside[0] += time.perf_counter() - start
        return filled

    imputer.model_.fill = timed  # type: ignore[method-assign]
    try:
        with _one_thread(), _marked():
            imputer.transform(table)
            inside[0] = 0.0
            with profile(activities=[ProfilerActivity.CPU]) as profiled:
                start = time.perf_counter()
                imputer.transform(table)
                total = time.perf_counter() - start
    finally:
        imputer.model_.fill = fill  # type: ignore[method-assign]
    return shares(_seconds_by_kind(profiled) | {FRAMES: total - inside[0]}, total)


class _Profiler(Callback):
    """Profile some epochs, then end the fit."""

    def __init__(self) -> None:
        self.profile = profile(activities=[ProfilerActivity.CPU])
        self.seconds = 0.0

    def on_epoch_end(self, trainer: Any) -> None:
        if trainer.epoch == WARM_UP:
            self.profile.start()
            self.seconds = -time.perf_counter()
        elif trainer.epoch == WARM_UP + PROFILED:
            self.seconds += time.perf_counter()
            self.profile.stop()
            raise harness.Enough


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Run on one thread, since the profiler records the operations of the main thread only."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def _marked() -> Iterator[None]:
    """Mark the operations of the encoding for the profiler; their names alone do not tell."""
    encode: Callable[..., Any] = MaskedNetwork.encode

    def marked(*arguments: Any) -> Any:
        with record_function("mcflow::encode"):
            return encode(*arguments)

    MaskedNetwork.encode = marked  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        MaskedNetwork.encode = encode  # type: ignore[method-assign]


def _seconds_by_kind(profiled: Any) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for event in profiled.events():
        chain, around = [event.name], event.cpu_parent
        while around is not None:
            chain.append(around.name)
            around = around.cpu_parent
        kind = kind_of(chain)
        seconds[kind] = seconds.get(kind, 0.0) + event.self_cpu_time_total / 1e6
    return seconds


#: Rows, inner size and columns of the matrix products whose rate is measured; the best is used.
SHAPES = ((2048, 384, 384), (1024, 1024, 1024))

#: Matrix products of a training step per product of a forward pass; the backward pass has two.
TRAINING_PRODUCTS = 3

#: Fraction of the rate that transform should reach.
ASKED_SHARE = 0.4
#: Speed of transform that is asked for, relative to a loop of boosted trees.
ASKED_RATIO = 15.0

#: Maximum number of rows that a loop of boosted trees fills.
BOOSTED_FILLS = 20_000


def multiply_adds(weights: Iterable[torch.Tensor]) -> int:
    """Return the multiply-adds of one row through layers of shape (n_members, n_in, n_out); biases have n_in = 1."""
    return sum(weight.numel() for weight in weights if weight.shape[-2] > 1)


def reached(n_multiply_adds: float, seconds: float, rate: float) -> float:
    """Return the fraction of a rate, in multiply-adds per second, that a computation reached."""
    return n_multiply_adds / seconds / rate


@contextlib.contextmanager
def threads(n_threads: int) -> Iterator[None]:
    """Use a number of threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def product_rate(shape: tuple[int, int, int]) -> float:
    """Return the multiply-adds per second of the fastest of many equal products."""
    n_rows, n_inner, n_columns = shape
    left, right = torch.ones(n_rows, n_inner), torch.ones(n_inner, n_columns)
    out = torch.empty(n_rows, n_columns)
    return n_rows * n_inner * n_columns / harness.best_of(lambda: torch.mm(left, right, out=out))


def rates() -> dict[str, dict[str, float]]:
    """Return the rate of every shape in GFLOP/s, by number of threads."""
    found = {}
    for n_threads in sorted({1, torch.get_num_threads()}):
        with threads(n_threads):
            found[str(n_threads)] = {"x".join(map(str, s)): round(2e-9 * product_rate(s), 1) for s in SHAPES}
    return found


def boosted_loops() -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    trees = HistGradientBoostingRegressor(max_iter=200, random_state=0)
    return {
        "`mcflow.baselines`, boosted, 2 rounds": make("boosted", random_state=0),
        "IterativeImputer, boosted trees, 4 rounds": IterativeImputer(trees, max_iter=4, random_state=0),
    }


def boosted_speeds(train: Table, test: Table) -> dict[str, int]:
    """Return the rows per second that each loop of boosted trees fills."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=UserWarning)  # four rounds are not to convergence
        for name, loop in boosted_loops().items():
            loop.fit(train)
            found[name] = round(len(test) / harness.best_of(lambda loop=loop: loop.transform(test)))  # type: ignore[misc]
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    table = harness.letter_like(options.rows)
    train = harness.letter_like(options.train_rows, seed=1)
    epoch_s = harness.epoch_seconds(train, options.epochs)
    imputer = MCFlowImputer(max_epochs=1, random_state=0).fit(train)
    transform_s = harness.best_of(lambda: imputer.transform(table), 5.0)
    speed = rates()
    rate = 0.5e9 * max(speed[str(torch.get_num_threads())].values())
    model: Any = imputer.model_
    once = multiply_adds(model.network.weights)
    n_filled = int(np.isnan(table).any(axis=1).sum())  # whole rows do not reach the networks
    return {
        "rows": options.rows,
        "columns": table.shape[1],
        "train_rows": options.train_rows,
        "width": imputer.config_.width,
        "n_members": imputer.config_.n_members,
        "batch_size": imputer.config_.batch_size,
        "multiply_adds_per_row": once,
        "gflops": speed,
        "epoch_s": round(epoch_s, 4),
        "training_share": round(reached(TRAINING_PRODUCTS * once * len(train), epoch_s, rate), 3),
        "transform_s": round(transform_s, 4),
        "transform_share": round(reached(once * n_filled, transform_s, rate), 3),
        "transform_rows_per_s": round(len(table) / transform_s),
        "asked_share": ASKED_SHARE,
        "asked_ratio": ASKED_RATIO,
        "training_parts": parts_of_training(train),
        "transform_parts": parts_of_transform(imputer, table),
        "boosted_rows_per_s": boosted_speeds(train[: options.boosted_rows], table[:BOOSTED_FILLS]),
    }


if __name__ == "__main__":
    harness.main("matmul", __doc__, measure, rows=100_000, train_rows=24_000, epochs=4, boosted_rows=4_000)

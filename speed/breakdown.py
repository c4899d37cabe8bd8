"""Where the time of a fit and of a transform goes, by kind of operation."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from mcflow import MCFlowImputer
from mcflow.latent.masked import MaskedMapper
from mcflow.training import Callback
from passes import Enough, watch_fit
from synthetic import Table

#: Kinds of work, each with parts of the names of what belongs to it. The first kind that fits counts.
KINDS: dict[str, tuple[str, ...]] = {
    "encoding": ("mcflow::encode",),
    "optimiser": ("Optimizer.", "_fused_adam", "_foreach_", "linalg_vector_norm"),
    "softmax and cross-entropy": ("CrossEntropy", "softmax", "argmax"),
    "matrix multiplies": ("mm", "MmBackward"),  # mm, addmm, bmm, baddbmm
    "activations and norms": ("gelu", "layer_norm", "LayerNorm"),
    "choosing rows and cells": ("aten::index", "aten::_index", "Index", "nonzero", "rand", "aten::_unsafe_index"),
}

#: Ops of other names, the time between kernels, and the work around the model.
OTHER, BETWEEN, FRAMES = "other kernels", "Python and numpy", "reading and writing frames"

#: Passes to warm up, and passes that are profiled.
WARM_UP, PROFILED = 1, 2


def kind_of(chain: Sequence[str]) -> str:
    """Return the kind of an op from its name and those of the ops around it."""
    for kind, parts in KINDS.items():
        if any(part in name for name in chain for part in parts):
            return kind
    return OTHER


def shares(seconds: dict[str, float], total: float) -> dict[str, float]:
    """Return each part's share of the total, the largest first; what no part explains is the time between kernels."""
    rest = total - sum(seconds.values())
    parts = seconds | {BETWEEN: seconds.get(BETWEEN, 0.0) + max(rest, 0.0)}
    return {kind: round(parts[kind] / total, 3) for kind in sorted(parts, key=lambda k: -parts[k])}


def of_training(table: Table) -> dict[str, float]:
    """Return what share of a pass over the rows each kind of work takes."""
    listener = _Profiler()
    with _marked():
        watch_fit(table, listener)
    return shares(_by_kind(listener.profile), listener.seconds)


def of_transform(imputer: MCFlowImputer, table: Table) -> dict[str, float]:
    """Return what share of filling a table each kind of work takes, on one thread: the profiler sees no others."""
    threads = torch.get_num_threads()
    fill, inside = imputer.model_.fill, [0.0]

    def timed(values: Any) -> Any:
        start = time.perf_counter()
        filled = fill(values)
        inside[0] += time.perf_counter() - start
        return filled

    imputer.model_.fill = timed  # type: ignore[method-assign]
    torch.set_num_threads(1)
    try:
        imputer.transform(table)
        inside[0] = 0.0
        with _marked(), profile(activities=[ProfilerActivity.CPU]) as profiled:
            start = time.perf_counter()
            imputer.transform(table)
            total = time.perf_counter() - start
    finally:
        torch.set_num_threads(threads)
        imputer.model_.fill = fill  # type: ignore[method-assign]
    return shares(_by_kind(profiled) | {FRAMES: total - inside[0]}, total)


class _Profiler(Callback):
    """Profile some passes over the rows, then end the fit."""

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
            raise Enough


@contextlib.contextmanager
def _marked() -> Iterator[None]:
    """Let the profiler see which ops belong to the encoding: their names alone do not tell."""
    encode: Callable[..., Any] = MaskedMapper.encode

    def marked(*arguments: Any) -> Any:
        with record_function("mcflow::encode"):
            return encode(*arguments)

    MaskedMapper.encode = marked  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        MaskedMapper.encode = encode  # type: ignore[method-assign]


def _by_kind(profiled: Any) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for event in profiled.events():
        chain, around = [event.name], event.cpu_parent
        while around is not None:
            chain.append(around.name)
            around = around.cpu_parent
        kind = kind_of(chain)
        seconds[kind] = seconds.get(kind, 0.0) + event.self_cpu_time_total / 1e6
    return seconds

"""The contribution of ingredients that change the time of a fit only: each is timed beside what it replaces."""

from __future__ import annotations

__all__ = ["SPEEDS", "Speed", "SpeedTask", "autograd_gradients", "run_speeds", "time_barrier", "time_gradients"]

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, ClassVar

from mcflow.errors import McflowError, TrainingError
from mcflow_bench.machine import machine, thread_variables, versions
from mcflow_bench.store import Row, Store
from mcflow_bench.suites import Task

if TYPE_CHECKING:
    from torch import Tensor

    from mcflow.paper.networks import LatentMapper, RealNVP

#: Seconds of a step with the ingredient and without it, of one round.
Times = tuple[float, float]

#: Columns of the table whose fit is timed, as many as Letter has.
N_COLUMNS = 16
#: Weights of H in the default preset for a table of that width.
N_WEIGHTS = 550_000
#: Steps per round.
N_STEPS = 100
#: Seconds after which processes that do not answer are ended.
TIME_LIMIT = 300


@dataclass(frozen=True)
class Speed:
    """An ingredient and what it replaces, with a function that times both in a number of rounds."""

    label: str
    against: str
    measure: Callable[[int], list[Times]]


@dataclass(frozen=True)
class SpeedTask(Task):
    """The settings of one comparison of times."""

    kind: ClassVar[str] = "speed"
    version: ClassVar[Mapping[str, int]] = {"speed_protocol": 1}

    speed: str  # a key of `SPEEDS`
    rounds: int

    @property
    def name(self) -> str:
        """Return a readable file name that differs for every key."""
        return f"{self.speed}-{self.key[:12]}"

    @property
    def words(self) -> str:
        """Return the description for a line of progress."""
        return f"time of {SPEEDS[self.speed].label}, {self.rounds} rounds"


def autograd_gradients(
    flow: RealNVP, mapper: LatentMapper, rows: Tensor, weights: Tensor, likelihood_weight: float
) -> tuple[Tensor, Tensor]:
    """Do the same as `mcflow.paper.algorithm.gradients`, with the same networks, by autograd."""
    import torch

    z, log_det = _autograd_pass(flow, rows)
    flow_loss = -(flow.base_log_prob(z) + log_det).mean()
    z_hat = mapper(z.detach())
    x_hat, inverse_log_det = _autograd_pass(flow, z_hat, inverse=True)
    log_density = flow.base_log_prob(z_hat) - inverse_log_det
    latent_loss = ((x_hat - rows).square() * weights).sum() / len(rows) - likelihood_weight * log_density.mean()
    flow.gradient.copy_(torch.autograd.grad(flow_loss, flow.theta)[0])
    mapper.gradient.copy_(torch.autograd.grad(latent_loss, mapper.phi)[0])
    return flow_loss.detach(), latent_loss.detach()


def _autograd_pass(flow: RealNVP, rows: Tensor, *, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """Map rows (n_rows, n_columns) through the flow; return them and the log-determinants (n_rows,)."""
    import torch

    parts = flow.theta.split([coupling.networks.n_weights for coupling in flow.couplings])
    scales = []

    def visit(coupling: object, k: int, halves: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        networks, (kept, moved) = flow.couplings[k].networks, halves
        outputs, _ = networks.forward(kept, networks.views(parts[k]))
        scale, shift = outputs[0].tanh(), outputs[1]
        scales.append(scale)
        return kept, (moved - shift) * (-scale).exp() if inverse else moved * scale.exp() + shift

    out = flow._walk(rows, -1 if inverse else 1, visit)
    log_det = torch.cat(scales, 1).sum(1)
    return out, -log_det if inverse else log_det


def time_gradients(rounds: int, n_steps: int = N_STEPS) -> list[Times]:
    """Time steps of the paper's preset, on one thread as in a fit."""
    import torch

    from mcflow.fitting.distributed import one_thread_when_small
    from mcflow.fitting.initialisation import draw_masks
    from mcflow.paper.algorithm import gradients, seen_weights
    from mcflow.paper.config import PaperConfig
    from mcflow.paper.networks import LatentMapper, RealNVP

    config, generator = PaperConfig(), torch.Generator().manual_seed(0)
    masks = draw_masks(config.n_couplings, N_COLUMNS, generator)
    flow = RealNVP(masks, n_layers=config.n_flow_layers, generator=generator)
    mapper = LatentMapper(N_COLUMNS, config.n_latent_layers, generator)
    rows = torch.rand(config.batch_size, N_COLUMNS, generator=generator)
    weights = seen_weights(torch.rand(rows.shape, generator=generator) < 0.2)

    def by_hand() -> None:
        with torch.inference_mode():
            gradients(flow, mapper, rows, weights, config.likelihood_weight)

    def by_autograd() -> None:
        autograd_gradients(flow, mapper, rows, weights, config.likelihood_weight)

    with one_thread_when_small(rows.numel()):
        for step in (by_hand, by_autograd):
            _seconds(step, n_steps)  # the first steps allocate memory
        return [(_seconds(by_hand, n_steps), _seconds(by_autograd, n_steps)) for _ in range(rounds)]


def _seconds(step: Callable[[], object], n_steps: int) -> float:
    start = time.perf_counter()
    for _ in range(n_steps):
        step()
    return (time.perf_counter() - start) / n_steps


def time_barrier(rounds: int, n_steps: int = N_STEPS) -> list[Times]:
    """Time the averaging of gradients by two processes, in shared memory and by torch's gloo."""
    environment = os.environ | thread_variables(1)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", __name__, folder, str(rounds), str(n_steps)]
        workers = [
            subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.PIPE, text=True)  # noqa: S603
            for rank in range(2)
        ]
        try:
            messages = [worker.communicate(timeout=TIME_LIMIT)[1] for worker in workers]
        except subprocess.TimeoutExpired:
            raise TrainingError(f"Two processes did not average gradients within {TIME_LIMIT} s.") from None
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        for worker, message in zip(workers, messages, strict=True):
            if worker.returncode:
                raise TrainingError(f"A process that averages gradients failed: {message.strip().splitlines()[-1]}")
        return [(shared, sent) for shared, sent in json.loads((Path(folder) / "times.json").read_text())]


def _average(folder: Path, rounds: int, n_steps: int, rank: int) -> None:
    """Be one of two processes that average gradients; the first one writes the times."""
    import torch
    from torch import distributed

    from mcflow.fitting.distributed import GradientMean, joined

    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    weight = torch.nn.Parameter(torch.zeros(N_WEIGHTS))
    weight.grad = torch.ones(N_WEIGHTS)
    with joined(timedelta(seconds=TIME_LIMIT)) as workers:
        shared, sent = GradientMean(workers, [weight]), GradientMean(workers, [weight])
        if shared._slots is None:
            raise TrainingError("This machine has no shared memory for gradients.")
        sent._slots = None
        means = [partial(mean.average, 1.0, 1.0) for mean in (shared, sent)]
        for step in means:
            step()  # opens connections
        times = [[_seconds(step, n_steps) for step in means] for _ in range(rounds)]
    distributed.destroy_process_group()
    if rank == 0:
        (folder / "times.json").write_text(json.dumps(times))


#: The comparisons by name; a line here is a row of the report.
SPEEDS: dict[str, Speed] = {
    "gradients": Speed("gradients of the paper's preset written by hand", "autograd", time_gradients),
    "barrier": Speed("gradients of two processes averaged in shared memory", "torch's gloo", time_barrier),
}


def run_speeds(output: Path, rounds: int, *, retry: bool = False) -> None:
    """Measure the comparisons that are not in a folder yet, one after the other."""
    store = Store(output)
    with store.locked():
        known = store.finished(retry=retry)
        for name, speed in SPEEDS.items():
            task = SpeedTask(name, rounds)
            if task.key not in known:
                store.add(task, _speed_row(task, speed))


def _speed_row(task: SpeedTask, speed: Speed) -> Row:
    about = {"machine": machine(), "versions": versions(), "date": datetime.now(UTC).isoformat(timespec="seconds")}
    row = {"task": task.settings, "label": task.speed} | about
    try:
        times = speed.measure(task.rounds)
    except McflowError as error:
        return row | {"status": "error", "message": f"{type(error).__name__}: {error}"}
    ours, others = zip(*times, strict=True)
    scores = {"with": median(ours), "without": median(others), "ratio": median(b / a for a, b in times)}
    return row | {"status": "done", "message": "", "scores": {name: {"value": v} for name, v in scores.items()}}


if __name__ == "__main__":
    _average(Path(sys.argv[1]), *map(int, sys.argv[2:]))

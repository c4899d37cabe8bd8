"""Time an epoch of `preset="paper"` against the plain way, in one run, and check that both learn the same.

    python speed/epoch.py [--rounds 5] [--threads 2]

Uses the Letter table when MCFLOW_DATA names a folder that has it, else random numbers of the same shape.
Writes speed/results/epoch.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch

from mcflow.config import resolve
from mcflow.masks import Marginals
from mcflow.random import Streams
from mcflow.training import Trainer
from mcflow.training.objectives import gradients, seen_weights
from mcflow.training.threads import one_thread_when_small
from plain import PlainTrainer
from results import environment, table_path, write


def letter() -> tuple[np.ndarray[Any, Any], str]:
    """Return 16,000 rows of 16 columns with a fifth of the cells missing, and where they are from."""
    rng = np.random.default_rng(0)
    path = table_path("letter")
    if path is not None:
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        columns = [c for c in table.column_names if c != "lettr"]
        values = np.column_stack([table.column(c).to_numpy().astype(float) for c in columns])[:16000]
        name = "Letter"
    else:
        values, name = rng.integers(0, 16, size=(16000, 16)).astype(float), "random numbers of Letter's shape"
    values[rng.random(values.shape) < 0.2] = np.nan
    return values, name


def pair(values: np.ndarray[Any, Any]) -> tuple[Trainer, PlainTrainer]:
    settings = resolve("paper")
    streams = Streams(0)
    scaled = (values - np.nanmin(values, axis=0)) / (np.nanmax(values, axis=0) - np.nanmin(values, axis=0))
    rows = Marginals.from_values(scaled).fill(scaled, streams.fill.random(scaled.shape))
    trainer = Trainer(settings, torch.from_numpy(rows).float(), torch.from_numpy(np.isnan(values)), streams)
    train = settings.train
    return trainer, PlainTrainer(trainer.flow, trainer.mapper, train.learning_rate, train.likelihood_weight)


def agreement(values: np.ndarray[Any, Any], n_steps: int = 50) -> float:
    """Return the largest difference of a loss over the first steps, from the same weights on the same batches."""
    fast, plain = pair(values)
    weights = seen_weights(fast.missing)
    worst = 0.0
    for batch in torch.randperm(len(fast.rows), generator=fast.streams.order).split(128)[:n_steps]:
        rows, seen = fast.rows[batch], weights[batch]
        with torch.inference_mode():
            losses = gradients(fast.flow, fast.mapper, rows, seen, fast.settings.train.likelihood_weight)
            fast.flow_adam.step(fast.flow.gradient)
            fast.latent_adam.step(fast.mapper.gradient)
        for ours, theirs in zip(losses, plain.step(rows, seen), strict=True):
            worst = max(worst, abs(float(ours) - float(theirs)))
    return worst


def fast_epoch(trainer: Trainer) -> float:
    start = time.perf_counter()
    trainer._learn()
    return time.perf_counter() - start


def plain_epoch(plain: PlainTrainer, trainer: Trainer) -> float:
    weights = seen_weights(trainer.missing)
    start = time.perf_counter()
    order = torch.randperm(len(trainer.rows), generator=trainer.streams.order)
    with one_thread_when_small(128 * trainer.rows.shape[1]):
        for batch in order.split(128):
            plain.step(trainer.rows[batch], weights[batch])
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    values, name = letter()
    worst = agreement(values)
    trainer, plain = pair(values)
    fast_epoch(trainer)
    times = [(fast_epoch(trainer), plain_epoch(plain, trainer)) for _ in range(options.rounds)]
    result: dict[str, Any] = {
        "data": name,
        "rows": values.shape[0],
        "columns": values.shape[1],
        "fast_epoch_s": round(statistics.median(t[0] for t in times), 4),
        "plain_epoch_s": round(statistics.median(t[1] for t in times), 4),
        "times_faster": round(statistics.median(t[1] / t[0] for t in times), 2),
        "largest_loss_difference_50_steps": float(f"{worst:.2g}"),
        "rounds": options.rounds,
    }
    write("epoch", result | environment())


if __name__ == "__main__":
    main()

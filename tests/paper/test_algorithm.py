"""Tests of Algorithms 1 and 2: schedule, refills, stages, stopping rules and Adam."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import torch

from mcflow.errors import TrainingError
from mcflow.fitting.callbacks import Callback, Epoch, History
from mcflow.paper.algorithm import FlatAdam, Trainer, complete, is_refill_epoch, is_stable
from mcflow.paper.config import PaperConfig
from mcflow.random import Streams


def make_trainer(callbacks=(), n_rows: int = 200, **fields) -> Trainer:
    rng = np.random.default_rng(1)
    rows = rng.random((n_rows, 3))
    rows[:, 1] = rows[:, 0] ** 2
    missing = rng.random(rows.shape) < 0.25
    config = PaperConfig(**{"max_epochs": 9, "batch_size": 32, "tolerance": 0} | fields)
    rows[missing] = 0.5
    return Trainer(
        config,
        torch.from_numpy(rows).float(),
        torch.from_numpy(missing),
        Streams(0),
        callbacks=callbacks,
    )


class Recorder(Callback):
    """Records the state of the trainer after each epoch."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def on_epoch_end(self, trainer: Trainer) -> None:
        state = trainer.rows.clone(), trainer.flow.theta.detach().clone(), trainer.mapper.phi.detach().clone()
        self.seen.append((trainer.epoch, len(trainer.stages), *state))


def test_stages_are_kept_at_powers_of_two_and_at_the_end() -> None:
    recorder = Recorder()
    trainer = make_trainer([recorder], max_epochs=9)
    stages = trainer.train()
    assert [count for _, count, *_ in recorder.seen] == [1, 2, 2, 3, 3, 3, 3, 4, 5]
    assert len(stages) == 5
    assert trainer.history.ending == "max_epochs"


def test_last_epoch_that_is_a_power_of_two_keeps_one_stage() -> None:
    assert len(make_trainer(max_epochs=8).train()) == 4


def test_rows_change_only_where_missing_and_only_at_refills() -> None:
    recorder = Recorder()
    trainer = make_trainer([recorder])
    first = trainer.rows.clone()
    trainer.train()
    before = first
    for epoch, _, rows, *_ in recorder.seen:
        assert torch.equal(rows[~trainer.missing], first[~trainer.missing])
        assert torch.equal(rows, before) != is_refill_epoch(epoch)
        before = rows


def test_flow_restarts_after_a_refill_and_the_mapper_continues() -> None:
    recorder = Recorder()
    trainer = make_trainer([recorder])
    first = trainer.flow.theta.detach().clone()
    trainer.train()
    for epoch, _, _, theta, _ in recorder.seen[:-1]:
        assert torch.equal(theta, first) == is_refill_epoch(epoch), "θ is back at its first values after a refill"
    phis = [phi for *_, phi in recorder.seen]
    steps = [float((new - old).abs().mean()) for old, new in itertools.pairwise(phis)]
    assert max(steps) < 3 * min(steps), "φ never jumps"


def test_kept_stage_holds_the_networks_of_its_refill() -> None:
    trainer = make_trainer(max_epochs=5)
    first = trainer.rows.clone()
    stages = trainer.train()
    assert len({stage.mapper.phi.data_ptr() for stage in stages}) == len(stages)
    assert torch.equal(complete(stages[:-1], first, trainer.missing), trainer.rows)


def test_complete_equals_the_paper_s_formula() -> None:
    trainer = make_trainer(max_epochs=1)
    rows = trainer.rows.clone()
    (stage,) = trainer.train()
    x_hat = stage.flow.inverse(stage.mapper(stage.flow(rows)[0]))[0].detach().clamp(0, 1)
    expected = torch.where(trainer.missing, x_hat, rows)
    torch.testing.assert_close(complete([stage], rows, trainer.missing), expected)


def test_losses_fall() -> None:
    trainer = make_trainer(max_epochs=60, learning_rate=1e-3)
    trainer.train()
    last = [e for e in trainer.history.epochs if e.stage == trainer.history.epochs[-1].stage]
    assert last[-1].flow_loss < last[0].flow_loss - 1
    latent = trainer.history.column("latent_loss")
    assert latent[-1] < 0.5 * latent[0]


def test_same_seed_gives_the_same_weights_whatever_the_global_state() -> None:
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        runs.append(make_trainer(max_epochs=4).train()[-1])
    assert torch.equal(runs[0].flow.theta, runs[1].flow.theta)
    assert torch.equal(runs[0].mapper.phi, runs[1].mapper.phi)


def test_training_leaves_global_state_alone() -> None:
    torch.manual_seed(3)
    np.random.seed(3)
    state, numbers, threads = torch.get_rng_state(), np.random.get_state()[1], torch.get_num_threads()
    make_trainer(max_epochs=2).train()
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numbers).all()
    assert torch.get_num_threads() == threads


def test_loss_that_is_not_a_number_ends_training_with_advice() -> None:
    trainer = make_trainer()
    trainer.rows[0, 0] = float("nan")
    with pytest.raises(TrainingError, match="learning_rate"):
        trainer.train()


def history(flow_losses: list[float], latent_losses: list[float] | None = None, stage: int = 3) -> History:
    latent_losses = latent_losses or flow_losses
    early = [Epoch(1, 10.0, 10.0, 0, 0.1)]
    pairs = enumerate(zip(flow_losses, latent_losses, strict=True), start=2)
    return History(early + [Epoch(n, g, h, stage, 0.1) for n, (g, h) in pairs])


def test_stable_needs_both_losses_to_be_flat() -> None:
    still, falling = [1.0] * 8, [2.0 - k / 8 for k in range(8)]
    assert is_stable(history(still), 0.01, 4)
    assert not is_stable(history(still, falling), 0.01, 4)
    assert not is_stable(history(falling, still), 0.01, 4)


def test_stable_needs_two_windows_since_the_restart_and_a_tolerance() -> None:
    assert not is_stable(history([1.0] * 7), 0.01, 4)
    assert not is_stable(history([1.0] * 8), 0.0, 4)
    assert not is_stable(History(), 0.01, 4)


def test_stable_is_relative_to_the_range_of_the_loss() -> None:
    assert is_stable(history([1.05] * 4 + [1.0] * 4), 0.01, 4)
    assert not is_stable(history([1.05] * 4 + [1.0] * 4), 0.005, 4)


def test_training_ends_when_stable() -> None:
    trainer = make_trainer(max_epochs=400, tolerance=0.02, window=4, learning_rate=1e-3)
    trainer.train()
    assert trainer.history.ending == "stable"
    assert trainer.epoch < 400
    assert len(trainer.stages) >= 4


@pytest.mark.parametrize(("max_time", "n_epochs", "n_stages"), [(5.0, 1, 1), (20.0, 2, 1), (30.0, 3, 2)])
def test_time_limit_ends_an_epoch_and_flow_restarts_only_with_time_to_train(
    monkeypatch, max_time, n_epochs, n_stages
) -> None:
    ticks = itertools.count(0.0)  # reading the clock takes a second: ten and more per epoch of seven batches
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    trainer = make_trainer(max_epochs=100, max_time=max_time)
    stages = trainer.train()
    assert trainer.history.ending == "max_time"
    assert [len(trainer.history.epochs), len(stages)] == [n_epochs, n_stages]
    assert next(ticks) <= max_time + 5
    assert np.isfinite(trainer.history.column("flow_loss")).all()


def test_adam_equals_torch_s(generator: torch.Generator) -> None:
    ours = torch.rand(40, generator=generator)
    theirs = torch.nn.Parameter(ours.clone())
    mine, other = FlatAdam(ours, 0.01), torch.optim.Adam([theirs], lr=0.01)
    for _ in range(25):
        gradient = torch.randn(40, generator=generator)
        mine.step(gradient)
        theirs.grad = gradient
        other.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-6, atol=1e-7)

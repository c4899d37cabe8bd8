"""H learns from hidden cells only, never from held-out ones, and ends with the best weights it had."""

from __future__ import annotations

import copy
import itertools
import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from mcflow.config import PRESETS, Settings
from mcflow.errors import McflowWarning, TrainingError
from mcflow.imputers.masked_model import _shares
from mcflow.latent.masked import MaskedMapper
from mcflow.random import Streams
from mcflow.training import Callback
from mcflow.training.held_out import DESCENT, LOOKS, PATIENCE
from mcflow.training.hidden import HeldCells, HiddenTrainer, _targets
from mcflow.training.sizes import fitting


def table(n_rows: int = 160) -> tuple[torch.Tensor, torch.Tensor]:
    """A column, its square and its negative with noise, in units; a fifth of the cells missing."""
    rng = np.random.default_rng(0)
    one = rng.normal(size=n_rows)
    rows = np.column_stack([one, one**2 - 1, -one + 0.1 * rng.normal(size=n_rows)])
    seen = rng.random(rows.shape) > 0.2
    return torch.from_numpy(np.where(seen, rows, 0.0)).float(), torch.from_numpy(seen)


def settings(**train) -> Settings:
    found = fitting(PRESETS["default"], 160, 3)
    changed = {"max_epochs": 4, "batch_size": 40} | train
    return replace(found, train=replace(found.train, **changed))


def make_trainer(seed: int = 0, callbacks=(), cells=None, n_members: int = 2, **train) -> HiddenTrainer:
    units, seen = cells or table()
    config = settings(**train)
    points = torch.from_numpy(np.quantile(table()[0].numpy(), np.linspace(0, 1, 9), axis=0).T.copy())
    streams = Streams(seed)
    mapper = MaskedMapper(points, points, torch.full((3,), 9), n_members=n_members, width=16, generator=streams.weights)
    return HiddenTrainer(config, mapper, units, seen, streams, callbacks=callbacks)


def weights_of(trainer: HiddenTrainer) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in trainer.mapper.weights]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# --- targets


def test_targets_when_found_in_parts_are_those_of_all_rows(monkeypatch) -> None:
    def of_all() -> tuple[torch.Tensor, ...]:
        units, seen = table()
        mapper = make_trainer().mapper
        return (*_targets(mapper, units.view(4, 40, 3)), _shares(mapper, units, seen))

    whole = of_all()
    for place in ("mcflow.training.hidden", "mcflow.imputers.masked_model"):
        monkeypatch.setattr(f"{place}.TARGETS_AT_ONCE", 7)
    below, share, shares = of_all()
    assert below.shape == (4, 40, 3)
    assert torch.equal(below, whole[0])
    assert torch.equal(share, whole[1])
    torch.testing.assert_close(shares, whole[2])


# --- held-out cells


def test_held_cells_are_observed_ones_in_the_asked_share_and_differ_by_member() -> None:
    seen = torch.rand(3000, 5, generator=torch.Generator().manual_seed(0)) > 0.3
    held = HeldCells(seen, 0.1, 3, torch.Generator().manual_seed(1))
    assert held.cells.shape == (3, len(held.rows), 5)
    assert not (held.cells & ~seen[held.rows]).any()
    assert len(held.rows.unique()) == len(held.rows) == 3000
    assert float(held.cells.sum() / (3 * seen.sum())) == pytest.approx(0.1, abs=0.01)
    assert not torch.equal(held.cells[0], held.cells[1])


def test_held_cells_of_a_batch_are_those_of_its_rows(monkeypatch) -> None:
    monkeypatch.setattr("mcflow.training.hidden.HELD_ROWS", 30)
    seen = torch.ones(100, 4, dtype=torch.bool)
    held = HeldCells(seen, 0.5, 2, torch.Generator().manual_seed(0))
    assert len(held.rows) == 30
    batch = torch.stack([torch.randperm(100, generator=torch.Generator().manual_seed(k)) for k in range(2)])
    found = held.of(batch)
    place = {int(row): k for k, row in enumerate(held.rows)}
    for member in range(2):
        for k, row in enumerate(batch[member].tolist()):
            wanted = held.cells[member, place[row]] if row in place else torch.zeros(4, dtype=torch.bool)
            assert torch.equal(found[member, k], wanted)


def test_held_out_cells_are_never_learned_nor_shown() -> None:
    """Whatever stands in held-out cells, the weights of an epoch come out the same."""
    units, seen = table()
    one = make_trainer(n_members=1, max_epochs=1)
    held = torch.zeros(seen.shape, dtype=torch.bool)
    held[one.held.rows] = one.held.cells[0]
    assert held.sum() > 20
    other = make_trainer(cells=(torch.where(held, units + 3, units), seen), n_members=1, max_epochs=1)
    third = make_trainer(cells=(torch.where(held, units, units + 0.1), seen), n_members=1, max_epochs=1)
    for trainer in (one, other, third):
        trainer._start = time.perf_counter()
        trainer._learn()
    assert same(weights_of(one), weights_of(other))
    assert not same(weights_of(one), weights_of(third)), "others are learned"


def test_missing_cells_are_never_learned_nor_shown() -> None:
    units, seen = table()
    runs = []
    for filler in (0.0, 5.0):
        trainer = make_trainer(cells=table())
        trainer.units = torch.where(seen, units, filler)
        below, trainer.share = trainer.mapper.targets(trainer.units)
        trainer.below = below.to(torch.int16)
        trainer.train()
        runs.append(weights_of(trainer))
    assert same(*runs)


def test_hidden_cells_are_seen_ones_in_the_asked_share() -> None:
    trainer = make_trainer(hide_share=0.3)
    seen = torch.rand(2, 4000, 3, generator=torch.Generator().manual_seed(0)) > 0.4
    hidden = trainer._hidden(seen, seen.shape[1])
    assert not (hidden & ~seen).any()
    assert float(hidden.sum() / seen.sum()) == pytest.approx(0.3, abs=0.02)


def test_hidden_cell_never_reaches_its_own_answer(monkeypatch) -> None:
    """What H is shown in a step has none of the cells that it has to answer for."""
    trainer = make_trainer(max_epochs=1)
    hidden, overlaps = [], []
    choose, forward = trainer._hidden, trainer.mapper.forward

    def watching(units: torch.Tensor, shown: torch.Tensor) -> object:
        if trainer.mapper.training:
            overlaps.append(int((hidden[-1] & shown.bool()).sum()))
        return forward(units, shown)

    monkeypatch.setattr(trainer, "_hidden", lambda seen, n_rows: hidden.append(choose(seen, n_rows)) or hidden[-1])
    monkeypatch.setattr(trainer.mapper, "forward", watching)
    trainer.train()
    assert sum(int(cells.sum()) for cells in hidden) > 50
    assert overlaps == [0] * 4


def test_batch_without_a_hidden_cell_teaches_nothing_and_harms_nothing() -> None:
    trainer = make_trainer(max_epochs=2, hide_share=1e-9)
    before = weights_of(trainer)
    trainer.train()
    assert all(math.isfinite(loss) for loss in trainer.history.column("latent_loss"))
    assert trainer.restarts == 0
    for weight, old in zip(trainer.mapper.weights, before, strict=True):
        torch.testing.assert_close(weight.detach(), old, atol=1e-2, rtol=0)


def test_share_of_zero_learns_the_cells_that_are_shown() -> None:
    """The switch for measuring what hiding is worth: a copy is all there is to learn, so the loss falls further."""
    shown, hidden = (make_trainer(max_epochs=30, hide_share=share) for share in (0.0, 0.2))
    for trainer in (shown, hidden):
        trainer.train()
    assert shown.history.epochs[-1].latent_loss < hidden.history.epochs[-1].latent_loss - 0.1


# --- the course of a fit


def test_loss_falls_and_held_out_cells_get_better() -> None:
    trainer = make_trainer(max_epochs=40)
    trainer._look()
    first = trainer.best_error
    trainer.train()
    losses = trainer.history.column("latent_loss")
    assert losses[-1] < losses[0] - 0.2
    assert trainer.best_error < 0.8 * first
    assert trainer.history.ending == "max_epochs"


def test_rate_rises_then_falls_to_nearly_nothing() -> None:
    trainer = make_trainer(max_epochs=100)
    trainer._start = time.perf_counter()
    rates = []
    for trainer.epoch in range(100):
        trainer._set_rate(0.0)
        rates.append(trainer.optimiser.param_groups[0]["lr"])
    top = int(np.argmax(rates))
    assert rates[0] < 0.1 * rates[top]
    assert 5 <= top <= 30
    assert rates[top] == pytest.approx(trainer.rate, rel=0.01)
    assert all(a > b for a, b in zip(rates[top:-1], rates[top + 1 :], strict=True))
    assert rates[-1] < 0.01 * trainer.rate


def test_weights_that_stay_are_those_that_did_best() -> None:
    looks = []

    class Watcher(Callback):
        def on_epoch_end(self, trainer: HiddenTrainer) -> None:
            looks.append((trainer.best_error, weights_of(trainer)))

    trainer = make_trainer(callbacks=[Watcher()], max_epochs=60, learning_rate=0.05)
    trainer.train()
    best = min(range(len(looks)), key=lambda k: looks[k][0])
    assert same(weights_of(trainer), looks[best][1])
    histogram, direct, truth = trainer.held_answers()
    error = min(float((part - truth.clamp(-10, 10)).square().mean()) for part in (histogram, direct))
    assert error == pytest.approx(trainer.best_error, rel=1e-5)


def noise() -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.normal(size=(160, 3))).float(), torch.ones(160, 3, dtype=torch.bool)


def test_fit_ends_early_when_held_out_cells_get_no_better() -> None:
    """Noise: there is nothing to learn, so the rate turns early, and half as much again is the end."""
    turns = []

    class Watcher(Callback):
        def on_epoch_end(self, trainer: HiddenTrainer) -> None:
            turns.append(trainer.turn)

    trainer = make_trainer(cells=noise(), callbacks=[Watcher()], max_epochs=120, learning_rate=0.02)
    trainer.train()
    assert trainer.history.ending == "held_out"
    turned = turns.index(trainer.turn) + 1
    assert trainer.turn == pytest.approx(turned / 120)
    assert trainer.epoch == pytest.approx((1 + DESCENT) * turned, abs=1.01)
    assert trainer.epoch < 120


def test_rate_falls_to_nearly_nothing_without_a_step_once_it_has_turned(monkeypatch) -> None:
    rates = []

    class Watcher(Callback):
        def on_epoch_end(self, trainer: HiddenTrainer) -> None:
            rates.append(trainer.optimiser.param_groups[0]["lr"])

    def look() -> float:
        trainer.worse = PATIENCE if trainer.epoch >= 20 else 0
        return 1.0

    trainer = make_trainer(callbacks=[Watcher()], max_epochs=40)
    monkeypatch.setattr(trainer, "_look", look)
    trainer.train()
    assert (trainer.turn, trainer.epoch) == (0.5, 30)
    fall = rates[19:]
    assert fall[0] > 0.3 * trainer.rate
    assert fall[1] == pytest.approx(fall[0], rel=0.1)
    assert all(a > b for a, b in itertools.pairwise(fall))
    assert fall[-1] < 0.05 * fall[0]


def test_rate_does_not_turn_early_while_held_out_cells_get_better(monkeypatch) -> None:
    trainer = make_trainer(max_epochs=20)
    errors = iter(range(100, 0, -1))

    def look() -> float:
        trainer.worse = 0
        return float(next(errors))

    monkeypatch.setattr(trainer, "_look", look)
    trainer.train()
    assert (trainer.turn, trainer.epoch, trainer.history.ending) == (1.0, 20, "max_epochs")


def test_fewer_looks_without_a_better_one_than_patience_turn_nothing(monkeypatch) -> None:
    trainer = make_trainer(max_epochs=20)
    looks = []

    def look() -> float:
        looks.append(trainer.epoch)
        trainer.worse = len(looks) % PATIENCE
        return 1.0

    monkeypatch.setattr(trainer, "_look", look)
    trainer.train()
    assert looks == list(range(1, 21))
    assert trainer.turn == 1


def test_held_out_error_is_in_the_history_where_it_was_measured() -> None:
    trainer = make_trainer(max_epochs=100, learning_rate=1e-3)
    trainer.train()
    errors = [epoch.held_error for epoch in trainer.history.epochs]
    found = [error for error in errors if error is not None]
    assert trainer.epoch / 3 < len(found) <= LOOKS + 1
    assert errors[-1] is not None
    assert min(found) == trainer.best_error
    assert all(0 < error < 10 for error in found)


def test_fit_without_held_out_cells_runs_to_its_end_and_keeps_the_last_weights() -> None:
    last = []

    class Watcher(Callback):
        def on_epoch_end(self, trainer: HiddenTrainer) -> None:
            last[:] = weights_of(trainer)

    trainer = make_trainer(callbacks=[Watcher()], cells=noise(), max_epochs=20, held_share=0.0)
    trainer.train()
    assert (trainer.epoch, trainer.history.ending) == (20, "max_epochs")
    assert {epoch.held_error for epoch in trainer.history.epochs} == {None}
    assert same(weights_of(trainer), last)


def test_fit_ends_when_the_time_is_up() -> None:
    trainer = make_trainer(max_epochs=10**6, max_time=1.0, held_share=0.0)
    start = time.perf_counter()
    trainer.train()
    assert 1 <= time.perf_counter() - start < 10
    assert trainer.history.ending == "max_time"
    assert trainer.epoch < 10**5


def test_same_seed_gives_the_same_weights_whatever_the_global_state() -> None:
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        trainer = make_trainer()
        trainer.train()
        runs.append(weights_of(trainer))
    assert same(*runs)
    other = make_trainer(seed=1)
    other.train()
    assert not same(runs[0], weights_of(other))


def test_training_leaves_global_state_alone() -> None:
    torch.manual_seed(3)
    np.random.seed(3)
    state, numbers, threads = torch.get_rng_state(), np.random.get_state()[1], torch.get_num_threads()
    make_trainer().train()
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numbers).all()
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("n_epochs", [1, 3])
def test_captured_state_goes_on_to_the_same_bits(n_epochs) -> None:
    states = {}

    class Keeper(Callback):
        def on_epoch_end(self, trainer: HiddenTrainer) -> None:
            states[trainer.epoch] = copy.deepcopy(trainer.capture())

    class Restorer(Callback):
        def on_begin(self, trainer: HiddenTrainer) -> None:
            trainer.restore(*states[n_epochs])

    whole = make_trainer(callbacks=[Keeper()])
    whole.train()
    resumed = make_trainer(callbacks=[Restorer()])
    resumed.train()
    assert same(weights_of(whole), weights_of(resumed))
    for name in ("latent_loss", "held_error"):
        assert whole.history.column(name) == resumed.history.column(name)
    assert whole.best_error == resumed.best_error


def test_state_captured_in_the_last_descent_goes_on_to_the_same_bits() -> None:
    states = {}

    class Keeper(Callback):
        def on_epoch_end(self, trainer: HiddenTrainer) -> None:
            states[trainer.epoch] = copy.deepcopy(trainer.capture())

    class Restorer(Callback):
        def on_begin(self, trainer: HiddenTrainer) -> None:
            trainer.restore(*states[whole.epoch - 2])

    how = {"max_epochs": 80, "learning_rate": 0.02}
    whole = make_trainer(cells=noise(), callbacks=[Keeper()], **how)
    whole.train()
    assert states[whole.epoch - 2][0]["turn"] == whole.turn < 1
    resumed = make_trainer(cells=noise(), callbacks=[Restorer()], **how)
    resumed.train()
    assert (resumed.epoch, resumed.turn, resumed.history.ending) == (whole.epoch, whole.turn, "held_out")
    assert same(weights_of(whole), weights_of(resumed))


# --- losses that are no numbers


def failing(trainer: HiddenTrainer, monkeypatch: pytest.MonkeyPatch, times: int, loss: float = math.nan) -> None:
    """Let the first epochs end with a loss that is not a number."""
    learn, left = trainer._learn, [times]

    def learning() -> float:
        left[0] -= 1
        return loss if left[0] >= 0 else learn()

    monkeypatch.setattr(trainer, "_learn", learning)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_fit_that_diverges_begins_anew_at_a_lower_rate_and_says_so(monkeypatch, loss) -> None:
    trainer = make_trainer(max_epochs=5)
    first = trainer.rate
    failing(trainer, monkeypatch, 2, loss)
    with pytest.warns(McflowWarning, match="begins anew with a rate of") as caught:
        trainer.train()
    assert len(caught) == 2
    assert trainer.rate == pytest.approx(first / 16)
    assert trainer.epoch == len(trainer.history.epochs) == 5
    assert all(map(math.isfinite, trainer.history.column("latent_loss")))
    assert all(bool(weight.isfinite().all()) for weight in trainer.mapper.weights)


def test_fit_that_begins_anew_begins_with_the_first_weights(monkeypatch) -> None:
    trainer = make_trainer(max_epochs=5)
    before = weights_of(trainer)
    trainer._start = time.perf_counter()
    trainer._run_epoch()
    assert not same(before, weights_of(trainer))
    failing(trainer, monkeypatch, 1)
    with pytest.warns(McflowWarning, match="anew"):
        trainer._run_epoch()
    assert same(before, weights_of(trainer))
    assert (trainer.epoch, trainer.history.epochs) == (0, [])


@pytest.mark.filterwarnings("ignore::mcflow.errors.McflowWarning")
def test_fit_that_always_diverges_ends_with_advice(monkeypatch) -> None:
    trainer = make_trainer()
    failing(trainer, monkeypatch, 99)
    with pytest.raises(TrainingError, match="after 3 restarts"):
        trainer.train()

"""H is trained on hidden cells only, never on validation cells, and keeps the best weights."""

from __future__ import annotations

import copy
import itertools
import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from mcflow import MCFlowImputer
from mcflow.errors import McflowWarning, TrainingError
from mcflow.fitting.callbacks import Callback
from mcflow.fitting.distributed import kernels_on_one_thread
from mcflow.masked.config import MaskedConfig
from mcflow.masked.model import _shares
from mcflow.masked.network import (
    MAX_GROUPS,
    MAX_VALIDATION_SCALE,
    MIN_THREAD_WIDTH,
    PATTERN_ROWS,
    MaskedNetwork,
    MaskedTrainer,
    ValidationCells,
    _targets,
    patterns_of,
    tracks_of,
)
from mcflow.random import Streams


def table(n_rows: int = 160) -> tuple[torch.Tensor, torch.Tensor]:
    """A column, its square and its negative with noise, in units; a fifth of the cells missing."""
    rng = np.random.default_rng(0)
    one = rng.normal(size=n_rows)
    rows = np.column_stack([one, one**2 - 1, -one + 0.1 * rng.normal(size=n_rows)])
    seen = rng.random(rows.shape) > 0.2
    return torch.from_numpy(np.where(seen, rows, 0.0)).float(), torch.from_numpy(seen)


def config(**changes) -> MaskedConfig:
    return replace(MaskedConfig().for_table(160, 3), **{"max_epochs": 4, "batch_size": 40} | changes)


def make_trainer(
    seed: int = 0, callbacks=(), cells=None, n_members: int = 2, width: int = 16, **changes
) -> MaskedTrainer:
    units, seen = cells or table()
    points = torch.from_numpy(np.quantile(table()[0].numpy(), np.linspace(0, 1, 9), axis=0).T.copy())
    streams = Streams(seed)
    network = MaskedNetwork(
        points, points, torch.full((3,), 9), n_members=n_members, width=width, generator=streams.weights
    )
    trainer = MaskedTrainer(config(**changes), network, units, seen, streams, callbacks=callbacks)
    trainer._map = lambda function, parts: [function(part) for part in parts]  # also outside of `train`
    return trainer


def weights_of(trainer: MaskedTrainer) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in trainer.network.weights]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# --- targets


def test_targets_when_found_in_parts_are_those_of_all_rows(monkeypatch) -> None:
    def of_all() -> tuple[torch.Tensor, ...]:
        units, seen = table()
        network = make_trainer().network
        return (*_targets(network, units.view(4, 40, 3)), _shares(network, units, seen))

    whole = of_all()
    for place in ("mcflow.masked.network", "mcflow.masked.model"):
        monkeypatch.setattr(f"{place}.TARGETS_AT_ONCE", 7)
    below, share, shares = of_all()
    assert below.shape == (4, 40, 3)
    assert torch.equal(below, whole[0])
    assert torch.equal(share, whole[1])
    torch.testing.assert_close(shares, whole[2])


# --- validation cells


def test_validation_cells_are_observed_ones_in_the_asked_share_and_differ_by_track() -> None:
    seen = torch.rand(3000, 5, generator=torch.Generator().manual_seed(0)) > 0.3
    validation = ValidationCells(seen, MaskedConfig(validation_share=0.1), 3, torch.Generator().manual_seed(1))
    assert validation.cells.shape == (3, len(validation.rows), 5)
    assert not (validation.cells & ~seen[validation.rows]).any()
    assert len(validation.rows.unique()) == len(validation.rows) == 3000
    assert float(validation.cells.sum() / (3 * seen.sum())) == pytest.approx(0.1, abs=0.01)
    assert not torch.equal(validation.cells[0], validation.cells[1])


def test_validation_cells_of_a_batch_are_those_of_its_rows(monkeypatch) -> None:
    monkeypatch.setattr("mcflow.masked.network.VALIDATION_ROWS", 30)
    seen = torch.ones(100, 4, dtype=torch.bool)
    validation = ValidationCells(seen, MaskedConfig(validation_share=0.5), 2, torch.Generator().manual_seed(0))
    assert len(validation.rows) == 30
    batch = torch.stack([torch.randperm(100, generator=torch.Generator().manual_seed(k)) for k in range(2)])
    found = validation.of(torch.arange(2), batch)
    place = {int(row): k for k, row in enumerate(validation.rows)}
    for member in range(2):
        for k, row in enumerate(batch[member].tolist()):
            wanted = validation.cells[member, place[row]] if row in place else torch.zeros(4, dtype=torch.bool)
            assert torch.equal(found[member, k], wanted)


@pytest.mark.parametrize("hide_share", [0.2, 0.0])
def test_validation_cells_are_never_targets(hide_share) -> None:
    """A target that is not a number would spoil the loss."""
    runs = {}
    for name in ("none", "validation", "others"):
        trainer = make_trainer(n_members=1, max_epochs=1, hide_share=hide_share)
        validation = torch.zeros(trainer.seen.shape, dtype=torch.bool)
        validation[trainer.validation.rows] = trainer.validation.cells[0]
        assert validation.sum() > 20
        spoilt = {"none": validation & False, "validation": validation, "others": ~validation}[name]
        below, share = trainer._known
        trainer._known = below, share.masked_fill(spoilt, math.nan)
        runs[name] = trainer._learn(), weights_of(trainer)
    assert runs["validation"][0] == runs["none"][0]
    assert same(runs["validation"][1], runs["none"][1])
    assert math.isnan(runs["others"][0])


def test_validation_cells_of_one_track_are_targets_of_the_other() -> None:
    trainer = make_trainer(max_epochs=1)
    first, second = trainer.validation.cells
    assert (first & ~second).any()
    everywhere = torch.arange(160).expand(2, -1)
    targets = trainer.seen & ~trainer.validation.of(torch.arange(2), everywhere)
    own = torch.zeros(targets.shape, dtype=torch.bool)
    own[:, trainer.validation.rows] = trainer.validation.cells
    assert not (targets & own).any()
    assert targets[1][trainer.validation.rows][first & ~second].all()


@pytest.mark.parametrize("patterns", [False, True])
def test_groups_of_validation_cells_have_each_cell_once(patterns) -> None:
    seen = in_blocks() if patterns else alone()
    validation = validation_cells(seen, patterns=patterns_of(seen))
    for track in range(2):
        groups = validation.groups(track)
        assert len(groups) == 1 if patterns else 2 <= len(groups) <= MAX_GROUPS
        assert torch.equal(torch.stack(groups).sum(0), validation.cells[track].long())
        if not patterns:  # a row loses as few cells at a time as the groups allow
            most = -(-validation.cells[track].sum(1) // len(groups))
            assert (torch.stack(groups).sum(2) <= most).all()


def test_groups_when_there_are_no_validation_cells_are_one_empty_group() -> None:
    (group,) = validation_cells(alone(), 0.0).groups(0)
    assert not group.any()


def test_missing_cells_are_never_learned_nor_shown() -> None:
    units, seen = table()
    runs = []
    for filler in (0.0, 5.0):
        trainer = make_trainer(cells=table())
        trainer.units = torch.where(seen, units, filler)
        trainer._known = _targets(trainer.network, trainer.units)
        trainer.train()
        runs.append(weights_of(trainer))
    assert same(*runs)


def test_hidden_cells_are_seen_ones_in_the_asked_share() -> None:
    trainer = make_trainer(hide_share=0.3)
    seen = torch.rand(2, 4000, 3, generator=torch.Generator().manual_seed(0)) > 0.4
    hidden = trainer._hidden(seen, seen.shape[1], trainer.generator(0))
    assert not (hidden & ~seen).any()
    assert float(hidden.sum() / seen.sum()) == pytest.approx(0.3, abs=0.02)


def test_hidden_cell_never_reaches_its_own_answer(monkeypatch) -> None:
    """What H is shown in a step has none of the cells that it has to answer for."""
    trainer = make_trainer(max_epochs=1)
    hidden, overlaps = [], []
    choose, forward = trainer._hidden, trainer.network.forward

    def watching(units: torch.Tensor, shown: torch.Tensor) -> object:
        if trainer.network.training:
            overlaps.append(int((hidden[-1] & shown.bool()).sum()))
        return forward(units, shown)

    monkeypatch.setattr(trainer, "_hidden", lambda *given: hidden.append(choose(*given)) or hidden[-1])
    monkeypatch.setattr(trainer.network, "forward", watching)
    trainer.train()
    assert sum(int(cells.sum()) for cells in hidden) > 50
    assert overlaps == [0] * 4


def test_batch_without_a_hidden_cell_teaches_nothing_and_harms_nothing() -> None:
    trainer = make_trainer(max_epochs=2, hide_share=1e-9)
    before = weights_of(trainer)
    trainer.train()
    assert all(math.isfinite(loss) for loss in trainer.history.column("latent_loss"))
    assert trainer.restarts == 0
    for weight, old in zip(trainer.network.weights, before, strict=True):
        torch.testing.assert_close(weight.detach(), old, atol=1e-2, rtol=0)


def test_share_of_zero_learns_the_cells_that_are_shown() -> None:
    """The switch for measuring what hiding is worth: a copy is all there is to learn, so the loss falls further."""
    shown, hidden = (make_trainer(max_epochs=30, hide_share=share) for share in (0.0, 0.2))
    for trainer in (shown, hidden):
        trainer.train()
    assert shown.history.epochs[-1].latent_loss < hidden.history.epochs[-1].latent_loss - 0.1


# --- the course of a fit


def test_loss_falls_and_validation_cells_get_better() -> None:
    trainer = make_trainer(max_epochs=40)
    trainer._validate()
    first = trainer.best_error
    trainer.train()
    losses = trainer.history.column("latent_loss")
    assert losses[-1] < losses[0] - 0.2
    assert trainer.best_error < 0.8 * first
    assert trainer.history.ending == "max_epochs"


def test_learning_rate_rises_then_falls_to_nearly_nothing() -> None:
    trainer = make_trainer(max_epochs=100)
    trainer._start = time.perf_counter()
    rates = []
    for trainer.epoch in range(100):
        trainer._set_rate(0, 0.0)
        rates.append(trainer.optimisers[0].rate)
    top = int(np.argmax(rates))
    assert rates[0] < 0.1 * rates[top]
    assert 5 <= top <= 30
    assert rates[top] == pytest.approx(trainer.rate, rel=0.01)
    assert all(a > b for a, b in zip(rates[top:-1], rates[top + 1 :], strict=True))
    assert rates[-1] < 0.01 * trainer.rate


def test_weights_that_stay_are_those_that_did_best() -> None:
    seen_errors = []

    class Watcher(Callback):
        def on_epoch_end(self, trainer: MaskedTrainer) -> None:
            seen_errors.append((trainer.best_error, weights_of(trainer)))

    trainer = make_trainer(callbacks=[Watcher()], max_epochs=60, learning_rate=0.05)
    trainer.train()
    best = min(range(len(seen_errors)), key=lambda k: seen_errors[k][0])
    assert same(weights_of(trainer), seen_errors[best][1])
    assert trainer._validation_error() == pytest.approx(trainer.best_error, rel=1e-5)


def noise() -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.normal(size=(160, 3))).float(), torch.ones(160, 3, dtype=torch.bool)


def test_fit_ends_early_when_validation_cells_get_no_better() -> None:
    """Noise: there is nothing to learn, so the learning rate decays early, and training ends half as long after."""
    starts = []

    class Watcher(Callback):
        def on_epoch_end(self, trainer: MaskedTrainer) -> None:
            starts.append(trainer.decay_start)

    trainer = make_trainer(cells=noise(), callbacks=[Watcher()], max_epochs=120, learning_rate=0.02)
    trainer.train()
    assert trainer.history.ending == "early_stopping"
    started = starts.index(trainer.decay_start) + 1
    assert trainer.decay_start == pytest.approx(started / 120)
    assert trainer.epoch == pytest.approx((1 + trainer.config.decay_length) * started, abs=1.01)
    assert trainer.epoch < 120


def test_learning_rate_falls_to_nearly_nothing_continuously_once_it_decays(monkeypatch) -> None:
    rates = []

    class Watcher(Callback):
        def on_epoch_end(self, trainer: MaskedTrainer) -> None:
            rates.append(trainer.optimisers[0].rate)

    def validate() -> float:
        trainer.n_stale = trainer.config.patience if trainer.epoch >= 20 else 0
        return 1.0

    trainer = make_trainer(callbacks=[Watcher()], max_epochs=40)
    monkeypatch.setattr(trainer, "_validate", validate)
    trainer.train()
    assert (trainer.decay_start, trainer.epoch) == (0.5, 30)
    fall = rates[19:]
    assert fall[0] > 0.3 * trainer.rate
    assert fall[1] == pytest.approx(fall[0], rel=0.1)
    assert all(a > b for a, b in itertools.pairwise(fall))
    assert fall[-1] < 0.05 * fall[0]


def test_learning_rate_does_not_decay_early_while_validation_cells_get_better(monkeypatch) -> None:
    trainer = make_trainer(max_epochs=20)
    errors = iter(range(100, 0, -1))

    def validate() -> float:
        trainer.n_stale = 0
        return float(next(errors))

    monkeypatch.setattr(trainer, "_validate", validate)
    trainer.train()
    assert (trainer.decay_start, trainer.epoch, trainer.history.ending) == (1.0, 20, "max_epochs")


def test_learning_rate_does_not_decay_before_patience_runs_out(monkeypatch) -> None:
    trainer = make_trainer(max_epochs=20)
    seen_errors = []

    def validate() -> float:
        seen_errors.append(trainer.epoch)
        trainer.n_stale = len(seen_errors) % trainer.config.patience
        return 1.0

    monkeypatch.setattr(trainer, "_validate", validate)
    trainer.train()
    assert seen_errors == list(range(1, 21))
    assert trainer.decay_start == 1


def test_validation_error_is_in_the_history_where_it_was_measured() -> None:
    trainer = make_trainer(max_epochs=100, learning_rate=1e-3)
    trainer.train()
    errors = [epoch.validation_error for epoch in trainer.history.epochs]
    found = [error for error in errors if error is not None]
    assert trainer.epoch / 3 < len(found) <= trainer.config.n_validations + 1
    assert errors[-1] is not None
    assert min(found) == trainer.best_error
    assert all(0 < error < 10 for error in found)


def test_fit_without_validation_cells_runs_to_its_end_and_keeps_the_last_weights() -> None:
    last = []

    class Watcher(Callback):
        def on_epoch_end(self, trainer: MaskedTrainer) -> None:
            last[:] = weights_of(trainer)

    trainer = make_trainer(callbacks=[Watcher()], cells=noise(), max_epochs=20, validation_share=0.0)
    trainer.train()
    assert (trainer.epoch, trainer.history.ending) == (20, "max_epochs")
    assert {epoch.validation_error for epoch in trainer.history.epochs} == {None}
    assert same(weights_of(trainer), last)


def test_fit_ends_when_the_time_is_up() -> None:
    trainer = make_trainer(max_epochs=10**6, max_time=1.0, validation_share=0.0)
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
        def on_epoch_end(self, trainer: MaskedTrainer) -> None:
            states[trainer.epoch] = copy.deepcopy(trainer.capture())

    class Restorer(Callback):
        def on_begin(self, trainer: MaskedTrainer) -> None:
            trainer.restore(*states[n_epochs])

    whole = make_trainer(callbacks=[Keeper()])
    whole.train()
    resumed = make_trainer(callbacks=[Restorer()])
    resumed.train()
    assert same(weights_of(whole), weights_of(resumed))
    for name in ("latent_loss", "validation_error"):
        assert whole.history.column(name) == resumed.history.column(name)
    assert whole.best_error == resumed.best_error


def test_state_captured_in_the_final_decay_goes_on_to_the_same_bits() -> None:
    states = {}

    class Keeper(Callback):
        def on_epoch_end(self, trainer: MaskedTrainer) -> None:
            states[trainer.epoch] = copy.deepcopy(trainer.capture())

    class Restorer(Callback):
        def on_begin(self, trainer: MaskedTrainer) -> None:
            trainer.restore(*states[whole.epoch - 2])

    how = {"max_epochs": 80, "learning_rate": 0.02}
    whole = make_trainer(cells=noise(), callbacks=[Keeper()], **how)
    whole.train()
    assert states[whole.epoch - 2][0]["decay_start"] == whole.decay_start < 1
    resumed = make_trainer(cells=noise(), callbacks=[Restorer()], **how)
    resumed.train()
    assert (resumed.epoch, resumed.decay_start, resumed.history.ending) == (
        whole.epoch,
        whole.decay_start,
        "early_stopping",
    )
    assert same(weights_of(whole), weights_of(resumed))


# --- independent parts


def test_members_are_shared_out_to_at_most_four_tracks_in_their_order() -> None:
    for n_members in range(1, 10):
        tracks = tracks_of(n_members)
        assert [k for some in tracks for k in range(n_members)[some]] == list(range(n_members))
        assert len(tracks) == min(n_members, 4)


def test_tracks_have_the_weights_of_their_members_and_change_with_them() -> None:
    trainer = make_trainer(n_members=3)
    with torch.no_grad():
        for weight in trainer.network.weights:
            weight.add_(1)
    for track, some in zip(trainer.tracks, tracks_of(3), strict=True):
        assert all(torch.equal(a, b[some]) for a, b in zip(track.weights, trainer.network.weights, strict=True))


def test_wide_tracks_are_parts_with_an_optimiser_and_random_numbers_of_their_own() -> None:
    trainer = make_trainer(width=MIN_THREAD_WIDTH)
    assert len(trainer.optimisers) == 2
    first, second = (torch.rand(4, generator=trainer.generator(part)) for part in range(2))
    assert not torch.equal(first, second)
    assert len(make_trainer().optimisers) == 1


@pytest.mark.parametrize("width", [16, MIN_THREAD_WIDTH])
def test_number_of_threads_does_not_change_the_weights(width) -> None:
    runs, before = [], torch.get_num_threads()
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            trainer = make_trainer(width=width, max_epochs=2, n_members=3)
            with kernels_on_one_thread():
                trainer.train()
            runs.append((weights_of(trainer), trainer.history.column("latent_loss")))
    finally:
        torch.set_num_threads(before)
    assert same(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]


def test_parts_that_are_captured_go_on_to_the_same_bits() -> None:
    states = []

    class Keeper(Callback):
        def on_epoch_end(self, trainer: MaskedTrainer) -> None:
            states.append(copy.deepcopy(trainer.capture()))

    class Restorer(Callback):
        def on_begin(self, trainer: MaskedTrainer) -> None:
            trainer.restore(*states[0])

    runs = [
        make_trainer(callbacks=[callback], width=MIN_THREAD_WIDTH, max_epochs=2) for callback in (Keeper(), Restorer())
    ]
    for trainer in runs:
        trainer.train()
    assert same(*map(weights_of, runs))


# --- losses that are not finite


def failing(trainer: MaskedTrainer, monkeypatch: pytest.MonkeyPatch, times: int, loss: float = math.nan) -> None:
    """Let the first epochs end with a loss that is not a number."""
    learn, left = trainer._learn, [times]

    def learning() -> float:
        left[0] -= 1
        return loss if left[0] >= 0 else learn()

    monkeypatch.setattr(trainer, "_learn", learning)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_fit_that_diverges_restarts_at_a_lower_learning_rate_and_warns(monkeypatch, loss) -> None:
    trainer = make_trainer(max_epochs=5)
    first = trainer.rate
    failing(trainer, monkeypatch, 2, loss)
    with pytest.warns(McflowWarning, match="restarts with a learning rate of") as caught:
        trainer.train()
    assert len(caught) == 2
    assert trainer.rate == pytest.approx(first / 16)
    assert trainer.epoch == len(trainer.history.epochs) == 5
    assert all(map(math.isfinite, trainer.history.column("latent_loss")))
    assert all(bool(weight.isfinite().all()) for weight in trainer.network.weights)


def test_fit_that_restarts_starts_with_the_first_weights(monkeypatch) -> None:
    trainer = make_trainer(max_epochs=5)
    before = weights_of(trainer)
    trainer._start = time.perf_counter()
    trainer._run_epoch()
    assert not same(before, weights_of(trainer))
    failing(trainer, monkeypatch, 1)
    with pytest.warns(McflowWarning, match="restarts"):
        trainer._run_epoch()
    assert same(before, weights_of(trainer))
    assert (trainer.epoch, trainer.history.epochs) == (0, [])


@pytest.mark.filterwarnings("ignore::mcflow.errors.McflowWarning")
def test_fit_that_always_diverges_ends_with_advice(monkeypatch) -> None:
    trainer = make_trainer()
    failing(trainer, monkeypatch, 99)
    with pytest.raises(TrainingError, match="after 3 restarts"):
        trainer.train()


# --- patterns of missing cells


def in_blocks(n_rows: int = 4000, share: float = 0.3) -> torch.Tensor:
    """Six columns; the last three are missing together."""
    seen = torch.ones((n_rows, 6), dtype=torch.bool)
    seen[torch.rand(n_rows, generator=torch.Generator().manual_seed(0)) < share, 3:] = False
    return seen


def alone(n_rows: int = 4000) -> torch.Tensor:
    return torch.rand((n_rows, 6), generator=torch.Generator().manual_seed(0)) > 0.3


def validation_cells(seen: torch.Tensor, share: float = 0.1, **more) -> ValidationCells:
    return ValidationCells(seen, MaskedConfig(validation_share=share), 2, torch.Generator().manual_seed(1), **more)


# patterns_of


def test_patterns_when_cells_are_missing_together_then_they_are_the_incomplete_rows() -> None:
    seen = in_blocks()
    assert torch.equal(patterns_of(seen), ~seen[~seen.all(1)])


@pytest.mark.parametrize(
    "seen",
    [alone(), torch.ones((50, 4), dtype=torch.bool), torch.zeros((50, 4), dtype=torch.bool), in_blocks()[:, :4]],
    ids=["one by one", "complete", "empty", "one incomplete column"],
)
def test_patterns_when_no_cells_are_missing_together_then_there_are_none(seen) -> None:
    assert patterns_of(seen) is None


def test_patterns_when_missing_cells_exclude_each_other_then_there_are_none() -> None:
    seen = torch.ones((400, 4), dtype=torch.bool)
    seen[:200, 0], seen[200:, 1] = False, False
    assert patterns_of(seen) is None


def test_patterns_when_there_are_many_rows_then_the_first_ones_are_used() -> None:
    seen = torch.cat([alone(PATTERN_ROWS), in_blocks()])
    assert patterns_of(seen) is None


# validation cells


def test_validation_cells_when_patterns_are_given_then_most_rows_take_them_whole() -> None:
    seen = torch.ones((4000, 6), dtype=torch.bool)
    validation = validation_cells(seen, 0.25, patterns=patterns_of(in_blocks()))
    blocks = validation.cells[..., 3:].all(-1) & ~validation.cells[..., :3].any(-1)
    share, by_chance = MaskedConfig().pattern_validation_share, 0.25**3 * 0.75**3
    assert float(blocks.float().mean()) == pytest.approx(share + (1 - share) * by_chance, abs=0.02)
    assert not torch.equal(validation.cells[0], validation.cells[1])


def test_validation_cells_when_patterns_are_large_then_no_more_are_chosen_than_twice_the_share() -> None:
    seen = torch.ones((4000, 6), dtype=torch.bool)
    validation = validation_cells(seen, 0.1, patterns=patterns_of(in_blocks()))
    assert float(validation.cells.sum() / (2 * seen.sum())) == pytest.approx(MAX_VALIDATION_SCALE * 0.1, rel=0.03)
    assert validation.cells.shape[1] == len(validation.rows) < 4000
    batch = torch.arange(4000).expand(2, -1)
    assert torch.equal(validation.of(torch.arange(2), batch)[:, validation.rows], validation.cells)
    assert int(validation.of(torch.arange(2), batch).sum()) == int(validation.cells.sum())


def test_validation_cells_when_nothing_is_to_be_validated_then_patterns_choose_nothing_either() -> None:
    assert not validation_cells(in_blocks(), 0.0, patterns=patterns_of(in_blocks())).cells.any()


def test_validation_cells_when_a_pattern_covers_missing_cells_then_only_observed_cells_are_chosen() -> None:
    seen = in_blocks()
    validation = validation_cells(seen, patterns=patterns_of(seen))
    assert not (validation.cells & ~seen[validation.rows]).any()


# training


def hidden_of(seen: torch.Tensor) -> torch.Tensor:
    """Hide cells of all rows once, as in training."""
    points = torch.linspace(-1, 1, 9).expand(6, -1).double().contiguous()
    streams = Streams(0)
    network = MaskedNetwork(points, points, torch.full((6,), 9), n_members=2, width=16, generator=streams.weights)
    trainer = MaskedTrainer(MaskedConfig().for_table(*seen.shape), network, torch.zeros(seen.shape), seen, streams)
    return trainer._hidden(seen.expand(2, -1, -1), len(seen), trainer.generator(0))


def test_training_when_cells_are_missing_together_then_half_of_the_whole_rows_lose_the_block() -> None:
    seen = in_blocks()
    hidden = hidden_of(seen)[:, seen.all(1)]
    blocks = hidden[..., 3:].all(-1)
    assert float(blocks.float().mean()) == pytest.approx(0.5, abs=0.03)
    others = hidden[..., :3].float()
    assert 0.01 < float(others[blocks].mean()) < 0.1 < float(others[~blocks].mean()) < 0.3


def test_training_when_the_pattern_of_another_row_hides_nothing_then_single_cells_are_hidden() -> None:
    seen = in_blocks()
    hidden = hidden_of(seen)[:, ~seen.all(1)]
    assert not hidden[..., 3:].any()
    assert float(hidden[..., :3].float().mean()) > 0.1


def test_intervals_when_cells_are_missing_together_then_they_hold_what_they_say() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(1500, 1))
    table = base + 0.4 * rng.normal(size=(1500, 6))
    table[:, 3:] += rng.normal(size=(1500, 1))  # the block tells more of itself than the others do
    missing = rng.random(1500) < 0.4
    given = table.copy()
    given[missing, 3:] = np.nan
    config = MaskedConfig(n_members=2, n_trees=10)
    low, high = MCFlowImputer(preset=config, max_epochs=25, random_state=0).fit(given).interval(given, level=0.9)
    inside = ((low <= table) & (table <= high))[missing, 3:]
    assert 0.85 < inside.mean() < 0.96

"""Progress: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from rich.console import Console

from mcflow import MCFlowImputer
from mcflow.config import Settings, TrainConfig
from mcflow.random import Streams
from mcflow.training import ProgressDisplay, Trainer
from mcflow.training.callbacks import ENDINGS
from mcflow.training.hidden import HiddenTrainer


def train(display: ProgressDisplay, **settings) -> None:
    config = TrainConfig(**{"max_epochs": 5, "tolerance": 0} | settings)
    rows = torch.rand(64, 3, generator=torch.Generator().manual_seed(0))
    Trainer(Settings(train=config), rows, torch.zeros(64, 3).bool(), Streams(0), callbacks=[display]).train()


def test_terminal_shows_epoch_losses_and_time_left() -> None:
    screen = io.StringIO()
    train(ProgressDisplay(Console(file=screen, force_terminal=True, width=120)))
    shown = screen.getvalue()
    assert "5/5" in shown
    assert "loss of G" in shown
    assert "at most 0:00 left" in shown
    assert "trained 5 epochs" in shown


def test_log_gets_a_line_now_and_then() -> None:
    screen = io.StringIO()
    train(ProgressDisplay(Console(file=screen, width=120), every_seconds=0))
    lines = screen.getvalue().splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("epoch 1/5: loss of G")
    assert "left" in lines[0]
    assert lines[-1].endswith("all epochs are done")


def test_ending_by_stability_is_said() -> None:
    screen = io.StringIO()
    train(ProgressDisplay(Console(file=screen)), max_epochs=300, tolerance=0.5, window=2)
    assert "both losses are stable" in screen.getvalue()


def test_display_is_closed_when_training_is_stopped(monkeypatch, preset) -> None:
    closed = []
    monkeypatch.setattr(ProgressDisplay, "close", lambda self: closed.append(True))

    def stop(self: Trainer | HiddenTrainer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_run_epoch", stop)
    monkeypatch.setattr(HiddenTrainer, "_run_epoch", stop)
    with pytest.raises(KeyboardInterrupt):
        MCFlowImputer(preset=preset, verbose=True, max_epochs=2).fit(np.random.default_rng(0).random((20, 2)))
    assert closed


def test_verbose_writes_to_standard_error_only(capsys, quick) -> None:
    quick(verbose=True).fit(np.random.default_rng(0).random((20, 2)))
    said = capsys.readouterr()
    assert said.out == ""
    assert "trained 2 epochs" in said.err


@pytest.mark.parametrize("terminal", [True, False])
def test_preset_with_one_loss_shows_one(monkeypatch, terminal) -> None:
    screen = io.StringIO()
    made = Console(file=screen, force_terminal=terminal, width=120)
    monkeypatch.setattr("mcflow.imputers.table.progress_listeners", lambda _: [ProgressDisplay(made, every_seconds=0)])
    MCFlowImputer(verbose=True, max_epochs=3, random_state=0).fit(np.random.default_rng(0).random((20, 2)))
    shown = screen.getvalue()
    assert "loss " in shown
    assert "loss of G" not in shown
    assert "3/3" in shown
    assert ("epoch 3/3: loss " in shown) == (not terminal)
    assert "trained 3 epochs" in shown
    assert "all epochs are done" in shown


def test_ending_by_held_out_cells_or_by_the_clock_is_said() -> None:
    for ending, words in (("held_out", "held-out cells get no better"), ("max_time", "the time is up")):
        assert ENDINGS[ending] == words

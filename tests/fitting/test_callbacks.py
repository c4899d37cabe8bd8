"""Progress of a fit: live on terminals, plain lines elsewhere, and JSON."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import sys
import types

import numpy as np
import pytest
import torch
from rich.console import Console

from mcflow import MCFlowImputer
from mcflow.fitting.callbacks import ENDINGS, Epoch, History
from mcflow.fitting.progress import JsonProgress, ProgressDisplay, can_be_live, progress_callbacks, write_event
from mcflow.masked.network import MaskedTrainer
from mcflow.paper.algorithm import Trainer
from mcflow.paper.config import PaperConfig
from mcflow.random import Streams


def train(display: ProgressDisplay | JsonProgress, **changes) -> None:
    config = PaperConfig(**{"max_epochs": 5, "tolerance": 0} | changes)
    rows = torch.rand(64, 3, generator=torch.Generator().manual_seed(0))
    Trainer(config, rows, torch.zeros(64, 3).bool(), Streams(0), callbacks=[display]).train()


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
    assert lines[-1].endswith("maximum number of epochs reached")


def test_ending_by_stability_is_shown() -> None:
    screen = io.StringIO()
    train(ProgressDisplay(Console(file=screen)), max_epochs=300, tolerance=0.5, window=2)
    assert "both losses are stable" in screen.getvalue()


def test_display_is_closed_when_training_is_stopped(monkeypatch, preset) -> None:
    closed = []
    monkeypatch.setattr(ProgressDisplay, "close", lambda self: closed.append(True))

    def stop(self: Trainer | MaskedTrainer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_run_epoch", stop)
    monkeypatch.setattr(MaskedTrainer, "_run_epoch", stop)
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
    monkeypatch.setattr(
        "mcflow.imputers.presets.progress_callbacks", lambda _: [ProgressDisplay(made, every_seconds=0)]
    )
    MCFlowImputer(verbose=True, max_epochs=3, random_state=0).fit(np.random.default_rng(0).random((20, 2)))
    shown = screen.getvalue()
    assert "loss " in shown
    assert "loss of G" not in shown
    assert "3/3" in shown
    assert ("epoch 3/3: loss " in shown) == (not terminal)
    assert "trained 3 epochs" in shown
    assert "maximum number of epochs reached" in shown


def test_ending_by_validation_cells_or_by_the_clock_is_shown() -> None:
    for ending, words in (
        ("early_stopping", "validation error no longer improves"),
        ("max_time", "time limit reached"),
    ):
        assert ENDINGS[ending] == words


def notebook(monkeypatch, *, widgets: bool) -> tuple[Console, list[str]]:
    """Return a console that takes itself for a notebook's, and what is displayed in it."""
    shown: list[str] = []
    display = types.ModuleType("IPython.display")
    display.display = lambda thing, **_: shown.append(getattr(thing, "text", str(thing)))
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "mcflow.fitting.progress.find_spec",
        lambda name: (object() if widgets else None) if name == "ipywidgets" else found(name),
    )
    return Console(file=io.StringIO(), force_jupyter=True, width=120), shown


def test_notebook_without_widgets_gets_lines_and_no_warning(monkeypatch) -> None:
    console, shown = notebook(monkeypatch, widgets=False)
    train(ProgressDisplay(console, every_seconds=0))
    text = "".join(shown)
    assert "epoch 5/5" in text
    assert "trained 5 epochs" in text


def test_notebook_with_widgets_can_be_live(monkeypatch) -> None:
    assert can_be_live(notebook(monkeypatch, widgets=True)[0])
    assert not can_be_live(notebook(monkeypatch, widgets=False)[0])


def test_dumb_terminal_gets_lines(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    screen = io.StringIO()
    train(ProgressDisplay(Console(file=screen, force_terminal=True, width=120), every_seconds=0))
    assert "\x1b" not in screen.getvalue()
    assert "epoch 5/5" in screen.getvalue()


def test_no_color_keeps_the_live_display_without_colours(monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen = io.StringIO()
    train(ProgressDisplay(Console(file=screen, force_terminal=True, width=120)))
    assert "5/5" in screen.getvalue()
    assert not re.search(r"\x1b\[[0-9;]*3[0-8][0-9;]*m", screen.getvalue())


def test_plain_lines_are_had_on_a_terminal_too() -> None:
    screen = io.StringIO()
    train(ProgressDisplay(Console(file=screen, force_terminal=True, width=120), every_seconds=0, live=False))
    assert len(screen.getvalue().splitlines()) == 6


def test_time_left_ends_with_the_limit_of_time() -> None:
    stream = io.StringIO()
    train(JsonProgress(stream), max_epochs=1_000_000, max_time=0.5)
    epochs = [e for e in map(json.loads, stream.getvalue().splitlines()) if e["event"] == "epoch"]
    assert epochs
    assert all(event["seconds_left"] <= 0.5 for event in epochs)


def test_json_has_the_events_in_order_one_per_line() -> None:
    stream = io.StringIO()
    train(JsonProgress(stream))
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [event["event"] for event in events] == ["begin", *["epoch"] * 5, "end"]
    assert events[0] == {"event": "begin", "epochs": 5, "rows": 64}
    third = events[3]
    assert set(third) == {
        *(
            "event",
            "epoch",
            "epochs",
            "flow_loss",
            "latent_loss",
            "validation_error",
            "stage",
            "seconds",
            "seconds_left",
        ),
    }
    assert (third["epoch"], third["epochs"], third["validation_error"]) == (3, 5, None)
    assert events[-1]["ending"] == "maximum number of epochs reached"


def test_json_writes_numbers_that_are_not_finite_as_null() -> None:
    stream = io.StringIO()
    write_event("epoch", stream=stream, loss=float("inf"), small=1.23456789e-7, large=12345.6789)
    assert json.loads(stream.getvalue()) == {"event": "epoch", "loss": None, "small": 1.23457e-7, "large": 12345.679}


def test_phases_before_and_after_the_epochs_are_shown(capsys, quick) -> None:
    quick(verbose="json", calibrate=True, max_time=1).fit(np.random.default_rng(0).random((30, 2)))
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    kinds = [event["event"] for event in events]
    phases = [event["name"] for event in events if event["event"] == "phase"]
    assert "calibrating" in phases
    assert kinds.index("end") < len(kinds) - 1


def test_phase_is_a_spinner_on_a_terminal_and_is_taken_away() -> None:
    screen = io.StringIO()
    display = ProgressDisplay(Console(file=screen, force_terminal=True, width=80))
    display.on_phase("calibrating")
    display.close()
    assert "calibrating" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[?25h") or "\x1b[?25h" in screen.getvalue()


@pytest.mark.parametrize(
    ("verbose", "kinds"),
    [(False, []), ("none", []), (True, [ProgressDisplay]), ("plain", [ProgressDisplay]), ("json", [JsonProgress])],
)
def test_verbose_chooses_the_callbacks(verbose, kinds) -> None:
    assert [type(one) for one in progress_callbacks(verbose)] == kinds


def history(*errors: float | None, ending: str = "max_time") -> History:
    epochs = [Epoch(k, 0.0, 1.0, 0, 0.1, error) for k, error in enumerate(errors, 1)]
    return History(epochs, ending)


def test_training_that_the_time_limit_ended_says_how_good_it_is() -> None:
    falling = history(0.81, 0.64, 0.49, 0.36).cut_short
    assert "is 60% of the mean's" in falling
    assert "fell by 25% in the second half, so more time" in falling
    assert "more time would bring little" in history(0.5, 0.36, 0.36, 0.36).cut_short
    assert "too early to compare" in history(0.5).cut_short
    assert not history(0.5, 0.4, ending="early_stopping").cut_short
    assert not history(None, None).cut_short
    finished = history(1.21, 1.0, 0.81, 0.81)
    finished.column_errors = [(0, 30, 0.5), (1, 10, 0.9)]
    assert "on validation cells is 60% of the mean's. That of the network fell by 10%" in finished.cut_short


def test_fit_that_the_time_limit_ended_says_so_after_all_phases(capsys) -> None:
    rows = np.random.default_rng(0).random((3000, 8))
    MCFlowImputer(verbose="json", max_epochs=10**6, max_time=0.3, random_state=0).fit(rows)
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert events[-1]["event"] == "cut_short"
    assert "The time limit ended the training" in events[-1]["quality"]


def test_time_limit_counts_from_the_first_phase(monkeypatch) -> None:
    from types import SimpleNamespace

    from mcflow.fitting import progress

    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    events = []
    monkeypatch.setattr(progress, "write_event", lambda event, stream=None, **facts: events.append((event, facts)))
    shown = progress.JsonProgress()
    trainer = SimpleNamespace(
        epoch=0, config=SimpleNamespace(max_epochs=10, max_time=30.0), history=history(0.5), rows=(), n_rows=3
    )
    shown.on_phase("growing trees")
    now[0] = 110.0
    shown.on_begin(trainer)
    now[0], trainer.epoch = 125.0, 1
    shown.on_epoch_end(trainer)
    assert events[-1][1]["seconds_left"] == 5.0


@pytest.mark.parametrize(("limit", "during", "after"), [(0.0, 90.0 + 40.0, 30.0), (60.0, 50.0, 0.0)])
def test_time_left_counts_the_phases_after_the_epochs(monkeypatch, limit, during, after) -> None:
    from types import SimpleNamespace

    from mcflow.fitting import progress

    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    events = []
    monkeypatch.setattr(progress, "write_event", lambda event, stream=None, **facts: events.append((event, facts)))
    screen = io.StringIO()
    shown = [progress.JsonProgress(), ProgressDisplay(Console(file=screen, width=120), every_seconds=0)]
    trainer = SimpleNamespace(
        epoch=0,
        config=SimpleNamespace(max_epochs=10, max_time=limit),
        history=history(0.5, ending="max_epochs"),
        n_rows=3,
        seconds_after=40.0,
    )
    for one in shown:
        one.on_begin(trainer)
    now[0], trainer.epoch = 110.0, 1
    for one in shown:
        one.on_epoch_end(trainer)
    assert events[-1][1]["seconds_left"] == during
    now[0], trainer.epoch = 200.0, 10
    for one in shown:
        one.on_end(trainer)
    now[0] = 210.0
    for one in shown:
        one.on_phase("growing trees on completed rows")
    assert events[-1][1]["seconds_left"] == after
    if not limit:
        assert "at most 2:10 left" in screen.getvalue()
        assert "growing trees on completed rows, at most 0:30 left" in screen.getvalue()

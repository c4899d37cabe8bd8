"""Machines, hours and money for a large table follow from what was measured."""

from __future__ import annotations

from argparse import Namespace

import pytest

import rendering
import sizing

GROWTH = {
    "by_rows": [
        {"rows": 1_000, "columns": 30, "transform_s": 9.0, "epoch_s": 9.0},
        {"rows": 1_000_000, "columns": 25, "transform_s": 20.0, "epoch_s": 60.0},
    ],
    "columns_exponent": {"transform_s": 1.0, "epoch_s": 0.5},
    "threads": 2,
    "load": [0.5],
    "torch": "2",
    "machine": "m",
}
OPTIONS = Namespace(rows=3_600_000, columns=100, cores=4, price=0.1)


@pytest.fixture
def measured(monkeypatch) -> dict:
    results = {"growth": GROWTH, "draws": {"draws": 20, "ratio": 10.0}, "ray": {"workers": 2, "speedup": 1.6}}
    monkeypatch.setattr(sizing, "stored", results.get)
    return results


def test_seconds_of_a_core_are_those_of_the_largest_table_by_the_power_of_its_columns() -> None:
    assert sizing.core_seconds(GROWTH, "transform_s", 100) == pytest.approx(20e-6 * 2 * 4)
    assert sizing.core_seconds(GROWTH, "epoch_s", 100) == pytest.approx(60e-6 * 2 * 2)


def test_filling_is_taken_from_files_where_that_was_measured() -> None:
    streams = {"threads": 2, "columns": 50, "fills": [{"rows_per_s": 1}, {"rows_per_s": 40_000}]}
    assert sizing.fill_seconds(GROWTH, streams, 100) == pytest.approx(2 / 40_000 * 2)
    assert sizing.fill_seconds(GROWTH, None, 100) == sizing.core_seconds(GROWTH, "transform_s", 100)


def test_hours_go_down_with_cores_and_up_with_what_workers_lose(measured) -> None:
    fill, draws, training = sizing.measure(OPTIONS)["tasks"]
    # 3.6 million rows at 160 µs are 0.16 core hours; workers keep 80 %.
    assert fill["core_hours"] == pytest.approx(0.2)
    assert fill["hours"]["1"] == pytest.approx(0.05)
    assert fill["cost"] == pytest.approx(0.02)
    assert draws["core_hours"] == pytest.approx(10 * fill["core_hours"])
    assert training["kept_share"] is None
    assert list(training["hours"]) == ["1"], "a fit does not gain from every machine"


def test_sizes_follow_from_cells(measured) -> None:
    found = sizing.measure(OPTIONS)
    assert (found["table_gb"], found["fit_disk_gb"]) == (3, 2)
    assert found["mb_per_s_machine"] == round(4 / 160e-6 * 800 / 1e6)


def test_nothing_is_said_without_measurements(monkeypatch) -> None:
    monkeypatch.setattr(sizing, "stored", lambda name: None)
    with pytest.raises(SystemExit, match="growth"):
        sizing.measure(OPTIONS)


def test_block_shows_every_task_the_price_and_what_is_assumed(measured) -> None:
    text = rendering.sizing(sizing.measure(OPTIONS))
    assert text.count("\n| ") == 3
    assert "assumed 0.10 USD" in text
    assert "$" not in text, "a page would take it for a formula"
    assert "fill 80 %" in text
    assert "| one epoch of training | 4,167 | 0.06 h | – | – | – |" in text

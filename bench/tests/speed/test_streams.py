"""Streams: tables that are made once, and a block that says which limits were kept."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

import rendering
import streams

UNDER = {"threads": 1, "load": [0.5], "torch": "2", "machine": "x"}


def test_table_is_made_once_with_noise_and_missing_cells(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(streams, "letters", lambda: np.arange(30, dtype=np.float32).reshape(10, 3))
    monkeypatch.setattr(streams, "FILE_ROWS", 600)
    monkeypatch.setattr(streams, "GROUP_ROWS", 250)
    streams.make(tmp_path / "rows", 1000)
    files = sorted((tmp_path / "rows").iterdir())
    assert [pq.read_metadata(file).num_rows for file in files] == [600, 400]
    table = streams.some(tmp_path / "rows", 800)
    missing = [column.null_count / 800 for column in table.columns]
    assert missing == pytest.approx([streams.MISSING] * 3, abs=0.06)
    monkeypatch.setattr(streams, "letters", None)
    streams.make(tmp_path / "rows", 1000)


@pytest.mark.parametrize(("kept", "words"), [(True, "for the fit is kept"), (False, "for the fit is **not** kept")])
def test_block_says_which_limits_were_kept(kept, words) -> None:
    fit = {"fit_s": 300.0, "n_epochs": 1, "n_members": 1, "rmse": 0.0912, "peak_gib": 1.5, "rows": 20_000_000}
    limits = {"fit_gib": 3.0, "fill_gib": 2.0, "growth": 1.1, "pace": 0.9}
    limits |= {"fit_kept": kept, "fill_kept": True, "pace_kept": True}
    found = {
        "columns": 16,
        "max_time_s": 300.0,
        "fit": fit,
        "fit_of_sample": fit | {"rows": 1_000_000},
        "fills": [{"rows": 2_000_000, "rows_per_s": 21_000, "peak_gib": 0.6}],
        "in_memory": {"rows": 262_144, "rows_per_s": 22_000},
        "pace": 0.95,
        "limits": limits,
    }
    text = rendering.streams(found | UNDER)
    assert "| fill files | 2,000,000 | 21,000 | 0.60 GiB | – |" in text
    assert words in text
    assert "no more than 10 % of growth" in text
    assert "**95 %**" in text

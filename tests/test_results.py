"""Figures on the pages are those that a command wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

import results


@pytest.mark.parametrize("page", results.PAGES)
def test_page_shows_the_stored_results(page) -> None:
    text = (Path(results.ROOT) / page).read_text()
    own = {"images": "images", "evaluate": "evaluate", "scale": "sizing", "server": "serve"}.get(
        Path(page).stem, "epoch"
    )
    assert f"<!-- result {own} -->" in text
    assert results.rendered(text) == text, "run `python speed/results.py`"

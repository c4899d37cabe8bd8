"""The report in a browser: its script runs, nothing is fetched, and it fits a desktop and a phone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mcflow import MCFlowImputer
from mcflow.baselines import make
from mcflow.files.datasets import nhanes_path
from mcflow.report import write_report

#: Pictures of the docs are made when this is set.
PICTURES = os.environ.get("MCFLOW_PICTURES")
DESK, PHONE = {"width": 1180, "height": 860}, {"width": 390, "height": 844}
COLUMNS = ["age", "gender", "education", "income_poverty_ratio", "bmi", "waist_cm", "sbp1", "dbp1", "hdl", "blood_lead"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on a part of NHANES; of a whole fit when pictures are wanted."""
    table = pd.read_parquet(nhanes_path())[COLUMNS]
    table["dbp1"] = table["dbp1"].mask(table["dbp1"] == 0)  # no sound was heard
    imputer: Any = MCFlowImputer(random_state=0, max_time=60) if PICTURES else make("mean")
    table = table if PICTURES else table.head(400)
    path = tmp_path_factory.mktemp("report") / "report.html"
    filled = imputer.fit(table).transform(table)
    write_report(path, imputer, table, filled, command="mcflow impute nhanes.csv -o filled.csv --report report.html")
    return path


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Any]:
    """Open the report; anything that it fetches, and any error, fails the test."""
    contexts, troubles = [], []

    def open_report(size: dict[str, int] = DESK, scheme: str = "light") -> Any:
        context = browser.new_context(viewport=size, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: troubles.append(said.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda asked: troubles.append(asked.url) if asked.url != report.as_uri() else None)
        page.goto(report.as_uri())
        return page

    yield open_report
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_report_fits_the_screen_and_follows_the_scheme(opened: Any, size: dict[str, int], scheme: str) -> None:
    page = opened(size, scheme)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)")


def test_colours_change_by_keyboard_and_the_skip_link_comes_first(opened: Any) -> None:
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "theme"
    page.keyboard.press("Enter")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    assert page.text_content("#theme") == "Light colours"


def test_print_is_dark_on_white_and_opens_what_is_folded(opened: Any) -> None:
    page = opened(scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    folded = page.evaluate("document.querySelectorAll('details:not([open])').length")
    assert folded > 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == folded


@pytest.mark.skipif(not PICTURES, reason="pictures of the docs are made with MCFLOW_PICTURES=1")
def test_pictures_of_the_docs_are_made(opened: Any) -> None:
    folder = Path(__file__).parents[2] / "docs" / "pictures"
    for scheme in ("light", "dark"):
        page = opened({"width": 1180, "height": 760}, scheme)
        page.screenshot(path=folder / f"report_summary_{scheme}.png")
        page.evaluate("document.querySelector('#columns').scrollIntoView({behavior: 'instant'})")
        page.screenshot(path=folder / f"report_columns_{scheme}.png")

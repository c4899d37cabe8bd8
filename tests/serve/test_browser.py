"""The page in a real browser: upload, correct, fit, review and download, on a desktop and on a phone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcflow.serve.jobs import Job, JobStore
from mcflow.serve.preview import write_texts

#: Where pictures go; nowhere unless asked.
PICTURES = os.environ.get("MCFLOW_PICTURES")
#: Few, unless there is a picture to be made of them.
EPOCHS = "100" if PICTURES else "8"
DESK, PHONE = {"width": 1180, "height": 860}, {"width": 390, "height": 844}
#: A busy machine takes its time.
PATIENCE = 300_000


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of jobs with a finished one of 100,000 rows, and one that another server left interrupted."""
    folder = tmp_path_factory.mktemp("jobs")
    store = JobStore(folder)
    _finished(store)
    left = Job(store.new_folder(), filename="left.csv", size=20, state="running")
    left.upload.write_text("a,b\n1,\n2,3\n")
    (left.folder / "schema.json").write_text(_schema(2, ["a", "b"]))
    store.create(left)
    return folder


def _schema(rows: int, names: list[str]) -> str:
    column = {"dtype": "double", "kind": "continuous", "missing": 1, "examples": [], "range": None}
    columns = [{"name": name, **column} for name in names]
    return json.dumps({"rows": rows, "missing": len(names), "columns": columns, "preview": [], "problem": ""})


def _finished(store: JobStore) -> None:
    rows, names = 100_000, [f"column {place}" for place in range(30)]
    job = Job(
        store.new_folder(), filename="long.parquet", ending=".parquet", size=24_000_000, state="done", table="ready"
    )
    values = np.arange(rows, dtype=float)
    missing = np.zeros(rows, dtype=bool)
    missing[[70_000, rows - 1]] = True
    before = {name: pa.array(values + place, mask=missing if place == 3 else None) for place, name in enumerate(names)}
    pq.write_table(pa.table(before), job.upload)
    pq.write_table(pa.table({name: values + place for place, name in enumerate(names)}), job.output)
    write_texts(job.upload, job.output, job.folder / "texts.parquet")
    (job.folder / "schema.json").write_text(_schema(rows, names))
    job.table, job.intervals, job.ended = "ready", "There is no model.", time.time()
    store.create(job)


@pytest.fixture(scope="module")
def address(serve: Callable[..., Any], jobs: Path) -> str:
    return str(serve(jobs).url)


@pytest.fixture
def page_of(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Open the page; an error in its scripts fails the test."""
    contexts: list[Any] = []
    errors: list[str] = []

    def open_page(path: str = "", size: dict[str, int] = DESK, scheme: str = "light") -> Any:
        context = browser.new_context(viewport=size, color_scheme=scheme, locale="en-GB", accept_downloads=True)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if "Content Security Policy" in said.text else None)
        page.goto(f"{address}/{path}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


def picture(page: Any, name: str) -> None:
    """Keep a picture for the docs, when asked, in light and in dark."""
    if not PICTURES:
        return
    folder = Path(__file__).parents[2] / "docs" / "pictures"
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(250)
        page.screenshot(path=folder / f"serve_{name}_{scheme}.png")
    page.emulate_media(color_scheme="light")


def drop(page: Any, name: str, text: str) -> None:
    """Let go of a file above the place for it."""
    make = "([name, text]) => { const t = new DataTransfer(); t.items.add(new File([text], name)); return t; }"
    page.dispatch_event(".drop", "drop", {"dataTransfer": page.evaluate_handle(make, [name, text])})


def fits_the_screen(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_dropped_file_is_corrected_fitted_and_downloaded_as_the_command_would(page_of, table_text, tmp_path) -> None:
    source, expected = tmp_path / "patients.csv", tmp_path / "expected.csv"
    source.write_text(table_text)
    flags = ["--seed", "1", "--max-epochs", EPOCHS, "--kind", "site=category", "--quiet"]
    command = [sys.executable, "-m", "mcflow", "impute", str(source), "-o", str(expected), *flags]
    with subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}) as by_hand:
        page = _run_on_the_page(page_of, table_text)
    assert by_hand.returncode == 0
    page.get_by_text("to see its 90 % interval").wait_for()
    _shows_the_summary(page, table_text)
    numbers = ", ".join(f"[data-column='{place}']" for place in range(4))
    page.locator(f".grid-cell.filled:is({numbers})").nth(2).hover()
    page.locator("#grid-tip", has_text="90 % interval:").wait_for()
    picture(page, "cells")
    with page.expect_download() as download:
        page.click("#download-filled")
    assert download.value.suggested_filename == "patients_filled.csv"
    assert Path(download.value.path()).read_bytes() == expected.read_bytes()
    _goes_by_keys(page)
    _looks_at_the_report(page)
    _makes_draws(page, table_text)
    _deletes(page)


def _run_on_the_page(page_of: Callable[..., Any], text: str) -> Any:
    """Drop, correct, start, watch, close the page, and open it again."""
    page = page_of()
    page.wait_for_selector(".drop")
    picture(page, "home")
    drop(page, "patients.csv", text)
    site = page.get_by_label("Kind of site")
    assert site.input_value() == "integer"
    site.select_option("category")
    assert page.get_by_text("Show more").count() == 0 or not page.get_by_text("Show more").is_visible()
    page.locator(".preview summary").click()
    assert page.locator(".preview .missing-cell").count() > 5
    picture(page, "columns")
    page.get_by_label("Seed").fill("1")
    page.get_by_label("Maximum epochs").fill(EPOCHS)
    page.get_by_role("button", name="Start").click()
    page.wait_for_selector(".chart")
    assert page.get_by_text("Cancel stops the fit and keeps the file").is_visible()
    assert page.locator("progress").is_visible()
    if PICTURES:
        page.get_by_text(re.compile(r"Epoch [2-9]\d of")).wait_for()
    picture(page, "fit")
    where = page.url
    page.context.close()  # the work goes on without the page

    return page_of(where.partition("/")[2].partition("/")[2].partition("/")[2])


def _shows_the_summary(page: Any, text: str) -> None:
    """Every incomplete column has a line, and the table opens on the first filled cell."""
    cells = [line.split(",") for line in text.splitlines()]
    missing = sum(row[2] == "" for row in cells[1:])
    weight = page.locator(".by-column tr", has_text="weight").inner_text().split("\t")
    assert weight[:4] == ["weight", "number", str(missing), "0"]
    assert 40 < float(weight[4]) < 110
    assert 40 < float(weight[5]) < 110
    row = next(number for number, row in enumerate(cells[1:]) if "" in row)
    # The rows are loaded anew when the intervals arrive.
    page.locator(f"[data-row='{row}'][data-column='{cells[row + 1].index('')}'].active.filled").wait_for()


def _goes_by_keys(page: Any) -> None:
    page.locator(".grid").focus()
    page.mouse.move(0, 0)
    page.keyboard.press("Control+Home")
    page.keyboard.press("n")
    page.wait_for_selector("#grid-tip:not([hidden])")
    active = page.locator(".grid").get_attribute("aria-activedescendant")
    assert "filled" in page.locator(f"#{active}").get_attribute("aria-label")


def _looks_at_the_report(page: Any) -> None:
    page.locator(".report-part summary").click()
    frame = page.frame_locator("iframe.report")
    frame.locator("h1, h2").first.wait_for()
    page.locator(".report-part").scroll_into_view_if_needed()
    page.locator(".report-part").evaluate("(part) => part.scrollIntoView()")
    picture(page, "report")


def _makes_draws(page: Any, text: str) -> None:
    page.get_by_label("Draws").fill("2")
    page.get_by_role("button", name="Make draws").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download 2 draws").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0].split(",")[-1] == "draw"
    assert len(lines) - 1 == 2 * (len(text.splitlines()) - 1)


def _deletes(page: Any) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete now").click()
    page.get_by_text("Upload a table with missing values").wait_for()
    assert page.get_by_role("link", name="patients.csv").count() == 0


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("rows.ods", "PK", "unsupported format"),
        ("empty.csv", "", "is empty"),
        ("ragged.csv", "a,b\n1,2\n3\n4,5,6\n", "line 3 has 1 cell"),
        ("damaged.csv.gz", "no archive", "cannot be decompressed"),
    ],
)
def test_wrong_file_ends_in_a_message(page_of, name, text, words) -> None:
    page = page_of()
    page.wait_for_selector(".drop")
    drop(page, name, text)
    page.get_by_role("alert").filter(has_text=words).wait_for()
    page.locator(".drop:not(.busy)").or_(page.get_by_role("link", name="Upload another file")).wait_for()


def test_table_scrolls_through_a_hundred_thousand_rows(page_of) -> None:
    page = page_of()
    page.get_by_role("link", name="long.parquet").click()
    page.wait_for_selector("[data-row='70000'][data-column='3'].active.filled")  # it opens on the first filled cell
    assert page.locator(".grid-cell").count() < 1000
    page.locator(".grid").evaluate("(grid) => grid.scrollTo(0, grid.scrollHeight)")
    page.wait_for_selector("[data-row='99999'].filled")
    assert page.locator("[data-row='99999'][data-column='3']").inner_text() == "100002"
    page.get_by_label("Row", exact=True).fill("50000")
    page.get_by_role("button", name="Go", exact=True).click()
    page.wait_for_selector("[data-row='49999'][data-column='0']:not(.loading)")
    assert page.locator("[data-row='49999'][data-column='0']").inner_text() == "49999"
    page.get_by_role("button", name="Next filled cell").click()
    page.wait_for_selector("[data-row='70000'][data-column='3'].active.filled")
    page.locator(".grid").focus()
    page.keyboard.press("End")
    page.wait_for_selector("[data-row='70000'][data-column='29'].active:not(.loading)")
    assert page.locator(".active").inner_text() == "70029"


def test_suspected_codes_are_taken_as_missing_with_one_click(page_of) -> None:
    rows = [f"{40 + i % 37},{-999 if i % 9 == 0 else 110 + i % 31}" for i in range(90)]
    page = page_of()
    page.wait_for_selector(".drop")
    page.locator(".reading summary").click()
    page.get_by_label("Lines above the header").fill("2")
    drop(page, "pressure.csv", "\n".join(["Survey 2021", "by ward", "age,sbp", *rows, ""]))
    page.get_by_text("1 column may contain codes for missing cells").wait_for()
    assert "−999 (10 cells)".replace("−", "-") in page.locator("tr", has_text="sbp").first.inner_text()
    page.get_by_label("Role of age").select_option("predictors_only")
    page.get_by_role("button", name="Take -999 (10 cells) as missing in sbp").click()
    page.get_by_text("-999 taken as missing").wait_for()
    assert "11 %" in page.locator("tr", has_text="sbp").first.inner_text()
    assert page.get_by_label("Role of age").input_value() == "predictors_only"  # the other choices are kept
    page.get_by_role("button", name="Use -999 as values in sbp").click()
    page.get_by_role("button", name="Take all as missing").click()
    page.get_by_text("-999 taken as missing").wait_for()
    assert page.get_by_label("Codes for missing cells").input_value() == "auto"
    page.get_by_label("Lines above the header").fill("500")
    page.get_by_role("button", name="Read again").click()
    page.get_by_role("alert").wait_for()
    assert page.get_by_text("-999 taken as missing").is_visible()  # what cannot be read changes nothing


def test_only_kinds_that_a_column_can_have_are_offered(page_of) -> None:
    page = page_of()
    page.wait_for_selector(".drop")
    rows = [f"{i / 7:.3f},{'ab'[i % 2]},2024-01-{1 + i % 28:02d}" for i in range(40)]
    drop(page, "kinds.csv", "\n".join(["x,word,day", *rows, ""]))
    page.get_by_label("Kind of x").wait_for()
    values, names = "(all) => all.map((one) => one.value)", ("x", "word", "day")
    offered = {n: page.get_by_label(f"Kind of {n}").locator("option").evaluate_all(values) for n in names}
    assert offered["x"] == ["continuous", "integer", "category", "ordered", "identifier", "text"]
    assert {"continuous", "integer", "datetime"}.isdisjoint(offered["word"])
    assert {"category", "continuous"}.isdisjoint(offered["day"])


def test_interrupted_job_can_be_resumed(page_of) -> None:
    page = page_of()
    page.get_by_role("link", name="left.csv").click()
    page.get_by_text("The server was stopped while this job was running").wait_for()
    assert page.get_by_role("button", name="Resume").is_visible()
    assert page.get_by_text("Resume continues from the last checkpoint").is_visible()


def test_page_fits_a_phone_and_can_be_used_with_keys(page_of) -> None:
    page = page_of(size=PHONE)
    page.wait_for_selector(".files")
    assert fits_the_screen(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.get_by_role("link", name="left.csv").press("Enter")
    page.get_by_label("Kind of a").wait_for()
    assert fits_the_screen(page)
    page.get_by_role("link", name="All files").press("Enter")
    page.get_by_role("link", name="long.parquet").press("Enter")
    page.wait_for_selector("[data-row='70000'].filled")
    assert fits_the_screen(page)
    picture(page, "phone")


def test_every_field_and_button_has_a_name_and_text_stands_out(page_of) -> None:
    page = page_of()
    page.get_by_role("link", name="left.csv").click()
    page.get_by_label("Kind of a").wait_for()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("main button, main a, main input, main select")]
        .filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length))
        .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    assert page.locator("#live[aria-live='polite']").count() == 1
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert min(page.evaluate(CONTRASTS)) >= 4.5, scheme


#: The contrast of text with its ground for the colours of the page.
CONTRASTS = """() => {
  const style = getComputedStyle(document.documentElement);
  const light = (name) => {
    const [r, g, b] = style.getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi).map((two) => parseInt(two, 16) / 255)
      .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const pairs = [["--ink", "--ground"], ["--ink", "--card"], ["--soft", "--ground"], ["--soft", "--card"],
    ["--accent", "--card"], ["--accent", "--ground"], ["--accent-ink", "--accent"], ["--ink", "--mark-soft"],
    ["--ink", "--bad-soft"], ["--bad", "--card"], ["--ink", "--accent-soft"]];
  return pairs.map(([one, other]) => {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  });
}"""

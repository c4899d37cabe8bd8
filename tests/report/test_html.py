"""The HTML report: its content, safety, size and accessibility."""

from __future__ import annotations

import itertools
import json
import re
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from report_pages import Page, mean_fill

from mcflow import MCFlowImputer
from mcflow.baselines import make
from mcflow.report import report_facts, report_html

EVIL = "<script>alert('x')</script> & \"$5$\""
MOST_BYTES = 2_000_000

EVALUATION = {
    "rows": 200,
    "columns": 2,
    "hidden_cells": 80,
    "repeats": 2,
    "level": 0.9,
    "methods": [
        {"name": "mcflow", "seconds": 12.5, "relative_error": 0.61, "coverage": 0.91, "error_message": None},
        {"name": "mean", "seconds": 0.1, "relative_error": 1.0, "coverage": None, "error_message": None},
        {"name": "forest", "seconds": None, "relative_error": None, "coverage": None, "error_message": "It <failed>."},
    ],
    "per_column": [
        {
            "name": EVIL,
            "kind": "continuous",
            "measure": "rmse",
            "hidden": 40,
            "predictable": True,
            "methods": {
                "mcflow": {"error": 1.25, "relative": 0.5, "coverage": 0.9},
                "mean": {"error": 2.5, "relative": 1.0, "coverage": None},
                "forest": {"error": None, "relative": None, "coverage": None},
            },
        },
        {
            "name": "town",
            "kind": "category",
            "measure": "error rate",
            "hidden": 40,
            "predictable": False,
            "methods": {"mcflow": {"error": 0.7, "relative": 1.1, "coverage": None}},
        },
    ],
    "verdict": ["mcflow is better than the mean in 1 of 2 columns.", "Do not trust <town>."],
    "settings": {"share": 0.2, "random_state": 0},
}


def mixed(n: int = 160) -> pd.DataFrame:
    """Return a table of every kind with names and categories that a page has to escape."""
    rng = np.random.default_rng(0)
    age = rng.normal(50, 12, n).round(1)
    frame = pd.DataFrame(
        {
            EVIL: age,
            "weight": 60 + 0.3 * age + rng.normal(0, 8, n),
            "town": rng.choice(["<b>Köln</b>", "東京", "x" * 500], n),
            "visit": pd.to_datetime("2020-01-01") + pd.to_timedelta((age * 10).round(), unit="D"),
            "member": pd.array(rng.random(n) < 0.4, dtype="boolean"),
            "big": pd.array(2**60 + rng.integers(0, 10**6, n), dtype="Int64"),
            "low": rng.uniform(0, 5, n),
            "id": [f"p{k:05d}" for k in range(n)],
        }
    )
    frame["high"] = frame["low"] + rng.uniform(0, 5, n)
    for name in frame.columns:
        frame.loc[rng.random(n) < 0.2, name] = None
    return frame


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return mixed()


@pytest.fixture(scope="module")
def fitted(table: pd.DataFrame) -> MCFlowImputer:
    with pytest.warns(UserWarning, match="identifier"):
        return MCFlowImputer(max_epochs=3, rules=["low <= high"], bounds={"weight": (0, 200)}, random_state=0).fit(
            table
        )


@pytest.fixture(scope="module")
def html(fitted: MCFlowImputer, table: pd.DataFrame) -> str:
    return report_html(fitted, table, fitted.transform(table), command="mcflow impute 'a <b>.csv' -o out.csv")


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


# Content


def test_report_of_a_fill_has_every_section(page: Page) -> None:
    ids = {attributes["id"] for attributes in page.all("section")}
    assert ids == {
        *(
            "summary",
            "inspection",
            "missing",
            "training",
            "columns",
            "correlations",
            "uncertainty",
            "calibration",
            "constraints",
        ),
        "reproduce",
    }
    for link in page.all("a"):
        assert link["href"].removeprefix("#") in ids | {"main"}


def test_summary_states_counts_that_are_those_of_the_table(page: Page, table: pd.DataFrame) -> None:
    missing = int(table.isna().sum().sum())
    rows = int(table.isna().any(axis=1).sum())
    assert "The table has 160 rows and 9 columns." in page.text
    assert f"{missing:,} of its 1,440 cells are missing" in page.text
    assert f"in 9 columns and {rows} rows" in page.text
    left = int(table["id"].isna().sum())
    assert f"{missing - left} cells were filled; {left} are still missing" in page.text
    assert "trained for 3 epochs" in page.text
    assert re.search(r"90 % intervals cover [\d.]+ % of [\d,]+ validation cells\.", page.text.replace("\u00a0", " "))
    assert "mcflow impute 'a <b>.csv' -o out.csv" in page.text


def test_every_filled_column_has_a_picture(page: Page) -> None:
    labels = [svg["aria-label"] for svg in page.all("svg")]
    for name in (EVIL, "weight", "town", "visit", "member", "big", "low", "high"):
        drawn = [label for label in labels if re.match(rf"(Histograms of|Bars for) {re.escape(name)}:", label)]
        assert len(drawn) == 1, name
    assert not any("p000" in label for label in labels)


def test_facts_are_plain_and_their_cells_are_those_of_the_tables(fitted: MCFlowImputer, table: pd.DataFrame) -> None:
    filled = fitted.transform(table)
    facts = report_facts(fitted, table, filled)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    entry = next(c for c in facts["columns"]["drawn"] if c["name"] == "weight")
    missing = table["weight"].isna()
    assert (entry["observed"], entry["filled"]) == ((~missing).sum(), missing.sum())
    assert entry["filled_quartiles"][1] == f"{filled['weight'][missing].median():.4g}"
    cell = facts["uncertainty"]["numbers"][0]
    low, high = fitted.interval(table, level=0.9)
    row, name = cell["row"] - 1, cell["column"]
    assert pd.isna(table[name].iloc[row])
    if name != "visit":
        shown = [float(cell[key].replace(",", "").replace("−", "-")) for key in ("low", "value", "high")]
        true = [float(frame[name].iloc[row]) for frame in (low, filled, high)]
        assert shown == pytest.approx(true, rel=1e-3)


def test_widest_intervals_come_first_and_no_column_fills_the_list(fitted: MCFlowImputer, table: pd.DataFrame) -> None:
    cells = report_facts(fitted, table, fitted.transform(table))["uncertainty"]["numbers"]
    widths = [cell["width"] for cell in cells]
    assert widths == sorted(widths, reverse=True)
    assert max(pd.Series([cell["column"] for cell in cells]).value_counts()) <= 4


def test_least_probable_categories_have_the_probability_that_the_imputer_predicts(
    fitted: MCFlowImputer, table: pd.DataFrame
) -> None:
    cells = report_facts(fitted, table, fitted.transform(table))["uncertainty"]["categories"]
    predicted = fitted.predict_proba(table)
    for cell in cells[:3]:
        probabilities = predicted[cell["column"]].iloc[cell["row"] - 1]
        assert cell["probability"] == pytest.approx(probabilities.max(), abs=1e-3)


def test_patterns_are_counted_as_pandas_counts_them(table: pd.DataFrame) -> None:
    facts = report_facts(None, table)["missing"]
    counts = table.isna().value_counts()
    assert facts["patterns"]["n_patterns"] == len(counts)
    assert [one["rows"] for one in facts["patterns"]["most_frequent"][:3]] == counts.iloc[:3].tolist()
    names = facts["patterns"]["columns"]
    for one in facts["patterns"]["most_frequent"]:
        mask = table.isna().rename(columns=lambda name: name[:60])
        absent = [names[k] for k in one["missing"]]
        exact = mask[absent].all(axis=1) & ~mask[[n for n in names if n not in absent]].any(axis=1)
        assert int(exact.sum()) == one["rows"]


def test_columns_that_are_always_missing_together_are_named() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 3))
    rows[::4, :2] = np.nan
    rows[1::9, 2] = np.nan
    found = report_facts(None, pd.DataFrame(rows, columns=list("abc")))["missing"]["co_missing"]
    assert found["pairs"] == [{"first": "a", "second": "b", "correlation": 1.0}]
    assert found["shares"][0][1] == 1.0


def test_correlations_before_are_those_of_complete_pairs() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 1)) + 0.6 * rng.normal(size=(300, 3)), columns=list("abc"))
    frame.loc[rng.random(300) < 0.3, "b"] = np.nan
    imputer, filled = mean_fill(frame)
    facts = report_facts(imputer, frame, filled)["correlations"]
    assert facts["before"][0][1] == pytest.approx(frame.corr().iloc[0, 1], abs=1e-3)
    assert facts["after"][0][1] == pytest.approx(filled.corr().iloc[0, 1], abs=1e-3)
    assert "b" in (facts["pairs"][0]["first"], facts["pairs"][0]["second"])


def test_constraints_count_cells_that_are_outside(fitted: MCFlowImputer, table: pd.DataFrame) -> None:
    filled = fitted.transform(table)
    whole = report_facts(fitted, table, filled)["fills"]["constraints"]
    assert whole["met"] == whole["cells"] > 0
    assert [rule["rule"] for rule in whole["rules"]] == ["low <= high"]
    assert whole["rules"][0]["met"] == whole["rules"][0]["rows"] > 0
    assert [one["words"] for one in whole["stated"] if one["name"] == "weight"] == ["from 0 to 200"]
    row = int(np.flatnonzero(table["weight"].isna())[0])
    spoilt = filled.copy()
    spoilt.loc[row, "weight"] = -5.0
    broken = report_facts(fitted, table, spoilt)
    assert broken["fills"]["constraints"]["met"] == whole["met"] - 1
    assert "1 filled cell of" in Page(report_html(fitted, table, spoilt)).text


def test_calibration_is_that_of_the_validation_cells(fitted: MCFlowImputer) -> None:
    table = mixed()
    facts = report_facts(fitted, table, fitted.transform(table))["calibration"]
    assert facts["uncalibrated"] == sorted(facts["uncalibrated"])
    at = facts["levels"].index(0.9)
    assert facts["calibrated"][at] == pytest.approx(0.9, abs=0.06)
    names = {column["name"] for column in facts["columns"]}
    assert "town" not in names


def test_draws_are_shown_with_their_range(fitted: MCFlowImputer, table: pd.DataFrame) -> None:
    draws = list(fitted.draw(table, m=4, random_state=0))
    facts = report_facts(fitted, table, draws[0], draws=draws)["columns"]
    assert facts["n_draws"] == 4
    weight = next(c for c in facts["drawn"] if c["name"] == "weight")
    pairs = zip(weight["lowest_shares"], weight["filled_shares"], weight["highest_shares"], strict=True)
    assert all(low <= mean <= high for low, mean, high in pairs)
    assert weight["lowest_shares"] != weight["highest_shares"]
    assert "4 draws are shown" in Page(report_html(fitted, table, draws[0], draws=iter(draws))).text


def test_report_without_a_filled_table_fills_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcflow.report import tables

    monkeypatch.setattr(tables, "MAX_FILLED_ROWS", 50)
    rows = np.random.default_rng(0).normal(size=(120, 2))
    rows[::3, 1] = np.nan
    page = Page(report_html(make("mean").fit(rows), rows))
    assert "40 of its 240 cells are missing" in page.text
    assert "a sample of 50 rows was filled" in page.text


def test_rows_of_uncertain_cells_are_those_of_the_whole_table(
    fitted: MCFlowImputer, table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcflow.report import tables

    monkeypatch.setattr(tables, "MAX_FILLED_ROWS", 60)
    uncertainty = report_facts(fitted, table)["uncertainty"]
    assert len(uncertainty["numbers"]) > 5
    for cell in (*uncertainty["numbers"], *uncertainty["categories"]):
        assert pd.isna(table[cell["column"]].iloc[cell["row"] - 1])


def test_facts_need_no_extra(table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("matplotlib", "matplotlib.figure", "jinja2"):
        monkeypatch.setitem(sys.modules, package, None)
    frame = table[["weight", "low"]]
    assert report_facts(make("mean").fit(frame), frame)["fills"]["left"] == 0


def test_evaluation_has_its_verdict_methods_and_columns(table: pd.DataFrame) -> None:
    page = Page(report_html(None, table, evaluation=EVALUATION, command="mcflow evaluate data.csv"))
    for words in (*EVALUATION["verdict"], "It <failed>.", "91 %", "12 s", "cannot be predicted from the other columns"):
        assert words in page.text, words
    (errors,) = [svg["aria-label"] for svg in page.all("svg") if svg["aria-label"].startswith("Errors")]
    assert "mcflow 0.50, mean 1.00" in errors
    assert {"evaluation", "missing", "reproduce"} <= {one["id"] for one in page.all("section")}
    assert "columns" not in {one["id"] for one in page.all("section")}


def test_stages_and_both_losses_of_the_paper_preset_are_drawn() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2))
    rows[::5, 1] = np.nan
    imputer = MCFlowImputer(preset="paper", max_epochs=5, calibrate=False, random_state=0).fit(rows)
    facts = report_facts(imputer, rows, imputer.transform(rows))
    assert facts["training"]["stage_starts"] == [2, 3, 5]
    page = Page(report_html(imputer, rows, imputer.transform(rows)))
    labels = [svg["aria-label"] for svg in page.all("svg")]
    assert any(label.startswith("Loss of the flow G") and "4 stages" in label for label in labels)
    assert any(label.startswith("Loss of the network H") for label in labels)
    assert "The fit had no validation cells" in page.text


@pytest.mark.parametrize("kind", [pl.from_pandas, pa.Table.from_pandas, pd.DataFrame.to_numpy])
def test_every_kind_of_table_gives_the_same_picture(kind: Any) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    frame.loc[::5, "b"] = np.nan
    imputer, filled = mean_fill(frame)
    others = mean_fill(kind(frame))
    expected = report_facts(imputer, frame, filled)["columns"]["drawn"][0]
    found = report_facts(others[0], kind(frame), others[1])["columns"]["drawn"][0]
    assert found | {"name": "b"} == expected


# Safety and size


def test_names_and_categories_are_escaped_everywhere(html: str, page: Page) -> None:
    assert "<script>alert" not in html
    assert "<b>Köln" not in html
    assert len(page.all("script")) == 1
    assert EVIL in page.text
    assert any(EVIL in svg["aria-label"] for svg in page.all("svg"))
    assert "x" * 100 not in html


def test_page_refers_to_nothing_outside(html: str, page: Page, table: pd.DataFrame) -> None:
    for text in (html, report_html(None, table, evaluation=EVALUATION)):
        assert not re.search(r"""(src|href|action)\s*=\s*["']?\s*(https?:|//|data:|javascript:)""", text, re.IGNORECASE)
        assert not re.search(r"url\(\s*['\"]?(?!#)", text)
        assert "@import" not in text
        assert not re.search(r"https?://", text)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"link", "img", "iframe", "object", "embed", "video", "audio", "form", "base"}


def test_policy_allows_the_script_of_the_page_and_no_other(html: str, page: Page) -> None:
    import base64
    import hashlib

    script = re.search(r"<script>(.*?)</script>\n</body>", html, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    (policy,) = [one["content"] for one in page.all("meta") if one.get("http-equiv")]
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)


def test_same_fill_gives_the_same_bytes(html: str, fitted: MCFlowImputer, table: pd.DataFrame) -> None:
    again = report_html(fitted, table, fitted.transform(table), command="mcflow impute 'a <b>.csv' -o out.csv")
    assert again == html


def test_tables_are_not_changed(fitted: MCFlowImputer, table: pd.DataFrame) -> None:
    before, filled = table.copy(), fitted.transform(table)
    after = filled.copy()
    report_html(fitted, table, filled)
    pd.testing.assert_frame_equal(table, before)
    pd.testing.assert_frame_equal(filled, after)


def test_thousands_of_columns_are_summarised_and_the_file_stays_small() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 5_000))
    rows[rng.random(rows.shape) < 0.2] = np.nan
    frame = pd.DataFrame(rows, columns=[f"{'column of measurements ' * 6}{k}" for k in range(5_000)])
    imputer, filled = mean_fill(frame)
    html = report_html(imputer, frame, filled)
    assert len(html.encode()) < MOST_BYTES
    page = Page(html)
    assert len([svg for svg in page.all("svg") if svg["aria-label"].startswith("Histograms")]) == 40
    assert "the 40 columns with the most filled cells are drawn" in page.text


def test_worst_names_and_categories_keep_the_file_below_its_limit() -> None:
    rng = np.random.default_rng(0)
    categories = np.array(["'\"&<>" * 400 + str(k) for k in range(9)], dtype=object)
    frame = pd.DataFrame({"<&'\">" * 200 + str(k): rng.choice(categories, 60) for k in range(60)})
    frame = frame.mask(rng.random(frame.shape) < 0.3)
    imputer, filled = mean_fill(frame)
    assert len(report_html(imputer, frame, filled, command="&" * 100_000).encode()) < MOST_BYTES


def test_many_rows_take_little_time() -> None:
    import time

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200_000, 6))
    rows[rng.random(rows.shape) < 0.1] = np.nan
    imputer, filled = mean_fill(rows)
    start = time.process_time()
    html = report_html(imputer, rows, filled)
    assert time.process_time() - start < 15
    assert len(html.encode()) < MOST_BYTES


# Accessibility


def test_headings_go_down_one_level_at_a_time_and_there_is_one_title(page: Page) -> None:
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_page_has_landmarks_a_skip_link_and_a_language(page: Page) -> None:
    assert page.all("html")[0]["lang"] == "en"
    for tag in ("header", "nav", "main", "footer", "title"):
        assert len(page.all(tag)) == 1, tag
    assert page.all("a")[0] == {"class": "skip", "href": "#main"}
    assert page.all("main")[0]["id"] == "main"
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for section in page.all("section"):
        assert section["aria-labelledby"] in ids
    assert page.open == []
    assert page.unbalanced == []


def test_every_picture_has_words_and_every_table_a_caption_and_scopes(html: str, page: Page) -> None:
    pictures = page.all("svg")
    assert len(pictures) > 8
    assert all(svg["role"] == "img" and len(svg["aria-label"]) > 20 for svg in pictures)
    assert html.count("<figcaption") == html.count("<figure")
    assert html.count("<caption>") == len(page.all("table")) > 3
    assert all(head["scope"] in ("row", "col") for head in page.all("th"))
    for region in (one for one in page.all("div") if one.get("class") == "scroll"):
        assert region["tabindex"] == "0"
        assert region["aria-label"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_have_enough_contrast(theme: str, html: str) -> None:
    blocks = re.findall(r":root(\[data-theme=\"dark\"\])? \{(.*?)\}", html, re.DOTALL)
    wanted = next(body for dark, body in blocks if bool(dark) == (theme == "dark"))
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", wanted))
    for ink in ("ink", "ink-soft", "link"):
        for ground in ("paper", "card"):
            assert _contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    assert _contrast(colours["ink"], colours["note"]) >= 4.5
    assert all(_contrast(colours[f"series-{k}"], colours["paper"]) >= 3 for k in range(1, 9))


def _contrast(first: str, second: str) -> float:
    shades = sorted((_luminance(first), _luminance(second)))
    return (shades[1] + 0.05) / (shades[0] + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

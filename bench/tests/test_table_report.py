"""Tables of made-up results, ranks against closed forms, and the flags of the command."""

from __future__ import annotations

import html.parser
import math
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from mcflow.cli.app import main
from mcflow.errors import DataError, ParameterError
from mcflow_bench.commands import _changed_tables
from mcflow_bench.report.blocks import (
    Bullets,
    Grid,
    Heading,
    Paragraph,
    count_words,
    seconds_words,
    to_html,
    to_markdown,
    with_block,
)
from mcflow_bench.report.published import TABLE_1, paper_rmse
from mcflow_bench.report.ranks import Ranking, cliques, draw_ranks, rank_methods
from mcflow_bench.report.summary import sections_of
from mcflow_bench.report.tables import MARK, page_block, readme_block, report_blocks, write_report
from mcflow_bench.store import Store
from mcflow_bench.suites import TABLE_SUITES, TableTask

ROOT = Path(__file__).parents[2]


def row(table, method, fold, rmse, *, status="done", note="", label=None, date="2026-01-01", **task) -> dict:
    settings = {"sha256": "", "rows": None, "mechanism": "mcar", "rate": 0.2, "seed": 0} | task
    made = TableTask(table=table, method=method, fold=fold, **settings)
    return {
        "key": made.key,
        "task": asdict(made),
        "label": label or method,
        "note": note,
        "asked_folds": 2,
        "status": status,
        "message": "" if status == "done" else "ValueError: a < b & c.",
        "scores": {"rmse": {"value": rmse, "error": 0.001}, "crps": {"value": rmse / 2, "error": None}},
        "fit_s": 10.0 + fold,
        "transform_s": 0.5,
        "peak_mib": 1200.0 + fold,
        "data": {"rows": 1000, "columns": 7},
        "threads": 1,
        "jobs": 2,
        "load": [0.5, 1.25],
        "machine": {"cpu": "A & B", "cores": 2, "ram_gib": 8.0},
        "versions": {"mcflow": "1.0", "torch": "2.0"},
        "date": date,
    }


ROWS = [
    row("letter", "mean", 0, 0.15),
    row("letter", "mean", 1, 0.16),
    row("letter", "gain", 0, 0.11),
    row("letter", "gain", 1, 0.13),
    row("letter", "missforest(n_trees=30)", 0, 0.17, label="missforest", note="30 trees"),
    row("credit", "mean", 0, 0.14),
    row("credit", "mean", 1, 0.14),
    row("credit", "gain", 0, 0.12),
    row("credit", "gain", 1, 0.0, status="error"),
    row("credit", "missforest", 0, 0.0, status="timeout"),
]


def test_markdown_of_a_made_up_store_is_as_expected() -> None:
    text = to_markdown(report_blocks(ROWS))
    expected = """\
| method | Letter | Credit | mean rank |
|---|---|---|---|
| `gain` | **.1200** ± .0141 [.1198] | **.1200** (1 fold) [.1441] | 1.00 |
| `mean` | .1550 ± .0071 | .1400 ± .0000 | 2.00 |
| `missforest` | .1700 (1 fold) [.1605] | failed | – |
"""
    assert expected in text
    assert "## 20 % missing completely at random" in text
    assert "| `gain` | 11.0 s, 1,201 MiB | 10.5 s, 1,200 MiB |" in text
    assert "- `missforest` on Letter: 30 trees." in text
    assert "Letter has 1,000 × 7 cells." in text
    assert "Every method treats all columns as continuous numbers." in text
    assert "Mean rank over 3 blocks of table and fold with all 2 ranked methods" in text
    assert "A & B, 2 cores, 8.0 GiB; 1 thread, 2 cells at a time; load 0.5 to 1.2; mcflow 1.0, torch 2.0." in text
    assert "CVPR 2020, Table 1" in text
    assert "### All measures on Letter" in text
    assert "| `gain` | .1200 | – | – | – | – | .0600 | – |" in text


def test_alarms_name_what_is_worse_than_the_mean_and_every_failed_cell() -> None:
    text = to_markdown(report_blocks(ROWS))
    alarms = [line for line in text.splitlines() if line.startswith("- **Alarm:**")]
    assert alarms == [
        "- **Alarm:** `missforest` on Letter is worse than the column mean: .1700 against .1500.",
        "- **Alarm:** `gain` on Credit, fold 1, failed (error): ValueError: a < b & c.",
        "- **Alarm:** `missforest` on Credit, fold 0, failed (timeout): ValueError: a < b & c.",
    ]
    good = [r for r in ROWS if r["label"] in ("mean", "gain") and r["status"] == "done"]
    assert "Alarm" not in to_markdown(report_blocks(good))


def test_sections_are_told_apart_and_paper_figures_stand_only_where_they_belong() -> None:
    rows = [
        row("letter", "gain", 0, 0.1, rows=2000),
        row("letter", "gain", 0, 0.2, mechanism="mar"),
        row("letter", "gain", 0, 0.3, rate=0.5),
        row("letter", "gain", 0, 0.4),
    ]
    text = to_markdown(report_blocks(rows))
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "## 20 % missing completely at random",
        "## 20 % missing completely at random, first 2,000 rows",
        "## 50 % missing completely at random",
        "## 20 % missing at random (by other columns)",
    ]
    assert text.count("[.1198]") == 1
    assert "### 50 % missing completely at random" in page_block(rows)


def test_readme_compares_both_presets_with_the_paper() -> None:
    rows = [
        row("letter", "mcflow", 0, 0.05),
        row("letter", "mcflow:paper(max_epochs=64)", 0, 0.13),
        row("letter", "mcflow:paper", 0, 0.12),
        row("letter", "mcflow:paper(batch_size=64,max_epochs=600)", 0, 0.11),
        row("news", "mcflow", 0, 0.11),
        row("letter", "mcflow", 0, 0.9, rate=0.5),
    ]
    text = readme_block(rows)
    assert "| MCFlow, published | .1033 | .1760 |" in text
    assert "| MCFlow, run by the authors of EMFlow | .121 | .167 |" in text
    assert '| `MCFlowImputer(preset="paper")` | .1200 (500 epochs) | – |' in text
    assert "| `MCFlowImputer()` | **.0500** | **.1100** |" in text
    assert readme_block(rows[-1:]) == "There are no results yet."


def test_newest_way_to_run_a_method_counts() -> None:
    rows = [
        row("letter", "gain(width=8)", 0, 0.3, label="gain", date="2026-01-02"),
        row("letter", "gain(width=9)", 0, 0.2, label="gain", date="2026-01-03"),
        row("letter", "gain(width=8)", 1, 0.3, label="gain", date="2026-01-02"),
    ]
    (section,) = sections_of(rows)
    assert section.entry("gain", "letter").values() == {0: 0.2}


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.cells, self.references = [], [], []

    def handle_starttag(self, tag, attributes):
        self.references += [value for name, value in attributes if name in ("src", "href") and value[:1] != "#"]
        if tag not in ("meta", "use", "path", "link"):
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data


def test_page_needs_no_other_file_and_escapes_what_it_says(tmp_path) -> None:
    write_report(ROWS, tmp_path)
    page = (tmp_path / "table.html").read_text()
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert reader.references == []
    assert ".1200 ± .0141 [.1198]" in reader.cells
    assert "<strong>.1200</strong>" in page
    assert "ValueError: a &lt; b &amp; c." in page
    assert "prefers-color-scheme: dark" in page
    assert "<svg" in page
    assert "currentColor" in page
    assert (tmp_path / "ranks.svg").read_text().startswith("<svg")
    assert "(ranks.svg)" in (tmp_path / "table.md").read_text()
    first = page
    write_report(ROWS, tmp_path)
    assert (tmp_path / "table.html").read_text() == first, "the same results give the same page"


def test_blocks_escape_in_both_forms() -> None:
    blocks = [Heading("A <b>"), Paragraph("`x<y` **z**"), Bullets(("one",)), Grid(("h",), (("a|b",),))]
    assert to_markdown(blocks) == "## A <b>\n\n`x<y` **z**\n\n- one\n\n| h |\n|---|\n| a\\|b |"
    page = to_html('"T"', blocks)
    assert "<h2>A &lt;b&gt;</h2>" in page
    assert "<p><code>x&lt;y</code> <strong>z</strong></p>" in page
    assert "<title>&quot;T&quot;</title>" in page
    assert "<ul><li>one</li></ul>" in page
    assert (seconds_words(2.34), seconds_words(1234.5)) == ("2.3 s", "1,234 s")
    assert (count_words(1, "fold"), count_words(1200, "image")) == ("1 fold", "1,200 images")


def test_ranks_equal_closed_forms() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(12, 4)) + np.array([0, 0.5, 1, 1])
    names = ["a", "b", "c", "d"]
    found = rank_methods({n: dict(enumerate(scores[:, k])) for k, n in enumerate(names)}, names)
    ranks = scores.argsort(axis=1).argsort(axis=1).mean(axis=0) + 1
    assert found.ranks == pytest.approx(dict(zip(names, ranks, strict=True)))
    assert list(found.ranks.values()) == sorted(found.ranks.values())
    assert found.p_value == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue)
    # q for four methods at 5 % is 2.569 in the table of Demšar (2006).
    assert found.critical == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 12)), abs=1e-3)


def test_ties_share_ranks_as_in_the_friedman_test() -> None:
    scores = np.array([[1.0, 1.0, 2.0], [1.0, 2.0, 2.0], [3.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    names = ["a", "b", "c"]
    found = rank_methods({n: dict(enumerate(scores[:, k])) for k, n in enumerate(names)}, names)
    assert found.p_value == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue)
    assert sum(found.ranks.values()) == pytest.approx(6)


def test_only_blocks_with_all_methods_count() -> None:
    found = rank_methods({"a": {0: 1.0, 1: 1.0}, "b": {1: 0.5, 2: 0.1}}, ["a", "b"])
    assert (found.ranks, found.n_blocks) == ({"b": 1.0, "a": 2.0}, 1)
    assert math.isnan(found.critical)
    assert rank_methods({"a": {0: 1.0}, "b": {1: 0.5}}, ["a", "b"]) is None
    assert rank_methods({"a": {0: 1.0}}, ["a"]) is None


def test_bars_tie_the_largest_groups() -> None:
    ranks = {"a": 1.0, "b": 1.5, "c": 2.2, "d": 4.0, "e": 4.1}
    assert cliques(Ranking(ranks, 9, 0.0, 1.0)) == [(1.0, 1.5), (1.5, 2.2), (4.0, 4.1)]
    assert cliques(Ranking(ranks, 9, 0.0, 5.0)) == [(1.0, 4.1)]
    assert cliques(Ranking(ranks, 9, 0.0, 0.01)) == []


def test_plot_names_every_method_and_its_rank() -> None:
    svg = draw_ranks(Ranking({"best": 1.25, "mcflow:paper": 2.0, "worst": 2.75}, 4, 0.05, 1.66), "Ranks")
    for words in ("best 1.25", "mcflow:paper 2.00", "2.75 worst", "Ranks (critical difference 1.66)"):
        assert words in svg


def test_paper_figures_are_those_of_its_table() -> None:
    assert paper_rmse("mcflow:paper", "news", "mcar", 0.2) == (0.1760, 0.0032)
    assert paper_rmse("mcflow:paper", "news", "mar", 0.2) is None
    assert paper_rmse("mcflow:paper", "news", "mcar", 0.3) is None
    assert paper_rmse("mean", "news", "mcar", 0.2) is None
    assert all(set(figures) == {"credit", "news", "letter"} for figures in TABLE_1.values())


@pytest.fixture
def store(tmp_path) -> Path:
    made = Store(tmp_path / "out")
    for one in ROWS:
        made.add(TableTask(**one["task"]), {k: v for k, v in one.items() if k != "key"})
    return tmp_path / "out"


def test_report_only_writes_tables_and_the_blocks_of_pages(store, tmp_path, capsys) -> None:
    page, readme = tmp_path / "page.md", tmp_path / "README.md"
    readme.write_text("<!-- result benchmark-tables -->\n<!-- end -->\n")
    page.write_text("# A\n\n<!-- result benchmark-tables -->\nold\n<!-- end -->\n\n<!-- result x -->\n<!-- end -->\n")
    flags = ["--page", str(page), "--readme", str(readme)]
    assert main(["benchmark", "tables", "--report-only", "-o", str(store), *flags]) == 0
    assert readme_block(ROWS) in readme.read_text()
    assert "Tables written to" in capsys.readouterr().out
    text = page.read_text()
    assert text.startswith("# A\n\n<!-- result benchmark-tables -->\n\n| method | Letter | Credit | mean rank |\n")
    assert text.endswith("\n\n<!-- end -->\n\n<!-- result x -->\n<!-- end -->\n")
    assert "\nold\n" not in text
    assert "svg" not in text
    assert with_block(text, MARK, page_block(ROWS)) == text
    page.write_text("# A\n")
    assert main(["benchmark", "tables", "--report-only", "-o", str(store), "--page", str(page)]) == 3
    with pytest.raises(DataError, match="no lines"):
        with_block("", MARK, "x")


def test_report_of_nothing_says_so(tmp_path) -> None:
    write_report([], tmp_path)
    assert "There are no results yet." in (tmp_path / "table.md").read_text()


def lists(**given: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {name: given.get(name, ()) for name in ("data", "methods", "mechanisms", "rates", "folds")}


def test_flags_replace_parts_of_the_suite() -> None:
    paper = TABLE_SUITES["paper"]
    assert _changed_tables(paper, lists(), rows=None, seed=None, time_limit=None) == paper
    changed = _changed_tables(
        paper,
        lists(data=("letter,bean",), methods=("mean", "f(a=1,b=2)"), rates=("0.1,0.5",), folds=("0,3-4",)),
        rows=500,
        seed=7,
        time_limit=9.0,
    )
    assert changed.data == ("letter", "bean")
    assert changed.methods == ("mean", "f(a=1,b=2)")
    assert (changed.rates, changed.folds) == ((0.1, 0.5), (0, 3, 4))
    assert (changed.rows, changed.seed, changed.time_limit, changed.extras) == (500, 7, 9.0, ())
    assert all(setting.folds is None for setting in changed.settings)
    for wrong in ({"rates": ("x",)}, {"folds": ("a-b",)}):
        with pytest.raises(ParameterError):
            _changed_tables(paper, lists(**wrong))


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--jobs", "0"], 2, "at least 1"),
        (["--report-only"], 3, "There are no results in mcflow-benchmark"),
        (["--rates", "2"], 2, "above 0 and below 1"),
        (["--tables", "nothing"], 2, "There is no table 'nothing'"),
        (["--data", "no/folder"], 2, "is not a folder"),
        (["--mechanisms", "mcra"], 2, "Did you mean 'mcar'"),
    ],
)
def test_wrong_flags_end_in_one_line(flags, code, words, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MCFLOW_DATA", raising=False)
    assert main(["benchmark", "tables", *flags]) == code
    assert words in capsys.readouterr().err.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("page", "block"), [("README.md", readme_block), ("docs/benchmark.md", page_block)])
def test_pages_show_the_stored_results(page, block) -> None:
    text = (ROOT / page).read_text()
    assert re.search("<!-- result benchmark-tables -->.*?<!-- end -->", text, re.DOTALL)
    cells = ROOT / "bench" / "results" / "tables" / "cells"
    if cells.is_dir():
        shown = with_block(text, MARK, block(Store(cells.parent).rows()))
        assert shown == text, "run `mcflow benchmark tables --report-only`, see `make bench`"

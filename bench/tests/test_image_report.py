"""Tables and pictures of made-up results on images, published results, and the flags of the command."""

from __future__ import annotations

import io
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mcflow.cli.app import main
from mcflow_bench.commands import _changed_images
from mcflow_bench.protocol import ImageSplit
from mcflow_bench.report.blocks import to_markdown
from mcflow_bench.report.images import MARK, image_blocks, write_image_report
from mcflow_bench.report.pictures import (
    Pictures,
    draw_figure,
    figure_lines,
    keep_pictures,
    read_pictures,
    write_figures,
)
from mcflow_bench.report.published import CITED, cited_rows, to_beat
from mcflow_bench.store import Store
from mcflow_bench.suites import IMAGE_SUITES, ImageSuite, ImageTask

ROOT = Path(__file__).parents[2]


def row(images, mask, method, rmse, *, status="done", note="", date="2026-01-01", message="", **more) -> dict:
    task = {"sha256": "", "n_train": None, "n_test": None, "seed": 0} | more.pop("task", {})
    made = ImageTask(images=images, mask=mask, method=method, **task)
    scores = {"rmse": rmse, "psnr": -20 * np.log10(rmse or 1), "train_rmse": rmse / 2} | more
    return {
        "key": made.key,
        "task": asdict(made),
        "label": method,
        "note": note,
        "status": status,
        "message": message if status == "done" else "ValueError: a < b & c.",
        "scores": {name: {"value": value, "error": None} for name, value in scores.items()} if status == "done" else {},
        "fit_s": 120.4,
        "transform_s": 2.25,
        "peak_mib": 1200.0,
        "data": {"train_images": 20000, "test_images": 10000, "size": [32, 32, 3], "scored_train_images": 10000},
        "threads": 2,
        "jobs": 1,
        "load": [0.5, 1.25],
        "machine": {"cpu": "A & B", "cores": 2, "ram_gib": 8.0},
        "versions": {"mcflow": "1.0", "torch": "2.0"},
        "date": date,
    }


ROWS = [
    row("mnist", "0.1", "mean", 0.26, accuracy=0.90, frechet=5.0),
    row("mnist", "0.9", "mean", 0.27, accuracy=0.30, frechet=9.0),
    row("mnist", "0.1", "gain(max_time=60)", 0.12, accuracy=0.98, frechet=1.0, draw_rmse=0.13, draw_accuracy=0.985),
    row("mnist", "0.9", "gain(max_time=60)", 0.28, accuracy=0.27, frechet=3.0),
    row("mnist", "0.1", "mcflow", 0.06, accuracy=0.992, frechet=0.5, draw_frechet=0.25),
    row("mnist", "0.9", "mcflow", 0.0, status="timeout"),
    row("mnist", "blocks:0.25", "mcflow", 0.2, note="one block", message="draws were not scored."),
    row("cifar10", "0.9", "mcflow", 0.115),
]


def test_tables_have_methods_draws_and_cited_rows_against_masks() -> None:
    text = to_markdown(image_blocks(ROWS))
    assert "### MNIST" in text
    assert text.index("### MNIST") < text.index("### CIFAR-10")
    expected = """\
| RMSE | 10 % | 90 % | block of 25 % |
|---|---|---|---|
| `mean` | .2600 | **.2700** | – |
| `gain(max_time=60)` | .1200 | .2800 | – |
| `gain(max_time=60)`, one draw | .1300 | – | – |
| `mcflow` | **.0600** | failed | **.2000** |
| GAIN (cited, MCFlow's paper) | .1151 | .2726 | – |
| MisGAN (cited, MCFlow's paper) | .1174 | .2781 | – |
| MCFlow (cited, MCFlow's paper) | .0746 | .2080 | – |
| EMFlow (cited, EMFlow's paper) | .0726 | .1951 | – |
| MCFlow, run again (cited, EMFlow's paper) | .0835 | .2020 | – |
"""
    assert expected in text
    assert "| `mcflow`, one draw | **.250** | failed | – |" in text
    assert "| `gain(max_time=60)`, one draw | .9850 | – | – |" in text
    assert "| LeNet accuracy | 10 % | 90 % | block of 25 % |" in text
    assert "| PSNR in dB | 10 % | 90 % | block of 25 % |\n|---|---|---|---|\n| `mean` | 11.70 | **11.37** | – |" in text
    assert "| RMSE, training images |" in text
    assert "| `mcflow` | 120 s, 2.2 s, 1,200 MiB | – | 120 s, 2.2 s, 1,200 MiB |" in text
    assert "- `mcflow` on MNIST: one block." in text
    assert "- `mcflow` on MNIST at block of 25 %: draws were not scored." in text
    assert "20,000 training and 10,000 test images of 32 × 32 × 3; the paper has 50,000 and 10,000." in text
    assert "The first 10,000 training images are scored." in text
    assert "2 threads, 1 cell at a time; load 0.5 to 1.2" in text


def test_alarms_name_what_is_missing_failed_worse_than_the_mean_and_worse_than_cited() -> None:
    suite = ImageSuite(("mnist", "cifar10"), ("mean", "mcflow"), ("0.1", "0.9"))
    text = to_markdown(image_blocks(ROWS, suite))
    alarms = [line.removeprefix("- **Alarm:** ") for line in text.splitlines() if line.startswith("- **Alarm:**")]
    assert alarms == [
        "`mean` on CIFAR-10 has not been measured at 10 %, 90 %.",
        "`mcflow` on CIFAR-10 has not been measured at 10 %.",
        "`mcflow` on MNIST at 90 % failed (timeout): ValueError: a < b & c.",
        "`gain(max_time=60)` on MNIST is worse than the pixel mean at 90 % (.2800 against .2700).",
        "RMSE of `gain(max_time=60)` on MNIST is worse than cited at 10 % (.1200 against .1151 of GAIN, MCFlow's "
        "paper), 90 % (.2800 against .2726 of GAIN, MCFlow's paper).",
        "LeNet accuracy of `gain(max_time=60)` on MNIST is worse than cited at 10 % (.9800 against .9890 of GAIN, "
        "MCFlow's paper).",
    ]


def test_parts_of_sets_stand_apart_without_cited_figures() -> None:
    part = {"n_train": 5000, "n_test": 2000}
    rows = [row("mnist", "0.5", "gain", 0.3, task=part), row("mnist", "0.5", "gain", 0.1), *ROWS[-1:]]
    text = to_markdown(image_blocks(rows))
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## All images", "## First 5,000 training images, first 2,000 test images"]
    whole, few = text.split(headings[1])
    assert "cited" in whole
    assert "(cited" not in few
    assert ".3000" in few
    assert "worse than cited" not in text


def test_newest_result_counts_where_a_set_has_changed() -> None:
    rows = [
        row("mnist", "0.5", "gain", 0.1, date="2026-01-02", task={"sha256": "new"}),
        row("mnist", "0.5", "gain", 0.2, date="2026-01-01", task={"sha256": "old"}),
    ]
    text = to_markdown(image_blocks(rows))
    assert "| `gain` | **.1000** |" in text
    assert ".2000" not in text


def test_empty_store_says_so() -> None:
    assert to_markdown(image_blocks([])) == "There are no results yet."


def test_cited_figures_are_nine_shares_or_distances_a_row_and_fall_or_rise_as_they_should() -> None:
    for one in CITED:
        assert len(one.values) == 9, one
        assert all(value > 0 for value in one.values)
        assert one.measure == "frechet" or max(one.values) < 1
    assert {(one.measure, one.images) for one in CITED} == {
        ("rmse", "mnist"), ("rmse", "cifar10"), ("rmse", "celeba"), ("frechet", "mnist"), ("accuracy", "mnist"),
    }  # fmt: skip
    mcflow = {one.images: one for one in CITED if (one.title, one.measure) == ("MCFlow", "rmse")}
    assert [mcflow[name].at("0.5") for name in ("mnist", "cifar10", "celeba")] == [0.10045, 0.08311, 0.07261]
    assert to_beat("accuracy", "mnist", "0.9", "mcflow")[0] == 0.7502
    assert to_beat("frechet", "mnist", "0.9", "mcflow") is None
    assert to_beat("rmse", "mnist", "blocks:0.25", "mcflow") is None
    assert cited_rows("rmse", "dots") == []


def split_of(n: int, side: int = 28) -> ImageSplit:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 256, (n, side, side), dtype=np.uint8)
    hidden = rng.random(truth.shape) < 0.5
    return ImageSplit(truth, truth, hidden, hidden, None)


@pytest.fixture
def store(tmp_path) -> Path:
    """Three methods on MNIST at 50 %, ours with a draw, and one on CelebA."""
    split = split_of(20)
    output = Store(tmp_path / "out")
    rows = [row("mnist", "0.5", "mcflow", 0.1), row("mnist", "0.5", "gain", 0.2), row("mnist", "0.5", "misgan", 0.15)]
    for number, one in enumerate([*rows, row("celeba", "0.5", "gain", 0.1)]):
        task = ImageTask(**one["task"])
        output.add(task, {name: value for name, value in one.items() if name != "key"})
        filled = np.where(split.hidden_test, np.uint8(40 * number), split.test)
        keep_pictures(output.folder, task.name, split, filled, filled if number == 0 else None)
    return output.folder


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


def test_figure_shows_original_observed_and_fills_in_lines(store) -> None:
    lines = figure_lines(Store(store).rows(), store, "mnist", "0.5")
    assert [name for name, _ in lines] == ["GAIN", "MisGAN", "MCFlow"]
    picture = pixels(draw_figure(lines))
    assert picture.shape[0] == 6 * 60, "original, observed, three methods and a draw"
    split = split_of(20)
    tiles = picture[:, -16 * 60 :].reshape(6, 60, 16, 60, 4)[:, :56, :, :56].transpose(0, 2, 1, 3, 4)[:, :, ::2, ::2]
    assert (tiles[..., 3] == 255).all()
    assert (tiles[0, ..., 0] == split.test[:16]).all()
    hidden = split.hidden_test[:16]
    assert (tiles[1][~hidden][:, 0] == split.test[:16][~hidden]).all()
    assert len(np.unique(tiles[1][hidden], axis=0)) == 1
    assert [int(tiles[line][hidden][0, 0]) for line in (2, 3, 4, 5)] == [40, 80, 0, 0]
    assert picture[0, 0, 3] == 0, "a clear ground"


def test_figure_of_colour_images_keeps_their_colours() -> None:
    truth = np.random.default_rng(1).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    hidden = np.zeros((2, 32, 32), bool)
    picture = pixels(draw_figure([("GAIN", Pictures(truth, hidden, truth, None))]))
    corner = picture[0, -120]
    assert (corner[:3] == truth[0, 0, 0]).all()


def test_figures_of_sets_that_may_not_be_passed_on_are_in_no_page(store) -> None:
    figures, missing = write_figures(Store(store).rows(), store, sets=("mnist", "celeba"), masks=("0.5", "0.9"))
    assert [figure.path for figure in figures] == ["images-mnist-0.5.png"]
    assert "original, observed, GAIN, MisGAN, MCFlow" in figures[0].words
    assert (store / "images-celeba-0.5.png").is_file()
    assert missing == ["No filled images with 90 % missing are there to draw. Measure them first."]
    write_image_report(Store(store).rows(), store, figures=figures)
    page = (store / "table.html").read_text()
    assert page.count('src="data:image/png;base64,') == 1
    assert "](images-mnist-0.5.png)" in (store / "table.md").read_text()


def test_torn_pictures_are_taken_for_none(store) -> None:
    paths = sorted((store / "pictures").glob("mnist-*"))
    assert len(paths) == 3
    whole = paths[0].read_bytes()
    for cut in (b"", whole[:50], whole[: len(whole) // 2], b"nothing"):
        paths[0].write_bytes(cut)
        assert read_pictures(store, paths[0].stem) is None


def test_report_only_fills_the_page_and_draws_beside_it(store, tmp_path, capsys) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"a\n<!-- result {MARK} -->\nold\n<!-- end -->\nb\n")
    flags = ["--report-only", "--figure", "0.50,0.9", "--rates", "0.5", "--page", str(page), "-o", str(store)]
    assert main(["benchmark", "images", *flags]) == 0
    text = page.read_text()
    assert text.startswith("a\n")
    assert "\nold\n" not in text
    assert "![MNIST, 50 % missing" in text
    assert "](pictures/images-mnist-0.5.png)" in text
    assert (tmp_path / "pictures" / "images-mnist-0.5.png").read_bytes() == (
        store / "images-mnist-0.5.png"
    ).read_bytes()
    assert not (tmp_path / "pictures" / "images-celeba-0.5.png").exists()
    said = capsys.readouterr()
    assert "No filled images with 90 % missing" in said.err
    assert f"Tables written to {store / 'table.md'} and {page}." in said.out


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--report-only"], 3, "There are no results"),
        (["--rates", "0.5,half"], 2, "'half' does not say which pixels are missing"),
        (["--figure", "2"], 2, "'2' does not say which pixels are missing"),
        (["--methods", "mean("], 2, "is not a method"),
        (["--jobs", "0"], 2, "jobs is 0"),
        (["--page", "none.md"], 2, "none.md, which is not a file"),
        (["--n-train", "1"], 2, "n_train is 1"),
        (["--data-dir", "nowhere"], 2, "nowhere is not a folder"),
    ],
)
def test_wrong_flags_end_at_once_with_one_line(flags, code, words, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", "images", "-q", "-o", str(tmp_path / "out"), *flags]) == code
    assert words in capsys.readouterr().err


def test_flags_take_the_place_of_what_the_suite_has() -> None:
    given = {"data": ("a,b",), "methods": ("mean,gain(width=3,max_epochs=1)",), "masks": (".5",)}
    suite = _changed_images(IMAGE_SUITES["quick"], given, n_train=9, seed=None)
    assert (suite.data, suite.masks, suite.n_train, suite.n_test) == (("a", "b"), ("0.5",), 9, 2000)
    assert suite.methods == ("mean", "gain(width=3,max_epochs=1)")
    paper = IMAGE_SUITES["paper"]
    whole = _changed_images(paper, {"data": (), "methods": (), "masks": ()}, seed=4)
    assert whole.seed == 4
    assert whole.extras
    assert not _changed_images(paper, {"data": ("mnist",), "methods": (), "masks": ()}).extras


def test_page_of_the_documentation_has_a_place_for_the_tables_and_shows_stored_results() -> None:
    text = (ROOT / "docs" / "images_benchmark.md").read_text()
    assert re.search(f"<!-- result {MARK} -->.*<!-- end -->", text, re.DOTALL)
    for picture in re.findall(r"\((pictures/[^)]+)\)", text):
        assert (ROOT / "docs" / picture).is_file()
        assert "mnist" in picture, "of the sets MNIST alone may be passed on"

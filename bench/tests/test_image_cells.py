"""Cells of images: scores, failures, pictures, and a second run that measures what is missing."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mcflow.errors import DataError, ParameterError
from mcflow_bench import cells
from mcflow_bench.data.image_sets import ImageSet, load_image_set, read_image_npz
from mcflow_bench.preflight import WRONG, facts_of, main, prepare_images
from mcflow_bench.protocol import MAX_SCORED_TRAIN, split_images
from mcflow_bench.report.pictures import read_pictures
from mcflow_bench.runner import run_suite
from mcflow_bench.store import Store
from mcflow_bench.suites import ImageSuite, ImageTask

HERE = Path(__file__).parent
posix = pytest.mark.skipif(not hasattr(os, "wait4"), reason="process groups and wait4 are those of POSIX")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    np.savez(folder / "dots.npz", x_train=_noise(rng, 30, 8, 8, 3), x_test=_noise(rng, 20, 8, 8, 3))
    return folder


def _noise(rng, *shape) -> np.ndarray:
    return rng.integers(0, 256, shape, dtype=np.uint8)


METHODS = {
    "python:image_fakes:Grey": "done",
    "python:image_fakes:Grey(level=50)": "done",
    "python:image_fakes:Drawn": "done",
    "python:image_fakes:Drawn(fails=True)": "done",
    "python:image_fakes:Forgetful": "done",
    "python:image_fakes:Broken": "error",
    "python:image_fakes:Crashing": "crash",
    "python:image_fakes:Floating": "error",
}
SUITE = ImageSuite(("dots",), tuple(METHODS), ("0.5",), n_train=25, seed=3)


@pytest.fixture(scope="module")
def many(data, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("many")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE))
        outcome = run_suite(SUITE, output, data=data, jobs=2, quiet=True)
    assert (outcome.found, outcome.done, outcome.failed) == (0, 8, 3)
    return output


def by_method(output: Path) -> dict[str, dict]:
    return {row["label"]: row for row in Store(output).rows()}


@posix
def test_every_way_to_end_is_a_row_with_a_status_and_a_message(many) -> None:
    rows = by_method(many)
    assert {method: row["status"] for method, row in rows.items()} == METHODS
    assert rows["python:image_fakes:Broken"]["message"] == "ValueError: no good"
    assert rows["python:image_fakes:Crashing"]["message"] == "ended with code 7 about to fall"
    assert "are of type float64" in rows["python:image_fakes:Floating"]["message"]
    later = "training images or draws: RuntimeError: "
    assert rows["python:image_fakes:Forgetful"]["message"] == f"{later}only once"
    assert rows["python:image_fakes:Drawn(fails=True)"]["message"] == f"{later}no draw"
    assert "rmse" in rows["python:image_fakes:Forgetful"]["scores"]
    assert "train_rmse" not in rows["python:image_fakes:Forgetful"]["scores"]
    assert "train_rmse" in rows["python:image_fakes:Drawn(fails=True)"]["scores"]


@posix
def test_scores_are_those_of_hidden_pixels_of_test_images_training_images_and_a_draw(many, data) -> None:
    split = split_images(load_image_set("dots", data), "0.5", 25)
    rows = by_method(many)

    def rmse(level: int, truth: np.ndarray, hidden: np.ndarray) -> float:
        return float(np.sqrt(np.mean((level / 255 - truth[hidden] / 255) ** 2)))

    scores = rows["python:image_fakes:Grey(level=50)"]["scores"]
    assert scores["rmse"]["value"] == pytest.approx(rmse(50, split.test, split.hidden_test))
    assert scores["train_rmse"]["value"] == pytest.approx(rmse(50, split.train, split.hidden_train))
    assert "draw_rmse" not in scores
    assert "accuracy" not in scores, "LeNet reads digits alone"
    scores = rows["python:image_fakes:Drawn"]["scores"]
    assert scores["rmse"]["value"] == pytest.approx(rmse(100, split.test, split.hidden_test))
    assert scores["draw_rmse"]["value"] == pytest.approx(rmse(30, split.test, split.hidden_test)), "seed 3"


@posix
def test_row_tells_what_it_depends_on(many) -> None:
    row = by_method(many)["python:image_fakes:Grey"]
    assert row["key"] == ImageTask(**row["task"]).key
    assert row["task"] | {"sha256": ""} == {
        "images": "dots", "sha256": "", "n_train": 25, "n_test": None, "mask": "0.5",
        "method": "python:image_fakes:Grey", "seed": 3,
    }  # fmt: skip
    assert row["data"] == {
        "train_images": 25, "test_images": 20, "size": [8, 8, 3], "scored_train_images": 25,
        "hidden_test_pixels": row["data"]["hidden_test_pixels"],
    }  # fmt: skip
    assert 0 < row["data"]["hidden_test_pixels"] < 20 * 64
    assert (row["threads"], row["jobs"], len(row["load"])) == (1, 2, 2)
    assert row["peak_mib"] > 20
    assert 0 <= row["fit_s"] < row["seconds"]


@posix
def test_pictures_of_the_first_test_images_are_kept(many, data) -> None:
    split = split_images(load_image_set("dots", data), "0.5", 25)
    rows = by_method(many)
    drawn = read_pictures(many, ImageTask(**rows["python:image_fakes:Drawn"]["task"]).name)
    assert (drawn.truth == split.test[:16]).all()
    assert (drawn.hidden == split.hidden_test[:16]).all()
    assert (drawn.filled[drawn.hidden] == 100).all()
    assert (drawn.drawn[drawn.hidden] == 30).all()
    assert read_pictures(many, ImageTask(**rows["python:image_fakes:Grey"]["task"]).name).drawn is None
    assert read_pictures(many, "none") is None
    assert sorted(path.name for path in many.iterdir()) == ["cells", "pictures"], "no lock and no passing files stay"


@posix
def test_second_run_does_nothing_and_retry_does_the_failed(many, data, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    suite = replace(SUITE, methods=("python:image_fakes:Grey", "python:image_fakes:Broken"))
    before = {path.name: path.stat().st_mtime_ns for path in (many / "cells").iterdir()}
    outcome = run_suite(suite, many, data=data, quiet=True)
    assert (outcome.found, outcome.done, outcome.failed) == (2, 0, 1)
    outcome = run_suite(suite, many, data=data, quiet=True, retry=True)
    assert (outcome.found, outcome.done, outcome.failed) == (1, 1, 1)
    changed = [path.name for path in (many / "cells").iterdir() if path.stat().st_mtime_ns != before[path.name]]
    assert len(changed) == 1
    assert "Broken" in changed[0]


def test_images_that_are_not_there_end_the_run_before_anything_is_measured(data, tmp_path) -> None:
    with pytest.raises(ParameterError, match="There is no image set 'dotz'"):
        run_suite(replace(SUITE, data=("dotz",)), tmp_path, data=data, quiet=True)
    with pytest.raises(ParameterError, match="n_test is 21, but dots has 20 such images"):
        run_suite(replace(SUITE, n_test=21), tmp_path, data=data, quiet=True)
    (data / "torn.npz").write_bytes(b"PK nothing")
    with pytest.raises(DataError, match=r"torn\.npz"):
        prepare_images(("torn",), data)
    assert not (tmp_path / "cells").exists()


def test_facts_tell_versions_of_a_set_apart_and_digits_from_others(data, capsys) -> None:
    dots = read_image_npz(data / "dots.npz")
    facts = facts_of(dots, data)
    assert (facts.n_train, facts.n_test, facts.folder) == (30, 20, str(data))
    other = dots.test.copy()
    other[0, 0, 0, 0] ^= 1
    assert facts_of(ImageSet("dots", dots.train, other), data).sha256 != facts.sha256
    assert main(["images", str(data), "dots"]) == 0
    assert json.loads(capsys.readouterr().out)["dots"]["sha256"] == facts.sha256
    digits, labels = np.zeros((2, 28, 28), np.uint8), np.zeros(2, np.int64)
    assert ImageSet("digits", digits, digits, labels, labels).is_digits
    assert not ImageSet("digits", digits, digits).is_digits
    assert not dots.is_digits


def test_methods_that_do_not_exist_are_named(capsys) -> None:
    assert main(["methods", "images", "mean", "gain(max_epochs=2)"]) == 0
    assert main(["methods", "images", "mean", "gainn"]) == WRONG
    assert "Did you mean 'gain'" in capsys.readouterr().out
    assert main(["methods", "images", "gain(max_epoch=2)"]) == WRONG
    assert "max_epochs" in capsys.readouterr().out


def test_digits_are_judged_by_the_lenet_of_all_complete_training_digits(monkeypatch, tmp_path) -> None:
    rng = np.random.default_rng(1)
    digits, labels = _noise(rng, 12, 28, 28), np.arange(12) % 10
    np.savez(tmp_path / "tiny.npz", x_train=digits, y_train=labels, x_test=digits, y_test=labels)
    asked = []

    def judge(image_set):
        from mcflow_bench.lenet import train_lenet

        asked.append(image_set.train)
        return train_lenet(image_set.train, image_set.train_labels, n_epochs=1)

    monkeypatch.setattr("mcflow_bench.lenet.lenet_for", judge)
    found = []
    task = ImageTask("tiny", "", 6, 8, "blocks:0.25", "nearest", 0)
    cells.measure_images(task, tmp_path, tmp_path, found.append)
    assert (asked[0] == digits).all()
    first, last = found[0], found[-1]
    assert {"accuracy", "frechet", "psnr", "image_psnr"} <= first["scores"].keys()
    assert last["scores"]["accuracy"]["value"] * 8 % 1 == 0, "a share of 8 digits"
    assert last["scores"]["frechet"]["value"] > 0
    assert last["data"]["scored_train_images"] == 6 <= MAX_SCORED_TRAIN


def test_draws_that_would_take_too_long_are_left_out_and_said(data, monkeypatch, tmp_path) -> None:
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setattr(cells, "MAX_DRAW_SECONDS", -1.0)
    found = []
    cells.measure_images(
        ImageTask("dots", "", 20, 20, "0.5", "python:image_fakes:Drawn", 0), data, tmp_path, found.append
    )
    assert found[-1]["message"] == "draws were not scored: by the first 20 images, all would take 0.0 hours"
    assert {"rmse", "train_rmse"} <= found[-1]["scores"].keys()
    assert not [name for name in found[-1]["scores"] if name.startswith("draw_")]


def test_real_digits_are_measured_at_a_small_size(data_folder, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(cells, "_judge_of", lambda image_set: None)
    found = []
    task = ImageTask("mnist", "", 2000, 200, "0.5", "mean", 0)
    cells.measure_images(task, data_folder, tmp_path, found.append)
    assert found[-1]["scores"]["rmse"]["value"] == pytest.approx(0.26, abs=0.02)
    assert found[-1]["data"]["size"] == [28, 28]

"""`mcflow impute-images`: folders in, folders out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mcflow.cli.app import main
from mcflow.images.folders import read_image_folder, write_image_folder

NAMES = [f"p{k}" for k in range(8)]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    images = np.rint(255 * rng.random((8, 1, 1)) * np.linspace(0, 1, 6)[:, None] * np.ones(5)).astype(np.uint8)
    write_image_folder(images, tmp_path / "in", NAMES)
    write_image_folder((rng.random(images.shape) < 0.4).astype(np.uint8) * 255, tmp_path / "masks", NAMES)
    return tmp_path


def run(folder: Path, *more: str) -> int:
    return main(["impute-images", str(folder / "in"), "--masks", str(folder / "masks"), *more])


def test_folder_is_filled_with_draws_and_intervals_and_the_model_is_used_again(folders: Path) -> None:
    model, out = str(folders / "m.mcflow"), folders / "out"
    words = ["-o", str(out), "--max-epochs", "1", "--draws", "2", "--interval", "0.9", "--save", model, "--quiet"]
    assert run(folders, *words) == 0
    images, mask, _ = read_image_folder(folders / "in", folders / "masks")
    for name in (".", "draw-01", "draw-02", "low", "high"):
        found, _, names = read_image_folder(out / name)
        assert names == [f"{name}.png" for name in NAMES]
        assert np.array_equal(found[~mask], images[~mask])
    again = folders / "again"
    assert run(folders, "-o", str(again), "--model", model, "-q") == 0
    assert np.array_equal(read_image_folder(again)[0], read_image_folder(out)[0])


def test_summary_says_what_was_done(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, "-o", str(folders / "out"), "--max-epochs", "1") == 0
    assert "of 8 images" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-o", "{}/in"], 4, "is an input folder"),
        (["-o", "{}/out", "--interval", "2"], 2, "between 0 and 1"),
        (["-o", "{}/out", "--draws", "0"], 2, "draws"),
        (["-o", "{}/out", "--preset", "papper"], 2, "paper"),
    ],
)
def test_wrong_words_end_with_one_line(
    words: list[str], code: int, said: str, folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folders, *(word.format(folders) for word in words)) == code
    assert said in capsys.readouterr().err
    assert not (folders / "out").exists()


def test_models_of_tables_and_of_images_are_distinguished(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = folders / "t.csv"
    table.write_text("a,b\n1,2\n2,\n3,4\n4,5\n")
    tables, images = str(folders / "t.mcflow"), str(folders / "i.mcflow")
    assert main(["fit", str(table), "-o", tables, "--max-epochs", "1", "--quiet"]) == 0
    assert run(folders, "-o", str(folders / "out"), "--max-epochs", "1", "--save", images, "-q") == 0
    assert run(folders, "-o", str(folders / "other"), "--model", tables) == 3
    assert "model of tables" in capsys.readouterr().err
    assert main(["impute", str(table), "-o", str(folders / "f.csv"), "--model", images]) == 3
    assert "model of images" in capsys.readouterr().err

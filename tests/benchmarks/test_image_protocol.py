"""The grid of images, their masks and scores against slow obvious versions."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from mcflow.benchmarks.image_protocol import image_scores, split_images, with_holes
from mcflow.benchmarks.image_suite import IMAGE_SUITES, RATES, ImageExtra, ImageSuite, ImageTask, mask_word
from mcflow.data.images import ImageSet
from mcflow.errors import ParameterError
from mcflow.masks import mask_images


def noise(*shape, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture(scope="module")
def dots() -> ImageSet:
    return ImageSet("dots", noise(50, 8, 8, 3), noise(40, 8, 8, 3, seed=1), None, np.arange(40) % 10)


@pytest.mark.parametrize(
    "word", ["0.5", ".50", "pixels:0.5", "blocks:.25", "halves", "halves: left", " halves:random "]
)
def test_mask_words_have_one_form_which_masks_read(word) -> None:
    one = mask_word(word)
    assert mask_word(one) == one
    shape = (20, 10, 10)
    assert (mask_images(shape, one, 3) == mask_images(shape, word.replace(": ", ":"), 3)).all()


@pytest.mark.parametrize("word", ["0", "1", "-0.5", "nan", "half", "blocks", "blocks:1", "halves:up", "pixels:", ""])
def test_mask_words_that_hide_nothing_sensible_are_refused(word) -> None:
    with pytest.raises(ParameterError, match="does not say which pixels are missing"):
        mask_word(word)


def test_split_takes_the_first_images_and_hides_the_same_pixels_every_time(dots) -> None:
    split = split_images(dots, "0.3", 30, 20)
    assert (split.train == dots.train[:30]).all()
    assert (split.test == dots.test[:20]).all()
    assert (split.labels == np.arange(20) % 10).all()
    assert split.hidden_train.shape == (30, 8, 8)
    again = split_images(dots, "0.3", 30, 20)
    assert (split.hidden_train == again.hidden_train).all()
    assert (split.hidden_test == again.hidden_test).all()
    assert abs(split.hidden_train.mean() - 0.3) < 0.04
    assert (split.hidden_train[:20] != split.hidden_test).any(), "parts have masks of their own"
    assert (split_images(dots, "0.31", 30, 20).hidden_test != split.hidden_test).any()
    named = ImageSet("other", dots.train, dots.test)
    assert (split_images(named, "0.3", 30, 20).hidden_test != split.hidden_test).any()
    assert split_images(named, "0.3").labels is None
    with pytest.raises(ParameterError, match="n_test is 41, but dots has 40 such images"):
        split_images(dots, "0.3", n_test=41)


def test_holes_are_black_in_all_channels_and_the_rest_is_left_alone(dots) -> None:
    hidden = mask_images(dots.test.shape, "0.5", 0)
    holed = with_holes(dots.test, hidden)
    assert (holed[hidden] == 0).all()
    assert (holed[~hidden] == dots.test[~hidden]).all()
    assert dots.test[hidden].any()


class Parity:
    """Say 0 or 1 by the first pixel; its features are the means of rows."""

    def accuracy(self, images, labels):
        return float((images[:, 0, 0, 0] % 2 == labels % 2).mean())

    def features(self, images):
        return images.mean(axis=(2, 3)) / 255


def test_scores_are_those_of_slow_obvious_versions(dots) -> None:
    hidden = mask_images(dots.test.shape, "0.4", 2)
    filled = dots.test.copy()
    filled[hidden] = noise(40, 8, 8, 3, seed=5)[hidden]
    scores = image_scores(filled, dots.test, hidden, labels=dots.test_labels, judge=Parity(), prefix="draw_")
    assert {name.removeprefix("draw_") for name in scores} == {"rmse", "psnr", "image_psnr", "accuracy", "frechet"}
    gaps = (filled.astype(float) - dots.test) / 255
    rmse = math.sqrt(np.mean(gaps[hidden] ** 2))
    assert scores["draw_rmse"].value == pytest.approx(rmse)
    assert scores["draw_psnr"].value == pytest.approx(-20 * math.log10(rmse))
    assert scores["draw_image_psnr"].value == pytest.approx(-10 * math.log10(np.mean(gaps**2)))
    share = np.mean(filled[:, 0, 0, 0] % 2 == dots.test_labels % 2)
    assert scores["draw_accuracy"].value == pytest.approx(share)
    assert scores["draw_accuracy"].error == pytest.approx(math.sqrt(share * (1 - share) / 40))
    assert scores["draw_frechet"].value > 0
    assert math.isnan(scores["draw_frechet"].error)


def test_standard_error_of_the_rmse_is_its_spread_over_sets_of_images() -> None:
    rng = np.random.default_rng(0)

    def score():
        levels = rng.integers(0, 100, (200, 1, 1))  # an image's pixels are wrong together
        truth = np.zeros((200, 6, 6), np.uint8)
        filled = np.broadcast_to(levels, truth.shape).astype(np.uint8)
        hidden = rng.random(truth.shape) < 0.5
        return image_scores(np.where(hidden, filled, truth), truth, hidden)

    found = [score() for _ in range(300)]
    for name in ("rmse", "psnr"):
        spread = np.std([one[name].value for one in found], ddof=1)
        assert np.mean([one[name].error for one in found]) == pytest.approx(spread, rel=0.15)


def test_perfect_fill_has_no_error(dots) -> None:
    scores = image_scores(dots.test, dots.test, np.ones((40, 8, 8), bool))
    assert (scores["rmse"].value, scores["rmse"].error, scores["psnr"].value) == (0.0, 0.0, math.inf)


def test_grid_is_run_mask_by_mask_then_the_extras_and_nothing_twice() -> None:
    extra = ImageExtra("mean", ("b",), ("0.5", "blocks:0.1"), "why")
    suite = ImageSuite(("a",), ("mean", "gain( max_epochs=2 )"), ("pixels:0.5", "0.9"), extras=(extra, extra))
    cells = suite.cells(lambda name: (Path(name), f"sha-{name}"))
    assert [(c.task.images, c.task.mask, c.label, c.note) for c in cells] == [
        ("a", "0.5", "mean", ""),
        ("a", "0.5", "gain(max_epochs=2)", ""),
        ("a", "0.9", "mean", ""),
        ("a", "0.9", "gain(max_epochs=2)", ""),
        ("b", "0.5", "mean", "why"),
        ("b", "blocks:0.1", "mean", "why"),
    ]
    assert {(c.path, c.task.sha256) for c in cells} == {(Path("a"), "sha-a"), (Path("b"), "sha-b")}
    assert suite.all_sets == ("a", "b")


def test_key_depends_on_every_setting() -> None:
    base = {"images": "a", "sha256": "x", "n_train": None, "n_test": None, "mask": "0.5", "method": "mean", "seed": 0}
    others = {"images": "b", "sha256": "y", "n_train": 5, "n_test": 5, "mask": "0.9", "method": "gain", "seed": 1}
    keys = {ImageTask(**base).key, *(ImageTask(**base | {name: value}).key for name, value in others.items())}
    assert len(keys) == 8
    assert ImageTask(**base).words == "a, 0.5, mean"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sets": ()}, "nothing to measure"),
        ({"methods": ("mean(",)}, "is not a method"),
        ({"n_train": 1}, "n_train is 1"),
        ({"time_limit": 0}, "time_limit is 0"),
    ],
)
def test_suites_that_cannot_be_are_refused(change, words) -> None:
    suite = ImageSuite(**{"sets": ("a",), "methods": ("mean",)} | change)
    with pytest.raises(ParameterError, match=words):
        suite.check()


def test_suites_are_those_of_the_paper_and_a_quick_look() -> None:
    for suite in IMAGE_SUITES.values():
        suite.check()
        assert {mask for _, mask, _, _ in suite.asked()} <= {*RATES, "blocks:0.25"}
    quick = IMAGE_SUITES["quick"]
    assert (quick.sets, quick.masks, quick.n_train, quick.n_test) == (("mnist",), ("0.1", "0.5", "0.9"), 5000, 2000)
    assert IMAGE_SUITES["paper"].masks == RATES == tuple(f"{k / 10:g}" for k in range(1, 10))

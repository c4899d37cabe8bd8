"""Splits, hidden values and scores of tables and of images against slow versions."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest

from mcflow.errors import ParameterError
from mcflow.images.masks import mask_images
from mcflow_bench.data.image_sets import ImageSet
from mcflow_bench.protocol import (
    blacken,
    draw_rows,
    draw_scores,
    image_scores,
    point_scores,
    split_images,
    split_table,
)
from mcflow_bench.suites import MECHANISMS

VALUES = np.arange(103 * 4.0).reshape(103, 4) ** 1.5


def plain_split(values, fold, rate):
    """The protocol once more, row by row."""
    rng = np.random.default_rng(fold)
    order = rng.permutation(len(values))
    hidden = rng.random(values.shape) < rate
    size = len(values) // 5
    inside = [k for k in range(len(values)) if fold * size <= k < (fold + 1) * size]
    outside = [k for k in range(len(values)) if k not in inside]
    rows = [values[place] for place in order]
    return (
        np.array([rows[k] for k in outside]),
        np.array([rows[k] for k in inside]),
        hidden[outside],
        hidden[inside],
    )


@pytest.mark.parametrize("fold", range(5))
def test_split_equals_the_plain_protocol(fold) -> None:
    split = split_table(VALUES, fold, 0.2)
    for ours, plain in zip(split[:4], plain_split(VALUES, fold, 0.2), strict=True):
        np.testing.assert_array_equal(ours, plain)
    np.testing.assert_array_equal(split.span, VALUES.max(axis=0) - VALUES.min(axis=0))


@pytest.mark.parametrize(("fold", "digest"), [(0, "fddb38e2ea5dc859"), (3, "77e16ed7906d173f")])
def test_split_hides_the_same_cells_on_every_machine(fold, digest) -> None:
    whole_numbers = np.arange(103 * 4.0).reshape(103, 4)  # powers may differ in their last bit
    parts = split_table(whole_numbers, fold, 0.2)[:4]
    found = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()
    assert found.startswith(digest)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_hides_about_the_rate_and_the_same_cells_again(mechanism) -> None:
    values = np.random.default_rng(1).normal(size=(500, 8))
    split, again = (split_table(values, 2, 0.3, mechanism) for _ in range(2))
    hidden = np.vstack([split.hidden_train, split.hidden_test])
    assert abs(hidden.mean() - 0.3) < 0.03
    np.testing.assert_array_equal(split.hidden_test, again.hidden_test)


def test_scores_equal_their_formulas() -> None:
    split = split_table(VALUES, 0, 0.3)
    filled = np.where(
        split.hidden_test, np.nanmean(np.where(split.hidden_train, np.nan, split.train), axis=0), split.test
    )
    scores = point_scores(split, filled)
    gap = (filled - split.test)[split.hidden_test]
    span = np.broadcast_to(np.ptp(VALUES, axis=0), split.test.shape)[split.hidden_test]
    spread = np.broadcast_to(VALUES.std(axis=0), split.test.shape)[split.hidden_test]
    assert scores["rmse"].value == pytest.approx(np.sqrt(np.mean((gap / span) ** 2)))
    assert scores["mae"].value == pytest.approx(np.mean(np.abs(gap) / span))
    assert scores["standardised_rmse"].value == pytest.approx(np.sqrt(np.mean((gap / spread) ** 2)))
    assert set(scores) == {"rmse", "mae", "standardised_rmse", "correlation_error", "energy_distance"}


def test_column_that_does_not_vary_over_test_rows_costs_only_the_correlations() -> None:
    values = VALUES.copy()
    values[:, 0] = 0.0
    values[-1, 0] = 1.0
    split = next(s for s in (split_table(values, fold, 0.2) for fold in range(5)) if np.ptp(s.test[:, 0]) == 0)
    assert "correlation_error" not in point_scores(split, split.test)


def test_draws_that_are_right_cover_ninety_percent() -> None:
    class Normal:
        def draw(self, X, m, random_state):
            rng = np.random.default_rng(random_state)
            for _ in range(m):
                yield np.where(np.isnan(X), rng.normal(size=X.shape), X)

    split = split_table(np.random.default_rng(5).normal(size=(5000, 6)), 1, 0.5)
    scores = draw_scores(split, Normal(), draw_rows(split, Normal(), 0))
    assert scores["coverage_90"] == scores["draw_coverage_90"]
    assert abs(scores["coverage_90"].value - 0.9) < 4 * scores["coverage_90"].error
    expected = 1 / np.sqrt(np.pi)  # of a standard normal truth under its own distribution
    assert scores["crps"].value * split.span.mean() == pytest.approx(expected, rel=0.1)


def noise(*shape, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture(scope="module")
def dots() -> ImageSet:
    return ImageSet("dots", noise(50, 8, 8, 3), noise(40, 8, 8, 3, seed=1), None, np.arange(40) % 10)


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


def test_hidden_pixels_are_black_in_all_channels_and_the_rest_is_left_alone(dots) -> None:
    hidden = mask_images(dots.test.shape, "0.5", 0)
    blackened = blacken(dots.test, hidden)
    assert (blackened[hidden] == 0).all()
    assert (blackened[~hidden] == dots.test[~hidden]).all()
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
        categories = rng.integers(0, 100, (200, 1, 1))  # an image's pixels are wrong together
        truth = np.zeros((200, 6, 6), np.uint8)
        filled = np.broadcast_to(categories, truth.shape).astype(np.uint8)
        hidden = rng.random(truth.shape) < 0.5
        return image_scores(np.where(hidden, filled, truth), truth, hidden)

    found = [score() for _ in range(300)]
    for name in ("rmse", "psnr"):
        spread = np.std([one[name].value for one in found], ddof=1)
        assert np.mean([one[name].error for one in found]) == pytest.approx(spread, rel=0.15)


def test_perfect_fill_has_no_error(dots) -> None:
    scores = image_scores(dots.test, dots.test, np.ones((40, 8, 8), bool))
    assert (scores["rmse"].value, scores["rmse"].error, scores["psnr"].value) == (0.0, 0.0, math.inf)

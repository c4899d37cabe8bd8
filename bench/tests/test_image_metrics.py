"""Measures of filled images against closed forms and reference computations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import linalg

from mcflow.errors import DataError, ParameterError
from mcflow_bench.image_metrics import frechet_distance, image_rmse, psnr


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_rmse_scores_all_channels_of_missing_pixels_alone(rng) -> None:
    truth, filled = rng.random((2, 30, 5, 6, 3))
    missing = rng.random((30, 5, 6)) < 0.4
    expected = np.sqrt(np.mean((filled - truth)[missing] ** 2))
    assert image_rmse(filled, truth, missing) == pytest.approx(expected)
    assert image_rmse(filled, truth, np.repeat(missing[..., None], 3, axis=-1)) == pytest.approx(expected)
    filled[~missing] = np.nan
    assert image_rmse(filled, truth, missing) == pytest.approx(expected), "other pixels are not scored"
    assert image_rmse(truth + 0.25, truth) == pytest.approx(0.25)


@pytest.mark.parametrize("kind", ["uint8", "uint16"])
def test_whole_numbers_count_by_the_range_of_their_type(kind) -> None:
    white = np.iinfo(kind).max
    truth = np.full((2, 3, 3), white, dtype=kind)
    assert image_rmse(np.zeros_like(truth), truth) == pytest.approx(1)
    assert image_rmse(np.full(truth.shape, 0.8), truth) == pytest.approx(0.2), "floats beside whole numbers"
    assert psnr(np.zeros_like(truth), truth) == pytest.approx(0)


def test_rmse_of_many_images_is_that_of_the_whole(rng, monkeypatch) -> None:
    truth, filled = rng.random((2, 25, 4, 4))
    missing = rng.random(truth.shape) < 0.5
    whole = image_rmse(filled, truth, missing)
    monkeypatch.setattr("mcflow_bench.image_metrics._BATCH_IMAGES", 4)
    assert image_rmse(filled, truth, missing) == pytest.approx(whole, rel=1e-12)


def test_psnr_is_that_of_the_error_and_its_peak(rng) -> None:
    truth = rng.random((4, 3, 3))
    assert psnr(truth + 0.1, truth) == pytest.approx(20)
    assert psnr(255 * (truth + 0.1), 255 * truth, peak=255) == pytest.approx(20)
    assert psnr(truth, truth) == math.inf


def test_psnr_of_whole_images_is_higher_by_the_share_that_is_missing(rng) -> None:
    truth, filled = rng.random((2, 10, 10, 10))
    missing = np.arange(1000).reshape(10, 10, 10) % 10 == 0
    filled[~missing] = truth[~missing]
    assert psnr(filled, truth) == pytest.approx(psnr(filled, truth, missing) + 10)


@pytest.mark.parametrize(
    ("filled", "truth", "missing", "message"),
    [
        (np.zeros((1, 2, 2)), np.zeros((1, 2, 3)), None, "both have to have the same"),
        (np.zeros((2, 2)), np.zeros((2, 2)), None, "both have to have the same"),
        (np.zeros((1, 2, 2)), np.zeros((1, 2, 2)), np.zeros((1, 2, 2), dtype=bool), "nothing to score"),
        (np.zeros((1, 2, 2)), np.zeros((1, 2, 2)), np.ones((1, 2, 2)), "has to be boolean"),
        (np.full((1, 2, 2), np.nan), np.zeros((1, 2, 2)), None, "not a finite number"),
        (np.zeros((1, 2, 2), dtype=int), np.zeros((1, 2, 2)), None, "uint8, uint16 or floats"),
    ],
)
def test_arrays_that_cannot_be_scored_are_refused(filled, truth, missing, message) -> None:
    with pytest.raises(DataError, match=message):
        image_rmse(filled, truth, missing)


@pytest.mark.parametrize("peak", [0, -1, math.nan, math.inf])
def test_peak_that_is_no_range_is_refused(peak) -> None:
    with pytest.raises(ParameterError, match="peak"):
        psnr(np.zeros((1, 2, 2)), np.ones((1, 2, 2)), peak=peak)


def test_distance_agrees_with_the_general_square_root(rng) -> None:
    a = rng.normal(size=(300, 6)) @ rng.normal(size=(6, 6))
    b = rng.normal(size=(200, 6)) @ rng.normal(size=(6, 6)) + 1
    cov_a, cov_b = np.cov(a.T), np.cov(b.T)
    expected = np.sum((a.mean(0) - b.mean(0)) ** 2) + np.trace(cov_a + cov_b - 2 * linalg.sqrtm(cov_a @ cov_b).real)
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(b, a) == pytest.approx(expected, rel=1e-9)


def test_distance_of_axis_aligned_normals_is_the_closed_form(rng) -> None:
    z = rng.normal(size=(500, 3))
    z = (z - z.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(z.T))).T
    scale_a, scale_b, shift = np.array([1, 2, 0.5]), np.array([3, 2, 0]), np.array([0, 1, 2])
    expected = ((scale_a - scale_b) ** 2).sum() + (shift**2).sum()
    assert frechet_distance(z * scale_a, z * scale_b + shift) == pytest.approx(expected)


def test_distance_is_zero_for_the_same_set_even_with_dead_units_and_few_images(rng) -> None:
    features = np.maximum(rng.normal(size=(10, 40)), 0)
    features[:, ::3] = 0
    assert 0 <= frechet_distance(features, features) < 1e-6
    assert frechet_distance(features, features[::-1] + 2) == pytest.approx(4 * 40, abs=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.zeros((5, 2)), np.zeros((5, 3)), "same number"),
        (np.zeros((1, 2)), np.zeros((5, 2)), "two images"),
        (np.zeros(5), np.zeros((5, 2)), "n_images, n_features"),
        (np.zeros((5, 2)), np.full((5, 2), np.inf), "finite"),
    ],
)
def test_features_that_cannot_be_compared_are_refused(a, b, message) -> None:
    with pytest.raises(DataError, match=message):
        frechet_distance(a, b)

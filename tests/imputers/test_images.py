"""The contract of the image imputer, for both presets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from mcflow import MCFlowImageImputer, load
from mcflow.errors import DataError, ParameterError
from mcflow.images.folders import write_image_folder


def planes(n_images: int, seed: int, channels: int = 0, size: tuple[int, int] = (8, 6)) -> np.ndarray:
    """Return smooth uint8 images."""
    rng = np.random.default_rng(seed)
    shape = (n_images, 1, 1, *([channels] if channels else []))
    a, b, c = (rng.random(shape) for _ in range(3))
    rows = np.linspace(0, 1, size[0]).reshape(-1, 1, *([1] if channels else []))
    columns = np.linspace(0, 1, size[1]).reshape(1, -1, *([1] if channels else []))
    return np.rint(255 * (a * rows + b * columns + c) / 3).astype(np.uint8)


def missing(images: np.ndarray, seed: int, rate: float = 0.3) -> np.ndarray:
    return np.random.default_rng(seed).random(images.shape[:3]) < rate


IMAGES = planes(200, 0)
MASK = missing(IMAGES, 1)
NEW = planes(12, 2)
NEW_MASK = missing(NEW, 3)


@pytest.fixture(scope="module", params=["default", "paper"])
def fitted(request: pytest.FixtureRequest) -> MCFlowImageImputer:
    imputer = MCFlowImageImputer(preset=request.param, max_epochs=8, random_state=0)
    return imputer.fit(IMAGES, mask=MASK)


def test_transform_fills_only_what_is_missing_in_the_same_type(fitted: MCFlowImageImputer) -> None:
    filled = fitted.transform(NEW, mask=NEW_MASK)
    assert filled.dtype == NEW.dtype
    assert filled.shape == NEW.shape
    assert np.array_equal(filled[~NEW_MASK], NEW[~NEW_MASK])


def test_transform_does_not_look_at_what_is_missing(fitted: MCFlowImageImputer) -> None:
    other = np.where(NEW_MASK, 255 - NEW, NEW)
    filled, again = (fitted.transform(images, mask=NEW_MASK) for images in (NEW, other))
    assert np.array_equal(filled, again)


def test_transform_of_an_image_does_not_depend_on_others(fitted: MCFlowImageImputer) -> None:
    whole = fitted.transform(NEW, mask=NEW_MASK).astype(int)
    parts = [fitted.transform(NEW[k : k + 1], mask=NEW_MASK[k : k + 1])[0] for k in (3, 7)]
    assert np.abs(whole[[3, 7]] - np.stack(parts)).max() <= 1


def test_draws_depend_on_seed_and_image_alone(fitted: MCFlowImageImputer) -> None:
    first, second = fitted.draw(NEW, 2, random_state=5, mask=NEW_MASK)
    assert np.array_equal(first[~NEW_MASK], NEW[~NEW_MASK])
    assert not np.array_equal(first, second)
    order = np.arange(len(NEW))[::-1]
    turned = next(fitted.draw(NEW[order], 2, random_state=5, mask=NEW_MASK[order]))
    off = np.abs(turned[order].astype(int) - first) > 1
    assert off.mean() < 0.002  # round-off may move a pixel across the edge of a level
    other = next(fitted.draw(NEW, 2, random_state=6, mask=NEW_MASK))
    assert not np.array_equal(first, other)


def test_equal_images_are_told_apart_by_their_numbers(fitted: MCFlowImageImputer) -> None:
    twins, mask = np.repeat(NEW[:1], 2, axis=0), np.repeat(NEW_MASK[:1], 2, axis=0)
    same = next(fitted.draw(twins, 1, random_state=0, mask=mask))
    apart = next(fitted.draw(twins, 1, random_state=0, mask=mask, image_ids=[1, 2]))
    assert np.array_equal(same[0], same[1])
    assert not np.array_equal(apart[0], apart[1])


def test_draws_are_made_when_they_are_asked_for(fitted: MCFlowImageImputer) -> None:
    draws = fitted.draw(NEW, 1_000_000, random_state=0, mask=NEW_MASK)
    assert isinstance(draws, Iterator)
    assert next(draws).shape == NEW.shape


def test_intervals_hold_the_truth_about_as_often_as_they_say(fitted: MCFlowImageImputer) -> None:
    images = planes(150, 8)
    mask = missing(images, 9)
    low, high = fitted.interval(images, 0.8, mask=mask)
    assert low.dtype == images.dtype
    assert (low[mask] <= high[mask]).all()
    assert np.array_equal(low[~mask], images[~mask])
    inside = ((low <= images) & (images <= high))[mask].mean()
    assert 0.7 < inside < 0.93


def test_quantiles_rise(fitted: MCFlowImageImputer) -> None:
    found = np.stack(fitted.quantile(NEW, [0.05, 0.3, 0.7, 0.95], mask=NEW_MASK)).astype(int)
    assert (np.diff(found, axis=0) >= 0).all()
    assert fitted.quantile(NEW, 0.5, mask=NEW_MASK).shape == NEW.shape


def test_density_is_higher_for_images_than_for_noise(fitted: MCFlowImageImputer) -> None:
    noise = np.random.default_rng(0).integers(0, 256, NEW.shape, dtype=np.uint8)
    scores = fitted.score_samples(NEW)
    assert scores.shape == (len(NEW),)
    assert np.median(scores) > fitted.score_samples(noise).max()


def test_samples_look_like_images(fitted: MCFlowImageImputer) -> None:
    made = fitted.sample(9, random_state=0)
    assert made.dtype == np.uint8
    assert made.shape == (9, 8, 6)
    assert np.array_equal(made, fitted.sample(9, random_state=0))


def test_saved_imputer_of_the_paper_answers_alike_for_colour(tmp_path: Path) -> None:
    images = planes(12, 4, channels=3)
    mask = missing(images, 5)
    imputer = MCFlowImageImputer(preset="paper", max_epochs=1, random_state=0).fit(images, mask=mask)
    imputer.save(tmp_path / "model.mcflow")
    bounds = [each.interval(images, mask=mask)[0] for each in (imputer, load(tmp_path / "model.mcflow"))]
    assert np.array_equal(*bounds)


def test_saved_imputer_answers_alike(fitted: MCFlowImageImputer, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.mcflow")
    again = load(tmp_path / "model.mcflow")
    assert isinstance(again, MCFlowImageImputer)
    assert np.array_equal(again.transform(NEW, mask=NEW_MASK), fitted.transform(NEW, mask=NEW_MASK))
    assert np.array_equal(again.score_samples(NEW), fitted.score_samples(NEW))
    one, other = (next(each.draw(NEW, 1, 3, mask=NEW_MASK)) for each in (fitted, again))
    assert np.array_equal(one, other)
    bounds = [each.interval(NEW, mask=NEW_MASK)[0] for each in (fitted, again)]
    assert np.array_equal(*bounds)
    assert again.history_ == fitted.history_


def test_default_beats_the_mean_of_the_observed_pixels_by_far() -> None:
    imputer = MCFlowImageImputer(max_epochs=25, random_state=0, calibrate=False).fit(IMAGES, mask=MASK)
    filled = imputer.transform(NEW, mask=NEW_MASK)
    error = np.sqrt(np.mean((filled.astype(float) - NEW)[NEW_MASK] ** 2))
    assert error < 0.35 * NEW[NEW_MASK].std()


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint16"])
def test_other_types_come_back_in_their_own_range(dtype: str) -> None:
    top = 65535 if dtype == "uint16" else 100.0
    images = (planes(40, 0) / 255 * top).astype(dtype)
    filled = MCFlowImageImputer(max_epochs=2, random_state=0).fit_transform(images, mask=MASK[:40])
    assert filled.dtype == images.dtype
    assert np.array_equal(filled[~MASK[:40]], images[~MASK[:40]])
    seen = images[~MASK[:40]]
    assert filled.min() >= min(seen.min(), 0)
    assert filled.max() <= max(seen.max(), 1)


def test_nan_says_the_same_as_a_mask() -> None:
    images = planes(40, 0) / 255
    incomplete = np.where(MASK[:40], np.nan, images)
    one = MCFlowImageImputer(max_epochs=2, random_state=0).fit_transform(incomplete)
    other = MCFlowImageImputer(max_epochs=2, random_state=0, value_range=(0, 1)).fit_transform(images, mask=MASK[:40])
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (5, 3), (13, 21)])
@pytest.mark.parametrize("channels", [0, 3])
def test_any_size_and_number_of_channels_is_filled(size: tuple[int, int], channels: int) -> None:
    images = planes(10, 0, channels, size)
    mask = missing(images, 1, 0.4)
    imputer = MCFlowImageImputer(max_epochs=1, random_state=0).fit(images, mask=mask)
    assert imputer.transform(images, mask=mask).shape == images.shape
    assert next(imputer.draw(images, 1, 0, mask=mask)).shape == images.shape
    assert np.isfinite(imputer.score_samples(images)).all()


def test_blocks_and_single_channels_may_be_missing() -> None:
    images = planes(30, 0, 3)
    block = np.zeros(images.shape[:3], dtype=bool)
    block[:, 2:6, 1:4] = True
    filled = MCFlowImageImputer(max_epochs=2, random_state=0).fit_transform(images, mask=block)
    assert np.array_equal(filled[~block], images[~block])
    single = np.random.default_rng(0).random(images.shape) < 0.3
    filled = MCFlowImageImputer(max_epochs=2, random_state=0).fit_transform(images, mask=single)
    assert np.array_equal(filled[~single], images[~single])


def test_one_image_and_complete_images_and_an_image_without_pixels_are_filled() -> None:
    one = MCFlowImageImputer(max_epochs=1, random_state=0).fit(IMAGES[:1], mask=MASK[:1])
    assert one.transform(IMAGES[:1], mask=MASK[:1]).shape == (1, 8, 6)
    complete = MCFlowImageImputer(max_epochs=1, random_state=0).fit(IMAGES[:20])
    assert np.array_equal(complete.transform(IMAGES[:20]), IMAGES[:20])
    empty = np.ones((1, 8, 6), dtype=bool)
    assert complete.transform(IMAGES[:1], mask=empty).shape == (1, 8, 6)
    assert next(complete.draw(IMAGES[:1], 1, 0, mask=empty)).shape == (1, 8, 6)


def test_same_seed_gives_the_same_bits() -> None:
    first, second = (
        MCFlowImageImputer(max_epochs=2, random_state=7).fit_transform(IMAGES[:40], mask=MASK[:40]) for _ in range(2)
    )
    assert np.array_equal(first, second)


def test_budget_of_time_is_kept(preset: str) -> None:
    images, mask = planes(400, 0, size=(16, 16)), None
    mask = missing(images, 1)
    start = time.perf_counter()
    imputer = MCFlowImageImputer(preset=preset, max_time=1.0, random_state=0).fit(images, mask=mask)
    assert time.perf_counter() - start < 12  # a busy machine is slower, but never by the hours that all epochs take
    assert imputer.history_.ending == "max_time"


def test_stopped_fit_goes_on_and_ends_with_the_same_bits(tmp_path: Path) -> None:
    def imputer(**more: object) -> MCFlowImageImputer:
        return MCFlowImageImputer(max_epochs=4, random_state=0, checkpoint_dir=tmp_path, **more)

    whole = MCFlowImageImputer(max_epochs=4, random_state=0).fit(IMAGES[:60], mask=MASK[:60])
    imputer().fit(IMAGES[:60], mask=MASK[:60])
    again = imputer().fit(IMAGES[:60], mask=MASK[:60])  # from the last checkpoint
    assert np.array_equal(
        whole.transform(NEW, mask=NEW_MASK),
        again.transform(NEW, mask=NEW_MASK),
    )
    with pytest.raises(ValueError, match="another"):
        imputer().fit(IMAGES[60:120], mask=MASK[60:120])


def test_folders_are_read(tmp_path: Path) -> None:
    names = [f"picture-{k:02d}" for k in range(20)]
    write_image_folder(IMAGES[:20], tmp_path / "pictures", names)
    write_image_folder((MASK[:20] * 255).astype(np.uint8), tmp_path / "masks", names)
    imputer = MCFlowImageImputer(max_epochs=1, random_state=0)
    filled = imputer.fit_transform(tmp_path / "pictures", mask=tmp_path / "masks")
    expected = MCFlowImageImputer(max_epochs=1, random_state=0).fit_transform(IMAGES[:20], mask=MASK[:20])
    assert np.array_equal(filled, expected)


def test_unfitted_imputer_and_bad_values_are_refused_with_a_word() -> None:
    with pytest.raises(NotFittedError):
        MCFlowImageImputer().transform(NEW)
    with pytest.raises(ParameterError, match="preset"):
        MCFlowImageImputer(preset="papper").fit(IMAGES)
    with pytest.raises(ParameterError, match="max_time"):
        MCFlowImageImputer(max_time=0).fit(IMAGES)
    imputer = MCFlowImageImputer(max_epochs=1, random_state=0).fit(IMAGES[:20])
    with pytest.raises(ParameterError, match="level"):
        imputer.interval(NEW, 1.5)
    with pytest.raises(ParameterError, match="m is 0"):
        imputer.draw(NEW, 0)
    with pytest.raises(ParameterError, match="image_ids"):
        imputer.draw(NEW, 1, image_ids=[1, 2])
    with pytest.raises(DataError, match="resize"):
        imputer.transform(NEW[:, :5])


def test_failed_fit_leaves_the_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    imputer = MCFlowImageImputer(max_epochs=1, random_state=0).fit(IMAGES[:20])
    before = imputer.transform(NEW, mask=NEW_MASK)
    monkeypatch.setattr("mcflow.images.model.MaskedImageModel.fit", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        imputer.fit(planes(20, 0, 3))
    assert np.array_equal(imputer.transform(NEW, mask=NEW_MASK), before)


def test_imputer_is_an_estimator() -> None:
    imputer = MCFlowImageImputer(max_epochs=3, random_state=1)
    assert clone(imputer).get_params() == imputer.get_params()
    assert "max_epochs=3" in repr(imputer)

"""The evaluation protocol: split a data set, hide values of it, and score what a method fills in.

A table has five folds and hidden cells in training and test rows. An image set has its own test images, and masks of
the same kind in training and test images. Methods are fitted on the training part and scored on hidden test values.
"""

from __future__ import annotations

__all__ = [
    "ImageSplit",
    "Split",
    "blacken",
    "draw_rows",
    "draw_scores",
    "image_scores",
    "point_scores",
    "split_images",
    "split_table",
    "stage_errors",
]

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mcflow.errors import DataError, ParameterError
from mcflow.typing import Array, BoolArray, FloatArray
from mcflow_bench.image_metrics import frechet_distance, image_rmse, psnr
from mcflow_bench.suites import N_FOLDS, key_of

if TYPE_CHECKING:
    from mcflow.metrics import Score
    from mcflow_bench.data.image_sets import ImageSet
    from mcflow_bench.lenet import LeNetJudge

#: Draws per row for the scores of draws.
N_DRAWS = 20
#: Maximum number of test rows that are drawn.
MAX_DRAWN_ROWS = 1000
#: Draws whose rows are compared with true rows; each costs the distances of all pairs.
ENERGY_DRAWS = 5
#: Nominal coverage of the intervals that are scored.
LEVEL = 0.9
#: Maximum number of distinct values of a column that counts as having few.
FEW_VALUES = 20
#: Maximum number of training images that are filled and scored too; the first ones are taken.
MAX_SCORED_TRAIN = 10_000

_IMAGES_AT_ONCE = 4096


class Split(NamedTuple):
    """Complete training and test rows, the masks of their hidden cells, and the units of the columns."""

    train: FloatArray
    test: FloatArray
    hidden_train: BoolArray
    hidden_test: BoolArray
    span: FloatArray
    deviation: FloatArray

    @property
    def incomplete_train(self) -> FloatArray:
        """Return the training rows with NaN in their hidden cells."""
        return np.where(self.hidden_train, np.nan, self.train)

    @property
    def incomplete_test(self) -> FloatArray:
        """Return the test rows with NaN in their hidden cells."""
        return np.where(self.hidden_test, np.nan, self.test)


def split_table(values: FloatArray, fold: int, rate: float, mechanism: str = "mcar") -> Split:
    """Shuffle a complete table, hide cells and take one fifth of the rows for the test.

    One generator, seeded with the fold, gives first the order of the rows and then the mask, which belongs to the rows
    in their new order. Both training and test rows have missing cells; only cells hidden in test rows are scored.

    Shapes: `values` (n_rows, n_columns).
    """
    rng = np.random.default_rng(fold)
    shuffled = values[rng.permutation(len(values))]
    if mechanism == "mcar":
        hidden: BoolArray = rng.random(values.shape) < rate
    else:
        from mcflow import missingness

        hide: Callable[..., BoolArray] = getattr(missingness, mechanism)
        hidden = hide(shuffled, rate, random_state=rng)
    size = len(values) // N_FOLDS
    test = np.zeros(len(values), dtype=bool)
    test[fold * size : (fold + 1) * size] = True
    span: FloatArray = np.ptp(values, axis=0)
    return Split(shuffled[~test], shuffled[test], hidden[~test], hidden[test], span, values.std(axis=0))


def point_scores(split: Split, filled: FloatArray) -> dict[str, Score]:
    """Score filled test rows.

    Shapes: `filled` (n_test_rows, n_columns).
    """
    from mcflow import metrics

    truth, mask = split.test, split.hidden_test
    scores = {
        "rmse": metrics.rmse(truth, filled, mask, split.span),
        "mae": metrics.mae(truth, filled, mask, split.span),
        "standardised_rmse": metrics.standardised_rmse(truth, filled, mask, split.deviation),
    }
    few = slice(MAX_DRAWN_ROWS)
    unit = split.deviation
    others: dict[str, Callable[[], Score]] = {
        "correlation_error": lambda: metrics.correlation_error(truth, filled),
        "energy_distance": lambda: metrics.energy_distance(filled[few] / unit, split.train[few] / unit),
    }
    for name, measure in others.items():
        try:
            scores[name] = measure()
        except DataError:  # a column that does not vary over the test rows has no correlations
            continue
    return scores


def stage_errors(split: Split, imputer: Any) -> list[dict[str, Any]]:
    """Return the errors of the paper's method after each of its stages, and an empty list for any other method.

    A stage is kept at every epoch that is a power of two, so the first k stages are those of a fit of
    :math:`2^{k - 1}` epochs, and their fill is the one of that fit. Each stage has its epoch, the RMSE over the missing
    cells of test and of training rows, and the RMSE over those of training rows by column. Choices of settings have to
    be based on training rows.
    """
    from mcflow import metrics

    model = getattr(imputer, "model_", None)
    stages = list(getattr(model, "stages", ()))
    found: list[dict[str, Any]] = []
    if model is None or not stages:
        return found
    last = {epoch.stage: epoch.epoch for epoch in model.history.epochs}
    try:
        for number in range(len(stages)):
            model.stages = stages[: number + 1]
            test, train = (imputer.transform(rows) for rows in (split.incomplete_test, split.incomplete_train))
            error = metrics.rmse(split.test, test, split.hidden_test, split.span).value
            own = metrics.rmse(split.train, train, split.hidden_train, split.span).value
            squares = np.square((train - split.train) / split.span)
            columns = np.sqrt(np.mean(squares, axis=0, where=split.hidden_train))
            parts = {"test": error, "train": own, "columns": [round(float(value), 6) for value in columns]}
            found.append({"epoch": last[number]} | parts)
    finally:
        model.stages = stages
    return found


def draw_rows(split: Split, imputer: Any, seed: int) -> FloatArray:
    """Draw the first test rows, of shape (n_draws, n_rows, n_columns)."""
    rows = split.incomplete_test[:MAX_DRAWN_ROWS]
    return np.stack([np.asarray(table, dtype=np.float64) for table in imputer.draw(rows, N_DRAWS, seed)])


def draw_scores(split: Split, imputer: Any, draws: FloatArray) -> dict[str, Score]:
    """Score draws of the first test rows, and intervals of all test rows when the imputer has them.

    The k-th smallest of m draws estimates their :math:`k / (m + 1)` quantile, so that calibrated draws have 90 % of the
    true values between both quantiles, however few they are.

    Shapes: `draws` (n_draws, n_rows, n_columns).
    """
    from mcflow import metrics

    truth, mask = split.test[: draws.shape[1]], split.hidden_test[: draws.shape[1]]
    low, high = np.quantile(draws, [0.05, 0.95], axis=0, method="weibull")
    scores = {
        "crps": metrics.crps(truth, draws, mask, split.span),
        "draw_coverage_90": metrics.coverage(truth, low, high, mask),
    }
    incomplete = mask.any(axis=1)
    if incomplete.sum() > 1:
        unit = np.where(split.deviation > 0, split.deviation, 1.0)
        scores["draw_energy_distance"] = _energy(draws[:ENERGY_DRAWS, incomplete] / unit, truth[incomplete] / unit)
    if hasattr(imputer, "interval"):
        low, high = (np.asarray(end, dtype=np.float64) for end in imputer.interval(split.incomplete_test, level=LEVEL))
    return scores | _interval_scores(split, low, high)


def _interval_scores(split: Split, low: FloatArray, high: FloatArray) -> dict[str, Score]:
    """Score the intervals of the first test rows, as many as `low` has."""
    from mcflow import metrics

    truth, mask = split.test[: len(low)], split.hidden_test[: len(low)]
    columns = [s for s in metrics.by_column(metrics.coverage, truth, low, high, mask=mask) if np.isfinite(s.value)]
    scores = {
        "coverage_90": metrics.coverage(truth, low, high, mask),
        "interval_width": metrics.width(low, high, mask, split.span),
        "lowest_coverage": min(columns, key=lambda score: score.value),
        "highest_coverage": max(columns, key=lambda score: score.value),
    }
    few = mask & _has_few_values(split)
    if few.any():
        scores["few_values_coverage"] = metrics.coverage(truth, low, high, few)
    return scores


def _has_few_values(split: Split) -> BoolArray:
    """Return which columns have few distinct values among the observed training cells."""
    columns = zip(split.train.T, split.hidden_train.T, strict=True)
    return np.array([len(np.unique(cells[~hidden])) <= FEW_VALUES for cells, hidden in columns])


def _energy(draws: FloatArray, truth: FloatArray) -> Score:
    r"""Return the unbiased energy distance between rows and their draws, averaged over the draws.

    A row and its own draw share their observed cells, so only pairs of different rows are counted: with
    :math:`h_{ij} = |x_i - y_j| + |x_j - y_i| - |x_i - x_j| - |y_i - y_j|`, the mean of :math:`h_{ij}` over
    :math:`i \ne j`, which has mean 0 when the draws have the true distribution. The standard error is that of a
    U-statistic over the rows.
    """
    from scipy.spatial.distance import cdist

    from mcflow.metrics import Score

    n_rows = len(truth)
    pairs = np.zeros((n_rows, n_rows))
    for rows in draws:
        between = cdist(rows, truth)
        pairs += between + between.T - cdist(rows, rows)
    pairs = pairs / len(draws) - cdist(truth, truth)
    np.fill_diagonal(pairs, 0.0)
    means = pairs.sum(axis=1) / (n_rows - 1)
    return Score(float(means.mean()), float(2 * means.std(ddof=1) / np.sqrt(n_rows)))


class ImageSplit(NamedTuple):
    """Complete training and test images, the masks of their hidden pixels, and the classes of the test images."""

    train: Array
    test: Array
    hidden_train: BoolArray
    hidden_test: BoolArray
    labels: Array | None


def split_images(image_set: ImageSet, mask: str, n_train: int | None = None, n_test: int | None = None) -> ImageSplit:
    """Take the first images of a set and hide pixels of them.

    The masks are seeded with the name of the set, the mask word and the part, so they are the same for all methods.
    """
    from mcflow.images.masks import mask_images

    parts, masks = [], []
    for part, images, number in (("train", image_set.train, n_train), ("test", image_set.test, n_test)):
        if number is not None and number > len(images):
            raise ParameterError(f"n_{part} is {number}, but {image_set.name} has {len(images)} such images.")
        seed = int(key_of({"set": image_set.name, "mask": mask, "part": part})[:8], 16)
        parts.append(images[:number])
        masks.append(mask_images(parts[-1].shape, mask, seed))
    labels = image_set.test_labels
    return ImageSplit(parts[0], parts[1], masks[0], masks[1], None if labels is None else labels[:n_test])


def blacken(images: Array, hidden: BoolArray) -> Array:
    """Return images with black in their hidden pixels, so that no method can see them.

    Shapes: `images` (n_images, height, width) or (n_images, height, width, channels), `hidden` (n_images, height,
    width).
    """
    blackened = images.copy()
    blackened[hidden] = 0
    return blackened


def image_scores(
    filled: Array,
    truth: Array,
    hidden: BoolArray,
    *,
    labels: Array | None = None,
    judge: LeNetJudge | None = None,
    prefix: str = "",
) -> dict[str, Score]:
    """Score filled images.

    Standard errors treat images as independent. That of the mean squared error is the one of a ratio of sums over
    images, and carries over to RMSE and PSNR by the delta method; the Fréchet distance has none.

    Shapes: `filled`, `truth` (n_images, height, width) or (n_images, height, width, channels), `hidden` (n_images,
    height, width), `labels` (n_images,).
    """
    from mcflow.metrics import Score

    rmse = image_rmse(filled, truth, hidden)
    error = _rmse_error(filled, truth, hidden, rmse)
    decibels = 20 / math.log(10) * error / rmse if rmse > 0 else 0.0
    scores = {
        "rmse": Score(rmse, error),
        "psnr": Score(psnr(filled, truth, hidden), decibels),
        "image_psnr": Score(psnr(filled, truth), decibels),
    }
    if judge is not None and labels is not None:
        correct = judge.accuracy(filled, labels)
        scores["accuracy"] = Score(correct, math.sqrt(correct * (1 - correct) / len(labels)))
        distance = frechet_distance(judge.features(filled), judge.features(truth))
        scores["frechet"] = Score(distance, math.nan)
    return {prefix + name: score for name, score in scores.items()}


def _rmse_error(filled: Array, truth: Array, hidden: BoolArray, rmse: float) -> float:
    """Return the standard error of an RMSE over a sample of images."""
    spread, count = 0.0, 0
    channels = truth[0].size // hidden[0].size
    for first in range(0, len(truth), _IMAGES_AT_ONCE):
        part = slice(first, first + _IMAGES_AT_ONCE)
        gaps = (filled[part].astype(np.float64) - truth[part]) / 255
        gaps[~hidden[part]] = 0
        squares = np.square(gaps).reshape(len(gaps), -1).sum(axis=1)
        numbers = hidden[part].sum(axis=(1, 2)) * channels
        spread += float(np.square(squares - rmse**2 * numbers).sum())
        count += int(numbers.sum())
    return math.sqrt(spread) / count / (2 * rmse) if rmse > 0 else 0.0

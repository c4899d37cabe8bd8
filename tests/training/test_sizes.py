"""Sizes that were left open become numbers, and those that were given stay."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mcflow.config import PRESETS, LatentConfig, Settings, TrainConfig
from mcflow.training.sizes import MOST_PLACES, STEPS_OF_SEVERAL, STEPS_PER_ROOT, fitting

DEFAULT = PRESETS["default"]


@pytest.mark.parametrize("n_rows", [1, 2, 7, 100, 3_000, 50_000, 1_000_000])
@pytest.mark.parametrize("n_columns", [0, 1, 10, 500, 10_000])
def test_no_size_is_left_open_whatever_the_table(n_rows, n_columns) -> None:
    found = fitting(DEFAULT, n_rows, n_columns)
    latent, train = found.latent, found.train
    assert min(latent.width, latent.n_members, latent.n_knots, latent.n_points) >= 1
    assert 1 <= train.batch_size <= max(n_rows, 1)
    assert train.max_epochs >= 1
    assert (found.flow, found.data) == (DEFAULT.flow, DEFAULT.data)


def test_given_sizes_stay() -> None:
    given = Settings(
        latent=LatentConfig(masked=True, width=24, n_members=3, n_knots=5, n_points=9),
        train=TrainConfig(max_epochs=4, batch_size=16),
    )
    found = fitting(given, 500, 6)
    assert found.latent == given.latent
    assert (found.train.max_epochs, found.train.batch_size) == (4, 16)


def test_settings_that_are_given_are_not_changed() -> None:
    before = DEFAULT.to_dict()
    fitting(DEFAULT, 99, 5)
    assert DEFAULT.to_dict() == before


def test_larger_tables_get_wider_networks_fewer_members_and_more_steps() -> None:
    sizes = [fitting(DEFAULT, n_rows, 10) for n_rows in (200, 5_000, 100_000)]
    widths = [s.latent.width for s in sizes]
    members = [s.latent.n_members for s in sizes]
    steps = [
        s.train.max_epochs * -(-n_rows // s.train.batch_size)
        for s, n_rows in zip(sizes, (200, 5_000, 100_000), strict=True)
    ]
    assert widths == sorted(widths)
    assert members == sorted(members, reverse=True)
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]


def test_wide_tables_get_fewer_points_a_column() -> None:
    narrow, wide = fitting(DEFAULT, 1000, 10).latent, fitting(DEFAULT, 1000, 400).latent
    assert (narrow.n_knots, narrow.n_points) == (DEFAULT.latent.n_knots, DEFAULT.latent.n_points)
    assert wide.n_points < narrow.n_points
    assert wide.n_knots < narrow.n_knots
    assert 400 * wide.n_points <= MOST_PLACES


def test_small_tables_get_small_batches() -> None:
    assert fitting(DEFAULT, 100, 3).train.batch_size < 100
    assert fitting(DEFAULT, 100_000, 3).train.batch_size == DEFAULT.train.batch_size


def test_numbers_may_be_read_without_knots() -> None:
    plain = replace(DEFAULT, latent=replace(DEFAULT.latent, n_knots=0))
    assert fitting(plain, 1000, 10).latent.n_knots == 0


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "width", "n_members"),
    [
        (2_000, 32, 64, 8),
        (2_000, 33, 64, 4),
        (2_001, 32, 128, 4),
        (10_000, 33, 128, 2),
        (10_001, 20, 256, 1),
        (10_001, 21, 192, 2),
        (10_001, 33, 384, 1),
        (1_000_000, 10, 256, 1),
    ],
)
def test_width_and_members_go_by_the_rows_and_for_many_by_the_columns(n_rows, n_columns, width, n_members) -> None:
    latent = fitting(DEFAULT, n_rows, n_columns).latent
    assert (latent.width, latent.n_members) == (width, n_members)


@pytest.mark.parametrize("n_rows", [400, 10_000, 160_000])
def test_number_of_steps_goes_by_the_root_of_the_rows(n_rows) -> None:
    fitted = fitting(DEFAULT, n_rows, 5)
    train = fitted.train
    steps = train.max_epochs * math.ceil(n_rows / train.batch_size)
    wanted = (STEPS_PER_ROOT if fitted.latent.n_members == 1 else STEPS_OF_SEVERAL) * math.sqrt(n_rows)
    assert wanted <= steps < wanted + math.ceil(n_rows / train.batch_size)

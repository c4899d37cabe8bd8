"""Sizes that are left open are chosen for the table; given sizes stay."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest

from mcflow.masked.config import _MAX_PLACES, MaskedConfig

#: Fields that are chosen for the table.
SIZES = ("width", "n_members", "n_knots", "n_points", "max_epochs", "batch_size")


@pytest.mark.parametrize("n_rows", [1, 2, 7, 100, 3_000, 50_000, 1_000_000])
@pytest.mark.parametrize("n_columns", [0, 1, 10, 500, 10_000])
def test_no_size_is_left_open_whatever_the_table(n_rows, n_columns) -> None:
    config = MaskedConfig().for_table(n_rows, n_columns)
    assert min(getattr(config, name) for name in SIZES) >= 1
    assert config.learning_rate > 0
    assert config.batch_size <= max(n_rows, 1)
    left_open = {name: getattr(MaskedConfig(), name) for name in (*SIZES, "learning_rate")}
    assert replace(config, **left_open) == MaskedConfig()


def test_given_sizes_stay() -> None:
    given = MaskedConfig(width=24, n_members=3, n_knots=5, n_points=9, max_epochs=4, batch_size=16, learning_rate=1e-3)
    assert given.for_table(500, 6) == given


def test_config_is_not_changed() -> None:
    config = MaskedConfig()
    before = asdict(config)
    config.for_table(99, 5)
    assert asdict(config) == before


def test_larger_tables_get_wider_networks_and_more_steps() -> None:
    counts = (200, 5_000, 100_000)
    configs = [MaskedConfig().for_table(n_rows, 10) for n_rows in counts]
    widths = [config.width for config in configs]
    steps = [
        config.max_epochs * -(-n_rows // config.batch_size) for config, n_rows in zip(configs, counts, strict=True)
    ]
    assert widths == sorted(widths)
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]


def test_wide_tables_get_fewer_points_per_column() -> None:
    narrow, wide = MaskedConfig().for_table(1000, 10), MaskedConfig().for_table(1000, 400)
    assert (narrow.n_knots, narrow.n_points) == (MaskedConfig().n_knots, MaskedConfig().n_points)
    assert wide.n_points < narrow.n_points
    assert wide.n_knots < narrow.n_knots
    assert 400 * wide.n_points <= _MAX_PLACES


def test_small_tables_get_small_batches() -> None:
    assert MaskedConfig().for_table(100, 3).batch_size < 100
    assert MaskedConfig().for_table(100_000, 3).batch_size == MaskedConfig().batch_size


def test_numbers_may_be_read_without_knots() -> None:
    assert MaskedConfig(n_knots=0).for_table(1000, 10).n_knots == 0


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "width"),
    [
        (2_000, 32, 64),
        (2_000, 33, 64),
        (2_001, 32, 128),
        (10_000, 33, 128),
        (10_001, 20, 256),
        (10_001, 21, 192),
        (10_001, 33, 256),
        (1_000_000, 10, 256),
    ],
)
def test_width_goes_by_the_rows_and_for_many_by_the_columns(n_rows, n_columns, width) -> None:
    assert MaskedConfig().for_table(n_rows, n_columns).width == width


@pytest.mark.parametrize(("n_rows", "per_root"), [(400, 40), (10_000, 60), (160_000, 30)])
@pytest.mark.parametrize("given", [0.0, 7.0])
def test_number_of_steps_is_proportional_to_the_root_of_the_rows(n_rows, per_root, given) -> None:
    config = MaskedConfig(steps_per_root=given).for_table(n_rows, 5)
    per_epoch = math.ceil(n_rows / config.batch_size)
    wanted = (given or per_root) * math.sqrt(n_rows)
    assert wanted <= config.max_epochs * per_epoch < wanted + per_epoch


@pytest.mark.parametrize(("shape", "n_members"), [((700, 10), 4), ((701, 10), 2), ((350, 21), 2)])
def test_very_small_tables_have_four_networks(shape, n_members) -> None:
    assert MaskedConfig().for_table(*shape).n_members == n_members


def test_short_time_limit_halves_the_members_and_trains_them_longer() -> None:
    plan = MaskedConfig().for_table(16_000, 16)
    nominal = plan._nominal_seconds(16_000, 16)
    short = MaskedConfig(max_time=0.5 * nominal).for_table(16_000, 16)
    assert (plan.n_members, short.n_members) == (2, 1)
    assert short.max_epochs == 2 * plan.max_epochs
    assert MaskedConfig(max_time=2 * nominal).for_table(16_000, 16).n_members == plan.n_members


def test_time_limit_leaves_given_members_and_epochs_as_they_are() -> None:
    config = MaskedConfig(max_time=0.1, n_members=4).for_table(16_000, 16)
    assert config.n_members == 4
    assert MaskedConfig(max_time=0.1, max_epochs=3).for_table(16_000, 16).max_epochs == 3


def test_very_short_limit_halves_the_width_unless_it_is_given() -> None:
    plan = MaskedConfig().for_table(16_000, 16)
    nominal = plan._nominal_seconds(16_000, 16)
    assert MaskedConfig(max_time=0.5 * nominal).for_table(16_000, 16).width == plan.width
    assert MaskedConfig(max_time=0.1 * nominal).for_table(16_000, 16).width == plan.width // 2
    assert MaskedConfig(max_time=0.1 * nominal, width=96).for_table(16_000, 16).width == 96

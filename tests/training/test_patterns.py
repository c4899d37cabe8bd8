"""Where holes go together, rows take the holes of other rows; where they do not, nothing changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mcflow import MCFlowImputer
from mcflow.config import PRESETS
from mcflow.latent.masked import MaskedMapper
from mcflow.random import Streams
from mcflow.training.hidden import HELD_TAKEN, MOST_HELD, HeldCells, HiddenTrainer
from mcflow.training.patterns import PATTERN_ROWS, patterns_of
from mcflow.training.sizes import fitting


def in_blocks(n_rows: int = 4000, share: float = 0.3) -> torch.Tensor:
    """Six columns; the last three are missing together."""
    seen = torch.ones((n_rows, 6), dtype=torch.bool)
    seen[torch.rand(n_rows, generator=torch.Generator().manual_seed(0)) < share, 3:] = False
    return seen


def alone(n_rows: int = 4000) -> torch.Tensor:
    return torch.rand((n_rows, 6), generator=torch.Generator().manual_seed(0)) > 0.3


def held_cells(seen: torch.Tensor, share: float = 0.1, **more) -> HeldCells:
    return HeldCells(seen, share, 2, torch.Generator().manual_seed(1), **more)


# patterns_of


def test_patterns_when_holes_go_together_then_they_are_the_rows_with_holes() -> None:
    seen = in_blocks()
    assert torch.equal(patterns_of(seen), ~seen[~seen.all(1)])


@pytest.mark.parametrize(
    "seen",
    [alone(), torch.ones((50, 4), dtype=torch.bool), torch.zeros((50, 4), dtype=torch.bool), in_blocks()[:, :4]],
    ids=["one by one", "no holes", "nothing but holes", "one column with holes"],
)
def test_patterns_when_no_holes_go_together_then_there_are_none(seen) -> None:
    assert patterns_of(seen) is None


def test_patterns_when_holes_exclude_each_other_then_there_are_none() -> None:
    seen = torch.ones((400, 4), dtype=torch.bool)
    seen[:200, 0], seen[200:, 1] = False, False
    assert patterns_of(seen) is None


def test_patterns_when_there_are_many_rows_then_the_first_ones_are_looked_at() -> None:
    seen = torch.cat([alone(PATTERN_ROWS), in_blocks()])
    assert patterns_of(seen) is None


# held-out cells


def test_held_cells_when_patterns_are_given_then_most_rows_take_them_whole() -> None:
    seen = torch.ones((4000, 6), dtype=torch.bool)
    held = held_cells(seen, 0.25, patterns=patterns_of(in_blocks()))
    blocks = held.cells[..., 3:].all(-1) & ~held.cells[..., :3].any(-1)
    by_chance = 0.25**3 * 0.75**3
    assert float(blocks.float().mean()) == pytest.approx(HELD_TAKEN + (1 - HELD_TAKEN) * by_chance, abs=0.02)
    assert not torch.equal(held.cells[0], held.cells[1])


def test_held_cells_when_patterns_are_large_then_no_more_are_held_than_twice_the_share() -> None:
    seen = torch.ones((4000, 6), dtype=torch.bool)
    held = held_cells(seen, 0.1, patterns=patterns_of(in_blocks()))
    assert float(held.cells.sum() / (2 * seen.sum())) == pytest.approx(MOST_HELD * 0.1, rel=0.03)
    assert held.cells.shape[1] == len(held.rows) < 4000
    batch = torch.arange(4000).expand(2, -1)
    assert torch.equal(held.of(batch)[:, held.rows], held.cells)
    assert int(held.of(batch).sum()) == int(held.cells.sum())


def test_held_cells_when_nothing_is_to_be_held_then_patterns_hold_nothing_either() -> None:
    assert not held_cells(in_blocks(), 0.0, patterns=patterns_of(in_blocks())).cells.any()


def test_held_cells_when_a_pattern_covers_holes_then_only_observed_cells_are_held() -> None:
    seen = in_blocks()
    held = held_cells(seen, patterns=patterns_of(seen))
    assert not (held.cells & ~seen[held.rows]).any()


# training


def hidden_of(seen: torch.Tensor) -> torch.Tensor:
    """Hide cells of all rows once, as in training."""
    points = torch.linspace(-1, 1, 9).expand(6, -1).double().contiguous()
    streams = Streams(0)
    mapper = MaskedMapper(points, points, torch.full((6,), 9), n_members=2, width=16, generator=streams.weights)
    trainer = HiddenTrainer(fitting(PRESETS["default"], *seen.shape), mapper, torch.zeros(seen.shape), seen, streams)
    return trainer._hidden(seen.expand(2, -1, -1), len(seen))


def test_training_when_holes_go_together_then_half_of_the_whole_rows_lose_the_block() -> None:
    seen = in_blocks()
    hidden = hidden_of(seen)[:, seen.all(1)]
    blocks = hidden[..., 3:].all(-1)
    assert float(blocks.float().mean()) == pytest.approx(0.5, abs=0.03)
    others = hidden[..., :3].float()
    assert 0.01 < float(others[blocks].mean()) < 0.1 < float(others[~blocks].mean()) < 0.3


def test_training_when_another_rows_holes_hide_nothing_then_single_cells_are_hidden() -> None:
    seen = in_blocks()
    hidden = hidden_of(seen)[:, ~seen.all(1)]
    assert not hidden[..., 3:].any()
    assert float(hidden[..., :3].float().mean()) > 0.1


def test_intervals_when_holes_go_together_then_they_hold_what_they_say() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(1500, 1))
    table = base + 0.4 * rng.normal(size=(1500, 6))
    table[:, 3:] += rng.normal(size=(1500, 1))  # the block tells more of itself than the others do
    missing = rng.random(1500) < 0.4
    given = table.copy()
    given[missing, 3:] = np.nan
    low, high = MCFlowImputer(max_epochs=25, random_state=0).fit(given).interval(given, level=0.9)
    inside = ((low <= table) & (table <= high))[missing, 3:]
    assert 0.85 < inside.mean() < 0.96

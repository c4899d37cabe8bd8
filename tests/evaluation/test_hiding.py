"""Which cells are hidden: as the holes lie, never too many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mcflow.evaluation.hiding import choose_cells, follows_holes


def holes() -> np.ndarray:
    """Columns 0 and 1 are missing together, 2 half as often and alone, 3 never."""
    missing = np.zeros((1000, 4), dtype=bool)
    missing[:200, :2] = True
    missing[200:300, 2] = True
    return missing


def test_cells_that_are_missing_together_are_hidden_together_and_in_proportion() -> None:
    missing = holes()
    hidden = choose_cells(missing, 0.2, own=True, rng=np.random.default_rng(0))
    both = hidden[:, 0] | hidden[:, 1]
    assert (hidden[both, 0] == hidden[both, 1]).all()
    assert not hidden[:, 3].any()
    assert not hidden[both, 2].any()
    counts = hidden.sum(axis=0)
    assert counts[2] / counts[0] == pytest.approx(0.5, abs=0.15)


def test_column_with_most_holes_loses_its_share() -> None:
    missing = holes()
    hidden = choose_cells(missing, 0.1, own=True, rng=np.random.default_rng(0))
    assert hidden[:, 0].sum() / (~missing[:, 0]).sum() == pytest.approx(0.1, abs=0.03)


def test_random_cells_lie_in_every_column_at_the_rate() -> None:
    hidden = choose_cells(holes(), 0.2, own=False, rng=np.random.default_rng(0))
    shares = hidden.sum(axis=0) / (~holes()).sum(axis=0)
    assert shares == pytest.approx(0.2, abs=0.05)


def test_column_with_many_more_holes_than_others_does_not_keep_these_from_losing_cells() -> None:
    missing = np.zeros((1000, 8), dtype=bool)
    missing[:600, 0] = True
    for column in range(1, 8):
        missing[100 * column : 100 * (column + 1), column] = True
    hidden = choose_cells(missing, 0.2, own=True, rng=np.random.default_rng(0))
    shares = hidden.sum(axis=0) / (~missing).sum(axis=0)
    assert shares[0] <= 0.2
    assert (shares[1:] > 0.03).all()


def test_columns_over_their_share_keep_the_same_rows() -> None:
    missing = np.zeros((1000, 5), dtype=bool)
    missing[:500, :2] = True
    for column in range(2, 5):
        missing[200 * (column - 2) : 200 * (column - 2) + 199, column] = True
    hidden = choose_cells(missing, 0.05, own=True, rng=np.random.default_rng(0))
    assert hidden[:, 0].any()
    assert (hidden[:, 0] == hidden[:, 1]).all()


@given(
    arrays(bool, st.tuples(st.integers(1, 40), st.integers(1, 5)), elements=st.booleans()),
    st.floats(0.01, 0.5),
    st.booleans(),
    st.integers(0, 99),
)
def test_only_known_cells_go_and_enough_of_them_stay(missing, share, own, seed) -> None:
    own = own and follows_holes(missing, "own")
    hidden = choose_cells(missing, share, own=own, rng=np.random.default_rng(seed))
    assert not (hidden & missing).any()
    left, known = (~(hidden | missing)).sum(axis=0), (~missing).sum(axis=0)
    assert (left >= np.minimum(known, np.maximum(known / 2, 5))).all()
    assert not own or (hidden.sum(axis=0) <= share * known).all()
    emptied = (hidden | missing).all(axis=1) & ~missing.all(axis=1)
    assert not emptied.any()


def test_holes_are_followed_when_there_are_enough_or_when_asked() -> None:
    few = np.zeros((100, 3), dtype=bool)
    few[:9, 0] = True
    assert not follows_holes(few, "auto")
    assert follows_holes(few, "own")
    assert not follows_holes(holes(), "random")
    assert not follows_holes(np.zeros((100, 3), dtype=bool), "own")
    few[9, 0] = True
    assert follows_holes(few, "auto")


def test_rows_without_any_cell_give_no_pattern() -> None:
    missing = np.zeros((100, 3), dtype=bool)
    missing[:50] = True
    assert not follows_holes(missing, "auto")

"""Cells are hidden in the missingness patterns of the table, and never too many of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mcflow.evaluation.hidden_cells import choose_cells, copies_patterns


def missing_cells() -> np.ndarray:
    """Columns 0 and 1 are missing together, 2 half as often and alone, 3 never."""
    missing = np.zeros((1000, 4), dtype=bool)
    missing[:200, :2] = True
    missing[200:300, 2] = True
    return missing


def test_cells_that_are_missing_together_are_hidden_together_and_in_proportion() -> None:
    missing = missing_cells()
    hidden = choose_cells(missing, 0.2, own=True, rng=np.random.default_rng(0))
    both = hidden[:, 0] | hidden[:, 1]
    assert (hidden[both, 0] == hidden[both, 1]).all()
    assert not hidden[:, 3].any()
    assert not hidden[both, 2].any()
    counts = hidden.sum(axis=0)
    assert counts[2] / counts[0] == pytest.approx(0.5, abs=0.15)


def test_column_with_most_missing_cells_loses_its_share() -> None:
    missing = missing_cells()
    hidden = choose_cells(missing, 0.1, own=True, rng=np.random.default_rng(0))
    assert hidden[:, 0].sum() / (~missing[:, 0]).sum() == pytest.approx(0.1, abs=0.03)


def test_random_cells_are_hidden_in_every_column_at_the_rate() -> None:
    hidden = choose_cells(missing_cells(), 0.2, own=False, rng=np.random.default_rng(0))
    shares = hidden.sum(axis=0) / (~missing_cells()).sum(axis=0)
    assert shares == pytest.approx(0.2, abs=0.05)


def test_column_with_most_missing_cells_does_not_keep_others_from_losing_cells() -> None:
    missing = np.zeros((1000, 8), dtype=bool)
    missing[:600, 0] = True
    for column in range(1, 8):
        missing[100 * column : 100 * (column + 1), column] = True
    hidden = choose_cells(missing, 0.2, own=True, rng=np.random.default_rng(0))
    shares = hidden.sum(axis=0) / (~missing).sum(axis=0)
    assert shares[0] <= 0.2
    assert (shares[1:] > 0.03).all()


def test_columns_over_their_share_keep_cells_of_the_same_rows() -> None:
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
def test_only_known_cells_are_hidden_and_enough_of_them_stay(missing, share, own, seed) -> None:
    own = own and copies_patterns(missing, "own")
    hidden = choose_cells(missing, share, own=own, rng=np.random.default_rng(seed))
    assert not (hidden & missing).any()
    left, known = (~(hidden | missing)).sum(axis=0), (~missing).sum(axis=0)
    assert (left >= np.minimum(known, np.maximum(known / 2, 5))).all()
    assert not own or (hidden.sum(axis=0) <= share * known).all()
    emptied = (hidden | missing).all(axis=1) & ~missing.all(axis=1)
    assert not emptied.any()


def test_patterns_are_copied_when_there_are_enough_or_when_asked() -> None:
    few = np.zeros((100, 3), dtype=bool)
    few[:9, 0] = True
    assert not copies_patterns(few, "auto")
    assert copies_patterns(few, "own")
    assert not copies_patterns(missing_cells(), "random")
    assert not copies_patterns(np.zeros((100, 3), dtype=bool), "own")
    few[9, 0] = True
    assert copies_patterns(few, "auto")
    assert copies_patterns(np.eye(20, dtype=bool), "auto")


def test_rows_without_observed_cells_give_no_pattern() -> None:
    missing = np.zeros((100, 3), dtype=bool)
    missing[:50] = True
    assert not copies_patterns(missing, "auto")

"""Columns that a model takes from rows with more columns."""

from __future__ import annotations

import pytest

from mcflow import MCFlowImputer
from mcflow.engines.scorer import RowFiller, Scorer
from mcflow.errors import DataError, ParameterError


@pytest.fixture(scope="module")
def unnamed(table) -> Scorer:
    return Scorer(MCFlowImputer(max_epochs=1, calibrate=False).fit(table))


def test_model_without_names_takes_as_many_columns_as_it_had(unnamed) -> None:
    assert RowFiller(["d", "c", "b", "a"], unnamed).known == ("d", "c", "b", "a")
    with pytest.raises(DataError, match="3 columns, but the model was fitted without names on 4"):
        RowFiller(["d", "c", "b"], unnamed)


def test_names_that_are_twice_or_number_the_draws_are_refused(unnamed) -> None:
    with pytest.raises(DataError, match="more than once: a"):
        RowFiller(["a", "a", "b", "c"], unnamed)
    assert RowFiller(["a", "b", "c", "draw"], unnamed).draws is None
    with pytest.raises(DataError, match="column 'draw'"):
        RowFiller(["a", "b", "c", "draw"], unnamed, draws=2)
    with pytest.raises(ParameterError, match="draws"):
        RowFiller(["a", "b", "c", "d"], unnamed, draws=0)

"""Which columns a model takes from rows that have more."""

from __future__ import annotations

import pytest

from mcflow import MCFlowImputer
from mcflow.engines.carried import RowFilling
from mcflow.engines.scorer import Scorer
from mcflow.errors import DataError, ParameterError


@pytest.fixture(scope="module")
def unnamed(table) -> Scorer:
    return Scorer(MCFlowImputer(max_epochs=1, calibrate=False).fit(table))


def test_model_without_names_takes_as_many_columns_as_it_had(unnamed) -> None:
    assert RowFilling.of(["d", "c", "b", "a"], unnamed).known == ("d", "c", "b", "a")
    with pytest.raises(DataError, match="3 columns, and the model was fitted without names on 4"):
        RowFilling.of(["d", "c", "b"], unnamed)


def test_names_that_are_twice_or_number_the_draws_are_refused(unnamed) -> None:
    with pytest.raises(DataError, match="more than once: a"):
        RowFilling.of(["a", "a", "b", "c"], unnamed)
    assert RowFilling.of(["a", "b", "c", "draw"], unnamed).draws is None
    with pytest.raises(DataError, match="column 'draw'"):
        RowFilling.of(["a", "b", "c", "draw"], unnamed, draws=2)
    with pytest.raises(ParameterError, match="draws"):
        RowFilling.of(["a", "b", "c", "d"], unnamed, draws=0)

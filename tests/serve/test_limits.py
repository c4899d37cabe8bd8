"""Sizes in words and limits that make sense."""

from __future__ import annotations

import pytest

from mcflow.errors import ParameterError
from mcflow.serve.limits import Limits, parse_size, size_in_words


@pytest.mark.parametrize(("text", "size"), [("1000", 1000), ("1.5 kB", 1500), ("500MB", 500_000_000), ("1GiB", 2**30)])
def test_size_is_read_in_every_unit(text, size) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-5", "ten MB", "5 PB", "1e9"])
def test_size_that_is_none_is_refused_with_examples(text) -> None:
    with pytest.raises(ParameterError, match="500MB"):
        parse_size(text)


def test_size_in_words_is_short() -> None:
    assert [size_in_words(n) for n in (12, 16_352, 2_500_000_000)] == ["12 bytes", "16.4 kB", "2.5 GB"]


def test_limit_of_nothing_is_refused_by_the_name_of_its_flag() -> None:
    with pytest.raises(ParameterError, match="--max-queue is 0"):
        Limits(max_queue=0)
    assert Limits().max_memory > 0

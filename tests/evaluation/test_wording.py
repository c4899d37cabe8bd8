"""Names, cells, numbers and durations as texts show them."""

from __future__ import annotations

import pytest

from mcflow.columns.schema import Column
from mcflow.evaluation import wording

DAY = Column("visit", "date32[day]", "datetime", step=86_400_000_000)
PET = Column("pet", "string", "category", categories=("cat", "dog"))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (wording.clean(" two  words "), "two words"),
        (wording.clean("abcdefgh", 5), "abc…h"),
        (wording.name_text(3), "3"),
        (wording.name_text(" "), "(no name)"),
        (wording.number_text(1234567.0), "1,234,567"),
        (wording.number_text(0.123456), "0.1235"),
        (wording.number_text(12.5), "12.5"),
        (wording.cell_text(1.0, DAY), "1970-01-02"),
        (wording.cell_text(0.0, PET), "cat"),
        (wording.signed_text(-0.5), "−0.50"),
        (wording.signed_text(0.25), "0.25"),
        (wording.counted(1, "row"), "1 row"),
        (wording.counted(2_000, "row"), "2,000 rows"),
        (wording.listed([]), ""),
        (wording.listed(["a"]), "a"),
        (wording.listed(["a", "b", "c"]), "a, b and c"),
        (wording.listed(["a", "b", "c"], 1), "a and 2 more"),
        (wording.percent_text(0.905), "90.5 %"),
        (wording.percent_text(0.9), "90 %"),
        (wording.percent_text(1.0), "100 %"),
        (wording.share_text(0.0), "0\u00a0%"),
        (wording.share_text(0.0001), "under\u00a00.1\u00a0%"),
        (wording.share_text(0.905), "90.5\u00a0%"),
        (wording.share_text(0.9999), "over\u00a099.9\u00a0%"),
        (wording.seconds_text(0.25), "0.25 s"),
        (wording.seconds_text(75), "1 min 15 s"),
        (wording.seconds_text(7_320), "2 h 2 min"),
    ],
)
def test_texts(found: str, expected: str) -> None:
    assert found == expected

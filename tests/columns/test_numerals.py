"""Numbers in text are read and written back in the format of their column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mcflow.columns.numerals import NumberFormat, NumberShapes, decimals_of


def test_format_reads_numbers_and_writes_them_alike() -> None:
    form = NumberFormat(thousands=",", prefix="$", decimals=2)
    assert form.write(pa.array([8610.0, -0.5])).to_pylist() == ["$8,610.00", "-$0.50"]
    assert form.read(pa.array(["$1,234.50", "x"])).to_pylist() == [1234.5, None]


def test_shapes_of_two_pieces_have_the_format_of_all_cells() -> None:
    shapes = NumberShapes.of(pa.array(["$8,610.00"])).joined(NumberShapes.of(pa.array(["$ 1.50"])))
    assert shapes.format() == NumberFormat(".", ",", "$", "", 2)


@pytest.mark.parametrize(("values", "decimals"), [([1.5, 2.25, np.nan], 2), ([1 / 3], None), ([np.inf, 4.0], 0)])
def test_decimals_of_finite_numbers_are_counted(values, decimals) -> None:
    assert decimals_of(np.array(values)) == decimals

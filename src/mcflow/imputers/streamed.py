"""Rows that do not fit in memory: read in batches, and kept on disk in the units that H learns from."""

from __future__ import annotations

__all__ = ["RestOfRows"]

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from mcflow.data.grids import TableGrid
from mcflow.errors import DataError
from mcflow.imputers.masked_model import MoreRows
from mcflow.typing import FloatArray


@dataclass(frozen=True)
class RestOfRows:
    """The rows of a table besides those that are in memory.

    Parameters
    ----------
    codes : callable
        Gives their batches, each the codes of the columns that vary, NaN where missing.
    n_rows : int
        How many rows there are in all of them.
    folder : Path
        Where there is room for a file of four bytes a cell, and one of one byte.
    """

    codes: Callable[[], Iterable[FloatArray]]
    n_rows: int
    folder: Path

    @contextmanager
    def encoded(self, values: FloatArray, grid: TableGrid) -> Iterator[MoreRows]:
        """Write all rows to disk in units, those in memory first.

        Parameters
        ----------
        values : ndarray of shape (n_values, n_columns)
            Codes of the rows in memory, NaN where missing.
        grid : TableGrid
            Their units.

        Yields
        ------
        MoreRows
            Whose tensors are files that are gone after the block.

        Raises
        ------
        DataError
            When there are more or fewer rows than were said.
        """
        shape = (len(values) + self.n_rows, values.shape[1])
        with tempfile.TemporaryDirectory(prefix="mcflow-rows-", dir=self.folder) as folder:
            units = np.memmap(Path(folder) / "units", np.float32, "w+", shape=shape)
            seen = np.memmap(Path(folder) / "seen", np.bool_, "w+", shape=shape)
            first = 0
            for codes in itertools.chain([values], self.codes()):
                rows = slice(first, first + len(codes))
                first += len(codes)
                if first > shape[0]:
                    break
                seen[rows] = ~np.isnan(codes)
                units[rows] = np.nan_to_num(grid.units(codes), copy=False)
            if first != shape[0]:
                raise DataError(
                    f"The table has {'more' if first > shape[0] else 'fewer'} than the {shape[0]:,} rows that were "
                    "counted. Was it written to in the meantime? Fit again."
                )
            yield MoreRows(torch.from_numpy(units), torch.from_numpy(seen))

"""Rows that do not fit in memory: read in batches, and kept on disk in the units that H learns from."""

from __future__ import annotations

__all__ = ["RestOfRows"]

import itertools
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from mcflow.data.grids import TableGrid
from mcflow.errors import DataError
from mcflow.imputers.mapped import MappedArrays
from mcflow.imputers.masked_model import MoreRows
from mcflow.training.parallel import ALONE, Workers
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
    def encoded(self, values: FloatArray, grid: TableGrid, workers: Workers = ALONE) -> Iterator[MoreRows]:
        """Write all rows to disk in units, those in memory first.

        Parameters
        ----------
        values : ndarray of shape (n_values, n_columns)
            Codes of the rows in memory, NaN where missing.
        grid : TableGrid
            Their units.
        workers : Workers
            All of them call this; those of one machine share its files.

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
        machine = socket.gethostname()
        writes = workers.gather(machine).index(machine) == workers.rank
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix="mcflow-rows-", dir=self.folder)
        with temporary as folder, MappedArrays() as arrays:
            own = Path(folder)
            rows = _mapped(arrays, own, shape, "w+") if writes else None
            folders = dict(reversed(workers.gather((machine, own))))  # the first of a machine counts
            if rows is None:
                writes = not folders[machine].is_dir()  # another machine may have the same name
                rows = _mapped(arrays, own if writes else folders[machine], shape, "w+" if writes else "r+")
            workers.gather(None)
            if os.name == "posix":  # files live on there while they are open, and a process that is killed leaves none
                shutil.rmtree(own, ignore_errors=True)
            if writes:
                self._write(rows, values, grid)
            workers.gather(None)
            yield rows

    def _write(self, all_rows: MoreRows, values: FloatArray, grid: TableGrid) -> None:
        """Put all rows into their places."""
        units, seen = (part.numpy() for part in all_rows)
        first, n_rows = 0, len(units)
        for codes in itertools.chain([values], self.codes()):
            rows = slice(first, first + len(codes))
            first += len(codes)
            if first > n_rows:
                break
            seen[rows] = ~np.isnan(codes)
            units[rows] = np.nan_to_num(grid.units(codes), copy=False)
        if first != n_rows:
            raise DataError(
                f"The table has {'more' if first > n_rows else 'fewer'} than the {n_rows:,} rows that were "
                "counted. Was it written to in the meantime? Fit again."
            )


def _mapped(arrays: MappedArrays, folder: Path, shape: tuple[int, int], mode: Literal["r+", "w+"]) -> MoreRows:
    """Return the files of a folder as tensors."""
    units = arrays.open(folder / "units", np.float32, shape, mode)
    seen = arrays.open(folder / "seen", np.bool_, shape, mode)
    return MoreRows(torch.from_numpy(units), torch.from_numpy(seen))

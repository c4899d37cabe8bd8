"""Training rows, which are read in batches and kept in memory-mapped files if they do not fit in memory."""

from __future__ import annotations

__all__ = ["MappedArrays", "RestOfRows", "TrainingRows"]

import itertools
import mmap
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from mcflow.errors import DataError
from mcflow.fitting.distributed import ALONE, Workers
from mcflow.typing import Array, FloatArray

RELEASE_SECONDS = 0.2  # interval at which pages are released
SMALL_BYTES = 1 << 27  # total size of files whose pages are never released


class TrainingRows(NamedTuple):
    """Rows that H learns from, in units and possibly memory-mapped."""

    units: Tensor  # (n_rows, n_columns) float32; any number where a cell is missing
    seen: Tensor  # (n_rows, n_columns) boolean, True where observed


class MappedArrays:
    """Memory-mapped arrays whose pages are released several times a second, inside a `with` block.

    Pages that were touched count as memory of the process until the system reclaims them, so that a large file would
    exceed the memory limit of a container or user. Released data stays in the file and in the system's cache.
    """

    def __init__(self) -> None:
        self._maps: list[mmap.mmap] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._release_regularly, daemon=True)

    def open(self, path: Path, dtype: Any, shape: tuple[int, ...], mode: Literal["r+", "w+"]) -> Array:
        """Open a file as an array."""
        array: np.memmap[Any, Any] = np.memmap(path, dtype, mode, shape=shape)
        pages: Any = array.base
        self._maps.append(pages)
        return array

    def release(self) -> None:
        """Release all pages."""
        for pages in self._maps:
            if hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)

    def _release_regularly(self) -> None:
        while not self._ended.wait(RELEASE_SECONDS):
            if sum(map(len, self._maps)) > SMALL_BYTES:
                self.release()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._maps.clear()


@dataclass(frozen=True)
class RestOfRows:
    """Rows of a table that are not in memory."""

    codes: Callable[[], Iterable[FloatArray]]  # yields batches of codes (n_rows, n_columns), NaN where missing
    n_rows: int  # number of rows in all batches
    folder: Path  # folder with room for five bytes per cell of the whole table

    @contextmanager
    def encoded(self, values: FloatArray, model: Any, workers: Workers = ALONE) -> Iterator[TrainingRows]:
        """Write all rows to disk in units, those in memory (n_values, n_columns) first."""
        shape = (len(values) + self.n_rows, values.shape[1])
        machine = socket.gethostname()
        writes = workers.gather(machine).index(machine) == workers.rank
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix="mcflow-rows-", dir=self.folder)
        with temporary as folder, MappedArrays() as arrays:
            own = Path(folder)
            rows = _mapped(arrays, own, shape, "w+") if writes else None
            folders = dict(reversed(workers.gather((machine, own))))  # the folder of the first worker of each machine
            if rows is None:
                writes = not folders[machine].is_dir()  # another machine may have the same name
                rows = _mapped(arrays, own if writes else folders[machine], shape, "w+" if writes else "r+")
            workers.gather(None)
            if os.name == "posix":  # deleted files exist until they are closed, so a killed process leaves none behind
                shutil.rmtree(own, ignore_errors=True)
            if writes:
                self._write(rows, values, model.grid.units)
            workers.gather(None)
            yield rows

    def _write(self, all_rows: TrainingRows, values: FloatArray, units_of: Callable[[FloatArray], FloatArray]) -> None:
        """Write all rows to the mapped arrays, their codes converted by `units_of`."""
        units, seen = (part.numpy() for part in all_rows)
        first, n_rows = 0, len(units)
        for codes in itertools.chain([values], self.codes()):
            rows = slice(first, first + len(codes))
            first += len(codes)
            if first > n_rows:
                break
            seen[rows] = ~np.isnan(codes)
            units[rows] = np.nan_to_num(units_of(codes), copy=False)
        if first != n_rows:
            raise DataError(
                f"The table has {'more' if first > n_rows else 'fewer'} than the {n_rows:,} rows that were counted. "
                "Was it changed in the meantime? Fit again."
            )


def _mapped(arrays: MappedArrays, folder: Path, shape: tuple[int, int], mode: Literal["r+", "w+"]) -> TrainingRows:
    """Return the files of a folder as tensors."""
    units = arrays.open(folder / "units", np.float32, shape, mode)
    seen = arrays.open(folder / "seen", np.bool_, shape, mode)
    return TrainingRows(torch.from_numpy(units), torch.from_numpy(seen))

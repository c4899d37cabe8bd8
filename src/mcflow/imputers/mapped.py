"""Arrays in files whose pages are given back to the system, so that they do not fill the memory of the process."""

from __future__ import annotations

__all__ = ["MappedArrays"]

import mmap
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from mcflow.typing import Array

#: Seconds after which pages are given back.
SWEEP_SECONDS = 0.2

#: Bytes of files whose pages may all stay.
SMALL_BYTES = 1 << 27


class MappedArrays:
    """Arrays in files, for the time of a block.

    Notes
    -----
    A page of a file that was touched counts as memory of the process until the system wants it back, which may be
    never: limits of containers and of users are reached long before. Here all pages are given back several times a
    second. What was written stays in the file, and a page that is touched again comes from the system's cache.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, MappedArrays() as arrays:
    ...     numbers = arrays.open(Path(folder) / "numbers", np.float32, (2, 3), "w+")
    ...     numbers[1] = 5
    ...     arrays.sweep()
    ...     numbers.sum()
    np.float32(15.0)
    """

    def __init__(self) -> None:
        self._maps: list[mmap.mmap] = []
        self._ended = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep_on, daemon=True)

    def open(self, path: Path, dtype: Any, shape: tuple[int, ...], mode: Literal["r+", "w+"]) -> Array:
        """Open a file as an array.

        Parameters
        ----------
        path : Path
            The file.
        dtype : object
            Of its numbers.
        shape : tuple of int
            Of the array.
        mode : {"r+", "w+"}
            Whether the file is there, or is made.

        Returns
        -------
        ndarray
        """
        array: np.memmap[Any, Any] = np.memmap(path, dtype, mode, shape=shape)
        base: Any = array.base
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, mmap.mmap):
            self._maps.append(base)
        return array

    def sweep(self) -> None:
        """Give all pages back."""
        for pages in self._maps:
            if hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)

    def _sweep_on(self) -> None:
        while not self._ended.wait(SWEEP_SECONDS):
            if sum(map(len, self._maps)) > SMALL_BYTES:
                self.sweep()

    def __enter__(self) -> Self:
        self._sweeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._sweeper.join()
        self._maps.clear()

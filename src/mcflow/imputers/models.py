"""Protocol of the table models, and the model of each configuration."""

from __future__ import annotations

__all__ = ["ALGORITHMS", "TableModel"]

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, Self

import torch

from mcflow.columns.schema import Column
from mcflow.fitting.calibration import Calibration
from mcflow.fitting.callbacks import Callback, History
from mcflow.fitting.distributed import Workers
from mcflow.masked.config import MaskedConfig
from mcflow.masked.model import MaskedModel
from mcflow.paper.config import PaperConfig
from mcflow.paper.model import PaperModel
from mcflow.random import Streams
from mcflow.typing import Array, FloatArray, Header


class TableModel(Protocol):
    """A model of rows of codes (n_rows, n_columns) in which NaN marks missing cells."""

    config: Any
    seed: int
    history: History
    calibrates: bool
    calibration: Calibration | None
    density: bool | str

    @classmethod
    def prepare(
        cls,
        values: FloatArray,
        columns: list[Column],
        box: tuple[FloatArray, FloatArray],
        seed: int,
        config: Any,
        *,
        n_rows: int,
    ) -> Self:
        """Return an unfitted model for a table with bounds `box`; `n_rows` includes rows that are not in memory."""

    @staticmethod
    def time_of_copies(config: Any, n_models: int) -> float:
        """Return the time of a fit with bootstrap copies, as a multiple of that of the first model."""

    @property
    def is_fitted(self) -> bool:
        """Whether there is anything learned; not when every column was constant."""

    @property
    def categories(self) -> dict[int, int]:
        """Number of categories of each categorical column."""

    def warm_start(self, earlier: Any) -> None:
        """Start the training from an earlier model."""

    def bootstrap_copy(self, seed: int) -> Self:
        """Return an unfitted model for resampled rows."""

    def fit(
        self,
        values: FloatArray,
        streams: Streams,
        device: torch.device,
        callbacks: Sequence[Callback] = (),
        more: Any = None,
        *,
        workers: Workers = ...,
    ) -> None:
        """Learn from rows, and from `more` that are not in memory."""

    def fill(self, values: FloatArray) -> FloatArray:
        """Complete rows."""

    def probabilities(self, values: FloatArray, seen: FloatArray) -> dict[int, FloatArray]:
        """Return the probabilities (n_rows, n_categories) by column; where `seen` has a code, its probability is 1."""

    def draws(self, values: FloatArray, m: int, seed: int, ids: FloatArray | None = None) -> Iterator[FloatArray]:
        """Yield m completed tables."""

    def redraw(self, values: FloatArray, hashes: Array, number: int) -> FloatArray:
        """Return rows completed as in draw `number`, with random numbers decided by `hashes`."""

    def category_frequencies(self, values: FloatArray, column: int) -> FloatArray:
        """Return the frequencies (n_rows, n_categories) with which draws have each category of a column."""

    def quantiles(self, values: FloatArray, probabilities: FloatArray) -> Iterator[FloatArray]:
        """Yield a completed table for each probability."""

    def log_density(self, values: FloatArray) -> FloatArray:
        """Return the log-density (n_rows,) of complete rows."""

    def sample(self, n_rows: int, seed: int) -> FloatArray:
        """Draw new rows."""

    def tensors(self) -> dict[str, Array]:
        """Return everything learned as arrays by name."""

    @classmethod
    def from_tensors(
        cls, arrays: dict[str, Array], columns: list[Column], config: Any, header: Header, device: torch.device
    ) -> Self:
        """Undo `tensors`."""


#: Model class of each configuration class.
ALGORITHMS: dict[type, type[TableModel]] = {MaskedConfig: MaskedModel, PaperConfig: PaperModel}

"""What an evaluation found, as plain data, a frame, text and HTML."""

from __future__ import annotations

__all__ = ["CellScore", "ColumnScore", "Evaluation", "MethodScore"]

from dataclasses import asdict, dataclass, field
from typing import Any

from mcflow.errors import MissingExtraError


@dataclass(frozen=True)
class MethodScore:
    """How a method did over all columns.

    Parameters
    ----------
    name : str
        The method.
    seconds : float or None
        Of its fit and fill, on average over the repeats.
    relative_error : float or None
        The mean of its relative errors, each column counted by its hidden cells; columns with too few are left out.
    coverage : float or None
        Share of hidden numbers that its intervals hold.
    error_message : str or None
        Why it failed, if it did.
    """

    name: str
    seconds: float | None = None
    relative_error: float | None = None
    coverage: float | None = None
    error_message: str | None = None


@dataclass(frozen=True)
class CellScore:
    """How a method did in one column.

    Parameters
    ----------
    error : float or None
        RMSE in the column's units, of times in days; share of wrong levels.
    relative : float or None
        As a share of the mean's error, or the commonest level's.
    coverage : float or None
        Share of its intervals that hold the truth.
    against_mcflow : str or None
        "better" or "worse" than mcflow, where the difference is more than noise, or "same"; None where nothing can be
        said, and for mcflow itself.
    """

    error: float | None = None
    relative: float | None = None
    coverage: float | None = None
    against_mcflow: str | None = None


@dataclass(frozen=True)
class ColumnScore:
    """How well one column's hidden cells were filled.

    Parameters
    ----------
    name : str
        The column.
    kind : str
        Its kind.
    measure : {"rmse", "error rate"}
        What is measured.
    hidden : int
        Cells that were hidden, over all repeats.
    enough : bool
        Whether there were enough of them to judge by.
    predictable : bool
        False when no method did better than the mean, or the commonest level, by more than noise.
    methods : dict of CellScore
        By name.
    unit : str
        Of the error, where it is not the column's own.
    """

    name: str
    kind: str
    measure: str
    hidden: int
    enough: bool
    predictable: bool
    methods: dict[str, CellScore]
    unit: str = ""


@dataclass(frozen=True)
class Evaluation:
    """What hidden cells of a table say of mcflow and of simpler methods; see `mcflow.evaluate`.

    Parameters
    ----------
    rows, columns : int
        Of the table that was used; rows may be a sample.
    hidden_cells : int
        Known cells that were hidden and filled, over all repeats.
    repeats : int
        How often cells were hidden anew.
    level : float
        Of the intervals.
    methods : tuple of MethodScore
        mcflow first.
    per_column : tuple of ColumnScore
        Those columns that had hidden cells, in the table's order.
    verdict : tuple of str
        What it comes to, in sentences.
    settings : dict
        What was asked for, and what was decided.
    """

    rows: int
    columns: int
    hidden_cells: int
    repeats: int
    level: float
    methods: tuple[MethodScore, ...]
    per_column: tuple[ColumnScore, ...]
    verdict: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dictionaries, lists and numbers, as JSON holds them."""
        plain = asdict(self)
        return plain | {name: list(plain[name]) for name in ("methods", "per_column", "verdict")}

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for every column and method.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        MissingExtraError
            When pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError("A frame of results needs pandas: pip install pandas") from error
        rows = [
            {"column": column.name, "kind": column.kind, "measure": column.measure, "hidden": column.hidden}
            | {"predictable": column.predictable, "method": name}
            | asdict(score)
            for column in self.per_column
            for name, score in column.methods.items()
        ]
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        from mcflow.evaluation.display import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from mcflow.evaluation.display import as_html

        return as_html(self)

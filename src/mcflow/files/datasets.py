"""The NHANES table that is part of the package."""

from __future__ import annotations

__all__ = ["nhanes_path"]

from importlib import resources
from pathlib import Path


def nhanes_path() -> Path:
    """Return the path of the NHANES 2017–2018 table: 5,265 adults, 42 columns, missing cells as surveyed.

    Returns
    -------
    Path
        A Parquet file.

    Notes
    -----
    A selection from the National Health and Nutrition Examination Survey of the US Centers for Disease Control and
    Prevention, National Center for Health Statistics; public domain.

    Examples
    --------
    >>> nhanes_path().suffix
    '.parquet'
    """
    return Path(str(resources.files("mcflow.files") / "nhanes_2017_2018.parquet"))

"""`mcflow demo`: fill the table that ships with the package."""

from __future__ import annotations

__all__ = ["demo"]

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mcflow.cli.groups import OUTPUT
from mcflow.cli.options import FitOptions, ReadOptions

#: Default time limit of the fit, in seconds.
DEMO_TIME = 30.0

#: Diastolic pressures of 0, which mean that no sound was heard.
MISSING_PRESSURES = ("dbp1=0", "dbp2=0", "dbp3=0")


def demo(
    *,
    output: Annotated[Path, Parameter(alias="-o", group=OUTPUT)] = Path("nhanes_filled.parquet"),
    options: FitOptions | None = None,
) -> None:
    """Fill the NHANES 2017-2018 table that ships with the package (5,265 adults, 42 columns, real missing values).

    The fit is limited to 30 seconds unless --max-time or --max-epochs is given.

    Parameters
    ----------
    output
        File for the filled table; its extension determines the format.
    """
    from mcflow.cli.impute import impute
    from mcflow.files.datasets import nhanes_path

    chosen = options or FitOptions()
    if chosen.max_epochs is None and chosen.max_time is None:
        chosen = replace(chosen, max_time=DEMO_TIME)
    impute(nhanes_path(), output=output, reading=ReadOptions(na=MISSING_PRESSURES), options=chosen)

"""`mcflow demo`: the main job on the table that ships with the package."""

from __future__ import annotations

__all__ = ["demo"]

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mcflow.cli.options import FitOptions

#: Seconds that are enough to see what the method does.
DEMO_TIME = 30.0


def demo(
    *,
    output: Annotated[Path, Parameter(alias="-o")] = Path("nhanes_filled.parquet"),
    options: FitOptions | None = None,
) -> None:
    """Fill the NHANES 2017-2018 table that ships with the package (5,265 adults, 42 columns, real holes).

    Trains for 30 seconds unless --max-time or --max-epochs says otherwise.

    Parameters
    ----------
    output
        Where to write the filled table; its ending says the format.
    """
    from mcflow.cli.impute import impute
    from mcflow.data.datasets import nhanes_path

    chosen = options or FitOptions()
    if chosen.max_epochs is None and chosen.max_time is None:
        chosen = replace(chosen, max_time=DEMO_TIME)
    impute(nhanes_path(), output=output, options=chosen)

"""Groups of flags in the help of the commands."""

from __future__ import annotations

__all__ = ["COLUMNS", "ENGINE", "EVALUATION", "INPUT", "MODEL", "OUTPUT", "TIME"]

from cyclopts import Group

INPUT = Group("Input", sort_key=1)
OUTPUT = Group("Output", sort_key=2)
TIME = Group("Time", sort_key=3)
COLUMNS = Group("Columns", sort_key=4)
EVALUATION = Group("Evaluation", sort_key=5)
MODEL = Group("Model", sort_key=5)
ENGINE = Group("Engine", sort_key=6)

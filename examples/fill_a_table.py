"""Fill the NHANES table that ships with mcflow, and see how well hidden cells are restored.

    python examples/fill_a_table.py [--output docs/pictures/example_table.svg]

It needs pandas and matplotlib. Few rows and epochs keep it short; leave `max_epochs` out for real work.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mcflow import MCFlowImputer
from mcflow.data.datasets import nhanes_path

COLUMNS = ["age", "gender", "weight_kg", "height_cm", "bmi", "waist_cm", "sbp2", "dbp2", "hdl", "hba1c"]
PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "example_table.svg"

#: Colours that can be read on white and on black.
INK, SEEN, FILLED = "#767676", "#2b7fc4", "#d9621c"


def hide_waists(table: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the table without one in ten of the known waists, and the labels of those rows."""
    known = table.index[table["waist_cm"].notna()].to_numpy()
    hidden = np.random.default_rng(0).choice(known, len(known) // 10, replace=False)
    holed = table.copy()
    holed.loc[hidden, "waist_cm"] = np.nan
    return holed, hidden


def style(axes: Any, title: str) -> None:
    axes.set_facecolor("none")
    axes.set_title(title, color=INK, fontsize=9, loc="left")
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=INK, labelsize=8, length=0)


def draw_picture(holed: pd.DataFrame, truth: pd.Series, filled: pd.Series, low: pd.Series, high: pd.Series) -> Figure:
    """Show where cells are missing, and the hidden waists beside what was filled in for them."""
    figure = Figure(figsize=(9, 4), layout="constrained", facecolor="none")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.3])
    rows, columns = np.nonzero(holed.head(80).isna().to_numpy())
    style(left, "missing cells of the first 80 rows")
    left.barh(rows, 0.9, 0.9, left=columns - 0.45, color=FILLED)
    left.set(xlim=(-0.5, len(COLUMNS) - 0.5), ylim=(79.5, -0.5), yticks=[])
    left.set_xticks(range(len(COLUMNS)), COLUMNS, rotation=60, ha="right")
    left.vlines(np.arange(len(COLUMNS) + 1) - 0.5, -0.5, 79.5, color=INK, lw=0.5, alpha=0.5)
    style(right, f"{len(truth)} hidden waists in cm: truth across, fills and 90 % intervals up")
    inside = ((low <= truth) & (truth <= high)).to_numpy()
    for chosen, colour in ((inside, SEEN), (~inside, FILLED)):
        right.vlines(truth[chosen], low[chosen], high[chosen], color=colour, lw=0.8, alpha=0.45)
        right.plot(truth[chosen], filled[chosen], "o", ms=3, color=colour)
    right.axline((100, 100), slope=1, color=INK, lw=1)
    return figure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=PICTURE, help="the picture")
    parser.add_argument("--rows", type=int, default=1500, help="first rows of the table")
    parser.add_argument("--max-epochs", type=int, default=40, help="passes over them")
    return parser.parse_args()


def main() -> None:
    options = parse()
    table = pd.read_parquet(nhanes_path())[COLUMNS].head(options.rows)
    print(f"{len(table)} rows; missing cells a column:")
    print(table.isna().sum().to_string())

    holed, hidden = hide_waists(table)
    imputer = MCFlowImputer(max_epochs=options.max_epochs, random_state=0)
    filled = imputer.fit_transform(holed)
    low, high = (ends.loc[hidden, "waist_cm"] for ends in imputer.interval(holed, level=0.9))

    truth, guess = table.loc[hidden, "waist_cm"], filled.loc[hidden, "waist_cm"]
    by_mean = (holed["waist_cm"].mean() - truth).abs().mean()
    print(f"\nTrained {imputer.n_epochs_} epochs. Missing cells left: {int(filled.isna().sum().sum())}")
    print(f"Mean error of {len(hidden)} hidden waists: {(guess - truth).abs().mean():.1f} cm, by the column's mean")
    print(f"{by_mean:.1f} cm. {((low <= truth) & (truth <= high)).mean():.0%} lie in their 90 % intervals.")

    with matplotlib.rc_context({"svg.hashsalt": "mcflow"}):
        draw_picture(holed, truth, guess, low, high).savefig(options.output, metadata={"Date": None})
    print(f"Wrote {options.output}")


if __name__ == "__main__":
    main()

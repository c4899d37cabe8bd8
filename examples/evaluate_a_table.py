"""Find out on a table of your own whether mcflow is worth it: hide known cells, fill them by several methods, compare.

    python examples/evaluate_a_table.py [--output docs/pictures/example_evaluate.svg]

It needs pandas and matplotlib. Few rows and seconds keep it short; `mcflow evaluate data.csv` does it for a file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from mcflow import evaluate
from mcflow.data.datasets import nhanes_path

COLUMNS = ["age", "gender", "weight_kg", "height_cm", "bmi", "waist_cm", "sbp1", "sbp2", "dbp1", "hdl", "sleep_hours"]
PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "example_evaluate.svg"

#: Colours that can be read on white and on black.
INK = "#767676"
#: Marks and colours of the methods; the first is larger, so that it is seen below others.
MARKS = {"mcflow": ("o", 9, "#d9621c"), "mice": ("s", 5, "#2b7fc4"), "missforest": ("^", 5, "#1b9e77")}


def draw_picture(scores: pd.DataFrame) -> Figure:
    """Show each method's error in each column as a share of the mean's; 100 % is no better than the mean."""
    columns = list(dict.fromkeys(scores["column"]))
    figure = Figure(figsize=(9, 0.8 + 0.36 * len(columns)), layout="constrained", facecolor="none")
    axes = figure.add_subplot()
    axes.set_facecolor("none")
    for name, (mark, size, colour) in MARKS.items():
        relative = scores[scores["method"] == name].set_index("column")["relative"].reindex(columns)
        axes.plot(100 * relative, range(len(columns)), mark, ms=size, color=colour, label=name)
    axes.axvline(100, color=INK, lw=1, ls="--")
    axes.text(100, -0.8, "the mean", color=INK, fontsize=8, ha="center")
    axes.set_yticks(range(len(columns)), columns)
    axes.set(ylim=(len(columns) - 0.5, -0.5), xlim=(0, None))
    axes.set_xlabel("error on hidden cells, % of the mean's", color=INK, fontsize=8)
    axes.hlines(range(len(columns)), 0, 100, color=INK, lw=0.4, alpha=0.5)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=INK, labelsize=8, length=0)
    axes.legend(frameon=False, labelcolor=INK, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=PICTURE, help="the picture")
    parser.add_argument("--rows", type=int, default=600, help="first rows of the table")
    parser.add_argument("--max-epochs", type=int, default=30, help="passes over them")
    return parser.parse_args()


def main() -> None:
    options = parse()
    table = pd.read_parquet(nhanes_path())[COLUMNS].head(options.rows)
    methods = [f"mcflow(max_epochs={options.max_epochs})", "mice", "missforest(n_trees=20)"]
    found = evaluate(table, methods=methods, pattern="random", max_time=None, random_state=0)
    print(found)

    scores = found.to_frame()
    scores["method"] = scores["method"].str.partition("(")[0]
    with matplotlib.rc_context({"svg.hashsalt": "mcflow"}):
        draw_picture(scores).savefig(options.output, metadata={"Date": None})
    print(f"Wrote {options.output}")


if __name__ == "__main__":
    main()

"""Compare a pooled regression over draws with complete rows and with a table that was filled once.

    python examples/draws_and_pooling.py [--output docs/pictures/example_draws.svg]

The program needs pandas, statsmodels and matplotlib. The table is simulated, so the true coefficients are known: blood
pressure increases by 0.5 per year of age and by 4 with smoking. People with a high pressure are weighed less often, so
estimates from the complete rows are biased. The defaults use few rows and epochs to be fast.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from matplotlib.figure import Figure

from mcflow import MCFlowImputer, fit_pooled

FORMULA = "pressure ~ age + weight + smokes"
TRUTH = {"age": 0.5, "weight": 0.3, "smokes[T.yes]": 4.0}
PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "example_draws.svg"

#: Colours that can be read on white and on black.
INK, COLOURS = "#767676", ("#767676", "#1b9e77", "#d9621c", "#2b7fc4")

#: Result of an analysis: estimates and the limits of their 95 % intervals, one row per term.
Found = pd.DataFrame


def make_tables(n_rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a complete table, and the same table with missing cells."""
    rng = np.random.default_rng(0)
    age = rng.uniform(20, 80, n_rows)
    weight = rng.normal(60 + 0.3 * age, 10)
    smokes = rng.random(n_rows) < 0.3
    pressure = rng.normal(70 + 0.5 * age + 0.3 * weight + 4 * smokes, 8)
    words = np.where(smokes, "yes", "no")
    complete = pd.DataFrame({"age": age, "weight": weight, "smokes": words, "pressure": pressure})
    incomplete = complete.copy()
    incomplete.loc[rng.random(n_rows) < 1 / (1 + np.exp((120 - pressure) / 6)), "weight"] = None
    incomplete.loc[rng.random(n_rows) < 0.3, "smokes"] = None
    return complete, incomplete


def by_statsmodels(table: pd.DataFrame) -> Found:
    fit = smf.ols(FORMULA, table).fit()
    return fit.conf_int().set_axis(["low", "high"], axis=1).assign(estimate=fit.params)


def by_pooling(imputer: MCFlowImputer, incomplete: pd.DataFrame, m: int) -> Found:
    pooled = fit_pooled(FORMULA, imputer.draw(incomplete, m=m, random_state=0))
    print(pooled)
    low, high = pooled.interval.T
    return pd.DataFrame({"low": low, "high": high, "estimate": pooled.estimate}, index=list(pooled.names))


def draw_picture(found: dict[str, Found]) -> Figure:
    """Plot the estimates of each analysis, with the true coefficients as lines."""
    figure = Figure(figsize=(9, 2.8), layout="constrained", facecolor="none")
    for axes, (term, truth) in zip(figure.subplots(1, len(TRUTH)), TRUTH.items(), strict=True):
        axes.set_facecolor("none")
        axes.set_title(term, color=INK, fontsize=9, loc="left")
        axes.axvline(truth, color=INK, lw=1, ls="--")
        for place, ((name, table), colour) in enumerate(zip(found.items(), COLOURS, strict=True)):
            axes.hlines(place, table["low"][term], table["high"][term], color=colour, lw=2)
            axes.plot(table["estimate"][term], place, "o", color=colour)
            if axes.get_subplotspec().is_first_col():
                axes.text(-0.04, place, name, transform=axes.get_yaxis_transform(), color=INK, ha="right", va="center")
        axes.set(ylim=(len(found) - 0.5, -0.5), yticks=[])
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(INK)
        axes.tick_params(colors=INK, labelsize=8)
    return figure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=PICTURE, help="file of the figure")
    parser.add_argument("--rows", type=int, default=500, help="number of rows")
    parser.add_argument("--draws", type=int, default=20, help="number of draws")
    parser.add_argument("--max-epochs", type=int, default=60, help="maximum number of epochs")
    return parser.parse_args()


def main() -> None:
    options = parse()
    complete, incomplete = make_tables(options.rows)
    imputer = MCFlowImputer(max_epochs=options.max_epochs, random_state=0).fit(incomplete)
    found = {
        "complete table": by_statsmodels(complete),
        "complete rows only": by_statsmodels(incomplete.dropna()),
        "filled once": by_statsmodels(imputer.transform(incomplete)),
        f"{options.draws} draws, pooled": by_pooling(imputer, incomplete, options.draws),
    }
    with matplotlib.rc_context({"svg.hashsalt": "mcflow"}):
        draw_picture(found).savefig(options.output, metadata={"Date": None})
    print(f"Wrote {options.output}")


if __name__ == "__main__":
    main()

"""Fit a regression of blood pressure to complete cases, pooled draws and draws of R's mice, with a tipping point.

    python examples/nhanes_regression.py [--max-time 90] [--draws 20] [--dry]

The program needs pandas, statsmodels and matplotlib. It writes the tables of docs/nhanes.md and
docs/pictures/nhanes_*.svg; --dry only prints them. The results of mice are left out if R or its package mice is not
installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from subprocess import run
from typing import Any

import pandas as pd
import statsmodels.formula.api as smf
import torch

from mcflow import MCFlowImputer
from mcflow.files.atomic import replacing
from mcflow.files.datasets import nhanes_path
from mcflow.imputers.sensitivity import Sensitivity
from mcflow.pool import PooledResult, fit_pooled
from mcflow.report import plot_distributions, plot_sensitivity
from mcflow_bench.report.blocks import Block, Bullets, Grid, Paragraph, to_markdown, with_block

ROOT = Path(__file__).parent.parent
PAGE, PICTURES = ROOT / "docs" / "nhanes.md", ROOT / "docs" / "pictures"

OUTCOME = "sbp2"
PREDICTORS = ["age", "gender", "bmi", "total_cholesterol", "income_poverty_ratio", "smoked_100"]
#: Columns that are not in the regression, but help to predict missing cells.
HELPERS = ["race_ethnicity", "waist_cm", "hdl", "sbp1", "sbp3"]
FORMULA = f"{OUTCOME} ~ {' + '.join(PREDICTORS)}"

#: Bounds wider than the observed range, so that shifted pressures are not clipped.
BOUNDS = {OUTCOME: (50, 280)}

#: Shifts of the missing blood pressures in the sensitivity analysis, and the reported terms.
DELTAS = (-30, -15, 0, 15, 30)
WATCHED = ("smoked_100[T.Yes]", "income_poverty_ratio")

#: Names of terms in R that differ.
R_TERMS = {"(Intercept)": "Intercept", "genderMale": "gender[T.Male]", "smoked_100Yes": "smoked_100[T.Yes]"}

#: Iterations of mice: its default, and more for columns that are nearly equal and missing together.
ITERATIONS = (5, 40)


def read_table() -> pd.DataFrame:
    return pd.read_parquet(nhanes_path())[[OUTCOME, *PREDICTORS, *HELPERS]]


def complete_cases(table: pd.DataFrame) -> Any:
    return smf.ols(FORMULA, table.dropna(subset=[OUTCOME, *PREDICTORS])).fit()


def by_mice(table: pd.DataFrame, m: int) -> dict[str, pd.DataFrame]:
    """Return the results of mice by number of iterations, with our names of terms; empty without mice."""
    rscript = shutil.which("Rscript")
    if rscript is None or run([rscript, "-e", "library(mice)"], check=False, capture_output=True).returncode:  # noqa: S603
        return {}
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "table.csv", Path(folder) / "result.csv"
        table.to_csv(given, index=False)
        for n_iterations in ITERATIONS:
            script = Path(__file__).with_name("nhanes_mice.R")
            run([rscript, script, given, found, str(m), str(n_iterations)], check=True)  # noqa: S603
            result = pd.read_csv(found)
            results[f"mice, {n_iterations} iterations"] = result.set_index(result["term"].replace(R_TERMS))
    return results


def written(value: float, error: float) -> str:
    """Return an estimate and its standard error as text, with two significant digits of the error."""
    decimals = 4 if error < 0.01 else 3 if error < 0.1 else 2
    return f"{value:.{decimals}f} ({error:.{decimals}f})"


def p_written(p_value: float) -> str:
    return "< 0.0001" if p_value < 1e-4 else f"{p_value:.4f}"


def comparison(cases: Any, pooled: PooledResult, mice: dict[str, pd.DataFrame]) -> Grid:
    """Return a table of the terms by method."""
    rows = []
    for place, term in enumerate(pooled.names):
        row = [f"`{term}`", written(cases.params[term], cases.bse[term])]
        row += [written(pooled.estimate[place], pooled.std_error[place]), f"{pooled.fmi[place]:.2f}"]
        for other in mice.values():
            row += [written(other["estimate"][term], other["std.error"][term]), f"{other['fmi'][term]:.2f}"]
        rows.append(tuple(row))
    ways = [text for way in ("mcflow", *mice) for text in (way, "fmi")]
    return Grid(("term", f"complete cases, n = {int(cases.nobs):,}", *ways), tuple(rows))


def moved_grid(found: Sensitivity) -> Grid:
    """Return a table of the reported terms by delta."""
    rows = []
    for delta in found.deltas:
        pooled = found.results[delta]
        places = [pooled.names.index(term) for term in WATCHED]
        cells = [(written(pooled.estimate[k], pooled.std_error[k]), p_written(pooled.p_value[k])) for k in places]
        rows.append((f"{delta:+g}" if delta else "0", *(text for pair in cells for text in pair)))
    return Grid(("delta, mmHg", *(text for term in WATCHED for text in (f"`{term}`", "p"))), tuple(rows))


def spread_words(cases: Any, pooled: PooledResult) -> str:
    """Return sentences on the ratio of the standard errors and on the terms whose significance changed."""
    ratios = pooled.std_error / cases.bse[list(pooled.names)].to_numpy()
    changed = [
        f"`{term}` (from {p_written(cases.pvalues[term])} to {p_written(p_value)})"
        for term, p_value in zip(pooled.names, pooled.p_value, strict=True)
        if (cases.pvalues[term] < 0.05) != (p_value < 0.05)
    ]
    text = f"Standard errors of mcflow are {ratios.min():.2f} to {ratios.max():.2f} times those of the complete cases. "
    crossed = f"The p-value crossed 0.05 for {', '.join(changed)}." if changed else "No p-value crossed 0.05."
    return text + crossed


def save_picture(figure: Any, name: str) -> None:
    import matplotlib

    with (
        matplotlib.rc_context({"svg.hashsalt": "mcflow", "svg.fonttype": "path"}),
        replacing(PICTURES / f"{name}.svg") as temporary,
    ):
        figure.savefig(temporary, format="svg", metadata={"Date": None})


class Clock:
    """Stopwatch that records the seconds of every step."""

    def __init__(self) -> None:
        self.last, self.seconds = time.perf_counter(), {}

    def stop(self, step: str) -> None:
        now = time.perf_counter()
        self.last, self.seconds[step] = now, now - self.last


def opening_words(table: pd.DataFrame, m: int) -> str:
    share = table[[OUTCOME, *PREDICTORS]].isna().mean()
    shares = ", ".join(f"`{name}` {100 * part:.1f} %" for name, part in share[share > 0].items())
    return (
        f"{len(table.dropna(subset=share.index)):,} of {len(table):,} rows are complete in the columns of the model. "
        f"Missing cells by column: {shares}. The table shows estimates with standard errors in brackets, with m = {m}, "
        "and the fraction of missing information (fmi):"
    )


def time_words(seconds: dict[str, float], n_epochs: int, mice: dict[str, pd.DataFrame]) -> str:
    text = (
        f"Threads: {torch.get_num_threads()}; load: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores. The fit took "
        f"{seconds['fit']:.0f} s ({n_epochs} epochs), the draws {seconds['draw']:.0f} s, and the shifted draws "
        f"with their regressions {seconds['move']:.0f} s."
    )
    if not mice:
        return f"{text} R's mice is not installed and was not run."
    version = next(iter(mice.values()))["version"].iloc[0]
    return f"{text} R's mice {version} took {seconds['mice']:.0f} s for both columns."


def write(first: list[Block], second: list[Block]) -> None:
    page = with_block(PAGE.read_text(), "nhanes", to_markdown(first))
    with replacing(PAGE) as temporary:
        temporary.write_text(with_block(page, "nhanes moved", to_markdown(second)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-time", type=float, default=90, help="time limit of the fit in seconds")
    parser.add_argument("--draws", type=int, default=20, help="number of draws")
    parser.add_argument("--dry", action="store_true", help="print without writing files")
    return parser.parse_args()


def main() -> None:
    options, table, clock = parse(), read_table(), Clock()
    imputer = MCFlowImputer(max_time=options.max_time, bounds=BOUNDS, random_state=0).fit(table)
    clock.stop("fit")
    draws = list(imputer.draw(table, m=options.draws, random_state=0))
    clock.stop("draw")
    cases, pooled = complete_cases(table), fit_pooled(FORMULA, draws)
    found = imputer.sensitivity(table, OUTCOME, DELTAS, analysis=FORMULA, m=options.draws, random_state=0)
    clock.stop("move")
    mice = by_mice(table, options.draws)
    clock.stop("mice")

    opening, times = opening_words(table, options.draws), time_words(clock.seconds, imputer.n_epochs_, mice)
    first = [Paragraph(opening), comparison(cases, pooled, mice), Paragraph(spread_words(cases, pooled))]
    points = Bullets(tuple(str(found.tipping_point(term)) for term in WATCHED))
    print(to_markdown([*first, Paragraph(times), moved_grid(found), points]))
    if options.dry:
        return
    write([*first, Paragraph(times)], [moved_grid(found), points])
    save_picture(plot_sensitivity(found, WATCHED[0]), "nhanes_sensitivity")
    missing = [name for name in (OUTCOME, *PREDICTORS) if table[name].isna().any()]
    save_picture(plot_distributions(table[missing], [draw[missing] for draw in draws[:5]]), "nhanes_distributions")


if __name__ == "__main__":
    main()

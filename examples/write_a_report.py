"""Fill a table and write a report about it: one HTML file that needs no other.

    python examples/write_a_report.py [--output report.html]

It needs pandas, matplotlib and jinja2. Few rows and epochs keep it short. For a file, `mcflow impute data.csv -o
filled.csv --report report.html` does the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from mcflow import MCFlowImputer
from mcflow.data.datasets import nhanes_path
from mcflow.report import write_report

COLUMNS = ["age", "gender", "education", "weight_kg", "height_cm", "bmi", "waist_cm", "sbp1", "dbp1"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("report.html"), help="the report")
    parser.add_argument("--rows", type=int, default=800, help="first rows of the table")
    parser.add_argument("--max-epochs", type=int, default=30, help="passes over them")
    return parser.parse_args()


def main() -> None:
    options = parse()
    table = pd.read_parquet(nhanes_path())[COLUMNS].head(options.rows)
    imputer = MCFlowImputer(max_epochs=options.max_epochs, rules=["dbp1 < sbp1"], random_state=0)
    filled = imputer.fit_transform(table)
    write_report(options.output, imputer, table, filled)
    print(f"Wrote {options.output}, {options.output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

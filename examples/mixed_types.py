"""Fill a table of numbers, whole numbers and categories within bounds and rules, and ask how sure the fills are.

    python examples/mixed_types.py

It needs pandas. Few rows and epochs keep it short; leave `max_epochs` out for real work.
"""

from __future__ import annotations

import argparse

import pandas as pd

from mcflow import MCFlowImputer
from mcflow.data.datasets import nhanes_path

COLUMNS = ["age", "gender", "education", "general_health", "diabetes", "bmi", "sleep_hours", "sbp1", "dbp1"]
HEALTH = ["Poor", "Fair", "Good", "Very good", "Excellent"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1500, help="first rows of the table")
    parser.add_argument("--max-epochs", type=int, default=40, help="passes over them")
    return parser.parse_args()


def main() -> None:
    options = parse()
    table = pd.read_parquet(nhanes_path())[COLUMNS].head(options.rows)
    # Text has no order. An ordered type gives it one.
    table["general_health"] = pd.Categorical(table["general_health"], HEALTH, ordered=True)

    imputer = MCFlowImputer(
        max_epochs=options.max_epochs,
        random_state=0,
        bounds={"bmi": (10, 100), "sleep_hours": (0, 24)},
        allowed={"sleep_hours": "observed"},
        rules=["dbp1 < sbp1"],
        restore_integers=True,
    )
    filled = imputer.fit_transform(table)

    print(f"{'column':<16}{'kind':<12}{'missing':>8}  type before and after")
    for column in imputer.schema_.columns:
        name = column.name
        print(f"{name:<16}{column.kind:<12}{column.missing:>8}  {table[name].dtype} -> {filled[name].dtype}")

    holed = table["sbp1"].isna() | table["dbp1"].isna()
    print(f"\nMissing cells left: {int(filled.isna().sum().sum())}")
    print(f"Rows with a filled pressure that keep the rule: {(filled['dbp1'] < filled['sbp1'])[holed].mean():.0%}")

    unknown = table["general_health"].isna()
    print("\nProbabilities for the first people whose health is not known, and what was filled in:")
    chances = imputer.predict_proba(table)["general_health"][unknown].head(5).round(2)
    print(chances.assign(filled=filled["general_health"]).to_string())

    # Another table is compared with the one of the fit before it is filled.
    later = table.head(100).assign(gender="Unknown", sbp1=table["sbp1"] / 10)
    report = imputer.check(later)
    print(f"\nCan a table with other levels and units be filled? {'Yes' if report.ok else 'No'}.\n{report}")


if __name__ == "__main__":
    main()

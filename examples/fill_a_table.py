"""Fill the NHANES table that ships with mcflow, and see how well hidden cells are restored.

Run it with `python examples/fill_a_table.py`; it needs pandas. A few epochs keep it short. Real fits take more.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from mcflow import MCFlowImputer
from mcflow.data.datasets import nhanes_path

COLUMNS = ["age", "gender", "weight_kg", "height_cm", "bmi", "waist_cm", "sbp2", "dbp2", "hdl", "hba1c"]


def main() -> None:
    table = pd.read_parquet(nhanes_path())[COLUMNS]
    print(f"{len(table)} rows; missing cells a column:")
    print(table.isna().sum().to_string())

    # Hide one in ten of the known waists, so that the fills can be compared with the truth.
    known = table.index[table["waist_cm"].notna()].to_numpy()
    hidden = np.random.default_rng(0).choice(known, len(known) // 10, replace=False)
    holed = table.copy()
    holed.loc[hidden, "waist_cm"] = np.nan

    imputer = MCFlowImputer(max_epochs=32, learning_rate=1e-3, random_state=0)
    filled = imputer.fit_transform(holed)

    truth = table.loc[hidden, "waist_cm"]
    by_mcflow = (filled.loc[hidden, "waist_cm"] - truth).abs().mean()
    by_mean = (holed["waist_cm"].mean() - truth).abs().mean()
    print(f"\nTrained {imputer.n_epochs_} epochs, kept {len(imputer.stages_)} stages.")
    print(f"Missing numbers left: {int(filled.select_dtypes('number').isna().sum().sum())}")
    print(f"Mean error of {len(hidden)} hidden waists: {by_mcflow:.1f} cm, and {by_mean:.1f} cm by the column's mean.")


if __name__ == "__main__":
    main()

"""The pictures of the page about diagnostics, of the very table that it makes."""

from __future__ import annotations

__all__ = ["diagnostic_figures"]

from typing import Any

import numpy as np
import pandas as pd

from mcflow.baselines import make
from mcflow.report import plot_calibration, plot_distributions, plot_overimputation


def diagnostic_figures() -> dict[str, Any]:
    """Return the figures by name; they can be read on white and on black."""
    rng = np.random.default_rng(0)
    age = rng.normal(50, 12, 600)
    frame = pd.DataFrame(
        {
            "age": age,
            "weight": 60 + 0.3 * age + rng.normal(0, 8, 600),
            "income": np.exp(rng.normal(age / 25, 0.8, 600)),
            "works": np.where(age + rng.normal(0, 8, 600) < 55, "yes", "no"),
        }
    )
    frame.loc[rng.random(600) < 0.2, ["weight"]] = None
    frame.loc[rng.random(600) < 0.6 * (age > 50), ["income"]] = None
    frame.loc[rng.random(600) < 0.1, ["works"]] = None
    known, new = frame.iloc[:400], frame.iloc[400:]
    imputer = make("em", random_state=0).fit(known)
    return {
        "diagnostics_distributions": plot_distributions(new, imputer.draw(new, m=5, random_state=0)),
        "diagnostics_overimputation": plot_overimputation(imputer, new, n_cells=100, random_state=0),
        "diagnostics_calibration": plot_calibration(imputer, new, random_state=0),
    }

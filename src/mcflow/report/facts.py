"""All that a report says, as a plain dictionary that JSON can hold; what draws and writes it is elsewhere."""

from __future__ import annotations

__all__ = ["report_facts"]

from collections.abc import Mapping
from typing import Any

from mcflow.report.facts_calibration import calibration_facts
from mcflow.report.facts_columns import column_facts
from mcflow.report.facts_fills import fill_facts
from mcflow.report.facts_missing import missing_facts
from mcflow.report.facts_pairs import pair_facts
from mcflow.report.facts_tables import Limits, ReportTables
from mcflow.report.facts_training import origin_facts, training_facts
from mcflow.report.facts_unsure import unsure_facts


def report_facts(
    imputer: Any,
    before: Any,
    after: Any = None,
    *,
    draws: Any = None,
    evaluation: Mapping[str, Any] | None = None,
    command: str | None = None,
    limits: Limits | None = None,
) -> dict[str, Any]:
    """Collect what there is to say of a fill.

    Parameters
    ----------
    imputer : object or None
        Fitted. None when there is only an evaluation.
    before : array-like or data frame of shape (n_rows, n_columns)
        The table with holes.
    after : array-like or data frame, optional
        What `transform` made of it. Without it, a sample of the rows is filled to show something.
    draws : sequence or iterator of them, optional
        What `draw` made of it; at most ten are read.
    evaluation : mapping, optional
        From `Evaluation.to_dict`.
    command : str, optional
        The command line that does it again.
    limits : Limits, optional
        How many columns to draw and to list.

    Returns
    -------
    dict
        Nothing but dictionaries, lists, texts and numbers. Parts that there is nothing to say of are None.

    Raises
    ------
    DataError
        When the tables do not belong together.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.baselines import make
    >>> rows = np.random.default_rng(0).normal(size=(50, 2))
    >>> rows[::5, 1] = np.nan
    >>> imputer = make("em", random_state=0).fit(rows)
    >>> facts = report_facts(imputer, rows, imputer.transform(rows))
    >>> facts["missing"]["missing"], facts["fills"]["filled"]
    (10, 10)
    """
    limits = limits or Limits()
    tables = ReportTables.read(imputer, before, after, draws)
    return {
        "missing": missing_facts(tables, limits),
        "fills": fill_facts(tables, getattr(imputer, "constraints_", None), limits),
        "training": training_facts(imputer),
        "columns": column_facts(tables, limits),
        "pairs": pair_facts(tables, limits),
        "unsure": unsure_facts(tables, imputer, limits),
        "calibration": calibration_facts(imputer),
        "evaluation": None if evaluation is None else dict(evaluation),
        "origin": origin_facts(imputer, command),
    }

"""Summary and notes of a report in sentences."""

from __future__ import annotations

__all__ = ["notes", "summary", "verdict"]

from typing import Any

from mcflow.evaluation.wording import counted, listed, seconds_text, share_text, signed_text

#: Maximum number of names in a sentence.
MAX_NAMES = 5
#: Distance of the distributions of observed cells and draws from which a column is noted.
LARGE_DISTANCE = 0.25
#: Error relative to the mean's up to which fills are called clearly better than the mean.
USEFUL_ERROR = 0.95
#: Shift of the median, in interquartile ranges, from which a column is noted if there are no draws.
LARGE_SHIFT = 0.5


def verdict(facts: dict[str, Any]) -> list[str]:
    """Return three sentences on what was done, how accurate it is, and how to use the result; none without fills."""
    fills, missing = facts["fills"], facts["missing"]["missing"]
    if fills is None or not missing or facts["evaluation"] is not None:
        return []
    return [_done(fills, missing), _accuracy(facts), _use(facts)]


def _done(fills: dict[str, Any], missing: int) -> str:
    sample = f"In a sample of {counted(fills['rows'], 'row')}, " if fills["sampled"] else ""
    share = share_text(fills["filled"] / max(fills["filled"] + fills["left"], 1))
    which = f"{share} of the missing cells" if fills["left"] else f"all {counted(fills['filled'], 'missing cell')}"
    words = f"{sample}{which} were filled, each with an estimate from the other columns of its row."
    return words[0].upper() + words[1:]


def _accuracy(facts: dict[str, Any]) -> str:
    measured = [one for one in facts["accuracy"] if one["relative"] is not None]
    training = facts["training"]
    if measured:
        useful = [one["name"] for one in measured if one["relative"] <= USEFUL_ERROR]
        poor = [one["name"] for one in measured if one["relative"] > USEFUL_ERROR]
        words = f"Known cells that were hidden as a test show that the fills of {len(useful)} of {len(measured)} "
        words += "columns are clearly better than the average value of the column"
        return words + (f"; those of {listed(poor, MAX_NAMES)} are not." if poor else ".")
    if training and training["validation"]:
        best = min(error for _, error in training["validation"]) ** 0.5
        return (
            f"On known cells that were hidden as a test, the typical error is {share_text(best)} of the error that the "
            "average value of the column would make."
        )
    return "How accurate the fills are was not measured; `mcflow evaluate` does so on hidden cells."


def _use(facts: dict[str, Any]) -> str:
    if facts["columns"]["n_draws"] > 1:
        return "Analyse every draw and pool the results, so that the uncertainty of the fills is taken into account."
    return (
        "A filled cell is an estimate, not a measurement: for averages and models with standard errors, use draws "
        "(--draws) instead of this single table."
    )


def summary(facts: dict[str, Any]) -> list[str]:
    """Return the summary of a report."""
    parts = [
        _missing(facts["missing"]),
        _fills(facts),
        _training(facts["training"]),
        _calibration(facts["calibration"]),
        _constraints(facts["fills"]),
    ]
    return [part for part in parts if part]


def _missing(facts: dict[str, Any]) -> str:
    words = f"The table has {counted(facts['rows'], 'row')} and {counted(facts['n_columns'], 'column')}. "
    if not facts["missing"]:
        return words + "No cell is missing."
    where = f"in {counted(facts['incomplete_columns'], 'column')} and {counted(facts['incomplete_rows'], 'row')}"
    verb = "is" if facts["missing"] == 1 else "are"
    return words + (
        f"{facts['missing']:,} of its {facts['cells']:,} cells {verb} missing ({share_text(facts['share'])}), {where}."
    )


def _fills(facts: dict[str, Any]) -> str:
    fills = facts["fills"]
    if fills is None or not facts["missing"]["missing"]:
        return ""
    begin = f"For this report, a sample of {counted(fills['rows'], 'row')} was filled: " if fills["sampled"] else ""
    if not fills["left"]:
        words = f"all {counted(fills['filled'], 'missing cell')} were filled."
    else:
        words = f"{counted(fills['filled'], 'cell')} were filled; {fills['left']:,} are still missing, in columns that "
        words += "are not imputed, such as names, identifiers and empty columns."
    return begin + (words if begin else words[0].upper() + words[1:])


def _training(facts: dict[str, Any] | None) -> str:
    if facts is None:
        return ""
    if not facts["n_epochs"]:
        return "All columns are constant, so there was nothing to train."
    words = f"The model was trained for {counted(facts['n_epochs'], 'epoch')} in {seconds_text(facts['seconds'])} "
    words += f"({facts['ending_words']})."
    if facts["cut_short"]:
        words += f" {facts['cut_short']}"
    elif facts["validation"]:
        best = min(error for _, error in facts["validation"])
        words += f" The root mean squared error on validation cells, over all columns, is {share_text(best**0.5)} of "
        words += "that of mean imputation."
    if facts["n_models"] > 1:
        words += f" {facts['n_models']} models were fitted, all but one of them on bootstrap samples of the rows."
    return words


def _calibration(facts: dict[str, Any] | None) -> str:
    if facts is None:
        return ""
    coverage = facts["calibrated"][facts["levels"].index(facts["level"])]
    cells = counted(facts["cells"], "validation cell")
    return f"{share_text(facts['level'])} intervals cover {share_text(coverage)} of {cells}."


def _constraints(fills: dict[str, Any] | None) -> str:
    facts = fills and fills["constraints"]
    if not facts or not facts["cells"]:
        return ""
    broken = facts["cells"] - facts["met"]
    words = f"{counted(broken, 'filled cell')} of {facts['cells']:,} are outside the limits of their columns."
    unmet = [rule for rule in facts["rules"] if rule["met"] < rule["rows"]]
    if not broken:
        words = "Every filled cell is within the limits of its column"
        words += ", and every rule is satisfied." if facts["rules"] and not unmet else "."
    for rule in unmet:
        rows = counted(rule["rows"] - rule["met"], "row")
        words += f" The rule {rule['rule']} is violated in {rows}, whose observed cells already rule it out."
    return words


def notes(facts: dict[str, Any]) -> list[str]:
    """Return what to check before the filled table is used."""
    found = [
        _much_missing(facts["missing"]),
        _uncertain(facts["uncertainty"]),
        _differing(facts["columns"]),
        _changed_correlations(facts["correlations"]),
        _not_filled(facts),
    ]
    return [note for note in found if note]


def _much_missing(facts: dict[str, Any]) -> str:
    names = [column["name"] for column in facts["columns"] if column["share"] > 0.5]
    return f"More than half of the cells are missing in: {listed(names, MAX_NAMES)}." if names else ""


def _uncertain(facts: dict[str, Any] | None) -> str:
    names = [one["name"] for one in facts["columns"] if one["width"] >= 0.9] if facts else []
    if not names:
        return ""
    return (
        f"The other columns contain little information on: {listed(names, MAX_NAMES)}. The intervals of their missing "
        "cells are about as wide as the distribution of the column."
    )


def _differing(facts: dict[str, Any]) -> str:
    # Best estimates vary less than true values, so that without draws only the location is compared.
    by, least = ("distance", LARGE_DISTANCE) if facts["n_draws"] > 1 else ("shift", LARGE_SHIFT)
    differing = [one for one in facts["drawn"] if one[by] >= least and one["filled"] >= 20]
    names = [one["name"] for one in sorted(differing, key=lambda one: -one[by])]
    if not names:
        return ""
    return (
        f"Filled and observed cells are distributed differently in: {listed(names, MAX_NAMES)}. Check that the other "
        "columns of these rows explain the difference."
    )


def _changed_correlations(facts: dict[str, Any] | None) -> str:
    pairs = [p for p in (facts["pairs"] if facts else []) if abs(p["after"] - p["before"]) >= 0.15]
    if not pairs:
        return ""
    shown = "; ".join(
        f"{p['first']} and {p['second']}, {signed_text(p['before'])} to {signed_text(p['after'])}" for p in pairs[:3]
    )
    return f"Imputation changed correlations, most of all: {shown}."


def _not_filled(facts: dict[str, Any]) -> str:
    by_position = (facts["fills"] or {"columns": {}})["columns"]
    names = [
        column["name"]
        for column in facts["missing"]["columns"]
        if by_position.get(str(column["position"]), {"filled": 1})["filled"] == 0
    ]
    return f"Not filled: {listed(names, MAX_NAMES)}." if names else ""

"""Summary and notes of a report in sentences."""

from __future__ import annotations

__all__ = ["notes", "summary", "verdict"]

from typing import Any

from mcflow.evaluation.wording import counted, listed, seconds_text, share_text, signed_text

MAX_NAMES = 5  #: Maximum number of names in a sentence.
LARGE_DISTANCE = 0.25  #: Distance of the distributions of observed cells and draws from which a column is noted.
USEFUL_ERROR = 0.95  #: Error relative to the mean's up to which fills are called clearly better than the mean.
LARGE_SHIFT = 0.5  #: Shift of the median, in interquartile ranges, from which a column is noted if there are no draws.


def verdict(facts: dict[str, Any]) -> list[str]:
    """Return three sentences on what was done, how accurate it is, and how to use the result; none without fills."""
    fills = facts["fills"]
    if fills is None or not facts["missing"]["missing"] or facts["evaluation"] is not None:
        return []
    share = share_text(fills["filled"] / max(fills["filled"] + fills["left"], 1))
    which = f"{share} of the missing cells" if fills["left"] else f"all {counted(fills['filled'], 'missing cell')}"
    sample = f"In a sample of {counted(fills['rows'], 'row')}, " if fills["sampled"] else ""
    done = _capitalised(f"{sample}{which} were filled, each with an estimate from the other columns of its row.")
    use = "Analyse every draw and pool the results, so that the uncertainty of the fills is taken into account."
    if facts["columns"]["n_draws"] <= 1:
        use = "A filled cell is an estimate, not a measurement: for averages and models with standard errors, "
        use += "use draws (--draws) instead of this single table."
    return [done, _accuracy(facts), use]


def _capitalised(words: str) -> str:
    return words[0].upper() + words[1:]


def _accuracy(facts: dict[str, Any]) -> str:
    measured = [one for one in facts["accuracy"] if one["relative"] is not None]
    training = facts["training"]
    if measured:
        poor = [one["name"] for one in measured if one["relative"] > USEFUL_ERROR]
        n_useful = len(measured) - len(poor)
        words = f"Known cells that were hidden as a test show that the fills of {n_useful} of {len(measured)} "
        words += "columns are clearly better than the average value of the column"
        return words + (f"; those of {listed(poor, MAX_NAMES)} are not." if poor else ".")
    if training and training["validation"]:
        best = min(error for _, error in training["validation"]) ** 0.5
        return (
            f"On known cells that were hidden as a test, the typical error is {share_text(best)} of the error that the "
            "average value of the column would make."
        )
    return "How accurate the fills are was not measured; `mcflow evaluate` does so on hidden cells."


def summary(facts: dict[str, Any]) -> list[str]:
    """Return the summary of a report."""
    parts = [_missing(facts["missing"]), _fills(facts), _training(facts["training"])]
    if facts["calibration"] is not None:
        found = facts["calibration"]
        coverage = share_text(found["calibrated"][found["levels"].index(found["level"])])
        cells = counted(found["cells"], "validation cell")
        parts.append(f"{share_text(found['level'])} intervals cover {coverage} of {cells}.")
    return [part for part in (*parts, _constraints(facts["fills"])) if part]


def _missing(facts: dict[str, Any]) -> str:
    words = f"The table has {counted(facts['rows'], 'row')} and {counted(facts['n_columns'], 'column')}. "
    if not facts["missing"]:
        return words + "No cell is missing."
    where = f"in {counted(facts['incomplete_columns'], 'column')} and {counted(facts['incomplete_rows'], 'row')}"
    verb = "is" if facts["missing"] == 1 else "are"
    words += f"{facts['missing']:,} of its {facts['cells']:,} cells {verb} missing "
    return words + f"({share_text(facts['share'])}), {where}."


def _fills(facts: dict[str, Any]) -> str:
    fills = facts["fills"]
    if fills is None or not facts["missing"]["missing"]:
        return ""
    words = f"all {counted(fills['filled'], 'missing cell')} were filled."
    if fills["left"]:
        words = f"{counted(fills['filled'], 'cell')} were filled; {fills['left']:,} are still missing, in columns that "
        words += "are not imputed, such as names, identifiers and empty columns."
    if fills["sampled"]:
        return f"For this report, a sample of {counted(fills['rows'], 'row')} was filled: {words}"
    return _capitalised(words)


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
    found = []
    missing, columns = facts["missing"]["columns"], facts["columns"]
    if much := [column["name"] for column in missing if column["share"] > 0.5]:
        found.append(f"More than half of the cells are missing in: {listed(much, MAX_NAMES)}.")
    widths = facts["uncertainty"]["columns"] if facts["uncertainty"] else []
    if uncertain := [one["name"] for one in widths if one["width"] >= 0.9]:
        found.append(
            f"The other columns contain little information on: {listed(uncertain, MAX_NAMES)}. The intervals of their "
            "missing cells are about as wide as the distribution of the column."
        )
    # Best estimates vary less than true values, so that without draws only the location is compared.
    by, least = ("distance", LARGE_DISTANCE) if columns["n_draws"] > 1 else ("shift", LARGE_SHIFT)
    differing = [one for one in columns["drawn"] if one[by] >= least and one["filled"] >= 20]
    if different := [one["name"] for one in sorted(differing, key=lambda one: -one[by])]:
        found.append(
            f"Filled and observed cells are distributed differently in: {listed(different, MAX_NAMES)}. Check that the "
            "other columns of these rows explain the difference."
        )
    pairs = facts["correlations"]["pairs"] if facts["correlations"] else []
    if changed := [pair for pair in pairs if abs(pair["after"] - pair["before"]) >= 0.15]:
        shown = "; ".join(
            f"{p['first']} and {p['second']}, {signed_text(p['before'])} to {signed_text(p['after'])}"
            for p in changed[:3]
        )
        found.append(f"Imputation changed correlations, most of all: {shown}.")
    fills = facts["fills"]["columns"] if facts["fills"] else {}
    empty = {int(position) for position, one in fills.items() if not one["filled"]}
    if unfilled := [column["name"] for column in missing if column["position"] in empty]:
        found.append(f"Not filled: {listed(unfilled, MAX_NAMES)}.")
    return found

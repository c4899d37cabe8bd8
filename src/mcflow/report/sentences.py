"""The report in sentences: what happened, and what deserves a look."""

from __future__ import annotations

__all__ = ["notes", "summary"]

from typing import Any

from mcflow.report.wording import counted, number_text, seconds_text, share_text, signed_text

#: Names in a sentence, at most.
MOST_NAMES = 5
#: From when on a column lacks much, is known little, or was filled with other cells than those observed.
MUCH_MISSING, WIDE, APART, SHIFTED, FEWEST, MOVED = 0.5, 0.9, 0.25, 0.5, 20, 0.15


def summary(facts: dict[str, Any]) -> list[str]:
    """Return what happened, a few sentences long.

    Parameters
    ----------
    facts : dict
        From `report_facts`.

    Returns
    -------
    list of str
        Paragraphs.
    """
    parts = [
        _missing(facts["missing"]),
        _fills(facts),
        _training(facts["training"]),
        _calibration(facts["calibration"]),
    ]
    return [part for part in [*parts, _constraints(facts["fills"])] if part]


def _missing(facts: dict[str, Any]) -> str:
    words = f"The table has {counted(facts['rows'], 'row')} and {counted(facts['n_columns'], 'column')}. "
    if not facts["missing"]:
        return words + "No cell is missing."
    where = f"in {counted(facts['holed_columns'], 'column')} and {counted(facts['holed_rows'], 'row')}"
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
        words = f"{counted(fills['filled'], 'cell')} were filled; {fills['left']:,} stay missing, in columns that are "
        words += "left alone, such as names, identifiers and columns without a value."
    return begin + (words if begin else words[0].upper() + words[1:])


def _training(facts: dict[str, Any] | None) -> str:
    if facts is None:
        return ""
    if not facts["n_epochs"]:
        return "No column varies, so there was nothing to train."
    words = (
        f"The model was trained for {counted(facts['n_epochs'], 'epoch')} in {seconds_text(facts['seconds'])}, until "
    )
    words += f"{facts['ending_words']}."
    if facts["held"]:
        best = min(error for _, error in facts["held"])
        words += f" On cells that were held out of it, the lowest mean squared error was {number_text(round(best, 3))} "
        words += "times the variance of their columns; filling in the mean would give 1."
    if facts["n_models"] > 1:
        words += f" {facts['n_models']} models were fitted, the others on rows drawn with replacement."
    return words


def _calibration(facts: dict[str, Any] | None) -> str:
    if facts is None:
        return ""
    at = facts["levels"].index(facts["level"])
    return (
        f"Of {counted(facts['cells'], 'known cell')} that the model did not see, intervals of "
        f"{share_text(facts['level'])} hold {share_text(facts['set_right'][at])}."
    )


def _constraints(fills: dict[str, Any] | None) -> str:
    facts = fills and fills["constraints"]
    if not facts or not facts["cells"]:
        return ""
    broken = facts["cells"] - facts["met"]
    words = f"{counted(broken, 'filled cell')} of {facts['cells']:,} are outside the limits of their columns."
    if not broken:
        words = "Every filled cell is inside the limits of its column"
        words += ", and every rule is kept." if facts["rules"] and _kept(facts["rules"]) else "."
    for rule in facts["rules"]:
        if rule["met"] < rule["rows"]:
            left = counted(rule["rows"] - rule["met"], "row")
            words += f" The rule {rule['rule']} is not kept in {left}, whose observed cells leave no room for it."
    return words


def _kept(rules: list[dict[str, Any]]) -> bool:
    return all(rule["met"] == rule["rows"] for rule in rules)


def notes(facts: dict[str, Any]) -> list[str]:
    """Return what deserves a look before the filled table is used.

    Parameters
    ----------
    facts : dict
        From `report_facts`.

    Returns
    -------
    list of str
        Sentences; none where nothing stands out.
    """
    found = [_much_missing(facts["missing"]), _little_known(facts["unsure"]), _far_apart(facts["columns"])]
    return [note for note in [*found, _moved(facts["pairs"]), _left_alone(facts)] if note]


def _names(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _much_missing(facts: dict[str, Any]) -> str:
    names = [column["name"] for column in facts["columns"] if column["share"] > MUCH_MISSING]
    return f"More than half of the cells are missing in: {_names(names)}." if names else ""


def _little_known(facts: dict[str, Any] | None) -> str:
    names = [one["name"] for one in facts["columns"] if one["width"] >= WIDE] if facts else []
    if not names:
        return ""
    return (
        f"The other columns say little of the missing cells of: {_names(names)}. Their intervals are about as wide as "
        "those of the column as a whole."
    )


def _far_apart(facts: dict[str, Any]) -> str:
    # Best guesses lie closer together than true cells, so that only where they lie can be judged.
    by, least = ("apart", APART) if facts["n_draws"] > 1 else ("shift", SHIFTED)
    far = [one for one in facts["drawn"] if one[by] >= least and one["filled"] >= FEWEST]
    names = [one["name"] for one in sorted(far, key=lambda one: -one[by])]
    if not names:
        return ""
    return (
        f"Filled cells lie elsewhere than observed ones in: {_names(names)}. That is right where the other columns of "
        "those rows explain it."
    )


def _moved(facts: dict[str, Any] | None) -> str:
    pairs = [p for p in (facts["pairs"] if facts else []) if abs(p["after"] - p["before"]) >= MOVED]
    if not pairs:
        return ""
    shown = "; ".join(
        f"{p['first']} and {p['second']}, {signed_text(p['before'])} to {signed_text(p['after'])}" for p in pairs[:3]
    )
    return f"Correlations moved by the fill, most of all: {shown}."


def _left_alone(facts: dict[str, Any]) -> str:
    by_position = (facts["fills"] or {"columns": {}})["columns"]
    names = [
        column["name"]
        for column in facts["missing"]["columns"]
        if by_position.get(str(column["position"]), {"filled": 1})["filled"] == 0
    ]
    return f"Not filled: {_names(names)}." if names else ""

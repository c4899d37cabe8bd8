"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

__all__ = ["check_report", "report_html", "write_report"]

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcflow.data.files import replacing
from mcflow.errors import MissingExtraError
from mcflow.report.facts import report_facts
from mcflow.report.plots import PALETTE
from mcflow.report.plots_columns import draw_column
from mcflow.report.plots_lines import MARKS, draw_coverage, draw_errors, draw_line, draw_shares
from mcflow.report.plots_maps import draw_correlations, draw_patterns, draw_together
from mcflow.report.sentences import notes, summary
from mcflow.report.wording import clean, counted, number_text, seconds_text, share_text, signed_text

_TEMPLATES = Path(__file__).parent / "templates"
#: Columns in the first list of holes, and in the table and the picture of an evaluation.
FIRST_LISTED, MOST_EVALUATED, MOST_DOTTED = 15, 200, 40


def check_report() -> None:
    """Make sure that what a report needs is there, before anything that takes time.

    Raises
    ------
    MissingExtraError
        With the line that installs it.
    """
    try:
        import jinja2  # noqa: F401
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"A report needs matplotlib and jinja2 ({error.name} is missing): pip install 'mcflow[report]'"
        ) from error


def report_html(
    imputer: Any,
    before: Any,
    after: Any = None,
    *,
    draws: Any = None,
    evaluation: Mapping[str, Any] | None = None,
    command: str | None = None,
) -> str:
    """Return a report on a fill as HTML.

    Parameters
    ----------
    imputer : object or None
        Fitted. None when there is only an evaluation.
    before : array-like or data frame of shape (n_rows, n_columns)
        The table with holes.
    after : array-like or data frame, optional
        What `transform` made of it. Without it, a sample of the rows is filled to show something.
    draws : sequence or iterator of them, optional
        What `draw` made of it.
    evaluation : mapping, optional
        From `Evaluation.to_dict`.
    command : str, optional
        The command line that does it again.

    Returns
    -------
    str
        One page without anything from elsewhere: style, pictures and the few lines of script are inside. The same
        imputer and tables give the same text.

    Raises
    ------
    DataError
        When the tables do not belong together.
    MissingExtraError
        When matplotlib or jinja2 is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.baselines import make
    >>> rows = np.random.default_rng(0).normal(size=(50, 2))
    >>> rows[::5, 1] = np.nan
    >>> imputer = make("em", random_state=0).fit(rows)
    >>> page = report_html(imputer, rows, imputer.transform(rows))
    >>> page.startswith("<!doctype html>"), "10 of its 100 cells are missing" in page
    (True, True)
    """
    check_report()
    facts = report_facts(imputer, before, after, draws=draws, evaluation=evaluation, command=command)
    return _render(facts)


def write_report(
    path: str | Path,
    imputer: Any,
    before: Any,
    after: Any = None,
    *,
    draws: Any = None,
    evaluation: Mapping[str, Any] | None = None,
    command: str | None = None,
) -> None:
    """Write a report on a fill to one HTML file; whole or not at all.

    Parameters
    ----------
    path : path-like
        The file to make or to replace.
    imputer : object or None
        Fitted. None when there is only an evaluation.
    before : array-like or data frame of shape (n_rows, n_columns)
        The table with holes.
    after : array-like or data frame, optional
        What `transform` made of it. Without it, a sample of the rows is filled to show something.
    draws : sequence or iterator of them, optional
        What `draw` made of it.
    evaluation : mapping, optional
        From `Evaluation.to_dict`.
    command : str, optional
        The command line that does it again.

    Raises
    ------
    DataError
        When the tables do not belong together.
    MissingExtraError
        When matplotlib or jinja2 is not installed.
    OutputError
        When the file cannot be written.
    """
    page = report_html(imputer, before, after, draws=draws, evaluation=evaluation, command=command)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(page.encode())


def _render(facts: dict[str, Any]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "clean": clean,
        "counted": counted,
        "number": number_text,
        "seconds": seconds_text,
        "signed": signed_text,
        "share": share_text,
    }
    style, script = ((_TEMPLATES / name).read_text("utf-8") for name in ("report.css", "report.js"))
    return environment.get_template("report.html.j2").render(
        facts=facts,
        pictures=_pictures(facts),
        summary=summary(facts),
        notes=notes(facts),
        style=_raw(style),
        script=_raw(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        marks=list(MARKS.values())[: len(PALETTE)],
        first_listed=FIRST_LISTED,
        most_evaluated=MOST_EVALUATED,
    )


def _raw(text: str) -> Any:
    """Mark a text as one that is HTML already."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - the package's own files, and pictures whose words are escaped


def _pictures(facts: dict[str, Any]) -> dict[str, Any]:
    """Draw everything."""
    missing, pairs = facts["missing"], facts["pairs"]
    found: dict[str, Any] = {"columns": [draw_column(c, f"c{k}") for k, c in enumerate(facts["columns"]["drawn"])]}
    if missing["patterns"]["columns"]:
        found["patterns"] = draw_patterns(missing["patterns"], missing["rows"], "patterns")
    if missing["together"]["columns"]:
        found["together"] = draw_together(missing["together"], "together")
    if missing["n_columns"] > FIRST_LISTED and missing["missing"]:
        found["shares"] = draw_shares(missing["by_share"], "shares")
    if pairs is not None:
        found["correlations"] = draw_correlations(pairs, "correlations")
    if facts["calibration"] is not None:
        found["coverage"] = draw_coverage(facts["calibration"], "coverage")
    found |= _training_pictures(facts["training"]) | _evaluation_picture(facts["evaluation"])
    return {name: [_raw(svg) for svg in svgs] if isinstance(svgs, list) else _raw(svgs) for name, svgs in found.items()}


def _training_pictures(facts: dict[str, Any] | None) -> dict[str, str]:
    if facts is None or not facts["epochs"]:
        return {}
    found = {}
    lines = {"latent": ("latent_loss", "Loss of the network H")}
    if facts["has_flow_loss"]:
        lines["flow"] = ("flow_loss", "Loss of the flow G")
    for name, (key, words) in lines.items():
        points = list(zip(facts["epochs"], facts[key], strict=True))
        found[name] = draw_line(points, facts["stage_starts"], name, words)
    if facts["held"]:
        found["held"] = draw_line(facts["held"], [], "held", "Mean squared error on held-out cells")
    return found


def _evaluation_picture(facts: Mapping[str, Any] | None) -> dict[str, str]:
    columns = [c for c in facts["per_column"] if c["hidden"]][:MOST_DOTTED] if facts else []
    if not facts or not columns:
        return {}
    return {"errors": draw_errors(columns, [method["name"] for method in facts["methods"]], "errors")}

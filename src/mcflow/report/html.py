"""Write a report as one self-contained HTML file."""

from __future__ import annotations

__all__ = ["check_report", "report_html", "write_report"]

import base64
import hashlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from mcflow.errors import MissingExtraError
from mcflow.evaluation import wording
from mcflow.files.atomic import replacing
from mcflow.installation import install_extra
from mcflow.report.facts import report_facts
from mcflow.report.pictures import MARKERS, MAX_EVALUATED, MAX_LISTED_FIRST, draw_pictures
from mcflow.report.sentences import notes, summary, verdict

_TEMPLATES = Path(__file__).parent / "templates"
MAX_EVALUATED_LISTED = 200  #: Maximum number of columns in the table of an evaluation.


def check_report() -> None:
    """Check that the packages a report needs are installed, before anything that takes time.

    Raises
    ------
    MissingExtraError
        If matplotlib or jinja2 is not installed; the message contains the command that installs it.
    """
    try:
        import jinja2  # noqa: F401
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"A report needs matplotlib and jinja2 ({error.name} is missing): {install_extra('report')}"
        ) from error


def report_html(
    imputer: Any,
    before: Any,
    after: Any = None,
    *,
    draws: Any = None,
    evaluation: Mapping[str, Any] | None = None,
    command: str | None = None,
    source: str | None = None,
    date: str | None = None,
) -> str:
    """Return a report on an imputed table as HTML.

    Parameters
    ----------
    imputer : object or None
        Fitted imputer; None for a report on an evaluation alone.
    before : array-like or data frame of shape (n_rows, n_columns)
        The table with missing cells.
    after : array-like or data frame, optional
        The result of `transform`. Without it, a sample of the rows is filled.
    draws : sequence or iterator of them, optional
        The result of `draw`.
    evaluation : mapping, optional
        The result of `Evaluation.to_dict`.
    command : str, optional
        The command line that reproduces the result.
    source : str, optional
        Name of the file with the table, for the header.
    date : str, optional
        Date of the report, for the header.

    Returns
    -------
    str
        One page that contains its style sheet, pictures and script. The same imputer and tables give the same text.

    Raises
    ------
    DataError
        If the tables do not belong together.
    MissingExtraError
        If matplotlib or jinja2 is not installed.

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
    given = {"draws": draws, "evaluation": evaluation, "command": command, "source": source, "date": date}
    return _render(report_facts(imputer, before, after, **given))


def write_report(path: str | Path, imputer: Any, before: Any, after: Any = None, **parts: Any) -> None:
    """Write a report on an imputed table to one HTML file, atomically.

    Parameters
    ----------
    path : path-like
        The file to create or replace.
    imputer, before, after, **parts : object
        The arguments of `report_html`; the date is today by default.

    Raises
    ------
    DataError, MissingExtraError
        As for `report_html`.
    OutputError
        If the file cannot be written.
    """
    parts.setdefault("date", datetime.now().astimezone().date().isoformat())
    page = report_html(imputer, before, after, **parts)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(page.encode())


def _render(facts: dict[str, Any]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(_TEMPLATES)
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters |= {
        "clean": wording.clean,
        "counted": wording.counted,
        "number": wording.number_text,
        "seconds": wording.seconds_text,
        "signed": wording.signed_text,
        "share": wording.share_text,
    }
    style, script = ((_TEMPLATES / name).read_text("utf-8") for name in ("report.css", "report.js"))
    return environment.get_template("report.html.j2").render(
        facts=facts,
        pictures=draw_pictures(facts),
        verdict=verdict(facts),
        summary=summary(facts),
        notes=notes(facts),
        style=style,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        markers=list(MARKERS.values()),
        max_listed_first=MAX_LISTED_FIRST,
        max_drawn=MAX_EVALUATED,
        max_evaluated=MAX_EVALUATED_LISTED,
    )

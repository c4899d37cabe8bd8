"""The parts of a report, written as Markdown, as HTML, and between the marks of a page."""

from __future__ import annotations

__all__ = [
    "NO_RESULTS",
    "Block",
    "Bullets",
    "Figure",
    "Grid",
    "Heading",
    "Paragraph",
    "bullets",
    "check_page",
    "count_words",
    "put_block",
    "seconds_words",
    "short_number",
    "to_html",
    "to_markdown",
    "with_block",
]

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcflow.errors import DataError, ParameterError
from mcflow.files.atomic import check_writable, write_text


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Text in which ``**`` marks bold and backticks mark code."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list; `alarm` marks problems that a reader must not miss."""

    items: tuple[str, ...]
    alarm: bool = False


@dataclass(frozen=True)
class Grid:
    """A table: column names and rows of text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Figure:
    """A picture: its file beside the report, its HTML, and its description."""

    path: str
    html: str
    words: str


Block = Heading | Paragraph | Bullets | Grid | Figure

#: The report of an empty store.
NO_RESULTS = Paragraph("There are no results yet.")


def bullets(items: Iterable[str], *, alarm: bool = False) -> list[Block]:
    """Return a list as a block, or nothing if it is empty."""
    found = tuple(items)
    return [Bullets(found, alarm)] if found else []


def to_markdown(blocks: Sequence[Block]) -> str:
    """Write blocks as Markdown."""
    return "\n\n".join(_markdown(block) for block in blocks)


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Paragraph(text):
            return text
        case Bullets(items, alarm):
            return "\n".join(f"- {'**Alarm:** ' if alarm else ''}{item}" for item in items)
        case Grid(header, rows):
            lines = [header, tuple("---" for _ in header), *rows]
            texts = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
            return "\n".join([texts[0], texts[1].replace(" ", ""), *texts[2:]])
        case Figure(path, _, words):
            return f"![{words}]({path})"


_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --line: #d0d7de; --soft: #f6f8fa; --alarm: #b42318; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; --soft: #161b22; --alarm: #ff8a7a; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 70rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .8rem; text-align: left; white-space: nowrap; }
thead th { background: var(--soft); }
code { font-size: .9em; }
.alarm { color: var(--alarm); }
svg { max-width: 100%; height: auto; }
""".strip()


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """Write blocks as one self-contained HTML page."""
    body = "\n".join(_html(block) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{_inline(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{_inline(text)}</p>"
        case Bullets(items, alarm):
            opening = '<ul class="alarm">' if alarm else "<ul>"
            return (
                opening + "".join(f"<li>{'Alarm: ' if alarm else ''}{_inline(item)}</li>" for item in items) + "</ul>"
            )
        case Grid(header, rows):
            head = "".join(f'<th scope="col">{_inline(name)}</th>' for name in header)
            body = "\n".join("<tr>" + _line(row) + "</tr>" for row in rows)
            return (
                f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'
            )
        case Figure(_, picture, words):
            return f'<figure role="img" aria-label="{html.escape(words)}">{picture}</figure>'


def _line(row: tuple[str, ...]) -> str:
    first = f'<th scope="row">{_inline(row[0])}</th>' if len(row) > 1 else f"<td>{_inline(row[0])}</td>"
    return first + "".join(f"<td>{_inline(cell)}</td>" for cell in row[1:])


def _inline(text: str) -> str:
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"`([^`]*)`", r"<code>\1</code>", escaped)
    return re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escaped)


def with_block(page: str, name: str, content: str) -> str:
    """Return the text of a page with the content between the marks of a result replaced."""
    pattern = re.compile(f"<!-- result {re.escape(name)} -->.*?<!-- end -->", re.DOTALL)
    if not pattern.search(page):
        raise DataError(f"The page has no lines <!-- result {name} --> and <!-- end --> to put a result between.")
    return pattern.sub(lambda _: f"<!-- result {name} -->\n\n{content}\n\n<!-- end -->", page)


def check_page(flag: str, page: Path | None, mark: str) -> None:
    """Raise an error before hours are spent when a page has no marks for a result or cannot be written."""
    if page is None:
        return
    if not page.is_file():
        raise ParameterError(f"{flag} is {page}, which is not a file. Give a page that has marks for the table.")
    with_block(page.read_text(encoding="utf-8"), mark, "")
    check_writable(page)


def put_block(page: Path | None, mark: str, block: str) -> None:
    """Write a block between the marks of a page, if there is a page."""
    if page is not None:
        write_text(page, with_block(page.read_text(encoding="utf-8"), mark, block))


def short_number(value: float | None, digits: int = 4) -> str:
    """Return a number without the zero before its decimal point, or a dash for None.

    Examples
    --------
    >>> short_number(0.12345), short_number(1.5), short_number(24.125, 1), short_number(None)
    ('.1235', '1.5000', '24.1', '–')
    """
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def seconds_words(seconds: float) -> str:
    """Return seconds with one decimal below 100."""
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:,.0f} s"


def count_words(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

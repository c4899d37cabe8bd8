"""The parts of a report, and how they are written in Markdown and in HTML."""

from __future__ import annotations

__all__ = ["Block", "Bullets", "Figure", "Grid", "Heading", "Paragraph", "to_html", "to_markdown", "with_block"]

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mcflow.errors import DataError


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Running text, in which ``**`` is bold and backticks are code."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list; `alarm` marks what a reader must not miss."""

    items: tuple[str, ...]
    alarm: bool = False


@dataclass(frozen=True)
class Grid:
    """A table: names of the columns and rows of text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Figure:
    """A picture: its file beside the report, and its SVG."""

    path: str
    svg: str
    words: str


Block = Heading | Paragraph | Bullets | Grid | Figure


def to_markdown(blocks: Sequence[Block]) -> str:
    r"""Write blocks as Markdown.

    Parameters
    ----------
    blocks : sequence of Block
        From top to bottom.

    Returns
    -------
    str
        Without an end of line at the end.

    Examples
    --------
    >>> print(to_markdown([Heading("A"), Grid(("x", "y"), (("1", "2 | 3"),))]))
    ## A
    <BLANKLINE>
    | x | y |
    |---|---|
    | 1 | 2 \| 3 |
    """
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
    """Write blocks as one HTML page that needs no other file.

    Parameters
    ----------
    title : str
        Of the page.
    blocks : sequence of Block
        From top to bottom. All text is escaped; pictures are put in as they are.

    Returns
    -------
    str

    Examples
    --------
    >>> "<td>a &lt; <strong>b</strong></td>" in to_html("T", [Grid(("x",), (("a < **b**",),))])
    True
    """
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
        case Figure(_, svg, words):
            return f'<figure role="img" aria-label="{html.escape(words)}">{svg}</figure>'


def _line(row: tuple[str, ...]) -> str:
    first = f'<th scope="row">{_inline(row[0])}</th>' if len(row) > 1 else f"<td>{_inline(row[0])}</td>"
    return first + "".join(f"<td>{_inline(cell)}</td>" for cell in row[1:])


def _inline(text: str) -> str:
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"`([^`]*)`", r"<code>\1</code>", escaped)
    return re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escaped)


def with_block(page: str, name: str, content: str) -> str:
    r"""Return a page with what stands between the marks of a result replaced.

    Parameters
    ----------
    page : str
        Markdown with the lines ``<!-- result NAME -->`` and ``<!-- end -->``.
    name : str
        The result's.
    content : str
        What to put between them.

    Returns
    -------
    str

    Raises
    ------
    DataError
        When the page has no such lines.

    Examples
    --------
    >>> print(with_block("a\n<!-- result speed -->\n<!-- end -->\nb", "speed", "T"))
    a
    <!-- result speed -->
    <BLANKLINE>
    T
    <BLANKLINE>
    <!-- end -->
    b
    """
    pattern = re.compile(f"<!-- result {re.escape(name)} -->.*?<!-- end -->", re.DOTALL)
    if not pattern.search(page):
        raise DataError(f"The page has no lines <!-- result {name} --> and <!-- end --> to put a result between.")
    return pattern.sub(lambda _: f"<!-- result {name} -->\n\n{content}\n\n<!-- end -->", page)

"""The tables of a benchmark of images: methods against shares of missing pixels, published figures beside."""

from __future__ import annotations

__all__ = ["MARK", "image_block", "image_blocks", "write_image_report"]

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcflow.benchmarks.blocks import Block, Bullets, Figure, Grid, Heading, Paragraph, to_html, to_markdown
from mcflow.benchmarks.image_alarms import image_alarms
from mcflow.benchmarks.image_suite import ImageSuite
from mcflow.benchmarks.image_summary import ImageSection, image_sections, mask_title, set_title
from mcflow.benchmarks.paper_images import PAPER_SIZES, SOURCES, cited_rows
from mcflow.benchmarks.report import measured_on
from mcflow.benchmarks.store import Row
from mcflow.benchmarks.wording import seconds_words, short_number
from mcflow.data.files import replacing

#: The block of a page that holds the tables.
MARK = "benchmark-images"

_TITLE = "Imputation of images"


@dataclass(frozen=True)
class _Measure:
    name: str
    title: str
    digits: int = 4
    more: bool = False
    draws: bool = True


_MEASURES = (
    _Measure("rmse", "RMSE"),
    _Measure("psnr", "PSNR in dB", digits=2, more=True),
    _Measure("accuracy", "LeNet accuracy", more=True),
    _Measure("frechet", "Fréchet distance", digits=3),
    _Measure("train_rmse", "RMSE, training images", draws=False),
    _Measure("train_psnr", "PSNR in dB, training images", digits=2, more=True, draws=False),
)


def write_image_report(
    rows: Sequence[Row], folder: Path, suite: ImageSuite | None = None, figures: Sequence[Figure] = ()
) -> None:
    """Write table.md and table.html.

    Parameters
    ----------
    rows : sequence of dict
        What `Store.rows` returned.
    folder : Path
        Where to write.
    suite : ImageSuite, optional
        What was asked for; cells of it that are not there become alarms.
    figures : sequence of Figure
        What `write_figures` returned.
    """
    blocks = [Heading(_TITLE, 1), *image_blocks(rows, suite, figures)]
    for name, text in (("table.md", to_markdown(blocks) + "\n"), ("table.html", to_html(_TITLE, blocks))):
        with replacing(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def image_block(rows: Sequence[Row], suite: ImageSuite | None = None, figures: Sequence[Figure] = ()) -> str:
    """Return what stands between the marks of a page.

    Parameters
    ----------
    rows, suite, figures
        As for `write_image_report`.

    Returns
    -------
    str
        Markdown.
    """
    return to_markdown(image_blocks(rows, suite, figures))


def image_blocks(rows: Sequence[Row], suite: ImageSuite | None = None, figures: Sequence[Figure] = ()) -> list[Block]:
    """Return the parts of the report.

    Parameters
    ----------
    rows, suite, figures
        As for `write_image_report`.

    Returns
    -------
    list of Block
    """
    sections = image_sections(rows)
    blocks: list[Block] = []
    for section in sections:
        if len(sections) > 1:
            blocks.append(Heading(_section_name(section)))
        for images in section.sets:
            blocks += [Heading(set_title(images), 3), *_set_blocks(section, images)]
        blocks.append(Paragraph(_caption(section)))
        if notes := _notes(section):
            blocks.append(Bullets(tuple(notes)))
    if alarms := [*image_alarms(sections, suite)]:
        blocks.append(Bullets(tuple(alarms), alarm=True))
    return [*(blocks or [Paragraph("There are no results yet.")]), *figures]


def _section_name(section: ImageSection) -> str:
    parts = [
        f"first {number:,} {part} images"
        for part, number in (("training", section.n_train), ("test", section.n_test))
        if number is not None
    ]
    name = ", ".join(parts) if parts else "all images"
    return (name + (f", seed {section.seed}" if section.seed else "")).capitalize()


def _set_blocks(section: ImageSection, images: str) -> Iterator[Block]:
    if sizes := _sizes(section, images):
        yield Paragraph(sizes)
    for measure in _MEASURES:
        grid = _grid(section, images, measure)
        if grid.rows:
            yield grid
    yield _cost(section, images)


def _sizes(section: ImageSection, images: str) -> str:
    """Return how many images were used, and how many the paper has where that differs."""
    data = next((row["data"] for row in section.of_set(images) if row.get("data")), None)
    if data is None:
        return ""
    size = " × ".join(map(str, data["size"]))
    words = f"{data['train_images']:,} training and {data['test_images']:,} test images of {size}"
    paper = PAPER_SIZES.get(images)
    if paper and paper != (data["train_images"], data["test_images"]):
        words += f"; the paper has {paper[0]:,} and {paper[1]:,}"
    return words + "."


def _grid(section: ImageSection, images: str, measure: _Measure) -> Grid:
    masks = section.masks(images)
    own = [row for method in section.methods(images) for row in _method_rows(section, images, method, measure, masks)]
    header = (measure.title, *map(mask_title, masks))
    return Grid(header, (*own, *_cited(section, images, measure, masks)) if own else ())


def _method_rows(
    section: ImageSection, images: str, method: str, measure: _Measure, masks: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the row of a method, and that of its draws."""
    kinds = [(measure.name, f"`{method}`")]
    kinds += [(f"draw_{measure.name}", f"`{method}`, one draw")] if measure.draws else []
    for name, title in kinds:
        values = [section.value(images, mask, method, name) for mask in masks]
        if any(value is not None for value in values) or (name == "rmse" and _failed(section, images, method)):
            best = [_best(section, images, mask, measure) for mask in masks]
            rows = [section.rows.get((images, mask, method)) for mask in masks]
            cells = [_cell(*found, measure.digits) for found in zip(values, best, rows, strict=True)]
            yield (title, *cells)


def _failed(section: ImageSection, images: str, method: str) -> bool:
    return any(row["label"] == method and row["status"] != "done" for row in section.of_set(images))


def _cell(value: float | None, best: float | None, row: Row | None, digits: int) -> str:
    if value is None:
        return "failed" if row is not None and row["status"] != "done" else "–"
    text = short_number(value, digits)
    return f"**{text}**" if value == best else text


def _best(section: ImageSection, images: str, mask: str, measure: _Measure) -> float | None:
    """Return the best figure of all methods and their draws."""
    names = [measure.name, *([f"draw_{measure.name}"] if measure.draws else [])]
    found = [section.value(images, mask, method, name) for method in section.methods(images) for name in names]
    known = [value for value in found if value is not None]
    return (max if measure.more else min)(known) if known else None


def _cited(section: ImageSection, images: str, measure: _Measure, masks: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield published rows, for whole sets only."""
    if section.n_train is not None or section.n_test is not None:
        return
    for row in cited_rows(measure.name, images):
        values = [row.at(mask) for mask in masks]
        if any(value is not None for value in values):
            cells = ["–" if value is None else short_number(value, measure.digits) for value in values]
            yield (f"{row.title} (cited, {row.source})", *cells)


def _cost(section: ImageSection, images: str) -> Grid:
    masks = section.masks(images)
    rows = []
    for method in section.methods(images):
        found = [section.rows.get((images, mask, method)) for mask in masks]
        rows.append((f"`{method}`", *("–" if row is None else _cost_cell(row) for row in found)))
    return Grid(("fit, fill, memory", *map(mask_title, masks)), tuple(rows))


def _cost_cell(row: Row) -> str:
    if row["status"] != "done":
        return "–"
    words = f"{seconds_words(row['fit_s'])}, {seconds_words(row['transform_s'])}"
    return words + (f", {row['peak_mib']:,.0f} MiB" if row.get("peak_mib") is not None else "")


def _caption(section: ImageSection) -> str:
    rows = list(section.rows.values())
    scored = [row["data"].get("scored_train_images") for row in rows if row.get("data")]
    most = max((number for number in scored if number), default=0)
    words = (
        "Training and test images have holes of the same kind; methods are fitted on the training images with their "
        "holes and fill the test images. RMSE and PSNR are over the missing pixels, all channels of a pixel being "
        "missing together, in units of the range from black to white. LeNet is trained on complete training digits; "
        "its accuracy is that on the filled test digits, and the Fréchet distance is between its 84 features of the "
        "filled and of the true test digits. In bold the best of a column. "
    )
    words += f"Of the training images the first {most:,} are scored. " if most else ""
    if section.n_train is None and section.n_test is None:
        words += "Cited: " + "; ".join(f"{name}, {source}" for name, source in SOURCES.items()) + ". "
        words += "Cited Fréchet distances are those of another network's features and compare with each other only. "
    words += "Times are those of the fit and of filling all test images, memory is the peak of the process until then. "
    return words + measured_on(rows)


def _notes(section: ImageSection) -> list[str]:
    """Return what was said of how methods were run, and what could not be scored after the fill."""
    notes = set()
    for (images, mask, method), row in section.rows.items():
        if row.get("note"):
            notes.add(f"`{method}` on {set_title(images)}: {row['note']}.")
        if row["status"] == "done" and row.get("message"):
            notes.add(f"`{method}` on {set_title(images)} at {mask_title(mask)}: {row['message'].rstrip('.')}.")
    return sorted(notes)

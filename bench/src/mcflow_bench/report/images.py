"""The report of a benchmark of images: methods against masks, with published results beside."""

from __future__ import annotations

__all__ = ["MARK", "image_alarms", "image_blocks", "mask_title", "write_image_report"]

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcflow.evaluation.methods import MethodSpec
from mcflow.files.atomic import write_text
from mcflow_bench.report.blocks import (
    NO_RESULTS,
    Block,
    Figure,
    Grid,
    Heading,
    Paragraph,
    bullets,
    seconds_words,
    short_number,
    to_html,
    to_markdown,
)
from mcflow_bench.report.published import PAPER_SIZES, SOURCES, cited_rows, to_beat
from mcflow_bench.report.summary import ImageSection, data_title, image_sections, measured_on
from mcflow_bench.store import Row
from mcflow_bench.suites import ImageSuite, ImageTask

#: Name of the block of a page that holds the tables.
MARK = "benchmark-images"

_TITLE = "Imputation of images"


@dataclass(frozen=True)
class _Measure:
    name: str  # of the score
    title: str  # of its table
    digits: int = 4
    higher_is_better: bool = False
    of_draws: bool = True  # whether draws have it too

    @property
    def names(self) -> list[str]:
        """Return the scores of fills and of draws."""
        return [self.name, *([f"draw_{self.name}"] if self.of_draws else [])]


_MEASURES = (
    _Measure("rmse", "RMSE"),
    _Measure("psnr", "PSNR in dB", digits=2, higher_is_better=True),
    _Measure("accuracy", "LeNet accuracy", higher_is_better=True),
    _Measure("frechet", "Fréchet distance", digits=3),
    _Measure("train_rmse", "RMSE, training images", of_draws=False),
    _Measure("train_psnr", "PSNR in dB, training images", digits=2, higher_is_better=True, of_draws=False),
)


def write_image_report(
    rows: Sequence[Row], folder: Path, suite: ImageSuite | None = None, figures: Sequence[Figure] = ()
) -> None:
    """Write table.md and table.html."""
    blocks = [Heading(_TITLE, 1), *image_blocks(rows, suite, figures)]
    write_text(folder / "table.md", to_markdown(blocks) + "\n")
    write_text(folder / "table.html", to_html(_TITLE, blocks))


def image_blocks(rows: Sequence[Row], suite: ImageSuite | None = None, figures: Sequence[Figure] = ()) -> list[Block]:
    """Return the parts of the report, which are also the block of a page."""
    sections = image_sections(rows)
    blocks: list[Block] = []
    for section in sections:
        if len(sections) > 1:
            blocks.append(Heading(_section_name(section)))
        for images in section.sets:
            blocks += [Heading(data_title(images), 3), *_set_blocks(section, images)]
        blocks += [Paragraph(_caption(section)), *bullets(_notes(section))]
    blocks += bullets(image_alarms(sections, suite), alarm=True)
    return [*(blocks or [NO_RESULTS]), *figures]


def mask_title(mask: str) -> str:
    """Return a mask in words, such as "50 %", "block of 25 %" or "left half"."""
    kind, _, rest = mask.rpartition(":")
    if kind == "halves":
        return f"{rest} half"
    return f"{'block of ' if kind else ''}{100 * float(rest):g} %"


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
    """Return the numbers of images that were used, and those of the paper if they differ."""
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
    for name, title in zip(measure.names, (f"`{method}`", f"`{method}`, one draw"), strict=False):
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
    """Return the best value of all methods and their draws."""
    found = [section.value(images, mask, method, name) for method in section.methods(images) for name in measure.names]
    known = [value for value in found if value is not None]
    return (max if measure.higher_is_better else min)(known) if known else None


def _cited(section: ImageSection, images: str, measure: _Measure, masks: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield published rows, for complete sets only."""
    for row in cited_rows(measure.name, images) if section.is_complete else ():
        values = [row.at(mask) for mask in masks]
        if any(value is not None for value in values):
            yield (f"{row.title} (cited, {row.source})", *(short_number(value, measure.digits) for value in values))


def _cost(section: ImageSection, images: str) -> Grid:
    masks = section.masks(images)
    rows = []
    for method in section.methods(images):
        found = [section.rows.get((images, mask, method)) for mask in masks]
        rows.append((f"`{method}`", *map(_cost_cell, found)))
    return Grid(("fit, fill, memory", *map(mask_title, masks)), tuple(rows))


def _cost_cell(row: Row | None) -> str:
    if row is None or row["status"] != "done":
        return "–"
    words = f"{seconds_words(row['fit_s'])}, {seconds_words(row['transform_s'])}"
    return words + (f", {row['peak_mib']:,.0f} MiB" if row.get("peak_mib") is not None else "")


def _caption(section: ImageSection) -> str:
    rows = list(section.rows.values())
    scored = [row["data"].get("scored_train_images") for row in rows if row.get("data")]
    most = max((number for number in scored if number), default=0)
    words = (
        "Training and test images have missing pixels of the same kind; methods are fitted on the incomplete training "
        "images and fill the test images. RMSE and PSNR are over the missing pixels, all channels of a pixel being "
        "missing together, in units of the range from black to white. LeNet is trained on complete training digits; "
        "its accuracy is that on the filled test digits, and the Fréchet distance is between its 84 features of the "
        "filled and of the true test digits. The best of a column is in bold. "
    )
    words += f"The first {most:,} training images are scored. " if most else ""
    if section.is_complete:
        words += "Cited: " + "; ".join(f"{name}, {source}" for name, source in SOURCES.items()) + ". "
        words += "Cited Fréchet distances use the features of another network and compare with each other only. "
    words += "Times are those of the fit and of filling all test images, memory is the peak of the process until then. "
    return words + measured_on(rows)


def _notes(section: ImageSection) -> list[str]:
    """Return the notes on how methods were run, and what could not be scored after the fill."""
    notes = set()
    for (images, mask, method), row in section.rows.items():
        if row.get("note"):
            notes.add(f"`{method}` on {data_title(images)}: {row['note']}.")
        if row["status"] == "done" and row.get("message"):
            notes.add(f"`{method}` on {data_title(images)} at {mask_title(mask)}: {row['message'].rstrip('.')}.")
    return sorted(notes)


def image_alarms(sections: Sequence[ImageSection], suite: ImageSuite | None = None) -> Iterator[str]:
    """Yield what is missing or failed, and what is worse than the pixel mean or than published results."""
    if suite is not None:
        yield from _missing(sections, suite)
    for section in sections:
        for (images, mask, method), row in sorted(section.rows.items()):
            if row["status"] != "done":
                message = str(row.get("message", "")).rstrip(".")
                yield f"`{method}` on {data_title(images)} at {mask_title(mask)} failed ({row['status']}): {message}."
        for images in section.sets:
            for method in section.methods(images):
                yield from _worse_than_mean(section, images, method)
                if section.is_complete:
                    yield from _worse_than_cited(section, images, method)


def _missing(sections: Sequence[ImageSection], suite: ImageSuite) -> Iterator[str]:
    size = (suite.n_train, suite.n_test, suite.seed)
    known = {key for section in sections if (section.n_train, section.n_test, section.seed) == size
             for key in section.rows}  # fmt: skip
    gaps: dict[tuple[str, str], list[str]] = {}
    for cell in suite.cells(lambda name: (Path(name), "")):
        task = cell.task
        if isinstance(task, ImageTask) and (task.images, task.mask, cell.label) not in known:
            gaps.setdefault((cell.label, task.images), []).append(mask_title(task.mask))
    for (method, images), masks in gaps.items():
        yield f"`{method}` on {data_title(images)} has not been measured at {', '.join(masks)}."


def _worse_than_mean(section: ImageSection, images: str, method: str) -> Iterator[str]:
    gaps = []
    for mask in section.masks(images):
        ours, plain = (section.value(images, mask, name, "rmse") for name in (method, "mean"))
        if ours is not None and plain is not None and ours > plain:
            gaps.append(f"{mask_title(mask)} ({short_number(ours)} against {short_number(plain)})")
    if gaps:
        yield f"`{method}` on {data_title(images)} is worse than the pixel mean at {', '.join(gaps)}."


def _worse_than_cited(section: ImageSection, images: str, method: str) -> Iterator[str]:
    for measure, words in (("rmse", "RMSE"), ("accuracy", "LeNet accuracy")):
        gaps = []
        for mask in section.masks(images):
            ours = section.value(images, mask, method, measure)
            cited = to_beat(measure, images, mask, MethodSpec.parse(method).name)
            if ours is None or cited is None:
                continue
            value, row = cited
            if ours < value if measure == "accuracy" else ours > value:
                both = f"{short_number(ours)} against {short_number(value)} of {row.title}, {row.source}"
                gaps.append(f"{mask_title(mask)} ({both})")
        if gaps:
            yield f"{words} of `{method}` on {data_title(images)} is worse than cited at {', '.join(gaps)}."

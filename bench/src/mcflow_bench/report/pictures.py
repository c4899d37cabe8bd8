"""Filled images: stored with every cell, so that a figure needs no fit, and drawn line by line."""

from __future__ import annotations

__all__ = ["Pictures", "draw_figure", "figure_lines", "keep_pictures", "read_pictures", "write_figures"]

import base64
import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mcflow.errors import OutputError
from mcflow.evaluation.methods import MethodSpec
from mcflow.files.atomic import replacing
from mcflow.typing import Array, BoolArray
from mcflow_bench.store import Row
from mcflow_bench.suites import ImageTask

if TYPE_CHECKING:
    from mcflow_bench.protocol import ImageSplit
    from mcflow_bench.report.blocks import Figure

#: Number of test images, the first ones, that are stored for every cell.
N_PICTURES = 16
#: Sets whose images may not be redistributed: their figures are left out of every page.
PRIVATE = ("cifar10", "celeba")

_METHODS = {"gain": "GAIN", "misgan": "MisGAN", "mcflow": "MCFlow"}
#: Colour of missing pixels, which no grey image has.
_MISSING = np.array([94, 124, 160], dtype=np.uint8)
#: Side of an image in the figure, in pixels.
_TILE = 56
_GAP = 4
_FONT_SIZE = 14


class Pictures(NamedTuple):
    """Test images: complete, the mask of hidden pixels, filled, and one draw if the method has draws."""

    truth: Array
    hidden: BoolArray
    filled: Array
    drawn: Array | None


def keep_pictures(output: Path, name: str, split: ImageSplit, filled: Array, drawn: Array | None = None) -> None:
    """Store the first test images of a cell."""
    some = slice(N_PICTURES)
    arrays: dict[str, Any] = {"truth": split.test[some], "hidden": split.hidden_test[some], "filled": filled[some]}
    if drawn is not None:
        arrays["drawn"] = drawn[some]
    path = _path(output, name)
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path.parent} cannot be made: {error.strerror}. Choose another folder.") from error
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_pictures(output: Path, name: str) -> Pictures | None:
    """Return the stored images of a cell, or None if there are none."""
    try:
        with _path(output, name).open("rb") as file, np.load(file) as arrays:
            drawn = arrays.get("drawn")
            return Pictures(arrays["truth"], arrays["hidden"], arrays["filled"], drawn)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _path(output: Path, name: str) -> Path:
    return output / "pictures" / f"{name}.npz"


def draw_figure(lines: Sequence[tuple[str, Pictures]]) -> bytes:
    """Draw images line by line as PNG: the originals, what was observed, then the fill of each method.

    Examples
    --------
    >>> dots = np.zeros((2, 4, 4), np.uint8)
    >>> draw_figure([("mean", Pictures(dots, dots == 0, dots, None))])[1:4]
    b'PNG'
    """
    from PIL import Image, ImageDraw, ImageFont

    from mcflow_bench.report.ranks import INK

    first = lines[0][1]
    rows = [("original", _colours(first.truth)), ("observed", _observed(first))]
    rows += [(name, _colours(pictures.filled)) for name, pictures in lines]
    name, last = lines[-1]
    if last.drawn is not None:
        rows.append((f"{name}, a draw", _colours(last.drawn)))
    font = ImageFont.load_default(_FONT_SIZE)
    margin = int(max(font.getlength(text) for text, _ in rows)) + 3 * _GAP
    step = _TILE + _GAP
    canvas = Image.new("RGBA", (margin + step * len(first.truth), step * len(rows)))
    pen = ImageDraw.Draw(canvas)
    for top, (text, images) in enumerate(rows):
        pen.text((margin - 2 * _GAP, top * step + _TILE // 2), text, fill=INK, font=font, anchor="rm")
        for left, image in enumerate(images):
            tile = Image.fromarray(image).resize((_TILE, _TILE), Image.Resampling.NEAREST)
            canvas.paste(tile, (margin + left * step, top * step))
    target = io.BytesIO()
    canvas.save(target, "PNG", optimize=True)
    return target.getvalue()


def _colours(images: Array) -> Array:
    """Return images with three channels."""
    flat = images if images.ndim == 4 else images[..., None]
    return np.repeat(flat, 3, axis=3) if flat.shape[3] == 1 else flat


def _observed(pictures: Pictures) -> Array:
    """Return the images with a colour in their missing pixels."""
    images = _colours(pictures.truth).copy()
    images[pictures.hidden] = _MISSING
    return images


def figure_lines(
    rows: Sequence[Row], output: Path, images: str, mask: str, titles: Mapping[str, str] | None = None
) -> list[tuple[str, Pictures]]:
    """Return the stored fills of each method of `titles` for the first test images of a set, ours last."""
    from mcflow_bench.report.summary import image_sections

    titles = titles or _METHODS
    for section in image_sections(rows):
        found: dict[str, tuple[str, Pictures]] = {}
        chosen = [row for row in section.of_set(images) if row["task"]["mask"] == mask and row["status"] == "done"]
        for row in sorted(chosen, key=lambda row: str(row.get("date", ""))):
            name = MethodSpec.parse(row["label"]).name
            pictures = read_pictures(output, ImageTask(**row["task"]).name) if name in titles else None
            if pictures is not None:
                found[name] = (titles[name], pictures)
        if found:
            return [found[name] for name in titles if name in found]
    return []


def write_figures(
    rows: Sequence[Row], output: Path, *, sets: Sequence[str], masks: Sequence[str]
) -> tuple[list[Figure], list[str]]:
    """Draw stored filled images; return the figures that pages may show, and messages on those that cannot be drawn."""
    from mcflow_bench.report.images import mask_title

    figures, missing = [], []
    for mask in masks:
        lines = {images: figure_lines(rows, output, images, mask) for images in sets}
        if not any(lines.values()):
            missing.append(f"No filled images with {mask_title(mask)} missing are there to draw. Measure them first.")
        for images, found in lines.items():
            if found:
                figure = _figure(found, output, images, mask)
                figures += [figure] if images not in PRIVATE else []
    return figures, missing


def _figure(lines: Sequence[tuple[str, Pictures]], folder: Path, images: str, mask: str) -> Figure:
    from mcflow_bench.report.blocks import Figure
    from mcflow_bench.report.images import mask_title
    from mcflow_bench.report.summary import data_title

    png = draw_figure(lines)
    name = f"images-{images}-{mask.replace(':', '-')}.png"
    with replacing(folder / name) as temporary:
        temporary.write_bytes(png)
    words = f"{data_title(images)}, {mask_title(mask)} missing: original, observed, {', '.join(n for n, _ in lines)}"
    coded = base64.b64encode(png).decode()
    return Figure(name, f'<img alt="" src="data:image/png;base64,{coded}">', words)

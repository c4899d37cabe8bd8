"""The picture of filled images: what was there, what was shown, and what each method made of it."""

from __future__ import annotations

__all__ = ["draw_figure", "figure_lines", "write_figures"]

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mcflow.benchmarks.blocks import Figure
from mcflow.benchmarks.image_pictures import Pictures, read_pictures
from mcflow.benchmarks.image_suite import ImageTask
from mcflow.benchmarks.image_summary import image_sections, mask_title, set_title
from mcflow.benchmarks.methods import MethodSpec
from mcflow.benchmarks.plots import INK
from mcflow.benchmarks.store import Row
from mcflow.data.files import replacing
from mcflow.typing import Array

#: Sets that may not be passed on: their pictures stay out of every page.
PRIVATE = ("cifar10", "celeba")

_METHODS = {"gain": "GAIN", "misgan": "MisGAN", "mcflow": "MCFlow"}
_HOLE = np.array([94, 124, 160], dtype=np.uint8)
_TILE, _GAP, _TEXT = 56, 4, 14


def draw_figure(lines: Sequence[tuple[str, Pictures]]) -> bytes:
    """Draw images in lines: the original, what was observed, then the fill of each method.

    Parameters
    ----------
    lines : sequence of (str, Pictures)
        Names of methods and what they made of the same images. The last one's draw is shown too, where it has one.

    Returns
    -------
    bytes
        A PNG with a clear ground, to be read on white and on black.

    Examples
    --------
    >>> dots = np.zeros((2, 4, 4), np.uint8)
    >>> draw_figure([("mean", Pictures(dots, dots == 0, dots, None))])[1:4]
    b'PNG'
    """
    from PIL import Image, ImageDraw, ImageFont

    first = lines[0][1]
    rows = [("original", _colours(first.truth)), ("observed", _observed(first))]
    rows += [(name, _colours(pictures.filled)) for name, pictures in lines]
    name, last = lines[-1]
    if last.drawn is not None:
        rows.append((f"{name}, a draw", _colours(last.drawn)))
    font = ImageFont.load_default(_TEXT)
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
    """Return what was shown, holes in a colour that no grey image has."""
    images = _colours(pictures.truth).copy()
    images[pictures.hidden] = _HOLE
    return images


def figure_lines(
    rows: Sequence[Row], output: Path, images: str, mask: str, titles: Mapping[str, str] | None = None
) -> list[tuple[str, Pictures]]:
    """Return what methods made of the first test images of a set, ours last.

    Parameters
    ----------
    rows : sequence of dict
        What `Store.rows` returned.
    output : Path
        Folder of results.
    images, mask : str
        Which cells.
    titles : mapping, optional
        What methods are called, in their order; by default GAIN, MisGAN and MCFlow.

    Returns
    -------
    list of (str, Pictures)
        Of the largest section that has pictures; of the newest result where a method was run in several ways.
    """
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
    """Draw filled images from what cells have kept, without a fit.

    Parameters
    ----------
    rows : sequence of dict
        What `Store.rows` returned.
    output : Path
        Folder of results; figures are written there.
    sets, masks : sequence of str
        What to draw; every pair that was measured becomes a file.

    Returns
    -------
    figures : list of Figure
        Those that a page may show; CIFAR-10 and CelebA may not be passed on.
    missing : list of str
        What could not be drawn and why.
    """
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
    png = draw_figure(lines)
    name = f"images-{images}-{mask.replace(':', '-')}.png"
    with replacing(folder / name) as temporary:
        temporary.write_bytes(png)
    words = f"{set_title(images)}, {mask_title(mask)} missing: original, observed, {', '.join(n for n, _ in lines)}"
    coded = base64.b64encode(png).decode()
    return Figure(name, f'<img alt="" src="data:image/png;base64,{coded}">', words)

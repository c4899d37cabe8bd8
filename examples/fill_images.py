"""Fill the missing pixels of small digits, and draw what they may have been.

    python examples/fill_images.py [--output docs/pictures/example_images.png]

It needs matplotlib; the digits of 8 × 8 pixels come with scikit-learn. Few epochs keep it short; leave `max_epochs` out
for real work.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from mcflow import MCFlowImageImputer

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "example_images.png"
INK, HOLE = "#767676", (0.17, 0.5, 0.77)


def as_colours(images: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
    """Return grey images as colours, missing pixels in blue."""
    colours = np.repeat(images[..., None], 3, axis=-1)
    if missing is not None:
        colours[missing] = HOLE
    return colours


def draw_picture(rows: dict[str, np.ndarray]) -> Figure:
    """Show rows of images under each other, each with its name."""
    width = len(next(iter(rows.values())))
    figure = Figure(figsize=(1.6 + 0.62 * width, 0.64 * len(rows)), facecolor="none")
    grid = figure.subplots(len(rows), width, gridspec_kw={"left": 0.17, "right": 1, "top": 1, "bottom": 0})
    for line, (name, images) in zip(grid, rows.items(), strict=True):
        for axes, image in zip(line, images, strict=True):
            axes.imshow(image, vmin=0, vmax=1)
            axes.axis("off")
        line[0].text(-0.2, 0.5, name, transform=line[0].transAxes, color=INK, ha="right", va="center", fontsize=9)
    return figure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=PICTURE, help="the picture")
    parser.add_argument("--images", type=int, default=1797, help="first images of the set")
    parser.add_argument("--max-epochs", type=int, default=6, help="passes over them")
    return parser.parse_args()


def main() -> None:
    options = parse()
    digits = load_digits().images[: options.images] / 16
    missing = np.random.default_rng(0).random(digits.shape) < 0.5
    imputer = MCFlowImageImputer(max_epochs=options.max_epochs, random_state=0).fit(digits, mask=missing)

    shown, holes = digits[:10], missing[:10]
    filled = imputer.transform(shown, mask=holes)
    draws = list(imputer.draw(shown, m=2, random_state=0, mask=holes))
    mean = np.nanmean(np.where(missing, np.nan, digits), axis=0)
    errors = [np.sqrt(((guess - shown)[holes] ** 2).mean()) for guess in (filled, np.broadcast_to(mean, shown.shape))]
    print(f"Root mean squared error of the missing pixels, {errors[0]:.3f}; by the mean digit {errors[1]:.3f}.")

    rows = {"observed": as_colours(shown, holes), "filled": as_colours(filled)}
    rows |= {f"draw {k}": as_colours(draw) for k, draw in enumerate(draws, 1)}
    rows["truth"] = as_colours(shown)
    draw_picture(rows).savefig(options.output, dpi=120)
    print(f"Wrote {options.output}")


if __name__ == "__main__":
    main()

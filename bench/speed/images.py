"""Time images of the sizes of MNIST and CIFAR-10: the first fill, an epoch, filling and draws.

    python bench/speed/images.py [--images 2048] [--fill 60000] [--dry]

The images are smooth random fields with half of their pixels hidden, since the speed does not depend on the content. An
epoch is measured on some thousand images and scaled up, since it is linear in their number. Every size is measured in a
process of its own, for its peak memory.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import harness
from mcflow import MCFlowImageImputer
from mcflow.images.nearest import fill_nearest
from mcflow_bench.machine import peak_mib

#: Sizes by name: images in an epoch, and their shape.
SIZES: dict[str, tuple[int, tuple[int, ...]]] = {
    "28 × 28 × 1": (60_000, (28, 28)),
    "32 × 32 × 3": (50_000, (32, 32, 3)),
}

#: Seconds that the first fill of 60,000 digits may take.
ASKED_FILL_S = 20.0


def smooth(n_images: int, shape: tuple[int, ...]) -> harness.Table:
    """Return images of random waves."""
    rng = np.random.default_rng(0)
    rows, columns = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
    waves = np.stack([np.sin(rows * a + columns * b) for a, b in rng.random((8, 2))])
    weights = rng.normal(size=(n_images, 8, *shape[2:]))
    fields = np.einsum("kij,nk...->nij...", waves, weights)
    images: harness.Table = np.clip(128 + 40 * fields, 0, 255).astype(np.uint8)
    return images


def first_fill(n_images: int) -> float:
    """Return the seconds of the first fill of images of 28 × 28 pixels."""
    images = smooth(n_images, (28, 28))
    missing = np.random.default_rng(1).random(images.shape) < 0.5
    start = time.perf_counter()
    fill_nearest(images, missing, 0)
    return time.perf_counter() - start


def one_size(name: str, n_images: int) -> dict[str, Any]:
    """Fit, fill and draw images of one size."""
    in_an_epoch, shape = SIZES[name]
    images = smooth(n_images, shape)
    missing = np.random.default_rng(1).random(images.shape[:3]) < 0.5
    imputer = MCFlowImageImputer(max_epochs=1, random_state=0).fit(images, mask=missing)
    fit_s = imputer.history_.epochs[0].seconds
    peak = peak_mib()
    start = time.perf_counter()
    imputer.transform(images, mask=missing)
    middle = time.perf_counter()
    next(imputer.draw(images, 1, 0, mask=missing))
    end = time.perf_counter()
    return {
        "size": name,
        "images_in_a_pass": in_an_epoch,
        "pass_s": round(fit_s / n_images * in_an_epoch, 1),
        "filled_images_per_s": round(n_images / (middle - start)),
        "drawn_images_per_s": round(n_images / (end - middle)),
        "images": n_images,
        "peak_mib": round(peak or 0),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "sizes": [harness.apart(__file__, "size", {"name": name, "n_images": options.images}) for name in SIZES],
        "first_fill_images": options.fill,
        "first_fill_s": round(first_fill(options.fill), 1),
        "asked_fill_s": ASKED_FILL_S,
    }


if __name__ == "__main__":
    harness.main("images", __doc__, measure, {"size": one_size}, images=2048, fill=60_000)

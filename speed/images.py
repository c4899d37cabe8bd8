"""Time images: the first fill, a pass of training, filling and draws, at the sizes of MNIST and CIFAR-10.

    python speed/images.py [--images 2048] [--dry]

Images are smooth random fields, half of their pixels hidden: how long an answer takes does not depend on what is shown.
A pass is measured on some thousand images and scaled up, since it is linear in their number. Every size is measured in
a process of its own, for the sake of its peak memory. Writes speed/results/images.json; --dry only prints.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

from mcflow import MCFlowImageImputer
from mcflow.masks import fill_nearest
from results import environment, report, write

#: Sets by name: images in a pass, and their shape.
SIZES: dict[str, tuple[int, tuple[int, ...]]] = {
    "28 × 28 × 1": (60_000, (28, 28)),
    "32 × 32 × 3": (50_000, (32, 32, 3)),
}

#: Seconds that the first fill of 60,000 digits may take.
ASKED_FILL_S = 20.0


def smooth(n_images: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return random waves."""
    rng = np.random.default_rng(0)
    rows, columns = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
    waves = np.stack([np.sin(rows * a + columns * b) for a, b in rng.random((8, 2))])
    weights = rng.normal(size=(n_images, 8, *shape[2:]))
    fields = np.einsum("kij,nk...->nij...", waves, weights)
    images: np.ndarray[Any, Any] = np.clip(128 + 40 * fields, 0, 255).astype(np.uint8)
    return images


def first_fill(n_images: int) -> float:
    """Return the seconds of the first fill of digits' worth of images, half of them missing."""
    images = smooth(n_images, (28, 28))
    missing = np.random.default_rng(1).random(images.shape) < 0.5
    start = time.perf_counter()
    fill_nearest(images, missing, 0)
    return time.perf_counter() - start


def one_size(name: str, n_images: int) -> dict[str, Any]:
    """Fit, fill and draw images of one size."""
    in_a_pass, shape = SIZES[name]
    images = smooth(n_images, shape)
    missing = np.random.default_rng(1).random(images.shape[:3]) < 0.5
    imputer = MCFlowImageImputer(max_epochs=1, random_state=0).fit(images, mask=missing)
    fit_s = imputer.history_.epochs[0].seconds
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.perf_counter()
    imputer.transform(images, mask=missing)
    middle = time.perf_counter()
    next(imputer.draw(images, 1, 0, mask=missing))
    end = time.perf_counter()
    return {
        "size": name,
        "images_in_a_pass": in_a_pass,
        "pass_s": round(fit_s / n_images * in_a_pass, 1),
        "filled_images_per_s": round(n_images / (middle - start)),
        "drawn_images_per_s": round(n_images / (end - middle)),
        "images": n_images,
        "peak_mib": round(peak_mib),
    }


def apart(name: str, n_images: int) -> dict[str, Any]:
    """Measure one size in a process of its own."""
    words = [sys.executable, __file__, "--images", str(n_images), "--one", name]
    found: dict[str, Any] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--fill", type=int, default=60_000)
    parser.add_argument("--one", choices=list(SIZES))
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one_size(options.one, options.images)))
        return
    under = environment()
    result = {
        "sizes": [apart(name, options.images) for name in SIZES],
        "first_fill_images": options.fill,
        "first_fill_s": round(first_fill(options.fill), 1),
        "asked_fill_s": ASKED_FILL_S,
    } | under
    if options.dry:
        report(result)
    else:
        write("images", result)


if __name__ == "__main__":
    main()

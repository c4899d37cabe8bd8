"""How long the default preset trains on images, when nobody says."""

from __future__ import annotations

__all__ = ["fitting_image_networks"]

import math
from dataclasses import replace

from mcflow.config import Settings

#: Images that a fit sees, and the fewest and the most passes that this may take.
IMAGES_SEEN, FEWEST_PASSES, MOST_PASSES = 120_000, 2, 60

#: Channels of H at its first scale, and for images with a side below this half as many.
WIDTH, SMALL_SIDE = 32, 12


def fitting_image_networks(settings: Settings, n_images: int, size: tuple[int, int]) -> Settings:
    """Replace what is left open (0) in settings of the default preset by what fits the images.

    Parameters
    ----------
    settings : Settings
        Width and epochs are found where they are 0; a batch is never larger than a quarter of the images.
    n_images : int
        Of the fit.
    size : tuple of int
        Their height and width.

    Returns
    -------
    Settings

    Examples
    --------
    >>> from mcflow.config import IMAGE_PRESETS
    >>> fitting_image_networks(IMAGE_PRESETS["default"], 60_000, (28, 28)).train.max_epochs
    2
    """
    latent, train = settings.latent, settings.train
    passes = min(max(math.ceil(IMAGES_SEEN / n_images), FEWEST_PASSES), MOST_PASSES)
    width = latent.width or (WIDTH if min(size) >= SMALL_SIDE else WIDTH // 2)
    batch_size = max(1, min(train.batch_size, n_images // 4))
    return replace(
        settings,
        latent=replace(latent, width=width),
        train=replace(train, batch_size=batch_size, max_epochs=train.max_epochs or passes),
    )

"""Sizes that fit a table: how wide, how many, how long."""

from __future__ import annotations

__all__ = ["fitting", "fitting_images"]

import math
from dataclasses import replace

from mcflow.config import PRESETS, Settings, TrainConfig

#: Steps of training for the root of the number of rows, with one network and with several.
STEPS_PER_ROOT, STEPS_OF_SEVERAL = 80, 60

#: Rows and columns up to which networks have a width, and how many there are: the first line that fits. Networks side
#: by side err differently, which helps most where there is little to learn from or much noise; otherwise one that
#: learns longer costs less.
SIZES = (
    (2_000, 32, 64, 8),
    (2_000, math.inf, 64, 4),
    (10_000, 32, 128, 4),
    (10_000, math.inf, 128, 2),
    (math.inf, 20, 256, 1),
    (math.inf, 32, 192, 2),
    (math.inf, math.inf, 384, 1),
)

#: Numbers that the first layer reads, and that the last one gives, at most; a column has a few in any case.
MOST_PLACES = 4096
FEWEST_KNOTS, FEWEST_POINTS = 4, 8

#: The paper's rate for images of which more than a share is missing, and that share.
SPARSE_RATE, SPARSE = 1e-3, 0.6

#: The paper's batch for images of as many numbers as its faces, 32 × 32 in three colours, or more.
MANY_NUMBERS, BATCH_OF_MANY = 32 * 32 * 3, 512

#: Numbers of a row for which the paper preset's λ is meant.
NUMBERS_OF_A_ROW = 16


def fitting(settings: Settings, n_rows: int, n_columns: int) -> Settings:
    """Return the settings with a number in place of every size that was left open.

    Parameters
    ----------
    settings : Settings
        Zero where a size is to be found.
    n_rows, n_columns : int
        Of the table.

    Returns
    -------
    Settings

    Examples
    --------
    >>> from mcflow.config import PRESETS
    >>> fitting(PRESETS["default"], 300, 5).latent.n_members
    8
    """
    latent, train = settings.latent, settings.train
    width, n_members = next((w, m) for rows, columns, w, m in SIZES if n_rows <= rows and n_columns <= columns)
    share = MOST_PLACES // max(n_columns, 1)
    latent = replace(
        latent,
        width=latent.width or width,
        n_members=latent.n_members or n_members,
        n_knots=min(latent.n_knots, max(share // 2, FEWEST_KNOTS)),
        n_points=min(latent.n_points, max(share, FEWEST_POINTS)),
    )
    batch_size = max(1, min(train.batch_size, n_rows // 4))
    n_steps = (STEPS_PER_ROOT if latent.n_members == 1 else STEPS_OF_SEVERAL) * math.sqrt(n_rows)
    n_epochs = train.max_epochs or math.ceil(n_steps / math.ceil(n_rows / batch_size))
    return replace(settings, latent=latent, train=replace(train, batch_size=batch_size, max_epochs=n_epochs))


def fitting_images(settings: Settings, n_numbers: int, missing_share: float) -> Settings:
    """Return the paper's settings for images: its batch, its rate, and λ for their size.

    Parameters
    ----------
    settings : Settings
        Batch, rate and λ are found where they are zero or those of the preset "paper", which are meant for tables.
    n_numbers : int
        Pixels times channels of an image.
    missing_share : float
        Of the pixels.

    Returns
    -------
    Settings

    Notes
    -----
    The paper leaves λ open. The squared error is a mean over pixels and the log-density a sum over them, so λ is
    divided by their number to keep the two in the proportion that they have in a table.

    Examples
    --------
    >>> fitting_images(PRESETS["paper"], 784, 0.7).train.learning_rate
    0.001
    """
    unsaid = PRESETS["paper"].train
    found = {
        "batch_size": BATCH_OF_MANY if n_numbers >= MANY_NUMBERS else unsaid.batch_size,
        "learning_rate": SPARSE_RATE if missing_share > SPARSE else unsaid.learning_rate,
        "likelihood_weight": unsaid.likelihood_weight * NUMBERS_OF_A_ROW / max(n_numbers, NUMBERS_OF_A_ROW),
    }
    return replace(settings, train=_with(settings.train, unsaid, found))


def _with(given: TrainConfig, unsaid: TrainConfig, found: dict[str, float]) -> TrainConfig:
    """Return what was given, with what was found where nothing was said."""
    left_open = {k: v for k, v in found.items() if getattr(given, k) in (0, getattr(unsaid, k))}
    return replace(given, **left_open)  # type: ignore[arg-type]

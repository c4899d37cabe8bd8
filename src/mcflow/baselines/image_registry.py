"""The baselines for images by name."""

from __future__ import annotations

__all__ = ["IMAGE_BASELINES", "make_image_baseline"]

from typing import Any

from mcflow.baselines.registry import make_from
from mcflow.imputers.image_base import ImageImputer
from mcflow.typing import RandomState

#: Where each baseline is; a module is imported when its method is asked for.
IMAGE_BASELINES = {
    "mean": "image_simple:MeanImageImputer",
    "nearest": "image_simple:NearestImageImputer",
    "gain": "gain_images:GainImageImputer",
    "misgan": "misgan_images:MisGANImageImputer",
}


def make_image_baseline(name: str, *, random_state: RandomState = None, **parameters: Any) -> ImageImputer:
    """Return an imputer of images by its name, not fitted yet.

    Parameters
    ----------
    name : str
        A key of `IMAGE_BASELINES`.
    random_state : int, Generator, RandomState or None, default=None
        Decides everything that is random.
    **parameters : object
        Arguments of the imputer, such as ``max_epochs`` of "gain".

    Returns
    -------
    ImageImputer

    Raises
    ------
    ParameterError
        When there is no such name or argument.

    Examples
    --------
    >>> import numpy as np
    >>> make_image_baseline("mean").fit_transform(np.array([[[0.5, 1.0]], [[np.nan, 0.0]]])).tolist()
    [[[0.5, 1.0]], [[0.5, 0.0]]]
    """
    imputer: ImageImputer = make_from(IMAGE_BASELINES, name, of=" for images", random_state=random_state, **parameters)
    return imputer

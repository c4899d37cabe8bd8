"""Methods for images by name; those for tables are `mcflow.baselines` and its entry points."""

from __future__ import annotations

__all__ = ["IMAGE_METHODS", "build_for_images", "make_image_baseline"]

from typing import TYPE_CHECKING, Any

from mcflow.evaluation.methods import MethodSpec, build_mcflow, build_own
from mcflow.typing import RandomState

if TYPE_CHECKING:
    from mcflow.imputers.image import ImageImputer

#: Where each baseline for images is defined; its module is imported when the method is asked for.
IMAGE_METHODS = {
    "mean": "mcflow_bench.rivals.image_simple:MeanImageImputer",
    "nearest": "mcflow_bench.rivals.image_simple:NearestImageImputer",
    "gain": "mcflow_bench.rivals.gain_images:GainImageImputer",
    "misgan": "mcflow_bench.rivals.misgan_images:MisGANImageImputer",
}


def make_image_baseline(name: str, *, random_state: RandomState = None, **parameters: Any) -> ImageImputer:
    """Return an unfitted imputer of images by its name.

    Examples
    --------
    >>> import numpy as np
    >>> make_image_baseline("mean").fit_transform(np.array([[[0.5, 1.0]], [[np.nan, 0.0]]])).tolist()
    [[[0.5, 1.0]], [[0.5, 0.0]]]
    """
    from mcflow.baselines import make_from

    imputer: ImageImputer = make_from(IMAGE_METHODS, name, of=" for images", random_state=random_state, **parameters)
    return imputer


def build_for_images(spec: MethodSpec, seed: int) -> Any:
    """Return the unfitted imputer of images that a method of a benchmark names.

    Examples
    --------
    >>> build_for_images(MethodSpec.parse("gain(max_epochs=3)"), 0)
    GainImageImputer(max_epochs=3, random_state=0)
    """
    family, _, rest = spec.name.partition(":")
    own = dict(spec.parameters)
    if family == "python":
        return build_own(rest, seed, own)
    if family == "mcflow":
        from mcflow.imputers.image import MCFlowImageImputer

        return build_mcflow(MCFlowImageImputer, rest, {"random_state": seed} | own)
    return make_image_baseline(spec.name, **({"random_state": seed} | own))

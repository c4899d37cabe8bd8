"""Baseline imputers by name, with the same interface as `MCFlowImputer`."""

from __future__ import annotations

__all__ = ["NAMES", "Baseline", "make"]

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from mcflow.baselines.base import Baseline
from mcflow.errors import ParameterError, did_you_mean
from mcflow.installation import install_bench
from mcflow.typing import RandomState

#: Module and class of each baseline; modules are imported on demand.
_CLASSES = {
    "mean": "mcflow.baselines.simple:MeanImputer",
    "median": "mcflow.baselines.simple:MedianImputer",
    "knn": "mcflow.baselines.neighbours:NeighboursImputer",
    "mice": "mcflow.baselines.mice:MiceImputer",
    "missforest": "mcflow.baselines.trees:MissForestImputer",
    "boosted": "mcflow.baselines.trees:BoostedImputer",
    "em": "mcflow.baselines.em:GaussianImputer",
}

#: Names of the baselines of mcflow; other distributions, such as mcflow-bench, add theirs by entry points.
NAMES = tuple(_CLASSES)

#: Names that mcflow-bench adds, for the error message when it is not installed.
_BENCH_NAMES = ("softimpute", "autoencoder", "gain", "misgan")


def make(name: str, *, random_state: RandomState = None, **parameters: Any) -> Baseline:
    """Create a baseline imputer by name.

    Parameters
    ----------
    name : str
        One of `NAMES`, or a name that an installed distribution adds.
    random_state : int, Generator, RandomState or None, default=None
        Source of randomness.
    **parameters : object
        Parameters of the imputer, such as ``n_neighbors`` of "knn".

    Returns
    -------
    Baseline
        The imputer, not fitted.

    Raises
    ------
    ParameterError
        When the name or a parameter is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.baselines import make
    >>> make("mean").fit_transform(np.array([[1.5, 2.0], [np.nan, 4.0], [2.5, 5.0]]))
    array([[1.5, 2. ],
           [2. , 4. ],
           [2.5, 5. ]])
    """
    classes = _CLASSES | {entry.name: entry.value for entry in entry_points(group="mcflow.baselines")}
    if name in _BENCH_NAMES and name not in classes:
        raise ParameterError(f"{name!r} needs mcflow-bench: {install_bench()}")
    baseline: Baseline = make_from(classes, name, random_state=random_state, **parameters)
    return baseline


def make_from(
    classes: Mapping[str, str], name: str, *, of: str = "", random_state: RandomState = None, **parameters: Any
) -> Any:
    """Create an imputer by its name in a mapping of names to "module:class"."""
    if name not in classes:
        names, hint = ", ".join(classes), did_you_mean(name, classes)
        raise ParameterError(f"There is no baseline {name!r}{of}. Available are {names}.{hint}")
    module, _, attribute = classes[name].partition(":")
    kind = getattr(import_module(module), attribute)
    known = kind._get_param_names()
    for given in parameters:
        if given not in known:
            hint = did_you_mean(given, known)
            raise ParameterError(f"{name!r} has no argument {given!r}. It has {', '.join(known)}.{hint}")
    return kind(random_state=random_state, **parameters)

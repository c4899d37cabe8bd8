"""The baselines by name."""

from __future__ import annotations

__all__ = ["NAMES", "make"]

from importlib import import_module
from typing import Any

from mcflow.baselines.base import Baseline
from mcflow.errors import ParameterError, did_you_mean
from mcflow.typing import RandomState

#: Where each baseline is; a module is imported when its method is asked for.
_PLACES = {
    "mean": "simple:MeanImputer",
    "median": "simple:MedianImputer",
    "knn": "neighbours:NeighboursImputer",
    "mice": "mice:MiceImputer",
    "missforest": "trees:MissForestImputer",
    "boosted": "trees:BoostedImputer",
    "softimpute": "softimpute:SoftImputer",
    "em": "em:NormalImputer",
    "autoencoder": "autoencoder:AutoencoderImputer",
    "gain": "gain:GainImputer",
    "misgan": "misgan:MisganImputer",
}

#: The names that `make` knows.
NAMES = tuple(_PLACES)


def make(name: str, *, random_state: RandomState = None, **parameters: Any) -> Baseline:
    """Return an imputer by its name, not fitted yet.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    random_state : int, Generator, RandomState or None, default=None
        Decides everything that is random.
    **parameters : object
        Arguments of the imputer, such as ``n_neighbors`` of "knn".

    Returns
    -------
    Baseline

    Raises
    ------
    ParameterError
        When there is no such name or argument.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.baselines import make
    >>> make("mean").fit_transform(np.array([[1.5, 2.0], [np.nan, 4.0], [2.5, 5.0]]))
    array([[1.5, 2. ],
           [2. , 4. ],
           [2.5, 5. ]])
    """
    if name not in _PLACES:
        raise ParameterError(f"There is no baseline {name!r}. Known are {', '.join(NAMES)}.{did_you_mean(name, NAMES)}")
    module, _, attribute = _PLACES[name].partition(":")
    kind: type[Baseline] = getattr(import_module(f"mcflow.baselines.{module}"), attribute)
    known = kind._get_param_names()
    for given in parameters:
        if given not in known:
            hint = did_you_mean(given, known)
            raise ParameterError(f"{name!r} has no argument {given!r}. It has {', '.join(known)}.{hint}")
    return kind(random_state=random_state, **parameters)

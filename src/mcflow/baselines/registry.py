"""The baselines by name."""

from __future__ import annotations

__all__ = ["NAMES", "make", "make_from"]

from collections.abc import Mapping
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
    baseline: Baseline = make_from(_PLACES, name, random_state=random_state, **parameters)
    return baseline


def make_from(
    places: Mapping[str, str], name: str, *, of: str = "", random_state: RandomState = None, **parameters: Any
) -> Any:
    """Return an imputer by its name in a table of names, not fitted yet.

    Parameters
    ----------
    places : mapping
        By name, a module of this package and a class in it, with a colon between.
    name : str
        One of its keys.
    of : str
        What they are for, to be said after "baseline" in messages.
    random_state : int, Generator, RandomState or None, default=None
        Decides everything that is random.
    **parameters : object
        Arguments of the imputer.

    Returns
    -------
    estimator

    Raises
    ------
    ParameterError
        When there is no such name or argument.
    """
    if name not in places:
        names, hint = ", ".join(places), did_you_mean(name, places)
        raise ParameterError(f"There is no baseline {name!r}{of}. Known are {names}.{hint}")
    module, _, attribute = places[name].partition(":")
    kind = getattr(import_module(f"mcflow.baselines.{module}"), attribute)
    known = kind._get_param_names()
    for given in parameters:
        if given not in known:
            hint = did_you_mean(given, known)
            raise ParameterError(f"{name!r} has no argument {given!r}. It has {', '.join(known)}.{hint}")
    return kind(random_state=random_state, **parameters)

"""Loops of regressions over the columns, by scikit-learn's `IterativeImputer`."""

from __future__ import annotations

__all__ = ["loop"]

from typing import Any

from mcflow.errors import ParameterError, did_you_mean

#: Names of the loops.
LOOPS = ("ridge", "boosted", "forest")


def loop(name: str, random_state: int = 0) -> Any:
    """Return an `IterativeImputer` with Bayesian ridge regressions, boosted trees or random forests.

    Examples
    --------
    >>> loop("ridge").max_iter
    20
    """
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    if name == "ridge":
        return IterativeImputer(max_iter=20, random_state=random_state)
    if name == "boosted":
        return IterativeImputer(HistGradientBoostingRegressor(max_iter=200), max_iter=4, random_state=random_state)
    if name == "forest":
        forest = RandomForestRegressor(100, n_jobs=-1, max_features="sqrt", random_state=random_state)
        return IterativeImputer(forest, max_iter=4, random_state=random_state)
    raise ParameterError(f"There is no loop {name!r}. Known are {', '.join(LOOPS)}.{did_you_mean(name, LOOPS)}")

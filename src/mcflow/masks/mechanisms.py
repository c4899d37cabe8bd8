"""Ways for cells to go missing: at random, by other columns, or by their own value."""

from __future__ import annotations

__all__ = ["mar", "mcar", "mnar_logistic", "mnar_quantile", "mnar_self", "probabilities"]

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mcflow.config import Interval, Options
from mcflow.errors import ParameterError, did_you_mean
from mcflow.masks.scores import CodedTable, read_coded
from mcflow.random import seed_from
from mcflow.typing import BoolArray, FloatArray, RandomState

#: What each parameter may be, and what to give.
_CONSTRAINTS: dict[str, tuple[Interval | Options, str]] = {
    "rate": (Interval(float, 0, 1), "Give the share of observed cells to hide, such as 0.2."),
    "strength": (Interval(float, -100, 100), "Give 1 for a mild dependence, 3 for a strong one, 0 for none."),
    "tail": (Interval(float, 0, 1, low_open=True), "Give the share of a column's values that may be hidden."),
    "side": (Options(("upper", "lower", "both")), "Say which values may be hidden."),
    "observed": (
        Interval(float, 0, 1, low_open=True),
        "Give the share of columns that drive the others, or a list of their names.",
    ),
}


def mcar(frame: Any, rate: float, random_state: RandomState = None) -> BoolArray:
    """Hide cells completely at random: every observed cell has the same chance.

    Parameters
    ----------
    frame : array-like or data frame of shape (n_rows, n_columns)
        numpy, pandas, polars or pyarrow.
    rate : float
        The expected share of observed cells to hide, from 0 to 1.
    random_state : int, numpy Generator, numpy RandomState or None, default=None
        An int gives the same mask every time.

    Returns
    -------
    ndarray of bool of shape (n_rows, n_columns)
        True where a cell is to be hidden, never where it is missing already.

    Raises
    ------
    ParameterError
        When a parameter is not allowed.
    DataError
        When `frame` is not a table.

    Examples
    --------
    >>> import numpy as np
    >>> mask = mcar(np.zeros((1000, 4)), 0.2, random_state=0)
    >>> mask.shape, bool(abs(mask.mean() - 0.2) < 0.03)
    ((1000, 4), True)
    """
    return _draw("mcar", frame, rate, random_state)


def mar(
    frame: Any,
    rate: float,
    random_state: RandomState = None,
    *,
    observed: float | Sequence[Any] = 0.3,
    strength: float = 1.0,
) -> BoolArray:
    """Hide cells at random given other columns: some columns stay whole and drive the holes of the others.

    Parameters
    ----------
    frame, rate, random_state
        See `mcar`. The rate is that of the whole table, so columns with holes have a higher one.
    observed : float or list, default=0.3
        The share of columns that stay whole, at least one, chosen at random among those that vary; or their names,
        positions for numpy.
    strength : float, default=1.0
        The standard deviation of the log-odds of being hidden, from -100 to 100; 0 is a constant chance.

    Returns
    -------
    ndarray of bool of shape (n_rows, n_columns)
        True where a cell is to be hidden; nowhere in the columns that stay whole.

    Raises
    ------
    ParameterError
        When a parameter is not allowed, or the columns with holes have too few cells for the rate.
    DataError
        When `frame` is not a table.

    Notes
    -----
    A cell of row i and column j is hidden with probability σ(s·wⱼᵀzᵢ + bⱼ): z are the standardised columns that stay
    whole, w normal weights scaled so that wᵀz has standard deviation 1 (as Muzellec et al., "Missing Data Imputation
    using Optimal Transport", 2020), s the strength, and b is found by bisection so that the mean is the rate. A cell
    of z that is missing already counts as the mean of its column.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(1000, 3))
    >>> mask = mar(rows, 0.2, random_state=0, observed=[0], strength=3)
    >>> bool(mask[:, 0].any()), bool(abs(mask.mean() - 0.2) < 0.03)
    (False, True)
    """
    return _draw("mar", frame, rate, random_state, observed=observed, strength=strength)


def mnar_self(frame: Any, rate: float, random_state: RandomState = None, *, strength: float = 1.0) -> BoolArray:
    """Hide cells by their own value: the higher it is, the likelier it is hidden.

    Parameters
    ----------
    frame, rate, random_state
        See `mcar`. Every column has the same rate.
    strength : float, default=1.0
        What one standard deviation adds to the log-odds of being hidden, from -100 to 100; below 0 hides low values.

    Returns
    -------
    ndarray of bool of shape (n_rows, n_columns)
        True where a cell is to be hidden.

    Raises
    ------
    ParameterError
        When a parameter is not allowed.
    DataError
        When `frame` is not a table.

    Notes
    -----
    A cell is hidden with probability σ(s·z + b), where z is its standardised value.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(1000, 1))
    >>> mask = mnar_self(rows, 0.3, random_state=0, strength=3)
    >>> bool(rows[mask].mean() > 0.5)
    True
    """
    return _draw("mnar_self", frame, rate, random_state, strength=strength)


def mnar_logistic(
    frame: Any,
    rate: float,
    random_state: RandomState = None,
    *,
    observed: float | Sequence[Any] = 0.3,
    strength: float = 1.0,
) -> BoolArray:
    """Hide cells as `mar` does, and hide cells of the columns that drive it, too.

    Parameters
    ----------
    frame, rate, random_state
        See `mcar`. Every column has the same rate.
    observed : float or list, default=0.3
        The columns that drive the others, as in `mar`. Their own cells are hidden completely at random, so that what
        explains a hole may be hidden itself.
    strength : float, default=1.0
        As in `mar`.

    Returns
    -------
    ndarray of bool of shape (n_rows, n_columns)
        True where a cell is to be hidden.

    Raises
    ------
    ParameterError
        When a parameter is not allowed.
    DataError
        When `frame` is not a table.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(1000, 3))
    >>> mask = mnar_logistic(rows, 0.2, random_state=0)
    >>> bool(mask.any(axis=0).all())
    True
    """
    return _draw("mnar_logistic", frame, rate, random_state, observed=observed, strength=strength)


def mnar_quantile(
    frame: Any, rate: float, random_state: RandomState = None, *, tail: float = 0.5, side: str = "upper"
) -> BoolArray:
    """Hide cells of a column's tail only, all of them with the same chance.

    Parameters
    ----------
    frame, rate, random_state
        See `mcar`. Every column has the same rate, which `tail` must not be below.
    tail : float, default=0.5
        The share of a column's observed cells that may be hidden.
    side : {"upper", "lower", "both"}, default="upper"
        Which ones: the highest, the lowest, or half of them on either side.

    Returns
    -------
    ndarray of bool of shape (n_rows, n_columns)
        True where a cell is to be hidden.

    Raises
    ------
    ParameterError
        When a parameter is not allowed.
    DataError
        When `frame` is not a table.

    Notes
    -----
    Where equal values straddle the end of the tail, they share what is left of it: the chance of each is lower, and
    the mean is still the rate.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.arange(1000.0)[:, None]
    >>> mask = mnar_quantile(rows, 0.1, random_state=0, tail=0.25)
    >>> bool(rows[mask].min() >= 750)
    True
    """
    return _draw("mnar_quantile", frame, rate, random_state, tail=tail, side=side)


def probabilities(
    mechanism: str, frame: Any, rate: float, random_state: RandomState = None, **settings: Any
) -> FloatArray:
    """Return every cell's chance of being hidden, from which a mask is drawn.

    Parameters
    ----------
    mechanism : {"mcar", "mar", "mnar_self", "mnar_logistic", "mnar_quantile"}
        The function whose mask it is about.
    frame, rate, random_state
        See `mcar`. The same int gives the chances behind the mask.
    **settings : object
        Keyword arguments of that function.

    Returns
    -------
    ndarray of shape (n_rows, n_columns)
        0 where a cell is missing already. The mean over observed cells is the rate.

    Raises
    ------
    ParameterError
        When a parameter is not allowed.
    DataError
        When `frame` is not a table.

    Examples
    --------
    >>> import numpy as np
    >>> chances = probabilities("mnar_self", np.arange(5.0)[:, None], 0.3, strength=2)
    >>> chances.ravel().round(2).tolist(), round(float(chances.mean()), 9)
    ([0.01, 0.05, 0.18, 0.47, 0.79], 0.3)
    """
    return _chances(mechanism, frame, rate, np.random.default_rng(seed_from(random_state)), settings)


def _draw(mechanism: str, frame: Any, rate: float, random_state: RandomState, **settings: Any) -> BoolArray:
    rng = np.random.default_rng(seed_from(random_state))
    chances = _chances(mechanism, frame, rate, rng, settings)
    mask: BoolArray = rng.random(chances.shape) < chances
    return mask


def _chances(mechanism: str, frame: Any, rate: float, rng: np.random.Generator, settings: dict[str, Any]) -> FloatArray:
    if mechanism not in _MECHANISMS:
        hint = did_you_mean(mechanism, _MECHANISMS)
        raise ParameterError(f"mechanism is {mechanism!r}, but has to be one of {', '.join(_MECHANISMS)}.{hint}")
    known = list(inspect.signature(_MECHANISMS[mechanism]).parameters)[3:]
    for name, value in {"rate": rate, **settings}.items():
        if name not in ("rate", *known):
            allowed = f"its settings are {', '.join(known)}" if known else "it has none"
            raise ParameterError(f"{name!r} is not a setting of {mechanism}; {allowed}.{did_you_mean(name, known)}")
        if name != "observed" or not _is_list(value):
            _check(name, value)
    return _MECHANISMS[mechanism](read_coded(frame), float(rate), rng, **settings)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def _check(name: str, value: object) -> None:
    constraint, advice = _CONSTRAINTS[name]
    if not constraint.allows(value):
        hint = did_you_mean(value, constraint.words) if isinstance(constraint, Options) else ""
        raise ParameterError(f"{name} is {value!r}, but has to be {constraint}. {advice}{hint}")


def _mcar(table: CodedTable, rate: float, rng: np.random.Generator) -> FloatArray:
    return np.where(table.seen, rate, 0.0)


def _mar(
    table: CodedTable, rate: float, rng: np.random.Generator, observed: Any = 0.3, strength: float = 1.0
) -> FloatArray:
    drivers = _drivers(table, observed, rng)
    n_cells, n_driven = int(table.seen.sum()), int(table.seen[:, ~drivers].sum())
    if rate * n_cells > n_driven:
        raise ParameterError(
            f"rate is {rate!r}, but with {drivers.sum()} of {len(drivers)} columns always observed only "
            f"{n_driven / n_cells:.3g} of the observed cells can be hidden. Lower rate or observed."
        )
    rates = np.where(drivers, 0.0, rate * n_cells / max(n_driven, 1))
    return _logistic(table, strength * _driven(table, drivers, rng), rates)


def _mnar_self(table: CodedTable, rate: float, rng: np.random.Generator, strength: float = 1.0) -> FloatArray:
    return _logistic(table, strength * table.scores, np.full(len(table.names), rate))


def _mnar_logistic(
    table: CodedTable, rate: float, rng: np.random.Generator, observed: Any = 0.3, strength: float = 1.0
) -> FloatArray:
    drivers = _drivers(table, observed, rng)
    return _logistic(table, strength * _driven(table, drivers, rng), np.full(len(drivers), rate))


def _mnar_quantile(
    table: CodedTable, rate: float, rng: np.random.Generator, tail: float = 0.5, side: str = "upper"
) -> FloatArray:
    if rate > tail:
        raise ParameterError(
            f"rate is {rate!r}, but only tail={tail!r} of the cells can be hidden. Lower rate or raise tail."
        )
    chances = np.zeros_like(table.codes)
    for place, seen in enumerate(table.seen.T):
        if seen.any():
            chances[seen, place] = rate / tail * _in_tail(table.codes[seen, place], tail, side)
    return np.minimum(chances, 1.0)


def _in_tail(values: FloatArray, tail: float, side: str) -> FloatArray:
    """Return 1 inside the tail, 0 outside, and a part of 1 for equal values at its end; the mean is `tail`."""
    if side == "both":
        return _in_tail(values, tail / 2, "upper") + _in_tail(values, tail / 2, "lower")
    outward = values if side == "upper" else -values
    _, places, counts = np.unique(outward, return_inverse=True, return_counts=True)
    further = len(values) - np.cumsum(counts)
    parts: FloatArray = np.clip((tail * len(values) - further) / counts, 0.0, 1.0)
    return parts[places]


_MECHANISMS: dict[str, Callable[..., FloatArray]] = {
    "mcar": _mcar,
    "mar": _mar,
    "mnar_self": _mnar_self,
    "mnar_logistic": _mnar_logistic,
    "mnar_quantile": _mnar_quantile,
}


def _drivers(table: CodedTable, observed: Any, rng: np.random.Generator) -> BoolArray:
    """Return which columns drive the others, of shape (n_columns,)."""
    drivers = np.zeros(len(table.names), dtype=bool)
    if _is_list(observed):
        drivers[[_position(table, name) for name in observed]] = True
    else:
        order = rng.permutation(len(drivers))
        varied = np.ptp(table.scores, axis=0)[order] > 0
        count = max(1, round(observed * len(drivers)))
        drivers[order[np.argsort(~varied, kind="stable")][:count]] = True
    if drivers.all() or not drivers.any():
        raise ParameterError(
            f"observed is {observed!r}, which is {drivers.sum()} of the table's {len(drivers)} column(s), but at least "
            "one column has to drive and one to be driven. Change observed, or give a table with more columns."
        )
    return drivers


def _position(table: CodedTable, name: Any) -> int:
    if name not in table.names:
        hint = did_you_mean(name, map(str, table.names))
        raise ParameterError(f"observed names the column {name!r}, which the table does not have.{hint}")
    return table.names.index(name)


def _driven(table: CodedTable, drivers: BoolArray, rng: np.random.Generator) -> FloatArray:
    """Mix the drivers into a score of standard deviation 1 for each other column, (n_rows, n_columns); 0 for them."""
    weights = rng.normal(size=(int(drivers.sum()), len(drivers)))
    mixed: FloatArray = table.scores[:, drivers] @ weights
    mixed[:, drivers] = 0.0
    spread = mixed.std(axis=0)
    return mixed / np.where(spread > 0, spread, 1.0)


def _logistic(table: CodedTable, scores: FloatArray, rates: FloatArray) -> FloatArray:
    """Return σ(score + intercept), with each column's intercept such that its mean over observed cells is its rate."""
    chances = np.zeros_like(scores)
    for place, seen in enumerate(table.seen.T):
        rate = float(rates[place])
        if not seen.any() or rate <= 0:
            continue
        shifted = scores[seen, place] + _intercept(scores[seen, place], rate) if rate < 1 else np.inf
        chances[seen, place] = _sigmoid(shifted)
    return chances


def _sigmoid(values: Any) -> Any:
    return 0.5 + 0.5 * np.tanh(0.5 * values)


def _intercept(scores: FloatArray, rate: float, tolerance: float = 1e-12) -> float:
    """Find b by bisection so that the mean of σ(scores + b) is `rate`."""
    odds = math.log(rate) - math.log1p(-rate)
    low, high = odds - float(scores.max()), odds - float(scores.min())
    middle = (low + high) / 2
    while low < middle < high:
        excess = float(_sigmoid(scores + middle).mean()) - rate
        if abs(excess) <= tolerance:
            break
        low, high = (low, middle) if excess > 0 else (middle, high)
        middle = (low + high) / 2
    return middle

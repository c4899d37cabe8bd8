"""Missing-data mechanisms: missing completely at random, at random given other columns, and not at random."""

from __future__ import annotations

__all__ = ["mar", "mcar", "mnar_logistic", "mnar_quantile", "mnar_self", "probabilities"]

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.random import Generator

from mcflow.columns.frames import Frame, is_text, is_time, read_frame, whole_counts
from mcflow.config import Interval, Options, check_parameter
from mcflow.errors import ParameterError, did_you_mean
from mcflow.random import seed_from
from mcflow.typing import BoolArray, FloatArray, RandomState

#: Constraint of each parameter, and advice for its error message.
_CONSTRAINTS: dict[str, tuple[Interval | Options, str]] = {
    "rate": (Interval(float, 0, 1), "Give the fraction of observed cells to hide, such as 0.2."),
    "strength": (Interval(float, -100, 100), "Give 1 for a mild dependence, 3 for a strong one, 0 for none."),
    "tail": (Interval(float, 0, 1, low_open=True), "Give the fraction of a column's values that may be hidden."),
    "side": (Options(("upper", "lower", "both")), "Give the side whose values may be hidden."),
    "observed": (
        Interval(float, 0, 1, low_open=True),
        "Give the fraction of columns that drive the others, or a list of their names.",
    ),
}


def mcar(frame: Any, rate: float, random_state: RandomState = None) -> BoolArray:
    """Hide cells completely at random: every observed cell has the same probability.

    Parameters
    ----------
    frame : array-like or data frame of shape (n_rows, n_columns)
        A numpy, pandas, polars or pyarrow table.
    rate : float
        Expected fraction of observed cells to hide, from 0 to 1.
    random_state : int, numpy Generator, numpy RandomState or None, default=None
        Source of randomness; an int gives the same mask every time.

    Returns
    -------
    ndarray of bool of shape (n_rows, n_columns)
        True for cells to hide; False for cells that are missing already.

    Raises
    ------
    ParameterError
        When a parameter is invalid.
    DataError
        When `frame` is not a table.

    Examples
    --------
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
    """Hide cells at random given other columns: some columns stay complete and drive the missingness of the others.

    Parameters
    ----------
    frame, rate, random_state
        As for `mcar`, as are the result and the errors. The rate applies to the whole table, so it is higher in the
        columns with hidden cells, which must have enough of them.
    observed : float or list, default=0.3
        Fraction of columns that stay complete, at least one, chosen at random among those that vary; or a list of
        their names, positions for numpy.
    strength : float, default=1.0
        Standard deviation of the log-odds of being hidden, from -100 to 100; 0 for constant probabilities.

    Notes
    -----
    The cell of row i and column j is hidden with probability σ(s·wⱼᵀzᵢ + bⱼ), where z are the standardised complete
    columns, w Gaussian weights scaled so that wᵀz has standard deviation 1 (as in Muzellec et al., "Missing Data
    Imputation using Optimal Transport", 2020), s is the strength, and b is found by bisection so that the mean
    probability is the rate. A missing cell of z counts as the mean of its column.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(1000, 3))
    >>> mask = mar(rows, 0.2, random_state=0, observed=[0], strength=3)
    >>> bool(mask[:, 0].any()), bool(abs(mask.mean() - 0.2) < 0.03)
    (False, True)
    """
    return _draw("mar", frame, rate, random_state, observed=observed, strength=strength)


def mnar_self(frame: Any, rate: float, random_state: RandomState = None, *, strength: float = 1.0) -> BoolArray:
    """Hide cells by their own value: higher values are more likely to be hidden.

    Parameters
    ----------
    frame, rate, random_state
        As for `mcar`, as are the result and the errors. Every column has the same rate.
    strength : float, default=1.0
        Increase of the log-odds of being hidden per standard deviation, from -100 to 100; negative hides low values.

    Notes
    -----
    A cell is hidden with probability σ(s·z + b), where z is its standardised value.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(1000, 1))
    >>> mask = mnar_self(rows, 0.3, random_state=0, strength=3)
    >>> bool(rows[mask].mean() > 0.5)
    True
    """
    return _draw("mnar_self", frame, rate, random_state, strength=strength)


def mnar_logistic(frame: Any, rate: float, random_state: RandomState = None, **settings: Any) -> BoolArray:
    """Hide cells as `mar` does, and also cells of the columns that drive the missingness.

    The cells of these columns are hidden completely at random, so that the cause of a missing cell can be missing too.

    Parameters
    ----------
    frame, rate, random_state
        As for `mcar`, as are the result and the errors. Every column has the same rate.
    **settings : object
        `observed` and `strength`, as for `mar`.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(1000, 3))
    >>> mask = mnar_logistic(rows, 0.2, random_state=0)
    >>> bool(mask.any(axis=0).all())
    True
    """
    return _draw("mnar_logistic", frame, rate, random_state, **settings)


def mnar_quantile(
    frame: Any, rate: float, random_state: RandomState = None, *, tail: float = 0.5, side: str = "upper"
) -> BoolArray:
    """Hide cells in the tail of each column only, all with the same probability.

    Parameters
    ----------
    frame, rate, random_state
        As for `mcar`, as are the result and the errors. Every column has the same rate, which must not exceed `tail`.
    tail : float, default=0.5
        Fraction of a column's observed cells that may be hidden.
    side : {"upper", "lower", "both"}, default="upper"
        Whether the highest values, the lowest, or half of the tail on each side may be hidden.

    Notes
    -----
    Equal values at the boundary of the tail share the remaining probability, so that the mean is still the rate.

    Examples
    --------
    >>> rows = np.arange(1000.0)[:, None]
    >>> mask = mnar_quantile(rows, 0.1, random_state=0, tail=0.25)
    >>> bool(rows[mask].min() >= 750)
    True
    """
    return _draw("mnar_quantile", frame, rate, random_state, tail=tail, side=side)


def probabilities(
    mechanism: str, frame: Any, rate: float, random_state: RandomState = None, **settings: Any
) -> FloatArray:
    """Return the probability of each cell of being hidden by a mechanism.

    Parameters
    ----------
    mechanism : {"mcar", "mar", "mnar_self", "mnar_logistic", "mnar_quantile"}
        Name of the mechanism's function.
    frame, rate, random_state
        As for `mcar`, as are the errors. The same int gives the probabilities behind the mask.
    **settings : object
        Keyword arguments of the mechanism's function.

    Returns
    -------
    ndarray of shape (n_rows, n_columns)
        Probabilities with the rate as their mean over observed cells; 0 for cells that are missing already.

    Examples
    --------
    >>> found = probabilities("mnar_self", np.arange(5.0)[:, None], 0.3, strength=2)
    >>> found.ravel().round(2).tolist(), round(float(found.mean()), 9)
    ([0.01, 0.05, 0.18, 0.47, 0.79], 0.3)
    """
    return _probabilities(mechanism, frame, rate, np.random.default_rng(seed_from(random_state)), settings)


@dataclass(frozen=True)
class _Codes:
    """A table as numbers, NaN where missing: numbers and times as they are, categories and text by their rank."""

    names: list[Any]
    codes: FloatArray  # (n_rows, n_columns)

    @cached_property
    def seen(self) -> BoolArray:
        """Mask of the observed cells."""
        return ~np.isnan(self.codes)

    @cached_property
    def scores(self) -> FloatArray:
        """Codes standardised by column, 0 where missing."""
        scores = np.zeros_like(self.codes)
        for k, seen in enumerate(self.seen.T):
            if seen.any():
                scores[seen, k] = _standardise(self.codes[seen, k])
        return scores


def _standardise(values: FloatArray) -> FloatArray:
    finite = values[np.isfinite(values)]
    values = np.clip(values, finite.min(), finite.max()) if len(finite) else np.sign(values)
    if values.min() == values.max():
        return np.zeros_like(values)
    values = values / np.abs(values).max()  # the squares of very large numbers would overflow
    centred = values - values.mean()
    return np.asarray(centred / centred.std())


def _column_codes(frame: Frame, position: int) -> FloatArray:
    array, seen = frame.arrow(position), ~frame.missing(position)
    codes = np.full(frame.n_rows, np.nan)
    if array is None:  # cells of mixed types
        series = frame.series(position)
        codes[seen] = _text_codes(series if isinstance(series, np.ndarray) else series.to_list())[seen]
    elif seen.any():
        codes[seen] = _codes(array.drop_null())
    return codes


def _codes(array: pa.Array) -> FloatArray:
    """Encode a column without missing cells."""
    kind = array.type
    if is_time(kind):
        counts, _ = whole_counts(array)
        return np.asarray(counts - counts.min(), dtype=np.float64)
    if pa.types.is_dictionary(kind):
        # The order of unordered categories may depend on the order of rows, so they are ranked by value.
        return _floats(array.indices) if kind.ordered else _codes(array.dictionary_decode())
    if is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _floats(pc.rank(array, tiebreaker="dense"))
    try:
        return _floats(array)
    except pa.ArrowException:
        return _text_codes(array.to_pylist())


def _floats(array: pa.Array) -> FloatArray:
    if pa.types.is_time(array.type):
        array = array.cast(pa.int32() if pa.types.is_time32(array.type) else pa.int64())
    return np.array(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _text_codes(cells: Any) -> FloatArray:
    """Rank cells without an order of their own by their text."""
    return np.unique([repr(cell) for cell in cells], return_inverse=True)[1].astype(np.float64)


def _draw(mechanism: str, frame: Any, rate: float, random_state: RandomState, **settings: Any) -> BoolArray:
    rng = np.random.default_rng(seed_from(random_state))
    found = _probabilities(mechanism, frame, rate, rng, settings)
    return rng.random(found.shape) < found


def _probabilities(mechanism: str, frame: Any, rate: float, rng: Generator, settings: dict[str, Any]) -> FloatArray:
    if mechanism not in _MECHANISMS:
        hint = did_you_mean(mechanism, _MECHANISMS)
        raise ParameterError(f"mechanism is {mechanism!r}, but has to be one of {', '.join(_MECHANISMS)}.{hint}")
    known = list(inspect.signature(_MECHANISMS[mechanism]).parameters)[3:]
    for name, value in {"rate": rate, **settings}.items():
        if name not in ("rate", *known):
            allowed = f"its settings are {', '.join(known)}" if known else "it has none"
            raise ParameterError(f"{name!r} is not a setting of {mechanism}; {allowed}.{did_you_mean(name, known)}")
        if name != "observed" or not _is_list(value):
            check_parameter(name, value, *_CONSTRAINTS[name])
    table = read_frame(frame)
    codes = np.column_stack([_column_codes(table, position) for position in range(len(table.names))])
    return _MECHANISMS[mechanism](_Codes(table.names, codes), float(rate), rng, **settings)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def _mcar(table: _Codes, rate: float, rng: Generator) -> FloatArray:
    return np.where(table.seen, rate, 0.0)


def _mar(table: _Codes, rate: float, rng: Generator, observed: Any = 0.3, strength: float = 1.0) -> FloatArray:
    drivers = _drivers(table, observed, rng)
    n_cells, n_driven = int(table.seen.sum()), int(table.seen[:, ~drivers].sum())
    if rate * n_cells > n_driven:
        raise ParameterError(
            f"rate is {rate!r}, but with {drivers.sum()} of {len(drivers)} columns always observed, only "
            f"{n_driven / n_cells:.3g} of the observed cells can be hidden. Lower rate or observed."
        )
    rates = np.where(drivers, 0.0, rate * n_cells / max(n_driven, 1))
    return _logistic(table, strength * _driven(table, drivers, rng), rates)


def _mnar_self(table: _Codes, rate: float, rng: Generator, strength: float = 1.0) -> FloatArray:
    return _logistic(table, strength * table.scores, np.full(len(table.names), rate))


def _mnar_logistic(
    table: _Codes, rate: float, rng: Generator, observed: Any = 0.3, strength: float = 1.0
) -> FloatArray:
    drivers = _drivers(table, observed, rng)
    return _logistic(table, strength * _driven(table, drivers, rng), np.full(len(drivers), rate))


def _mnar_quantile(table: _Codes, rate: float, rng: Generator, tail: float = 0.5, side: str = "upper") -> FloatArray:
    if rate > tail:
        raise ParameterError(
            f"rate is {rate!r}, but only tail={tail!r} of the cells can be hidden. Lower rate or raise tail."
        )
    found = np.zeros_like(table.codes)
    for k, seen in enumerate(table.seen.T):
        if seen.any():
            found[seen, k] = rate / tail * _in_tail(table.codes[seen, k], tail, side)
    return np.minimum(found, 1.0)


def _in_tail(values: FloatArray, tail: float, side: str) -> FloatArray:
    """Return 1 inside the tail, 0 outside, and a fraction for equal values at its boundary; the mean is `tail`."""
    if side == "both":
        return _in_tail(values, tail / 2, "upper") + _in_tail(values, tail / 2, "lower")
    outward = values if side == "upper" else -values
    _, ranks, counts = np.unique(outward, return_inverse=True, return_counts=True)
    further = len(values) - np.cumsum(counts)
    return np.asarray(np.clip((tail * len(values) - further) / counts, 0.0, 1.0))[ranks]


_MECHANISMS: dict[str, Callable[..., FloatArray]] = {
    "mcar": _mcar,
    "mar": _mar,
    "mnar_self": _mnar_self,
    "mnar_logistic": _mnar_logistic,
    "mnar_quantile": _mnar_quantile,
}


def _drivers(table: _Codes, observed: Any, rng: Generator) -> BoolArray:
    """Return the mask of the columns that drive the others, (n_columns,)."""
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


def _position(table: _Codes, name: Any) -> int:
    if name not in table.names:
        hint = did_you_mean(name, map(str, table.names))
        raise ParameterError(f"observed names the column {name!r}, which the table does not have.{hint}")
    return table.names.index(name)


def _driven(table: _Codes, drivers: BoolArray, rng: Generator) -> FloatArray:
    """Return a random combination of the drivers per driven column, with standard deviation 1, (n_rows, n_columns)."""
    weights = rng.normal(size=(int(drivers.sum()), len(drivers)))
    mixed: FloatArray = table.scores[:, drivers] @ weights
    mixed[:, drivers] = 0.0
    spread = mixed.std(axis=0)
    return mixed / np.where(spread > 0, spread, 1.0)


def _logistic(table: _Codes, scores: FloatArray, rates: FloatArray) -> FloatArray:
    """Return σ(score + intercept), with the intercept of each column chosen so that its mean is the column's rate."""
    found = np.zeros_like(scores)
    for k, (seen, rate) in enumerate(zip(table.seen.T, rates.tolist(), strict=True)):
        if seen.any() and rate > 0:
            found[seen, k] = _sigmoid(scores[seen, k] + _intercept(scores[seen, k], rate)) if rate < 1 else 1.0
    return found


def _sigmoid(values: Any) -> Any:
    return 0.5 + 0.5 * np.tanh(0.5 * values)


def _intercept(scores: FloatArray, rate: float, tolerance: float = 1e-12) -> float:
    """Find b by bisection such that the mean of σ(scores + b) is `rate`."""
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

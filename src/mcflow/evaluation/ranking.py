"""`rank_draws`: rank imputation methods on an incomplete table by the energy-I-Score of their draws."""

from __future__ import annotations

__all__ = ["DrawRanking", "RankedMethod", "rank_draws"]

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from mcflow.columns.frames import Frame, read_frame, take_rows
from mcflow.errors import DataError
from mcflow.evaluation.hidden_cells import EvaluationTable, codes_in
from mcflow.evaluation.run import start
from mcflow.evaluation.scores import SIGNIFICANCE
from mcflow.evaluation.wording import counted, listed
from mcflow.metrics import energy_losses
from mcflow.missingness.hiding import hide
from mcflow.random import seed_from
from mcflow.typing import Array, FloatArray, RandomState

MIN_CELLS = 10  #: Missing cells, and observed cells, that a column needs to be scored.


@dataclass(frozen=True)
class RankedMethod:
    """The energy-I-Score of a method."""

    name: str  #: Name of the method.
    score: float | None = None  #: Mean over seeds; at most 0, higher is better.
    noise: float | None = None  #: Standard deviation over seeds; None with one seed.
    #: Whether the difference to the best method is within the noise; None with one seed, and for the best.
    within_noise: bool | None = None
    per_column: dict[str, float] = field(default_factory=dict)  #: Mean scores of the columns.
    seeds: tuple[float, ...] = ()  #: Scores of the seeds.
    error_message: str | None = None  #: Why the method failed, if it did.


@dataclass(frozen=True)
class DrawRanking:
    """A ranking of methods by the energy-I-Score; see `rank_draws`."""

    methods: tuple[RankedMethod, ...]  #: The best first, and failed ones last.
    weights: dict[str, float]  #: Weights of the scored columns, which add up to 1.
    verdict: tuple[str, ...]  #: The conclusions in sentences.
    settings: dict[str, Any] = field(default_factory=dict)  #: The arguments of `rank_draws`.

    def to_dict(self) -> dict[str, Any]:
        """Return the result as dictionaries, lists and numbers that JSON can hold."""
        plain = asdict(self)
        return plain | {"methods": list(plain["methods"]), "verdict": list(self.verdict)}

    def __str__(self) -> str:
        done = [one for one in self.methods if one.score is not None]
        width = max(len("method"), *(len(one.name) for one in self.methods))
        lines = [f"{'method':<{width}}  energy-I-Score  over seeds"]
        for one in done:
            noise = "" if one.noise is None else f"± {one.noise:.4f}"
            lines.append(f"{one.name:<{width}}  {one.score:14.4f}  {noise}".rstrip())
        return "\n".join([*lines, "", *(f"- {sentence}" for sentence in self.verdict)])


def rank_draws(
    frame: Any,
    *,
    methods: Sequence[str] | None = None,
    repeats: int = 3,
    draws: int = 20,
    max_columns: int | None = 10,
    max_time: float | None = 75.0,
    max_rows: int | None = 10_000,
    random_state: RandomState = 0,
    verbose: bool | str = False,
    **table: Any,
) -> DrawRanking:
    """Rank imputation methods on an incomplete table, without ground truth, by the energy-I-Score of their draws.

    Parameters
    ----------
    frame : array-like or data frame of shape (n_rows, n_columns)
        numpy, pandas, polars or pyarrow; it is not changed.
    methods : sequence of str, optional
        As for `evaluate`. A method without draws is scored by its fill.
    repeats : int, default=3
        Number of seeds. With one seed nothing is known about the noise of the ranking.
    draws : int, default=20
        Draws of every cell.
    max_columns : int or None, default=10
        Maximum number of columns to score, those with the largest weights; None for all. A method is fitted once for
        the table and once for each of these columns.
    max_time, max_rows, random_state, verbose, **table
        As for `evaluate`.

    Returns
    -------
    DrawRanking
        Scores with their noise over seeds, by method and column, and a verdict in sentences.

    Raises
    ------
    DataError, ParameterError
        If no column has enough missing and observed cells, or an argument is unknown or out of range.

    Notes
    -----
    A method first imputes the table. Then, for each incomplete column, its observed cells are hidden, its missing cells
    keep what the method imputed, and the method draws the observed cells from a fit to this table. A method whose
    imputed cells have the right relations to the other columns predicts the observed cells well.
    `mcflow.metrics.energy_i_score` has the formula and the reference.

    In the reference, only columns without missing cells in the scored rows are inputs. Here each row has its own
    observed cells as inputs, so that no column is left out; both are the same if the other columns are complete. The
    score compares columns one at a time, and assumes that cells are missing at random.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(300, 1)) + 0.3 * rng.normal(size=(300, 3))
    >>> rows[:60, 0] = np.nan
    >>> found = rank_draws(rows, methods=["em"], max_time=1, repeats=2)
    >>> found.methods[-1].name, found.weights
    ('mean', {'0': 1.0})
    """
    given = {"repeats": repeats, "draws": draws, "max_columns": max_columns, "max_rows": max_rows}
    seed = seed_from(random_state)
    used, chosen, progress = start(frame, given | {"max_time": max_time}, methods, table, seed=seed, verbose=verbose)
    weights = _weights(used, max_columns)
    scores: dict[str, list[list[float]]] = {one.name: [] for one in chosen}
    for repeat in range(repeats):
        for one in progress.remaining(chosen):
            with progress.method(one):
                build = partial(one.build, seed + repeat, max_time=max_time, verbose=verbose)
                found = _scores(used, table, build, list(weights), n_draws=draws, seed=seed + repeat)
                scores[one.name].append(found)
    names = [str(used.schema.columns[position].name) for position in weights]
    shares = np.array(list(weights.values())) / sum(weights.values())
    ranked = _ranked({name: found for name, found in scores.items() if name not in progress.failed}, names, shares)
    ranked += tuple(RankedMethod(name, error_message=message) for name, message in progress.failed.items())
    settings = given | {"methods": [str(one.spec) for one in chosen], "max_time": max_time, "random_state": seed}
    return DrawRanking(ranked, dict(zip(names, shares.tolist(), strict=True)), _verdict(ranked), settings)


def _weights(used: EvaluationTable, max_columns: int | None) -> dict[int, float]:
    """Return p (1 - p) of the columns to score by position, the largest first; p is the share of missing cells."""
    n_missing, n_rows = used.missing.sum(axis=0), len(used.missing)
    enough = used.scored & (np.minimum(n_missing, n_rows - n_missing) >= MIN_CELLS)
    if not enough.any():
        raise DataError(
            f"No column has at least {MIN_CELLS} missing and {MIN_CELLS} observed cells, as the energy-I-Score needs. "
            "Give more rows, or compare errors on hidden cells with mcflow.evaluate."
        )
    found = {used.schema.model[k]: float(n_missing[k] * (n_rows - n_missing[k])) for k in np.flatnonzero(enough)}
    return dict(sorted(found.items(), key=lambda pair: -pair[1])[:max_columns])


def _scores(
    used: EvaluationTable,
    options: Mapping[str, Any],
    build: Callable[[Any], Any],
    positions: list[int],
    *,
    n_draws: int,
    seed: int,
) -> list[float]:
    """Impute the table once by a method, and return its energy-I-Score in each column."""

    def draws(table: Any, rows: Array, m: int) -> list[Frame]:
        """Fit the method to a table, and return draws of some rows, or their fill if the method has no draws."""
        imputer = build({**options, "kinds": used.kinds_for(table)}).fit(table)
        part = take_rows(read_frame(table), rows)
        drawn = imputer.draw(part, m=m, random_state=seed) if hasattr(imputer, "draw") else None
        return [read_frame(one) for one in (drawn or [imputer.transform(part)])]

    found, before = [], used.frame.codes(used.schema)  # (n_rows, n_coded)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings on the columns were raised when the table was read
        (imputed,) = draws(used.frame.native, np.arange(used.frame.n_rows), 1)
        for position in positions:
            column, k = used.schema.columns[position], list(used.schema.coded).index(position)
            after, hidden = before.copy(), np.zeros((used.frame.n_rows, len(used.schema.columns)), dtype=bool)
            after[:, k] = codes_in(imputed, used.schema, position)
            hidden[:, position] = ~np.isnan(before[:, k])
            rows = np.flatnonzero(hidden[:, position])
            table = hide(used.frame.fill(used.schema, before, after), hidden)
            drawn = np.stack([codes_in(one, used.schema, position) for one in draws(table, rows, n_draws)])
            unordered = (column.base or column.kind) in ("boolean", "category")
            found.append(-float(energy_losses(before[rows, k], drawn, categorical=unordered).mean()))
    return found


def _ranked(scores: Mapping[str, list[list[float]]], names: list[str], shares: FloatArray) -> tuple[RankedMethod, ...]:
    """Order the methods by their mean scores, and compare each with the best over the same seeds."""
    totals = {name: np.array(found) @ shares for name, found in scores.items()}  # (n_seeds,)
    order = sorted(totals, key=lambda name: -totals[name].mean())
    ranked = []
    for name in order:
        own = totals[name]
        alone = name == order[0] or len(own) < 2
        noise = float(own.std(ddof=1)) if len(own) > 1 else None
        close = None if alone else _within_noise(totals[order[0]] - own)
        by_column = dict(zip(names, np.mean(scores[name], axis=0).tolist(), strict=True))
        ranked.append(RankedMethod(name, float(own.mean()), noise, close, by_column, tuple(own.tolist())))
    return tuple(ranked)


def _within_noise(differences: FloatArray) -> bool:
    """Tell whether a mean difference over seeds is not significant by a paired t-test."""
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    limit = float(stats.t.ppf(1 - SIGNIFICANCE / 2, len(differences) - 1))
    return abs(float(differences.mean())) <= limit * error


def _verdict(methods: Sequence[RankedMethod]) -> tuple[str, ...]:
    sentences = [f"{one.name} failed: {one.error_message}" for one in methods if one.score is None]
    best = methods[0]
    if best.score is not None:
        names, n_seeds = list(best.per_column), len(best.seeds)
        close = [one.name for one in methods if one.within_noise]
        sentences.append(f"{best.name} has the best score over {counted(len(names), 'column')}: {listed(names)}.")
        if n_seeds == 1:
            sentences.append("One seed does not show the noise of this ranking. Use more repeats (repeats, --repeats).")
        elif close:
            sentences.append(f"The lead over {listed(close)} is within the noise over {n_seeds} seeds.")
        else:
            sentences.append(f"Its lead is larger than the noise over {n_seeds} seeds.")
    return tuple(sentences)

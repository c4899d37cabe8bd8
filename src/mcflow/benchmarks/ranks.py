"""Ranks of methods over blocks, whether they differ at all, and by how much two must differ."""

from __future__ import annotations

__all__ = ["Ranking", "rank_methods"]

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods; 1 is best.

    Parameters
    ----------
    ranks : dict of float
        By method, best first.
    n_blocks : int
        Blocks, in each of which all methods were measured.
    p_value : float
        Friedman's test of equal methods; NaN with fewer than three methods or two blocks.
    critical : float
        Nemenyi's critical difference at 5 %: mean ranks further apart differ. NaN with one block.
    """

    ranks: dict[str, float]
    n_blocks: int
    p_value: float
    critical: float


def rank_methods(scores: Mapping[str, Mapping[Hashable, float]], methods: Sequence[str]) -> Ranking | None:
    r"""Rank methods by their scores over the blocks that all of them have.

    Parameters
    ----------
    scores : mapping of mapping
        By method and block; lower is better.
    methods : sequence of str
        Which to rank.

    Returns
    -------
    Ranking or None
        None when there are fewer than two methods, or no block with all.

    Notes
    -----
    With :math:`k` methods, :math:`N` blocks and mean ranks :math:`R_j`, ties sharing theirs, Friedman's statistic and
    Nemenyi's critical difference are

    .. math:: \chi^2 = \frac{12 N}{k (k + 1)} \sum_j \Big(R_j - \frac{k + 1}{2}\Big)^2, \qquad
              \mathrm{CD} = q \sqrt{\frac{k (k + 1)}{6 N}},

    where the former is divided by :math:`1 - \sum (t^3 - t) / (N (k^3 - k))` for groups of :math:`t` ties, and
    :math:`q` is the 95 % point of the studentized range of :math:`k` over :math:`\sqrt 2`. Folds of one table share
    most of their training rows, so their blocks are not independent and the critical difference is on the small side.

    References
    ----------
    Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 7 (2006).

    Examples
    --------
    >>> found = rank_methods({"a": {0: 1.0, 1: 1.0}, "b": {0: 2.0, 1: 3.0}}, ["a", "b"])
    >>> found.ranks, found.n_blocks, round(found.critical, 3)
    ({'a': 1.0, 'b': 2.0}, 2, 1.386)
    """
    from scipy.stats import chi2, rankdata, studentized_range

    blocks = _shared(scores, methods)
    k, n = len(methods), len(blocks)
    if k < 2 or n == 0:
        return None
    table = np.array([[scores[method][block] for method in methods] for block in blocks])
    ranks = rankdata(table, axis=1)  # (n_blocks, n_methods)
    means = ranks.mean(axis=0)
    order = sorted(range(k), key=lambda j: (means[j], j))
    p_value = math.nan
    if k > 2 and n > 1:
        untied = 1 - _ties(ranks) / (n * (k**3 - k))
        statistic = 12 * n / (k * (k + 1)) * float(((means - (k + 1) / 2) ** 2).sum())
        p_value = float(chi2.sf(statistic / untied, k - 1)) if untied > 0 else math.nan
    spread = float(studentized_range.ppf(0.95, k, math.inf)) / math.sqrt(2)
    critical = spread * math.sqrt(k * (k + 1) / (6 * n)) if n > 1 else math.nan
    return Ranking({methods[j]: float(means[j]) for j in order}, n, p_value, critical)


def _shared(scores: Mapping[str, Mapping[Hashable, float]], methods: Sequence[str]) -> list[Hashable]:
    first = scores.get(methods[0], {}) if methods else {}
    return [block for block in first if all(block in scores.get(method, {}) for method in methods)]


def _ties(ranks: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """Return the sum of t³ − t over groups of t equal ranks in a block."""
    counts = [np.unique(row, return_counts=True)[1].astype(float) for row in ranks]
    return float(sum((count**3 - count).sum() for count in counts))

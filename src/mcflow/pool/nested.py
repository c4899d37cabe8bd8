"""Tests of nested models over completed tables: D1 (Wald), D2 (pooled statistics) and D3 (likelihood ratios)."""

from __future__ import annotations

__all__ = ["TESTS", "pooled_likelihood_ratio", "pooled_wald_statistics"]

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from mcflow.errors import ParameterError
from mcflow.pool.regressions import Coefficients
from mcflow.pool.rules import WaldTest
from mcflow.typing import FloatArray

#: Names of the tests.
TESTS = ("D1", "D2", "D3")


def pooled_wald_statistics(coefficients: Sequence[Coefficients], terms: Sequence[str]) -> WaldTest:
    r"""Pool the Wald statistics of the tables, by Li, Meng, Raghunathan and Rubin (1991).

    With the statistics :math:`d_j` of m tables, :math:`r = (1 + 1/m) \operatorname{var}(\sqrt{d_j})` and

    .. math:: D_2 = \frac{\bar d / k - r (m + 1) / (m - 1)}{1 + r},\quad \nu = k^{-3/m} (m - 1) (1 + 1/r)^2.
    """
    m, k = len(coefficients), len(terms)
    distances = np.array([_wald(found, terms) for found in coefficients])
    riv = float((1 + 1 / m) * np.var(np.sqrt(distances), ddof=1))
    statistic = float((distances.mean() / k - riv * (m + 1) / (m - 1)) / (1 + riv))
    df = k ** (-3 / m) * (m - 1) * (1 + 1 / riv) ** 2 if riv > 0 else np.inf
    return _test(terms, max(statistic, 0.0), df, riv)


def _wald(found: Coefficients, terms: Sequence[str]) -> float:
    places = [found.names.index(term) for term in terms]
    if found.variances.ndim < 2:
        raise ParameterError("The tests of nested models need covariances, but the analysis gives variances only.")
    values = found.values[places]
    return float(values @ np.linalg.solve(found.variances[np.ix_(places, places)], values))


def pooled_likelihood_ratio(larger: Sequence[Any], smaller: Sequence[Any], terms: Sequence[str]) -> WaldTest:
    r"""Pool likelihood ratios, by Meng and Rubin (1992).

    With the mean ratio :math:`\bar d` at the estimates of each table and :math:`\tilde d` at the pooled estimates,
    :math:`r = (m + 1) (\bar d - \tilde d) / (k (m - 1))` and :math:`D_3 = \tilde d / (k (1 + r))`.
    """
    m, k = len(larger), len(terms)
    own = np.mean([2 * (one.llf - none.llf) for one, none in zip(larger, smaller, strict=True)])
    means = [np.mean([np.asarray(one.params) for one in models], axis=0) for models in (larger, smaller)]
    pooled = np.mean(
        [2 * (_at(one, means[0]) - _at(none, means[1])) for one, none in zip(larger, smaller, strict=True)]
    )
    riv = float(max((m + 1) / (k * (m - 1)) * (own - pooled), 0.0))
    df = np.inf
    if riv > 0:
        t = k * (m - 1)
        df = 4 + (t - 4) * (1 + (1 - 2 / t) / riv) ** 2 if t > 4 else t * (1 + 1 / k) * (1 + 1 / riv) ** 2 / 2
    return _test(terms, max(float(pooled / (k * (1 + riv))), 0.0), df, riv)


def _at(result: Any, params: FloatArray) -> float:
    """Return the log-likelihood of a table at given parameters; a scale is estimated at these."""
    return float(result.model.loglike(params))


def _test(terms: Sequence[str], statistic: float, df: float, riv: float) -> WaldTest:
    k = len(terms)
    p_value = float(stats.f.sf(statistic, k, df) if np.isfinite(df) else stats.chi2.sf(k * statistic, k))
    return WaldTest(tuple(terms), statistic, k, float(df), p_value, riv)

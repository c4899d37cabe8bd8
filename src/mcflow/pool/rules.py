"""Rubin's rules: one estimate, its variance and its degrees of freedom from the analyses of m completed tables."""

from __future__ import annotations

__all__ = ["PooledResult", "WaldTest", "pool", "pool_estimates", "warn_of_one"]

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from mcflow.errors import DataError, McflowWarning, ParameterError, did_you_mean
from mcflow.pool.display import as_frame, as_html, as_text
from mcflow.pool.estimates import Estimates, read_estimates
from mcflow.typing import FloatArray


@dataclass(frozen=True)
class WaldTest:
    """A test that several terms have given values.

    Parameters
    ----------
    terms : tuple of str
        What was tested.
    statistic : float
        D1, to be compared with an F distribution.
    df1, df2 : float
        Its degrees of freedom.
    p_value : float
        Probability of a larger statistic when the terms have these values.
    riv : float
        Relative increase of variance by the missing cells, on average over the terms.
    """

    terms: tuple[str, ...]
    statistic: float
    df1: int
    df2: float
    p_value: float
    riv: float

    def __str__(self) -> str:
        return f"F({self.df1}, {self.df2:.1f}) = {self.statistic:.3f}, p = {self.p_value:.4g}: {', '.join(self.terms)}"


@dataclass(frozen=True, repr=False, eq=False)
class PooledResult:
    r"""What m analyses say together.

    Parameters
    ----------
    names : tuple of str
        Of the k terms.
    m : int
        Completed tables.
    estimate : ndarray of shape (k,)
        Mean of the m estimates.
    within : ndarray of shape (k,)
        Mean of the m variances, :math:`\bar U`.
    between : ndarray of shape (k,)
        Variance of the m estimates, B; NaN for one table.
    total : ndarray of shape (k,)
        :math:`T = \bar U + (1 + 1/m) B`.
    df : ndarray of shape (k,)
        Degrees of freedom of the t distribution.
    df_complete : float
        Those that an analysis without missing cells would have; may be infinite.
    riv : ndarray of shape (k,)
        Relative increase of variance by the missing cells, :math:`r = (1 + 1/m) B / \bar U`.
    lambda_ : ndarray of shape (k,)
        Share of the variance that the missing cells bring, :math:`(1 + 1/m) B / T`.
    fmi : ndarray of shape (k,)
        Fraction of missing information, :math:`(r + 2 / (\nu + 3)) / (1 + r)` for ν degrees of freedom.
    level : float
        Of the intervals.
    within_covariance, between_covariance : ndarray of shape (k, k) or None
        When covariance matrices were given.

    Examples
    --------
    >>> result = pool([[1.0, 2.0], [1.2, 2.1], [0.9, 2.3]], [[0.04, 0.09]] * 3, names=["age", "bmi"])
    >>> print(result)
    Pooled over 3 tables
    term  estimate  std.error  statistic    df  p.value  2.5 %  97.5 %    riv  lambda    fmi
    age      1.033      0.267      3.875  10.4   0.0028  0.443   1.624  0.778   0.437  0.521
    bmi      2.133      0.348      6.130  30.3   <.0001  1.423   2.844  0.346   0.257  0.302
    """

    names: tuple[str, ...]
    m: int
    estimate: FloatArray
    within: FloatArray
    between: FloatArray
    total: FloatArray
    df: FloatArray
    df_complete: float
    riv: FloatArray
    lambda_: FloatArray
    fmi: FloatArray
    level: float = 0.95
    within_covariance: FloatArray | None = None
    between_covariance: FloatArray | None = None

    @property
    def std_error(self) -> FloatArray:
        """Return the square roots of the total variances, of shape (k,)."""
        return np.sqrt(self.total)

    @property
    def statistic(self) -> FloatArray:
        """Return estimate / standard error, of shape (k,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.estimate / self.std_error

    @property
    def p_value(self) -> FloatArray:
        """Return the two-sided p values of the terms being 0, of shape (k,)."""
        values: FloatArray = 2 * stats.t.sf(np.abs(self.statistic), self.df)
        return values

    @property
    def interval(self) -> FloatArray:
        """Return the lower and upper ends of the intervals, of shape (k, 2)."""
        half = stats.t.ppf((1 + self.level) / 2, self.df) * self.std_error
        return np.stack([self.estimate - half, self.estimate + half], axis=1)

    @property
    def covariance(self) -> FloatArray:
        """Return the pooled covariance of the estimates, of shape (k, k).

        Raises
        ------
        ParameterError
            When only variances were given.
        """
        within, between = self._covariances()
        return within + (1 + 1 / self.m) * between

    def _covariances(self) -> tuple[FloatArray, FloatArray]:
        if self.within_covariance is None or self.between_covariance is None:
            raise ParameterError(
                "Only variances were pooled, and this needs covariances. Give covariance matrices of shape (m, k, k)."
            )
        return self.within_covariance, self.between_covariance

    def table(self) -> Any:
        """Return the terms as a table.

        Returns
        -------
        pandas.DataFrame or pyarrow.Table
            Of pandas when it is installed. Columns: term, estimate, std.error, statistic, df, p.value, both ends of
            the interval, riv, lambda and fmi.
        """
        return as_frame(self._columns())

    def wald(self, terms: Sequence[str] | None = None, value: Any = 0.0) -> WaldTest:
        r"""Test whether several terms have given values.

        Parameters
        ----------
        terms : sequence of str, optional
            Names of terms; by default all but the intercept.
        value : float or array-like of shape (n_terms,), default=0
            What they are under the hypothesis.

        Returns
        -------
        WaldTest

        Raises
        ------
        ParameterError
            When only variances were pooled, or there is no such term.
        DataError
            When the covariance of the terms is singular.

        Notes
        -----
        For k terms with mean covariance :math:`\bar U` and covariance B of the estimates

        .. math::

            D_1 = \frac{(\bar Q - Q_0)^\top \bar U^{-1} (\bar Q - Q_0)}{k (1 + r)},\quad
            r = \left(1 + \tfrac1m\right) \frac{\operatorname{tr}(B \bar U^{-1})}{k},

        which takes the share of missing information to be the same for all terms. It follows an F distribution with
        k and ν degrees of freedom, those of Li, Raghunathan and Rubin for large samples and of Reiter otherwise.
        For one term the test is the square of its t test.

        References
        ----------
        K. H. Li, T. E. Raghunathan and D. B. Rubin, "Large-Sample Significance Levels from Multiply Imputed Data Using
        Moment-Based Statistics and an F Reference Distribution", JASA 86, 1991. J. P. Reiter, "Small-sample degrees of
        freedom for multi-component significance tests with multiple imputation for missing data", Biometrika 94, 2007.

        Examples
        --------
        >>> result = pool([[1.0, 2.0], [1.2, 2.1], [0.9, 2.3]], [[[0.04, 0.01], [0.01, 0.09]]] * 3)
        >>> print(result.wald())
        F(2, 20.4) = 20.612, p = 1.27e-05: term1, term2
        """
        within, between = self._covariances()
        places = self._places(terms)
        k, own = len(places), within[np.ix_(places, places)]
        distance = self.estimate[places] - np.broadcast_to(np.asarray(value, dtype=np.float64), k)
        if np.linalg.matrix_rank(own, hermitian=True) < k:
            raise DataError("The covariance of these terms is singular. Test fewer of them together.")
        moved = np.trace(np.linalg.solve(own, between[np.ix_(places, places)])) if self.m > 1 else 0.0
        riv = float((1 + 1 / self.m) * moved / k)
        statistic = float(distance @ np.linalg.solve(own, distance)) / (k * (1 + riv))
        df = float(self.df[places[0]]) if k == 1 else _wald_df(k, self.m, riv, self.df_complete)
        p_value = float(stats.f.sf(statistic, k, df) if math.isfinite(df) else stats.chi2.sf(k * statistic, k))
        return WaldTest(tuple(self.names[place] for place in places), statistic, k, df, p_value, riv)

    def _places(self, terms: Sequence[str] | None) -> list[int]:
        if isinstance(terms, str):
            terms = [terms]
        chosen = [name for name in self.names if name not in ("Intercept", "const")] if terms is None else list(terms)
        for name in chosen:
            if name not in self.names:
                raise ParameterError(
                    f"There is no term {name!r}. There are {', '.join(self.names)}.{did_you_mean(name, self.names)}"
                )
        if not chosen or len(set(chosen)) < len(chosen):
            raise ParameterError(f"The terms to test are {chosen}. Name at least one, and each once.")
        return [self.names.index(name) for name in chosen]

    def _columns(self) -> dict[str, Any]:
        low, high = (100 * (1 - self.level) / 2, 100 * (1 + self.level) / 2)
        return {
            "term": list(self.names),
            "estimate": self.estimate,
            "std.error": self.std_error,
            "statistic": self.statistic,
            "df": self.df,
            "p.value": self.p_value,
            f"{low:g} %": self.interval[:, 0],
            f"{high:g} %": self.interval[:, 1],
            "riv": self.riv,
            "lambda": self.lambda_,
            "fmi": self.fmi,
        }

    def _title(self) -> str:
        return f"Pooled over {self.m} table{'s' if self.m > 1 else ''}"

    def __str__(self) -> str:
        return as_text(self._title(), self._columns())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self._title(), self._columns())


def pool(
    estimates: Any,
    variances: Any,
    *,
    df_complete: float | None = None,
    names: Sequence[str] | None = None,
    level: float = 0.95,
) -> PooledResult:
    r"""Pool the results of m completed tables by Rubin's rules.

    Parameters
    ----------
    estimates : array-like of shape (m, k) or (m,), data frame, or sequence of arrays, Series or dicts
        One entry for each table.
    variances : array-like of shape (m, k), (m,) or (m, k, k), data frame, or sequence
        Squared standard errors, or covariance matrices. Series, dicts and data frames are matched by name.
    df_complete : float, optional
        Degrees of freedom of the analysis if no cell were missing, rows less coefficients for a regression. By
        default infinite: many rows.
    names : sequence of str, optional
        Of the k terms, in place of those that the estimates carry.
    level : float, default=0.95
        Of the intervals.

    Returns
    -------
    PooledResult

    Raises
    ------
    DataError
        When there is nothing to pool, sizes or names differ, a number is not finite, or a variance is negative.
    ParameterError
        When level is not between 0 and 1, or df_complete is not positive.

    Warns
    -----
    McflowWarning
        When there is one table only. The result is then that of this table as if it had been observed, and the
        intervals are too narrow.

    Notes
    -----
    With m estimates of mean :math:`\bar Q` and variance B, and mean variance :math:`\bar U`, the total variance is
    :math:`T = \bar U + (1 + 1/m) B`. Intervals use a t distribution with

    .. math::

        \nu = \left(\frac1{\nu_m} + \frac1{\nu_\mathrm{obs}}\right)^{-1},\quad \nu_m = \frac{m - 1}{\lambda^2},\quad
        \nu_\mathrm{obs} = \frac{\nu_\mathrm{com} + 1}{\nu_\mathrm{com} + 3} \nu_\mathrm{com} (1 - \lambda),\quad
        \lambda = \frac{(1 + 1/m) B}{T},

    degrees of freedom, which is :math:`\nu_m` for infinite :math:`\nu_\mathrm{com}`.

    References
    ----------
    D. B. Rubin, "Multiple Imputation for Nonresponse in Surveys", 1987. J. Barnard and D. B. Rubin, "Small-sample
    degrees of freedom with multiple imputation", Biometrika 86, 1999. S. van Buuren, "Flexible Imputation of Missing
    Data", 2nd edition, 2018, sections 2.3 and 2.4.

    Examples
    --------
    >>> result = pool([10.0, 12.0, 11.0], [1.0, 1.0, 1.0], df_complete=48, names=["mean"])
    >>> float(result.estimate[0]), float(result.total[0].round(3)), float(result.df[0].round(2))
    (11.0, 2.333, 4.68)
    """
    given = read_estimates(estimates, variances, names)
    warn_of_one(len(given.values))
    return pool_estimates(given, df_complete=df_complete, level=level)


def pool_estimates(given: Estimates, *, df_complete: float | None = None, level: float = 0.95) -> PooledResult:
    """Pool results that have been read, without a warning of a single table; see `pool`."""
    if not 0 < level < 1:
        raise ParameterError(f"level is {level!r}, but has to be between 0 and 1, such as 0.95.")
    complete = math.inf if df_complete is None else float(df_complete)
    if not complete > 0:
        raise ParameterError(f"df_complete is {df_complete!r}, but has to be above 0: rows less coefficients.")
    m = len(given.values)
    within = given.variances.mean(axis=0)
    between = given.values.var(axis=0, ddof=1) if m > 1 else np.full(within.shape, np.nan)
    total, riv, share, df, fmi = _shares(m, within, between, complete)
    return PooledResult(
        names=given.names,
        m=m,
        estimate=given.values.mean(axis=0),
        within=within,
        between=between,
        total=total,
        df=df,
        df_complete=complete,
        riv=riv,
        lambda_=share,
        fmi=fmi,
        level=float(level),
        within_covariance=None if given.covariances is None else given.covariances.mean(axis=0),
        between_covariance=None if given.covariances is None else _covariance(given.values),
    )


def warn_of_one(m: int) -> None:
    """Warn of what one table cannot tell."""
    if m == 1:
        warnings.warn(
            "There is one completed table only, so nothing is known of the spread that the missing cells bring, and "
            "intervals are too narrow. Draw several: imputer.draw(X, m=20).",
            McflowWarning,
            stacklevel=3,
        )


def _covariance(values: FloatArray) -> FloatArray:
    if len(values) == 1:
        return np.zeros((values.shape[1], values.shape[1]))
    return np.atleast_2d(np.cov(values, rowvar=False))


def _shares(
    m: int, within: FloatArray, between: FloatArray, complete: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return total variance, relative increase, share of the missing cells, degrees of freedom and missing information.

    One table tells nothing of the missing cells: its variance and degrees of freedom are those of a complete one.
    """
    if m == 1:
        return within, between, between, np.full(within.shape, complete), between
    added = (1 + 1 / m) * between
    total = within + added
    share = np.divide(added, total, out=np.zeros_like(total), where=total > 0)
    with np.errstate(divide="ignore"):
        riv = np.divide(added, within, out=np.where(added > 0, np.inf, 0.0), where=within > 0)
        many = (m - 1) / share**2
        # Without an error of its own an estimate has no degrees of freedom to lose.
        seen = np.where(share < 1, _observed(complete) * (1 - share), np.inf)
        df = 1 / (1 / many + 1 / seen)
    # (r + c) / (1 + r) is λ + (1 - λ) c, which has its limit where r is infinite.
    return total, riv, share, df, share + (1 - share) * 2 / (df + 3)


def _observed(complete: float) -> float:
    """Return the degrees of freedom of Barnard and Rubin for data without missing information."""
    return (complete + 1) / (complete + 3) * complete if math.isfinite(complete) else math.inf


def _wald_df(k: int, m: int, riv: float, complete: float) -> float:
    """Return the second degrees of freedom of a test of several terms."""
    if m == 1:
        return complete
    steps = k * (m - 1)
    if riv <= 0:
        large = math.inf
    elif steps > 4:
        large = 4 + (steps - 4) * (1 + (1 - 2 / steps) / riv) ** 2
    else:
        large = steps * (1 + 1 / k) * (1 + 1 / riv) ** 2 / 2
    seen = _observed(complete)
    if not math.isfinite(seen):
        return large
    scaled = riv * steps / (steps - 2) if steps > 2 else math.nan
    if steps > 4 and seen > 4 * (1 + scaled):
        return _reiter_df(steps, scaled, seen)
    # Where Reiter's expansion does not hold, combine as Barnard and Rubin do for one term.
    return 1 / (1 / large + (1 + riv) / seen)


def _reiter_df(steps: int, a: float, seen: float) -> float:
    """Return Reiter's degrees of freedom (2007, equations 1 and 2)."""
    far, near, whole = seen - 2 * (1 + a), seen - 4 * (1 + a), 1 + a
    terms = (
        far / (whole**2 * near)
        + 8 * far / (whole * near**2)
        + 4 / (whole * near)
        + 4 / (near * far)
        + 16 * far / near**3
        + 8 / near**2
    )
    return 4 + 1 / (1 / near + a**2 / (steps - 4) * terms)

"""Rubin's rules: pooled estimates, variances, degrees of freedom and Wald tests from m completed-data analyses."""

from __future__ import annotations

__all__ = [
    "Estimates",
    "PooledResult",
    "WaldTest",
    "as_text",
    "f_test",
    "in_order",
    "pool",
    "pool_estimates",
    "read_estimates",
    "wald_df",
    "warn_of_one",
]

import html
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from scipy import stats

from mcflow.errors import DataError, McflowWarning, ParameterError, did_you_mean
from mcflow.typing import FloatArray

MAX_ASYMMETRY = 1e-6  #: Maximum asymmetry of a covariance matrix, relative to its largest variance.


@dataclass(frozen=True)
class WaldTest:
    """Test of a hypothesis about several terms, with an F reference distribution."""

    terms: tuple[str, ...]  #: Names of the tested terms.
    statistic: float  #: The statistic: D1 of `wald`, or D1, D2 or D3 of `PooledFit.compare`.
    df1: int  #: Numerator degrees of freedom of the F distribution.
    df2: float  #: Denominator degrees of freedom.
    p_value: float  #: Probability of a larger statistic under the hypothesis.
    riv: float  #: Average relative increase in variance due to nonresponse.

    def __str__(self) -> str:
        return f"F({self.df1}, {self.df2:.1f}) = {self.statistic:.3f}, p = {self.p_value:.4g}: {', '.join(self.terms)}"


@dataclass(frozen=True, repr=False, eq=False)
class PooledResult:
    """Pooled result of m completed-data analyses of k terms.

    Examples
    --------
    >>> result = pool([[1.0, 2.0], [1.2, 2.1], [0.9, 2.3]], [[0.04, 0.09]] * 3, names=["age", "bmi"])
    >>> print(result)
    Pooled over 3 tables
    term  estimate  std.error  statistic    df  p.value  2.5 %  97.5 %    riv  lambda    fmi
    age      1.033      0.267      3.875  10.4   0.0028  0.443   1.624  0.778   0.437  0.521
    bmi      2.133      0.348      6.130  30.3   <.0001  1.423   2.844  0.346   0.257  0.302
    """

    names: tuple[str, ...]  #: Names of the terms.
    m: int  #: Number of completed tables.
    estimate: FloatArray  #: Pooled estimates :math:`\bar Q`, the means of the m estimates, (k,).
    within: FloatArray  #: Within-imputation variance :math:`\bar U`, the mean of the m variances, (k,).
    between: FloatArray  #: Between-imputation variance B, the variance of the m estimates; NaN for one table, (k,).
    total: FloatArray  #: Total variance :math:`T = \bar U + (1 + 1/m) B`, (k,).
    df: FloatArray  #: Degrees of freedom ν of the t distribution, (k,).
    df_complete: float  #: Degrees of freedom of the complete-data analysis; may be infinite.
    riv: FloatArray  #: Relative increase in variance due to nonresponse, :math:`r = (1 + 1/m) B / \bar U`, (k,).
    lambda_: FloatArray  #: Proportion of the variance due to the missing data, :math:`(1 + 1/m) B / T`, (k,).
    fmi: FloatArray  #: Fraction of missing information, :math:`(r + 2 / (\nu + 3)) / (1 + r)`, (k,).
    level: float = 0.95  #: Level of the confidence intervals.
    within_covariance: FloatArray | None = None  #: Within-imputation covariance, (k, k), if covariances were given.
    between_covariance: FloatArray | None = None  #: Between-imputation covariance, (k, k), if covariances were given.

    @property
    def std_error(self) -> FloatArray:
        """Standard errors, the square roots of the total variances, (k,)."""
        return np.sqrt(self.total)

    @property
    def statistic(self) -> FloatArray:
        """Test statistics, estimate / standard error, (k,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.estimate / self.std_error

    @property
    def p_value(self) -> FloatArray:
        """Two-sided p values of the hypotheses that a term is 0, (k,)."""
        return np.asarray(2 * stats.t.sf(np.abs(self.statistic), self.df))

    @property
    def interval(self) -> FloatArray:
        """Lower and upper confidence limits, (k, 2)."""
        half = stats.t.ppf((1 + self.level) / 2, self.df) * self.std_error
        return np.stack([self.estimate - half, self.estimate + half], axis=1)

    @property
    def covariance(self) -> FloatArray:
        """Total covariance of the estimates, (k, k); raises `ParameterError` if only variances were given."""
        within, between = self._covariances()
        return within + (1 + 1 / self.m) * between

    def _covariances(self) -> tuple[FloatArray, FloatArray]:
        if self.within_covariance is None or self.between_covariance is None:
            raise ParameterError(
                "This needs covariances, but only variances were pooled. Give covariance matrices of shape (m, k, k)."
            )
        return self.within_covariance, self.between_covariance

    def table(self) -> Any:
        """Return the terms as a table.

        Returns
        -------
        pandas.DataFrame
            Columns: term, estimate, std.error, statistic, df, p.value, both confidence limits, riv, lambda and fmi.
        """
        return self.summary()

    def summary(self, *, exponentiate: bool = False) -> Any:
        """Return the terms as a table, with odds, rate or hazard ratios on request.

        Parameters
        ----------
        exponentiate : bool, default=False
            Whether to exponentiate the estimates and their confidence limits, as for logistic, Poisson and Cox
            regressions. Standard errors stay on the scale of the coefficients.

        Returns
        -------
        pandas.DataFrame
            The columns of `table`.
        """
        columns = self._columns()
        if exponentiate:
            ratios = [name for name in columns if name == "estimate" or name.endswith("%")]
            columns |= {name: np.exp(columns[name]) for name in ratios}
        return pd.DataFrame(columns)

    def wald(self, terms: Sequence[str] | None = None, value: Any = 0.0) -> WaldTest:
        r"""Test the hypothesis that several terms have given values.

        Parameters
        ----------
        terms : sequence of str, optional
            Names of the terms; by default all but the intercept.
        value : float or array-like of shape (n_terms,), default=0
            Values of the terms under the hypothesis.

        Returns
        -------
        WaldTest
            Statistic, degrees of freedom and p value.

        Raises
        ------
        ParameterError
            When only variances were pooled, or a term is unknown.
        DataError
            When the covariance of the terms is singular.

        Notes
        -----
        For k terms with within-imputation covariance :math:`\bar U` and between-imputation covariance B,

        .. math::

            D_1 = \frac{(\bar Q - Q_0)^\top \bar U^{-1} (\bar Q - Q_0)}{k (1 + r)},\quad
            r = \left(1 + \tfrac1m\right) \frac{\operatorname{tr}(B \bar U^{-1})}{k},

        which assumes an equal fraction of missing information for all terms. The reference distribution is F with k
        and ν degrees of freedom, where ν is that of Li, Raghunathan and Rubin for large samples and that of Reiter
        otherwise. For one term the test is equivalent to its t test.

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
        chosen = self._positions(terms)
        k, own = len(chosen), within[np.ix_(chosen, chosen)]
        distance = self.estimate[chosen] - np.broadcast_to(np.asarray(value, dtype=np.float64), k)
        if np.linalg.matrix_rank(own, hermitian=True) < k:
            raise DataError("The covariance of these terms is singular. Test fewer terms together.")
        trace = np.trace(np.linalg.solve(own, between[np.ix_(chosen, chosen)])) if self.m > 1 else 0.0
        riv = float((1 + 1 / self.m) * trace / k)
        statistic = float(distance @ np.linalg.solve(own, distance)) / (k * (1 + riv))
        df = float(self.df[chosen[0]]) if k == 1 else wald_df(k, self.m, riv, self.df_complete)
        return f_test([self.names[position] for position in chosen], statistic, df, riv)

    def _positions(self, terms: Sequence[str] | None) -> list[int]:
        if isinstance(terms, str):
            terms = [terms]
        chosen = [name for name in self.names if name not in ("Intercept", "const")] if terms is None else list(terms)
        for name in chosen:
            if name not in self.names:
                raise ParameterError(
                    f"There is no term {name!r}. The terms are {', '.join(self.names)}.{did_you_mean(name, self.names)}"
                )
        if not chosen or len(set(chosen)) < len(chosen):
            raise ParameterError(f"The terms to test are {chosen}. Name at least one, and each once.")
        return [self.names.index(name) for name in chosen]

    def _columns(self) -> dict[str, Any]:
        low, high = 100 * (1 - self.level) / 2, 100 * (1 + self.level) / 2
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
        return _as_html(self._title(), self._columns())


def as_text(title: str, columns: Mapping[str, Any]) -> str:
    """Return columns as text, with terms left-aligned and numbers right-aligned."""
    cells = _cells(columns)
    width, *widths = (max(map(len, column)) for column in zip(*cells, strict=True))
    lines = [title]
    for term, *numbers in cells:
        aligned = [number.rjust(size) for number, size in zip(numbers, widths, strict=True)]
        lines.append("  ".join([term.ljust(width), *aligned]).rstrip())
    return "\n".join(lines)


def _as_html(title: str, columns: Mapping[str, Any]) -> str:
    """Return columns as an HTML table for notebooks; all text is escaped."""
    head, *rows = _cells(columns)
    names = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    body = ""
    for term, *numbers in rows:
        cells = "".join(f'<td style="text-align: right">{html.escape(number)}</td>' for number in numbers)
        body += f'<tr><th scope="row" style="text-align: left">{html.escape(term)}</th>{cells}</tr>'
    caption = f"<caption>{html.escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _cells(columns: Mapping[str, Any]) -> list[list[str]]:
    errors = columns["std.error"]
    rows = [
        [_formatted(name, values[row], float(errors[row])) for name, values in columns.items()]
        for row in range(len(errors))
    ]
    return [list(columns), *rows]


def _formatted(name: str, value: Any, error: float) -> str:
    """Format a cell; estimates have the decimals that show three significant digits of the standard error."""
    if name == "term":
        return str(value)
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    if name == "p.value":
        return "<.0001" if value < 1e-4 else f"{value:.4f}"
    if name not in ("estimate", "std.error") and not name.endswith("%"):
        return f"{value:.1f}" if name == "df" else f"{value:.3f}"
    if not (math.isfinite(error) and error > 0):
        return f"{value:.5g}"
    decimals = max(2 - math.floor(math.log10(error)), 0)
    return f"{value:.{decimals}f}" if decimals <= 6 else f"{value:.4g}"


def pool(
    estimates: Any,
    variances: Any,
    *,
    df_complete: float | None = None,
    names: Sequence[str] | None = None,
    level: float = 0.95,
) -> PooledResult:
    r"""Pool the estimates of m completed-data analyses by Rubin's rules.

    Parameters
    ----------
    estimates : array-like of shape (m, k) or (m,), data frame, or sequence of arrays, Series or dicts
        Estimates of the k terms, one entry per completed table.
    variances : array-like of shape (m, k), (m,) or (m, k, k), data frame, or sequence
        Squared standard errors or covariance matrices. Series, dicts and data frames are matched by name.
    df_complete : float, optional
        Degrees of freedom of the complete-data analysis: rows minus coefficients for a regression. By default infinite,
        as for large samples.
    names : sequence of str, optional
        Names of the k terms, in place of the names of the estimates.
    level : float, default=0.95
        Level of the confidence intervals.

    Returns
    -------
    PooledResult
        Pooled estimates, variances and degrees of freedom.

    Raises
    ------
    DataError
        When there are no estimates, sizes or names differ, a number is not finite, or a variance is negative.
    ParameterError
        When `level` is not between 0 and 1, or `df_complete` is not positive.

    Warns
    -----
    McflowWarning
        When there is only one table. The result is that of a complete-data analysis, and the intervals are too narrow.

    Notes
    -----
    With the mean :math:`\bar Q` and the variance B of the m estimates, and the mean :math:`\bar U` of their variances,
    the total variance is :math:`T = \bar U + (1 + 1/m) B`. Intervals use a t distribution with

    .. math::

        \nu = \left(\frac1{\nu_m} + \frac1{\nu_\mathrm{obs}}\right)^{-1},\quad \nu_m = \frac{m - 1}{\lambda^2},\quad
        \nu_\mathrm{obs} = \frac{\nu_\mathrm{com} + 1}{\nu_\mathrm{com} + 3} \nu_\mathrm{com} (1 - \lambda),\quad
        \lambda = \frac{(1 + 1/m) B}{T},

    degrees of freedom, which equals :math:`\nu_m` for infinite :math:`\nu_\mathrm{com}`.

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
    """Pool checked estimates by Rubin's rules; see `pool`."""
    if not 0 < level < 1:
        raise ParameterError(f"level is {level!r}, but has to be between 0 and 1, such as 0.95.")
    complete = math.inf if df_complete is None else float(df_complete)
    if not complete > 0:
        raise ParameterError(f"df_complete is {df_complete!r}, but has to be above 0: rows minus coefficients.")
    m = len(given.values)
    within = given.variances.mean(axis=0)
    between = given.values.var(axis=0, ddof=1) if m > 1 else np.full(within.shape, np.nan)
    return PooledResult(
        names=given.names,
        m=m,
        estimate=given.values.mean(axis=0),
        within=within,
        between=between,
        df_complete=complete,
        level=float(level),
        within_covariance=None if given.covariances is None else given.covariances.mean(axis=0),
        between_covariance=None if given.covariances is None else _covariance(given.values),
        **_variance_components(m, within, between, complete),
    )


def warn_of_one(m: int) -> None:
    """Warn that one table gives no between-imputation variance."""
    if m == 1:
        warnings.warn(
            "There is only one completed table, so the between-imputation variance is unknown and intervals are too "
            "narrow. Draw several: imputer.draw(X, m=20).",
            McflowWarning,
            stacklevel=3,
        )


def _covariance(values: FloatArray) -> FloatArray:
    if len(values) == 1:
        return np.zeros((values.shape[1], values.shape[1]))
    return np.atleast_2d(np.cov(values, rowvar=False))


def _variance_components(m: int, within: FloatArray, between: FloatArray, complete: float) -> dict[str, FloatArray]:
    """Return total variance, riv, lambda, degrees of freedom and fmi; for one table, those of complete data."""
    if m == 1:
        df = np.full(within.shape, complete)
        return {"total": within, "riv": between, "lambda_": between, "df": df, "fmi": between}
    added = (1 + 1 / m) * between
    total = within + added
    lambda_ = np.divide(added, total, out=np.zeros_like(total), where=total > 0)
    with np.errstate(divide="ignore"):
        riv = np.divide(added, within, out=np.where(added > 0, np.inf, 0.0), where=within > 0)
        df_large = (m - 1) / lambda_**2
        # With a within-imputation variance of 0 only the between-imputation variance limits the degrees of freedom.
        df_observed = np.where(lambda_ < 1, _observed_df(complete) * (1 - lambda_), np.inf)
        df = 1 / (1 / df_large + 1 / df_observed)
    # (r + c) / (1 + r) is computed as λ + (1 - λ) c, which is defined for infinite r.
    fmi = lambda_ + (1 - lambda_) * 2 / (df + 3)
    return {"total": total, "riv": riv, "lambda_": lambda_, "df": df, "fmi": fmi}


def _observed_df(complete: float) -> float:
    """Return Barnard and Rubin's observed-data degrees of freedom for λ = 0."""
    return (complete + 1) / (complete + 3) * complete if math.isfinite(complete) else math.inf


def f_test(terms: Sequence[str], statistic: float, df: float, riv: float) -> WaldTest:
    """Return a test of several terms by the F distribution, or by its limit for infinite degrees of freedom."""
    k = len(terms)
    p_value = float(stats.f.sf(statistic, k, df) if math.isfinite(df) else stats.chi2.sf(k * statistic, k))
    return WaldTest(tuple(terms), statistic, k, df, p_value, riv)


def wald_df(k: int, m: int, riv: float, complete: float) -> float:
    """Return the denominator degrees of freedom of a test of k terms."""
    if m == 1:
        return complete
    steps = k * (m - 1)
    if riv <= 0:
        large = math.inf
    elif steps > 4:
        large = 4 + (steps - 4) * (1 + (1 - 2 / steps) / riv) ** 2
    else:
        large = steps * (1 + 1 / k) * (1 + 1 / riv) ** 2 / 2
    observed = _observed_df(complete)
    if not math.isfinite(observed):
        return large
    scaled = riv * steps / (steps - 2) if steps > 2 else math.nan
    if steps > 4 and observed > 4 * (1 + scaled):
        return _reiter_df(steps, scaled, observed)
    # Where Reiter's expansion does not apply, combine as Barnard and Rubin do for one term.
    return 1 / (1 / large + (1 + riv) / observed)


def _reiter_df(steps: int, a: float, observed: float) -> float:
    """Return Reiter's degrees of freedom (2007, equations 1 and 2)."""
    far, near, whole = observed - 2 * (1 + a), observed - 4 * (1 + a), 1 + a
    terms = (
        far / (whole**2 * near)
        + 8 * far / (whole * near**2)
        + 4 / (whole * near)
        + 4 / (near * far)
        + 16 * far / near**3
        + 8 / near**2
    )
    return 4 + 1 / (1 / near + a**2 / (steps - 4) * terms)


@dataclass(frozen=True)
class Estimates:
    """Estimates of m completed-data analyses."""

    names: tuple[str, ...]  # names of the k terms
    values: FloatArray  # (m, k) estimates
    variances: FloatArray  # (m, k) squared standard errors
    covariances: FloatArray | None  # (m, k, k) covariance matrices, if known


def read_estimates(estimates: Any, variances: Any, names: Sequence[str] | None = None) -> Estimates:
    """Read and check estimates and variances in any of the forms that `pool` accepts."""
    rows = _rows(estimates, "estimates")
    keys = _keys(rows[0]) if rows else None
    values = _stacked(rows, keys, "estimates")
    if values.ndim != 2 or not values.size:
        raise DataError(f"The estimates have shape {values.shape}, but (m, k) with at least one of each is needed.")
    spread = _stacked(_rows(variances, "variances"), keys, "variances")
    return _checked(_names(names, keys, values.shape[1]), values, spread)


def _rows(given: Any, what: str) -> list[Any]:
    """Return the entries of the m analyses."""
    frame = nw.from_native(given, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return list(frame.iter_rows(named=True))
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise DataError(
            f"The {what} are of type {type(given).__name__}. Give one entry per completed table: an array of "
            "shape (m, k), or a list of m arrays, Series or dicts."
        )
    return list(given)


def _keys(row: Any) -> tuple[Any, ...] | None:
    """Return the names of an entry, or None when it has none."""
    if isinstance(row, Mapping):
        return tuple(row)
    return tuple(row.index) if hasattr(row, "loc") else None


def _row(row: Any, keys: tuple[Any, ...] | None, number: int, what: str) -> FloatArray:
    """Return an entry as numbers, ordered by name if it has names."""
    own = _keys(row)
    if own is not None and keys is not None:
        if set(own) != set(keys) or len(own) != len(keys):
            raise DataError(
                f"Entry {number} of the {what} names {_listed(own)}, while the first of the estimates names "
                f"{_listed(keys)}. Every table has to give the same terms."
            )
        row = in_order(row, keys)
    try:
        return np.asarray(row, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"Entry {number} of the {what} cannot be read as numbers: {error}.") from error


def in_order(row: Any, keys: Iterable[Any]) -> Any:
    """Sort a dict, pandas Series or pandas covariance by name; return anything else unchanged."""
    if isinstance(row, Mapping):
        return [row[key] for key in keys]
    if not hasattr(row, "loc"):
        return row
    return row.loc[list(keys), list(keys)] if row.ndim == 2 else row.loc[list(keys)]


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(repr(str(name)) for name in names)


def _stacked(rows: list[Any], keys: tuple[Any, ...] | None, what: str) -> FloatArray:
    """Return the entries of all tables as one array of at least two axes."""
    numbers = [_row(row, keys, number, what) for number, row in enumerate(rows, 1)]
    shapes = sorted({row.shape for row in numbers}, key=str)
    if not shapes:
        raise DataError(f"There are no {what} to pool. Give one entry per completed table.")
    if len(shapes) > 1:
        raise DataError(
            f"The {what} differ in size: {', '.join(map(str, shapes))}. Every table has to give the same number."
        )
    stacked = np.stack(numbers)
    return stacked[:, None] if stacked.ndim == 1 else stacked


def _names(given: Sequence[str] | None, keys: tuple[Any, ...] | None, k: int) -> tuple[str, ...]:
    if given is None and keys is None:
        return tuple(f"term{number}" for number in range(1, k + 1))
    names = tuple(map(str, given if given is not None else keys or ()))
    if len(names) != k or len(set(names)) != k:
        raise DataError(f"There are {k} estimates and the names {_listed(names)}. Give each its own name.")
    return names


def _checked(names: tuple[str, ...], values: FloatArray, spread: FloatArray) -> Estimates:
    m, k = values.shape
    if spread.shape not in ((m, k), (m, k, k)):
        raise DataError(
            f"The estimates have shape {values.shape} and the variances {spread.shape}, but variances have to be of "
            f"shape {(m, k)}, or {(m, k, k)} for covariance matrices."
        )
    full = spread.ndim == 3
    variances = np.diagonal(spread, axis1=1, axis2=2) if full else spread
    _refuse(~np.isfinite(values), names, "an estimate that is not a finite number")
    _refuse(~np.isfinite(spread).all(axis=2) if full else ~np.isfinite(spread), names, "a variance that is not finite")
    _refuse(variances < 0, names, "a negative variance")
    if full and (np.abs(spread - spread.transpose(0, 2, 1)) > MAX_ASYMMETRY * variances.max()).any():
        raise DataError("A covariance matrix is not symmetric. Give variances, or covariances of the estimates.")
    return Estimates(names, values, variances.copy(), spread if full else None)


def _refuse(wrong: Any, names: tuple[str, ...], what: str) -> None:
    """Raise an error that names the first table and term with a value that cannot be pooled."""
    if wrong.any():
        table, term = np.argwhere(wrong)[0]
        raise DataError(
            f"Table {table + 1} of {len(wrong)} gives {names[term]!r} {what}. Check whether the model can be fitted "
            "to that table: terms may be collinear, or a category may be too rare."
        )

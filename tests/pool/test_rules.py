"""Rubin's rules against hand-computed values, a slow reference, published output and other programs."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mcflow.errors import DataError, McflowWarning, ParameterError
from mcflow.pool import pool


def slow(values: list[float], variances: list[float], complete: float, level: float = 0.95) -> dict[str, float]:
    """Pool one term, line by line as the book has it."""
    m = len(values)
    mean = sum(values) / m
    within = sum(variances) / m
    between = sum((value - mean) ** 2 for value in values) / (m - 1)
    total = within + between + between / m
    share = (between + between / m) / total
    riv = (between + between / m) / within
    df = (m - 1) / share**2
    if complete < math.inf:
        seen = (complete + 1) / (complete + 3) * complete * (1 - share)
        df = df * seen / (df + seen)
    half = stats.t(df).ppf((1 + level) / 2) * math.sqrt(total)
    return {
        "estimate": mean,
        "std.error": math.sqrt(total),
        "statistic": mean / math.sqrt(total),
        "df": df,
        "p.value": 2 * (1 - stats.t(df).cdf(abs(mean) / math.sqrt(total))),
        "low": mean - half,
        "high": mean + half,
        "riv": riv,
        "lambda": share,
        "fmi": (riv + 2 / (df + 3)) / (riv + 1),
    }


@pytest.mark.parametrize("complete", [math.inf, 7.0, 200.0])
@pytest.mark.parametrize("level", [0.95, 0.8])
def test_pool_agrees_with_the_slow_version(complete, level) -> None:
    rng = np.random.default_rng(0)
    values, variances = rng.normal(size=(6, 3)), rng.uniform(0.1, 1, size=(6, 3))
    table = pool(values, variances, df_complete=complete, level=level).table()
    for k in range(3):
        expected = slow(values[:, k].tolist(), variances[:, k].tolist(), complete, level)
        found = table.iloc[k, 1:].to_numpy(dtype=float)
        order = ["estimate", "std.error", "statistic", "df", "p.value", "low", "high", "riv", "lambda", "fmi"]
        np.testing.assert_allclose(found, [expected[name] for name in order], rtol=1e-9)


def with_moments(mean: float, within: float, between: float, m: int) -> tuple[np.ndarray, np.ndarray]:
    spread = np.arange(m) - (m - 1) / 2
    return mean + spread * math.sqrt(between / spread.var(ddof=1)), np.full(m, within)


# Printed by mice in S. van Buuren, "Flexible Imputation of Missing Data", 2nd edition: lm(bmi ~ age) of nhanes, m = 10.
@pytest.mark.parametrize(
    ("estimate", "ubar", "b", "t", "df", "riv", "share", "fmi"),
    [
        (30.50, 3.408, 1.454, 5.01, 12.4, 0.469, 0.319, 0.408),
        (-2.13, 0.906, 0.238, 1.167, 15.1, 0.288, 0.224, 0.310),
    ],
)
def test_pool_gives_what_mice_printed_for_nhanes(estimate, ubar, b, t, df, riv, share, fmi) -> None:
    found = pool(*with_moments(estimate, ubar, b, 10), df_complete=23)
    assert found.within[0] == pytest.approx(ubar)
    assert found.between[0] == pytest.approx(b)
    assert found.total[0] == pytest.approx(t, abs=0.005)
    assert found.df[0] == pytest.approx(df, abs=0.05)
    assert found.riv[0] == pytest.approx(riv, abs=0.0015)
    assert found.lambda_[0] == pytest.approx(share, abs=0.0006)
    assert found.fmi[0] == pytest.approx(fmi, abs=0.0006)


def test_pool_covers_at_its_level_when_estimates_are_normal() -> None:
    # Draws of a proper imputation: the observed estimate is N(0, U + B), and the m estimates N(it, B).
    rng, hits = np.random.default_rng(1), []
    for _ in range(2000):
        centre = rng.normal(scale=math.sqrt(2))
        low, high = pool(rng.normal(centre, 1, size=5), np.ones(5)).interval[0]
        hits.append(low < 0 < high)
    assert np.mean(hits) == pytest.approx(0.95, abs=0.02)


@given(st.integers(2, 30), st.floats(0, 5), st.floats(1, 1e4))
def test_degrees_of_freedom_and_shares_stay_within_their_limits(m, between, complete) -> None:
    found = pool(*with_moments(1.0, 1.0, between, m), df_complete=complete)
    seen = (complete + 1) / (complete + 3) * complete
    assert 0 < found.df[0] <= seen * (1 + 1e-12)
    assert 0 <= found.lambda_[0] <= found.fmi[0] <= 1 or complete < 2
    assert found.total[0] == pytest.approx(1 + (1 + 1 / m) * between)


def test_estimates_without_spread_have_the_degrees_of_freedom_of_the_data() -> None:
    found = pool([1.0, 1.0, 1.0], [0.25, 0.25, 0.25], df_complete=48)
    assert found.df[0] == pytest.approx(49 / 51 * 48)
    assert (found.riv[0], found.lambda_[0], found.total[0]) == (0, 0, 0.25)
    endless = pool([1.0, 1.0, 1.0], [0.25, 0.25, 0.25])
    assert math.isinf(endless.df[0])
    np.testing.assert_allclose(endless.interval[0], 1 + np.array([-1, 1]) * stats.norm.ppf(0.975) * 0.5)
    assert endless.p_value[0] == pytest.approx(2 * stats.norm.sf(2))


def test_estimates_without_an_error_of_their_own_keep_the_spread_between_tables() -> None:
    found = pool([1.0, 2.0, 3.0], [0.0, 0.0, 0.0], df_complete=20)
    assert (found.total[0], found.df[0]) == (pytest.approx(4 / 3), 2)
    assert (found.riv[0], found.lambda_[0], found.fmi[0]) == (math.inf, 1, 1)


def test_one_table_is_taken_as_complete_with_a_warning() -> None:
    with pytest.warns(McflowWarning, match="one completed table") as caught:
        found = pool([[2.0, 1.0]], [[[0.25, 0.1], [0.1, 1.0]]], df_complete=10)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(found.df, [10, 10])
    assert np.isnan(found.fmi).all()
    np.testing.assert_allclose(found.interval[0], 2 + np.array([-1, 1]) * stats.t(10).ppf(0.975) * 0.5)
    covariance = np.array([[0.25, 0.1], [0.1, 1.0]])
    test = found.wald()
    assert test.statistic == pytest.approx([2.0, 1.0] @ np.linalg.inv(covariance) @ [2.0, 1.0] / 2)
    assert (test.df1, test.df2) == (2, 10)


def test_containers_of_estimates_give_the_same_and_are_matched_by_name() -> None:
    values, variances = [[1.0, 5.0], [2.0, 4.0], [4.0, 6.0]], [[0.1, 0.5], [0.2, 0.6], [0.3, 0.4]]
    plain = pool(values, variances, names=["a", "b"])
    turned = [{"b": v[1], "a": v[0]} for v in variances]
    dicts = [{"a": e[0], "b": e[1]} for e in values]
    series = [pd.Series(row, index=["a", "b"]) for row in values]
    frame = pd.DataFrame(values, columns=["a", "b"])
    for given_values in (dicts, series, frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), tuple(dicts)):
        for given_variances in (variances, turned, [pd.Series(row) for row in turned], pd.DataFrame(turned)):
            found = pool(given_values, given_variances)
            assert found.names == ("a", "b")
            np.testing.assert_allclose(found.total, plain.total)
    arrow = [pa.array(row) for row in values]
    np.testing.assert_allclose(pool(arrow, [pl.Series(row) for row in variances]).total, plain.total)
    covariances = [pd.DataFrame(np.diag([v[1], v[0]]), index=["b", "a"], columns=["b", "a"]) for v in variances]
    np.testing.assert_allclose(pool(series, covariances).covariance.diagonal(), plain.total)


@pytest.mark.parametrize(
    ("values", "variances", "words"),
    [
        ([], [], "no estimates"),
        ([[]], [[]], "at least one"),
        ([[1.0], [1.0, 2.0]], [[1.0], [1.0]], "differ in size"),
        ([[1.0], [2.0]], [[1.0]], r"\(2, 1\) and the variances \(1, 1\)"),
        ([[1.0], [math.nan]], [[1.0], [1.0]], "Table 2 of 2 gives 'term1' an estimate"),
        ([[1.0], [2.0]], [[1.0], [math.inf]], "variance that is not finite"),
        ([[1.0], [2.0]], [[1.0], [-1.0]], "negative variance"),
        ([{"a": 1.0}, {"b": 1.0}], [[1.0], [1.0]], "names 'b', while the first"),
        ([[1.0], ["x"]], [[1.0], [1.0]], "cannot be read as numbers"),
        ({"a": 1.0}, [[1.0]], "one entry per completed table"),
        ([[1.0, 2.0]] * 2, [[[1.0, 0.5], [0.2, 1.0]]] * 2, "not symmetric"),
    ],
)
def test_invalid_estimates_are_refused(values, variances, words) -> None:
    with pytest.raises(DataError, match=words):
        pool(values, variances)


@pytest.mark.parametrize("wrong", [{"level": 1.0}, {"level": 95}, {"df_complete": 0}, {"df_complete": math.nan}])
def test_parameters_out_of_range_are_refused(wrong) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        pool([1.0, 2.0], [1.0, 1.0], **wrong)


def test_names_have_to_fit() -> None:
    with pytest.raises(DataError, match="Give each its own name"):
        pool([[1.0, 2.0]] * 2, [[1.0, 2.0]] * 2, names=["a", "a"])


def d1(values: np.ndarray, covariances: np.ndarray) -> tuple[float, float, float]:
    """D1 and its large-sample degrees of freedom, as the article has them."""
    m, k = values.shape
    mean, within = values.mean(0), covariances.mean(0)
    between = sum(np.outer(v - mean, v - mean) for v in values) / (m - 1)
    r = (1 + 1 / m) * np.trace(between @ np.linalg.inv(within)) / k
    statistic = mean @ np.linalg.inv((1 + r) * within) @ mean / k
    t = k * (m - 1)
    df = 4 + (t - 4) * (1 + (1 - 2 / t) / r) ** 2 if t > 4 else t * (1 + 1 / k) * (1 + 1 / r) ** 2 / 2
    return statistic, df, r


@pytest.fixture
def several() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    roots = rng.normal(size=(5, 3, 6))
    return 0.7 + 0.4 * rng.normal(size=(5, 3)), roots @ roots.transpose(0, 2, 1) / 6


def test_wald_test_agrees_with_the_article(several) -> None:
    values, covariances = several
    test = pool(values, covariances).wald()
    statistic, df, r = d1(values, covariances)
    assert (test.statistic, test.df2, test.riv) == pytest.approx((statistic, df, r))
    assert test.p_value == pytest.approx(stats.f(3, df).sf(statistic))
    few = pool(values[:3, :2], covariances[:3, :2, :2]).wald()
    assert (few.statistic, few.df2) == pytest.approx(d1(values[:3, :2], covariances[:3, :2, :2])[:2])
    chosen = pool(values, covariances, names=["Intercept", "a", "b"]).wald()
    assert chosen.terms == ("a", "b")
    assert chosen.statistic == pytest.approx(d1(values[:, 1:], covariances[:, 1:, 1:])[0])


def test_wald_test_of_one_term_is_its_t_test_squared(several) -> None:
    found = pool(*several, df_complete=30)
    test = found.wald(["term2"])
    assert (test.statistic, test.df2) == pytest.approx((found.statistic[1] ** 2, found.df[1]))
    assert test.p_value == pytest.approx(found.p_value[1])


def test_wald_test_measures_the_distance_from_given_values(several) -> None:
    found = pool(*several)
    assert found.wald(value=found.estimate).statistic == pytest.approx(0)
    assert found.wald(["term1", "term3"], value=[1.0, 2.0]).statistic > 0


def test_small_sample_degrees_of_freedom_have_the_right_limits(several) -> None:
    values, covariances = several
    large = pool(values, covariances).wald().df2
    dfs = [pool(values, covariances, df_complete=n).wald().df2 for n in (20, 100, 1e3, 1e8)]
    assert dfs == sorted(dfs)
    assert dfs[-1] == pytest.approx(large, rel=1e-4)
    same = np.repeat(values[:1], 5, axis=0)
    assert pool(same, covariances, df_complete=60).wald().df2 == pytest.approx(61 / 63 * 60)
    assert math.isinf(pool(same, covariances).wald().df2)
    assert 0 < pool(values, covariances, df_complete=4).wald().df2 < 4


def test_small_sample_degrees_of_freedom_are_reiter_s() -> None:
    # r = 0.5 and t = 8 make a = 2/3; the figure is the sum of Reiter's terms, worked out with fractions.
    values = np.array([[-1.0, 0], [1, 0], [0, -1], [0, 1], [0, 0]])  # B = I / 2, trace / k = 1 / 2
    found = pool(values, [np.eye(2) * 1.2] * 5, df_complete=57).wald()
    assert found.riv == pytest.approx(0.5)
    a, seen = 2 / 3, 58 / 60 * 57
    c1, c2 = seen - 10 / 3, seen - 20 / 3
    z = 1 / c2 + (a**2 / 4) * (
        c1 / c2 * 9 / 25 + 8 * c1 / c2**2 * 3 / 5 + 4 / c2 * 3 / 5 + 4 / (c2 * c1) + 16 * c1 / c2**3 + 8 / c2**2
    )
    assert found.df2 == pytest.approx(4 + 1 / z)


def test_wald_test_is_refused_where_it_cannot_be_done(several) -> None:
    with pytest.raises(ParameterError, match="only variances"):
        pool([[1.0, 2.0]] * 2, [[1.0, 1.0]] * 2).wald()
    with pytest.raises(ParameterError, match="Did you mean 'term1'"):
        pool(*several).wald(["trm1"])
    with pytest.raises(ParameterError, match="each once"):
        pool(*several).wald(["term1", "term1"])
    with pytest.raises(DataError, match="singular"):
        pool([[1.0, 2.0]] * 2, [np.ones((2, 2))] * 2).wald()


def test_covariance_is_that_of_statsmodels() -> None:
    import statsmodels.api as sm
    from statsmodels.imputation.mice import MICE, MICEData

    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.normal(size=60)})
    frame["y"] = frame.x + rng.normal(size=60)
    frame.loc[:15, "x"] = np.nan
    data = MICEData(frame, rng=0) if "rng" in MICEData.__init__.__code__.co_varnames else MICEData(frame)
    theirs = MICE("y ~ x", sm.OLS, data)
    result = theirs.fit(n_burnin=2, n_imputations=5)
    ours = pool(
        [one._results.params for one in theirs.results_list], [one._results.cov_params() for one in theirs.results_list]
    )
    np.testing.assert_allclose(ours.estimate, result.params)
    np.testing.assert_allclose(ours.covariance, result.cov_params())
    np.testing.assert_allclose(ours.std_error, result.bse)
    np.testing.assert_allclose(ours.lambda_, result.frac_miss_info)


def test_table_is_of_pandas() -> None:
    found = pool([[1.0, 2.0], [2.0, 2.5]], [[1.0, 1.0]] * 2, names=["a", "b"], level=0.9)
    columns = ["term", "estimate", "std.error", "statistic", "df", "p.value", "5 %", "95 %", "riv", "lambda", "fmi"]
    table = found.table()
    assert list(table.columns) == columns
    assert list(table.term) == ["a", "b"]
    np.testing.assert_array_equal(table.estimate, found.estimate)


def test_text_and_html_show_every_term_and_escape_names() -> None:
    found = pool([[1e-9, 2e6], [2e-9, 2.5e6]], [[1e-18, 1e10]] * 2, names=["<a>", "b"])
    lines = str(found).splitlines()
    assert repr(found) == str(found)
    assert len({len(line) for line in lines[1:]}) == 1
    assert "1.5e-09" in lines[2]
    assert "2250000" in lines[3]
    page = found._repr_html_()
    assert "&lt;a&gt;" in page
    assert page.count("<tr>") == 3
    assert "inf" in str(pool([1.0, 1.0], [0.0, 0.0]))

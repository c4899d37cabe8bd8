"""Logistic and Cox regressions, and tests of nested models, by their definitions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mcflow import fit_pooled
from mcflow.errors import DataError, ParameterError

pytest.importorskip("statsmodels", reason="statsmodels is not installed")


@pytest.fixture(scope="module")
def draws() -> list[pd.DataFrame]:
    """Completed tables with a number, a binary outcome and times to an event."""
    rng = np.random.default_rng(0)
    tables = []
    a, b = rng.normal(size=(2, 150))
    for _ in range(8):
        c = a + 0.5 * rng.normal(size=150)
        y = a + 0.3 * c + rng.normal(size=150)
        ill = np.where(rng.random(150) < 1 / (1 + np.exp(-a - 0.5 * c)), "yes", "no")
        time = rng.exponential(np.exp(-0.5 * a))
        tables.append(pd.DataFrame({"a": a, "b": b, "c": c, "y": y, "ill": ill, "time": time, "died": b > -1}))
    return tables


def test_binomial_outcome_of_two_categories_is_coded_as_in_r(draws) -> None:
    import statsmodels.formula.api as smf

    fit = fit_pooled("ill ~ a + c", draws, family="binomial")
    coded = [table.assign(ill=(table["ill"] == "yes").astype(int)) for table in draws]
    logit = fit_pooled(smf.logit, coded, formula="ill ~ a + c")
    np.testing.assert_allclose(fit.estimate, logit.estimate, rtol=1e-5)
    assert fit.estimate[1] > 0
    boolean = [table.assign(ill=table["ill"] == "yes") for table in draws]
    np.testing.assert_allclose(fit_pooled("ill ~ a + c", boolean, family="binomial").estimate, fit.estimate)
    three = [table.assign(ill=["x", "y", "z"] * 50) for table in draws]
    with pytest.raises(DataError, match="has 3 categories"):
        fit_pooled("ill ~ a", three, family="binomial")
    with pytest.raises(ParameterError, match="Did you mean 'binomial'"):
        fit_pooled("ill ~ a", draws, family="binomal")


def test_summary_when_exponentiated_has_odds_ratios(draws) -> None:
    fit = fit_pooled("ill ~ a", draws, family="binomial")
    plain, ratios = fit.summary(), fit.summary(exponentiate=True)
    np.testing.assert_allclose(ratios["estimate"], np.exp(plain["estimate"]))
    np.testing.assert_allclose(ratios["97.5 %"], np.exp(plain["97.5 %"]))
    np.testing.assert_allclose(ratios["std.error"], plain["std.error"])


def test_cox_regression_is_pooled_by_a_function(draws) -> None:
    import statsmodels.formula.api as smf

    def cox(formula: str):
        return lambda table: smf.phreg(formula, table, status=table["died"].to_numpy()).fit()

    large, small = fit_pooled(cox("time ~ a + b"), draws), fit_pooled(cox("time ~ b"), draws)
    assert large.names == ("a", "b")
    for method in ("D1", "D2", "D3"):
        assert large.compare(small, method).p_value < 0.05


def test_compare_when_models_are_not_nested_says_so(draws) -> None:
    large, small = fit_pooled("y ~ a + b + c", draws), fit_pooled("y ~ a", draws)
    for wrong in (fit_pooled("y ~ a + died", draws), fit_pooled("y ~ a", draws[:3]), large):
        with pytest.raises(ParameterError, match="not nested"):
            large.compare(wrong)
    with pytest.raises(ParameterError, match="method is 'D4'"):
        large.compare(small, "D4")
    assert large.compare(small).terms == ("b", "c")
    assert large.compare(small) == large.wald(["b", "c"])


def log_likelihood(outcome: str, table: pd.DataFrame, linear: np.ndarray) -> float:
    """Return that of a logistic regression, or of a linear one with the best variance."""
    if outcome == "ill":
        sign = np.where(table["ill"] == "yes", 1, -1)
        return -np.log1p(np.exp(-sign * linear)).sum()
    return -len(table) / 2 * (np.log(2 * np.pi * ((table["y"] - linear) ** 2).mean()) + 1)


@pytest.mark.parametrize("outcome", ["y", "ill"])
def test_d3_compares_likelihoods_at_own_and_at_pooled_estimates(draws, outcome) -> None:
    family = {"family": "binomial"} if outcome == "ill" else {}
    large, small = (fit_pooled(f"{outcome} ~ {terms}", draws, **family) for terms in ("a + b + c", "a"))
    own, pooled = [], []
    for number, table in enumerate(draws):
        designs = [np.column_stack([np.ones(len(table)), table[list(names)]]) for names in ("abc", "a")]
        for found, params in (
            (own, [np.asarray(fit.results[number].params) for fit in (large, small)]),
            (pooled, [large.estimate, small.estimate]),
        ):
            one, none = (log_likelihood(outcome, table, x @ q) for x, q in zip(designs, params, strict=True))
            found.append(2 * (one - none))
    m, k, test = len(draws), 2, large.compare(small, "D3")
    r = (m + 1) / (k * (m - 1)) * (np.mean(own) - np.mean(pooled))
    assert test.riv == pytest.approx(r, rel=1e-6)
    assert test.statistic == pytest.approx(np.mean(pooled) / (k * (1 + r)), rel=1e-6)
    assert test.df2 == pytest.approx(4 + (k * (m - 1) - 4) * (1 + (1 - 2 / (k * (m - 1))) / r) ** 2, rel=1e-6)


def test_d2_pools_the_wald_statistics_of_the_tables(draws) -> None:
    large, small = fit_pooled("y ~ a + b + c", draws), fit_pooled("y ~ a", draws)
    wald = [one.wald_test("b = 0, c = 0", use_f=False, scalar=True).statistic for one in large.results]
    m, k, found = len(draws), 2, large.compare(small, "D2")
    r = (1 + 1 / m) * np.var(np.sqrt(wald), ddof=1)
    assert found.statistic == pytest.approx(max((np.mean(wald) / k - (m + 1) / (m - 1) * r) / (1 + r), 0))
    assert (found.df1, found.riv) == (2, pytest.approx(r))
    assert found.df2 == pytest.approx(k ** (-3 / m) * (m - 1) * (1 + 1 / r) ** 2)

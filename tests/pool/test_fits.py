"""Pooled fits against statsmodels, for every kind of table and every kind of analysis."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeRegressor

from mcflow.errors import DataError, McflowWarning, MissingExtraError, ParameterError
from mcflow.pool import fit_pooled, pool, pool_predictions


def completed(m: int = 4, n: int = 150) -> list[pd.DataFrame]:
    """Tables that differ in some cells, as draws do."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(50, 10, n), "sex": rng.choice(["male", "female"], n)})
    frame["smokes"] = rng.random(n) < 0.3
    frame["bmi"] = 20 + 0.1 * frame.age + 2 * (frame.sex == "male") - frame.smokes + rng.normal(size=n)
    frame["ill"] = np.where(rng.random(n) < 1 / (1 + np.exp(-(frame.bmi - 26))), "yes", "no")
    frame["grade"] = rng.choice(["a", "b", "c"], n)
    draws = []
    for _ in range(m):
        one = frame.copy()
        one.loc[:30, "age"] = rng.normal(50, 10, 31)
        one.loc[20:40, "sex"] = rng.choice(["male", "female"], 21)
        draws.append(one)
    return draws


@pytest.fixture(scope="module")
def draws() -> list[pd.DataFrame]:
    return completed()


def by_hand(draws, formula, family=smf.ols):
    fits = [family(formula, one).fit(disp=0) for one in draws]
    return pool([fit.params for fit in fits], [fit.cov_params() for fit in fits], df_complete=fits[0].df_resid), fits


def same(ours, theirs, rtol=1e-7) -> None:
    assert ours.names == theirs.names
    np.testing.assert_allclose(ours.estimate, theirs.estimate, rtol=rtol)
    np.testing.assert_allclose(ours.covariance, theirs.covariance, rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(ours.df, theirs.df, rtol=rtol)


CONTAINERS = {
    "pandas": lambda one: one,
    "polars": pl.from_pandas,
    "pyarrow": lambda one: pa.Table.from_pandas(one, preserve_index=False),
    "categories": lambda one: one.astype({"sex": "category"}),
    "polars enum": lambda one: pl.from_pandas(one).with_columns(pl.col("sex").cast(pl.Enum(["female", "male"]))),
}


@pytest.mark.parametrize("kind", list(CONTAINERS))
def test_linear_regression_is_that_of_statsmodels(kind, draws) -> None:
    theirs, fits = by_hand(draws, "bmi ~ age + sex + smokes")
    tables = map(CONTAINERS[kind], draws)
    ours = fit_pooled(LinearRegression(), tables, target="bmi", features=["sex", "smokes", "age"])
    assert ours.names == ("Intercept", "sex[T.male]", "smokes[T.True]", "age")
    ours_again = fit_pooled("bmi ~ age + sex + smokes", map(CONTAINERS[kind], draws))
    same(ours_again, theirs)
    order = [ours.names.index(name) for name in theirs.names]
    np.testing.assert_allclose(ours.estimate[order], theirs.estimate)
    np.testing.assert_allclose(ours.covariance[np.ix_(order, order)], theirs.covariance, atol=1e-12)
    np.testing.assert_allclose(ours.df[order], theirs.df)
    expected = np.mean([fit.predict(draws[0]) for fit in fits], axis=0)
    first = CONTAINERS[kind](draws[0])
    np.testing.assert_allclose(ours.predict(first), expected)
    np.testing.assert_allclose(ours_again.predict(first), expected)


def test_arrays_of_numpy_have_numbered_terms(draws) -> None:
    arrays = [one[["age", "bmi"]].to_numpy() for one in draws]
    theirs, _ = by_hand([pd.DataFrame(one, columns=["x0", "x1"]) for one in arrays], "x1 ~ x0")
    same(fit_pooled(LinearRegression(), iter(arrays), target=1), theirs)
    same(fit_pooled("x1 ~ x0", np.stack(arrays)), theirs)
    mixed = [one[["age", "sex", "bmi"]].to_numpy(dtype=object) for one in draws]
    assert fit_pooled(LinearRegression(), mixed, target=2).names == ("Intercept", "x0", "x1[T.male]")


def test_regression_without_an_intercept_has_none(draws) -> None:
    theirs, _ = by_hand(draws, "bmi ~ age - 1")
    same(fit_pooled(LinearRegression(fit_intercept=False), draws, target="bmi", features=["age"]), theirs)


def test_logistic_regression_is_that_of_statsmodels(draws) -> None:
    coded = [one.assign(ill01=(one.ill == "yes").astype(float)) for one in draws]
    theirs, fits = by_hand(coded, "ill01 ~ sex + bmi", smf.logit)
    ours = fit_pooled(LogisticRegression(C=np.inf, max_iter=1000), draws, target="ill", features=["sex", "bmi"])
    same(ours, theirs, rtol=1e-5)
    assert list(ours.classes) == ["no", "yes"]
    expected = np.mean([fit.predict(coded[0]) for fit in fits], axis=0)
    np.testing.assert_allclose(ours.predict(draws[0])[:, 1], expected, atol=1e-3)
    same(fit_pooled(smf.logit, coded, formula="ill01 ~ sex + bmi"), theirs)
    same(fit_pooled(smf.glm, coded, formula="ill01 ~ sex + bmi", family=sm.families.Binomial()), theirs, rtol=1e-4)


def test_multinomial_regression_is_that_of_statsmodels(draws) -> None:
    coded = [one.assign(number=one.grade.map({"a": 0, "b": 1, "c": 2})) for one in draws]
    theirs = fit_pooled(smf.mnlogit, coded, formula="number ~ age + sex")
    ours = fit_pooled(LogisticRegression(C=np.inf, max_iter=2000), draws, target="grade", features=["age", "sex"])
    assert ours.names[:3] == ("b:Intercept", "b:age", "b:sex[T.male]")
    order = [0, 2, 1, 3, 5, 4]  # formulas put categories before numbers
    np.testing.assert_allclose(ours.estimate[order], theirs.estimate, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.std_error[order], theirs.std_error, rtol=1e-5)
    assert ours.predict(draws[0]).shape == (150, 3)
    np.testing.assert_allclose(ours.predict(draws[0]).sum(axis=1), 1)


def test_function_may_return_any_kind_of_result(draws) -> None:
    theirs, fits = by_hand(draws, "bmi ~ age")

    def regression(one):
        return sm.OLS(one.bmi.to_numpy(), sm.add_constant(one.age.to_numpy())).fit()

    analyses = {
        "results": lambda one: smf.ols("bmi ~ age", one).fit(),
        "arrays": regression,
        "pair": lambda one: (regression(one).params, regression(one).cov_params()),
        "model": lambda one: LinearRegression().fit(one[["age"]], one.bmi),
    }
    for name, analysis in analyses.items():
        found = fit_pooled(analysis, draws, target="bmi", df_complete=148)
        np.testing.assert_allclose(found.estimate, theirs.estimate, err_msg=name)
        np.testing.assert_allclose(found.covariance, theirs.covariance, err_msg=name)
        np.testing.assert_allclose(found.df, theirs.df, err_msg=name)
        if name in ("results", "model"):
            assert found.names == ("Intercept", "age")
            given = draws[0] if name == "results" else draws[0][["age"]]
            np.testing.assert_allclose(found.predict(given), np.mean([f.predict(draws[0]) for f in fits], axis=0))
    turned = fit_pooled(lambda one: (fits[0].params, fits[0].bse[::-1] ** 2), draws)
    np.testing.assert_allclose(turned.within, fits[0].bse ** 2)
    means = fit_pooled(lambda one: {"mean": (one.bmi.mean(), one.bmi.var() / len(one))}, draws)
    assert means.names == ("mean",)
    assert np.isinf(means.df_complete)
    with pytest.raises(ParameterError, match="cannot predict"):
        means.predict(draws[0])


def test_other_estimators_are_pooled_for_predictions_only(draws) -> None:
    for model in (Ridge(), DecisionTreeRegressor(max_depth=2, random_state=0), LinearRegression(positive=True)):
        fit = fit_pooled(model, draws, target="bmi", features=["age", "sex"])
        with pytest.raises(ParameterError, match="for predictions only"):
            fit.table()
        with pytest.raises(ParameterError, match="for predictions only"):
            fit.wald()
        assert "for predictions only" in str(fit)
        assert "for predictions only" in fit._repr_html_()
        mean, std = fit.predict(draws[0], return_std=True)
        each = [one.predict(np.column_stack([draws[0].age, draws[0].sex == "male"])) for one in fit.results]
        np.testing.assert_allclose(mean, np.mean(each, axis=0))
        np.testing.assert_allclose(std, np.std(each, axis=0, ddof=1))
    penalised = fit_pooled(LogisticRegression(), draws, target="ill", features=["sex", "bmi"])
    with pytest.raises(ParameterError, match=r"C=np.inf"):
        penalised.table()
    called = fit_pooled(lambda one: Ridge().fit(one[["age"]], one.bmi), draws)
    assert called.predict(draws[0][["age"]]).shape == (150,)


def test_classifier_gives_mean_probabilities(draws) -> None:
    forest = RandomForestClassifier(n_estimators=5, random_state=0)
    fit = fit_pooled(forest, draws, target="ill", features=["age", "bmi"])
    each = [one.predict_proba(draws[0][["age", "bmi"]].to_numpy()) for one in fit.results]
    np.testing.assert_allclose(fit.predict(draws[0]), np.mean(each, axis=0))
    with pytest.raises(ParameterError, match="no predict_proba"):
        fit_pooled(LinearSVC(), draws, target="ill", features=["bmi"]).predict(draws[0])


def test_pipeline_gets_the_columns_as_they_are(draws) -> None:
    ways = make_column_transformer((OneHotEncoder(drop="first"), ["sex"]), remainder="passthrough")
    fit = fit_pooled(make_pipeline(ways, LinearRegression()), draws, target="bmi", features=["age", "sex"])
    plain = fit_pooled(LinearRegression(), draws, target="bmi", features=["age", "sex"])
    np.testing.assert_allclose(fit.predict(draws[1]), plain.predict(draws[1]))


def test_draws_of_new_rows_go_to_one_model_each(draws) -> None:
    fit = fit_pooled(LinearRegression(), draws, target="bmi", features=["age", "sex"])
    single = [pool_predictions(iter([fit.analysis.predict(m, one)])) for m, one in zip(fit.results, draws, strict=True)]
    np.testing.assert_allclose(fit.predict(draws), np.mean(single, axis=0))
    np.testing.assert_allclose(fit.predict(iter(draws)), np.mean(single, axis=0))
    for wrong in (draws[:3], [*draws, draws[0]]):
        with pytest.raises(DataError, match="one draw per model"):
            fit.predict(wrong)


def test_draws_are_read_one_at_a_time(draws) -> None:
    seen = []

    def lazily():
        for number, one in enumerate(draws):
            assert len(seen) == number
            yield one

    def analysis(one):
        seen.append(id(one))
        return smf.ols("bmi ~ age", one).fit()

    assert fit_pooled(analysis, lazily()).m == len(draws)


def test_complete_degrees_of_freedom_may_be_given(draws) -> None:
    def fit(**how):
        return fit_pooled(LinearRegression(), draws, target="bmi", features=["age"], **how)

    assert fit().df_complete == 148
    assert fit(df_complete=12).df_complete == 12
    assert np.isinf(fit(df_complete=None).df_complete)


def test_one_table_warns_and_gives_the_analysis_of_it(draws) -> None:
    with pytest.warns(McflowWarning, match="one completed table") as caught:
        fit = fit_pooled(LinearRegression(), draws[:1], target="bmi", features=["age"])
    assert caught[0].filename == __file__
    plain = smf.ols("bmi ~ age", draws[0]).fit()
    np.testing.assert_allclose(fit.interval, plain.conf_int().to_numpy())
    np.testing.assert_allclose(fit.p_value, plain.pvalues)


@pytest.mark.parametrize(
    ("estimator", "how", "words"),
    [
        (LinearRegression(), {}, "Give target="),
        (LinearRegression(), {"target": "bim"}, "Did you mean 'bmi'"),
        (LinearRegression(), {"target": "bmi", "features": ["bmi"]}, "among the features"),
        (LinearRegression(), {"target": "bmi", "formula": "bmi ~ age"}, "statsmodels.formula.api"),
        ("bmi ~ age", {"formula": "bmi ~ age"}, "statsmodels.formula.api"),
        (LinearRegression, {"target": "bmi"}, "such as LinearRegression"),
        (3, {}, "Give a formula"),
        (lambda one: 3, {}, "The analysis returned int"),
        (lambda one: {"a": 3}, {}, "pair"),
        (lambda one: one, {"family": 1}, "family"),
    ],
)
def test_wrong_use_is_refused(estimator, how, words, draws) -> None:
    with pytest.raises(ParameterError, match=words):
        fit_pooled(estimator, draws, **how)


@pytest.mark.parametrize("given", [completed(1)[0], completed(1)[0][["age"]].to_numpy(), "draws", 3])
def test_draws_that_are_not_several_tables_are_refused(given) -> None:
    with pytest.raises(ParameterError, match="draws is"):
        fit_pooled("bmi ~ age", given)


def test_tables_that_cannot_be_analysed_are_named(draws) -> None:
    def fit(tables, target="bmi", features=("age",), model=None):
        return fit_pooled(model or LinearRegression(), tables, target=target, features=features)

    holed = draws[1].assign(age=draws[1].age.where(draws[1].index > 3))
    with pytest.raises(DataError, match=r"Table 2: Column 'age' has 4 missing"):
        fit([draws[0], holed])
    with pytest.raises(DataError, match="collinear with the terms before them: 'twice'"):
        fit([one.assign(twice=2 * one.age) for one in draws], features=["age", "twice"])
    with pytest.raises(DataError, match="categories that the first table did not have: other"):
        fit([draws[0], draws[1].assign(sex="other")], features=["sex"])
    with pytest.raises(DataError, match="needs numbers"):
        fit(draws, target="sex")
    with pytest.raises(DataError, match="cannot use"):
        fit([one.assign(day=pd.Timestamp("2020-01-01")) for one in draws], features=["day"])
    with pytest.raises(DataError, match="more than 2 rows"):
        fit([one.iloc[:2] for one in draws])
    split = [one.assign(z=(one.ill == "yes") * 1.0) for one in draws]
    with pytest.raises(DataError, match="separation"):
        fit(split, "ill", ["z"], LogisticRegression(C=np.inf))
    with pytest.raises(DataError, match="classes"):
        fit(
            [draws[0], draws[1].assign(ill="no").assign(ill=lambda one: one.ill.where(one.index > 3, "maybe"))],
            "ill",
            ["bmi"],
            LogisticRegression(),
        )
    with pytest.raises(DataError, match="no completed tables"):
        fit([])
    with pytest.raises(DataError, match="gives the terms"):
        fit_pooled(lambda one: {str(len(one)): (1.0, 1.0)}, [draws[0], draws[1].iloc[:5]])


def test_formula_without_statsmodels_says_what_to_install(draws, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels.formula.api", None)
    with pytest.raises(MissingExtraError, match=r"pip install '.*\[stats\]'"):
        fit_pooled("bmi ~ age", draws)


def test_predictions_are_averaged_and_wrong_ones_refused() -> None:
    mean, std = pool_predictions(iter([[1.0, 2.0], [3.0, 2.0], [5.0, 5.0]]), return_std=True)
    np.testing.assert_allclose(mean, [3, 3])
    np.testing.assert_allclose(std, [2, np.sqrt(3)])
    assert np.isnan(pool_predictions([[1.0]], return_std=True)[1]).all()
    for wrong, words in (([], "no predictions"), ([[1.0], [1.0, 2.0]], "shape"), ([["a"]], "probabilities")):
        with pytest.raises(DataError, match=words):
            pool_predictions(wrong)


def test_pooling_needs_no_torch() -> None:
    code = "import sys, mcflow.pool; print('torch' in sys.modules, 'statsmodels' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]

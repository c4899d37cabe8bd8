"""The sentences of the verdict follow from the scores."""

from __future__ import annotations

from mcflow.evaluation.result import verdict
from mcflow.evaluation.scores import CellScore, ColumnScore, MethodScore


def column(name: str, *, enough: bool = True, predictable: bool = True, **standings: str | None) -> ColumnScore:
    methods = {other: CellScore(2.0, 1.0, None, way) for other, way in standings.items()}
    methods["mcflow"] = CellScore(1.5, 0.75, 0.9)
    return ColumnScore(name, "continuous", "rmse", 50, enough, predictable, methods)


METHODS = [MethodScore("mcflow", 1.0, 0.75, 0.9), MethodScore("mean", 0.1, 1.0), MethodScore("mice", 0.2, 0.8)]


def said(*columns: ColumnScore, methods: list[MethodScore] = METHODS, **overall: str) -> str:
    return "\n".join(verdict(columns, methods, {"mean": "worse", "mice": "same"} | overall, 0.9))


def test_mcflow_is_better_only_where_every_other_method_is_significantly_worse() -> None:
    text = said(column("a", mean="worse", mice="worse"), column("b", mean="worse", mice="same"))
    assert "mcflow is significantly better than every other method in 1 of 2 columns: a." in text
    assert "mcflow is not significantly different from mice in b." in text
    assert "In no column is another method significantly better than mcflow." in text


def test_significantly_worse_columns_are_named_with_both_errors() -> None:
    text = said(column("a", mean="worse", mice="better"))
    assert "mcflow is significantly worse than another method in a (mice 2, mcflow 1.5)." in text
    assert "In no column is mcflow significantly better than every other method" in text


def test_unpredictable_columns_are_named_once_and_not_as_ties() -> None:
    text = said(column("a", mean="same", mice="same", predictable=False))
    assert "Columns that could not be predicted from the others: a." in text
    assert "not significantly different from" not in text.partition("mice.")[2]


def test_columns_with_few_cells_are_named_and_not_compared() -> None:
    text = said(column("a", enough=False, mean=None, mice=None), column("b", mean="worse", mice="worse"))
    assert "Too few hidden cells to compare methods in a." in text
    assert "in every column with enough hidden cells: b." in text


def test_overall_sentence_gives_errors_and_standings() -> None:
    text = said(column("a", mean="worse", mice="same"))
    assert "the error of mcflow is 0.75 of the mean's; that of mice is 0.80." in text
    assert "It is significantly better than the mean and not significantly different from mice." in text
    assert "significantly worse than mice" in said(column("a", mean="worse", mice="better"), mice="better")


def test_failed_methods_are_named_and_left_out_of_the_rest() -> None:
    failed = [*METHODS[:2], MethodScore("mice", error_message="out of memory")]
    text = said(column("a", mean="worse"), methods=failed)
    assert "mice failed: out of memory" in text
    assert "that of mice" not in text
    ours = [MethodScore("mcflow", error_message="no luck"), *METHODS[1:]]
    text = said(column("a", mean=None, mice=None), methods=ours)
    assert "mcflow failed: no luck" in text
    assert "Over all" not in text


def test_intervals_are_called_too_narrow_or_too_wide_only_beyond_the_tolerance() -> None:
    one = column("a", mean="worse", mice="worse")
    assert "cover 90.0% of the hidden numbers." in said(one)
    for share, words in ((0.7, "too narrow"), (0.99, "too wide")):
        text = said(one, methods=[MethodScore("mcflow", 1.0, 0.75, share), *METHODS[1:]])
        assert words in text


def test_recommendation_names_the_fastest_method_that_is_as_good() -> None:
    text = said(column("a", mean="worse", mice="same"))
    assert "Recommendation: mice in 0.2 s is as good here as mcflow in 1 s" in text
    assert "--repeats 3" in text


def test_recommendation_when_mcflow_is_better_says_by_how_much_and_where() -> None:
    text = said(column("a", mean="worse", mice="worse"), column("b", mean="worse", mice="same"), mice="worse")
    assert "use mcflow. Its error is 6 % below that of mice, the best of the others" in text
    assert "significantly lower in 1 of 2 columns. It was fitted in 1 s, mice in 0.2 s." in text


def test_recommendation_when_another_method_is_better_names_it() -> None:
    best = [METHODS[0], METHODS[1], MethodScore("mice", 0.2, 0.6)]
    text = said(column("a", mean="worse", mice="better"), methods=best, mice="better")
    assert "Recommendation: use mice, 20 % below the error of mcflow in 0.2 s." in text


def test_hint_at_repeats_is_given_only_for_one_repeat() -> None:
    text = "\n".join(verdict([column("a", mean="worse", mice="same")], METHODS, {"mice": "same"}, 0.9, repeats=3))
    assert "--repeats" not in text
    assert "Recommendation" in text

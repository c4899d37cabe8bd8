"""The verdict says what the scores say, and no more."""

from __future__ import annotations

from mcflow.evaluation.result import CellScore, ColumnScore, MethodScore
from mcflow.evaluation.verdict import verdict


def column(name: str, *, enough: bool = True, predictable: bool = True, **standings: str | None) -> ColumnScore:
    methods = {other: CellScore(2.0, 1.0, None, way) for other, way in standings.items()}
    methods["mcflow"] = CellScore(1.5, 0.75, 0.9)
    return ColumnScore(name, "continuous", "rmse", 50, enough, predictable, methods)


METHODS = [MethodScore("mcflow", 1.0, 0.75, 0.9), MethodScore("mean", 0.1, 1.0), MethodScore("mice", 0.2, 0.8)]


def said(*columns: ColumnScore, methods: list[MethodScore] = METHODS, **overall: str) -> str:
    return "\n".join(verdict(columns, methods, {"mean": "worse", "mice": "same"} | overall, 0.9))


def test_column_is_a_win_only_when_every_method_is_worse_beyond_noise() -> None:
    text = said(column("a", mean="worse", mice="worse"), column("b", mean="worse", mice="same"))
    assert "Better than every other method by more than noise in 1 of 2 columns: a." in text
    assert "Within noise, mice does as well as mcflow in b." in text
    assert "In no column is a simpler method better" in text


def test_loss_is_said_plainly_with_both_errors() -> None:
    text = said(column("a", mean="worse", mice="better"))
    assert "mcflow is plainly worse than a simpler method in a (mice 2, mcflow 1.5)." in text
    assert "In no column is mcflow better than every other method" in text


def test_unpredictable_columns_are_named_once_and_not_as_ties() -> None:
    text = said(column("a", mean="same", mice="same", predictable=False))
    assert "Cannot be predicted from the other columns, as far as these cells tell: a." in text
    assert "does as well" not in text


def test_columns_with_few_cells_are_only_counted_out() -> None:
    text = said(column("a", enough=False, mean=None, mice=None), column("b", mean="worse", mice="worse"))
    assert "Too few hidden cells to say anything of a." in text
    assert "in every column that can be judged: b." in text


def test_overall_sentence_gives_errors_and_standings() -> None:
    text = said(column("a", mean="worse", mice="same"))
    assert "the error of mcflow is 0.75 of the mean's; that of mice is 0.80." in text
    assert "better than the mean and no different, beyond noise, from mice" in text
    assert "worse than mice" in said(column("a", mean="worse", mice="better"), mice="better")


def test_failures_are_said_and_leave_the_rest_standing() -> None:
    failed = [*METHODS[:2], MethodScore("mice", error_message="out of memory")]
    text = said(column("a", mean="worse"), methods=failed)
    assert "mice failed: out of memory" in text
    assert "that of mice" not in text
    ours = [MethodScore("mcflow", error_message="no luck"), *METHODS[1:]]
    text = said(column("a", mean=None, mice=None), methods=ours)
    assert "mcflow failed: no luck" in text
    assert "Over all" not in text


def test_coverage_is_called_narrow_or_wide_only_when_it_is() -> None:
    one = column("a", mean="worse", mice="worse")
    assert "hold 90.0% of the hidden numbers." in said(one)
    for share, words in ((0.7, "too narrow"), (0.99, "wide")):
        text = said(one, methods=[MethodScore("mcflow", 1.0, 0.75, share), *METHODS[1:]])
        assert words in text

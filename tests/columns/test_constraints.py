"""Folding, rules and constraints: fills end where they may be, observed cells stay as they are."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mcflow.columns.constraints import Constraints, Rule, close_rules, fold, order_columns, parse_rules
from mcflow.errors import ParameterError

NAMES = ("a", "b", "c", "d")
finite = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e6, 1e6)
masks = arrays(np.bool_, (6, 4))
raws = arrays(np.float64, (6, 4), elements=st.floats(-30, 30))
PAIRS = [pair for pair in itertools.permutations(NAMES, 2) if pair[0] < pair[1]]


def constraints(names=NAMES, rules=(), **given) -> Constraints:
    """Open constraints but for what is given by column."""
    texts = parse_rules([rule for rule in rules if isinstance(rule, str)], names)
    return Constraints(
        names,
        [given.get("low", {}).get(name, -np.inf) for name in names],
        [given.get("high", {}).get(name, np.inf) for name in names],
        [name in given.get("whole", ()) for name in names],
        [given.get("allowed", {}).get(name) for name in names],
        [*texts, *(rule for rule in rules if isinstance(rule, Rule))],
    )


def kept(rules, values: np.ndarray, names=NAMES) -> np.ndarray:
    """Tell for each row whether all rules between columns hold."""
    good = np.ones(len(values), dtype=bool)
    for rule in rules:
        smaller, larger = values[:, names.index(rule.smaller)], values[:, names.index(rule.larger)]
        good &= smaller < larger if rule.strict else smaller <= larger
    return good


rule_sets = st.lists(st.builds(lambda pair, strict: Rule(*pair, strict), st.sampled_from(PAIRS), st.booleans()))


# --- fold


@given(arrays(np.float64, 8, elements=finite), finite, finite)
def test_fold_of_any_finite_value_is_inside_and_leaves_inner_values(values, one, other) -> None:
    low, high = min(one, other), max(one, other)
    for bounds in [(low, high), (low, np.inf), (-np.inf, high), (low, low)]:
        folded = fold(values, *bounds)
        assert ((folded >= bounds[0]) & (folded <= bounds[1]) & np.isfinite(folded)).all()
        inside = (values >= bounds[0]) & (values <= bounds[1])
        assert folded[inside].tobytes() == values[inside].tobytes()
    assert fold(values, -np.inf, np.inf).tobytes() == values.tobytes()


@given(moderate, st.floats(1e-3, 1e3), st.floats(-20, 20))
def test_fold_far_outside_is_a_triangle_wave(low, span, turns) -> None:
    high = low + span
    position = turns % 2
    expected = low + span * (position if position <= 1 else 2 - position)
    assert fold(low + turns * span, low, high) == pytest.approx(expected, abs=1e-6 * span + 1e-8)


def test_fold_broadcasts_and_keeps_nan() -> None:
    folded = fold([[-1.0, 5.0], [np.nan, 0.5]], [0, 0], [[np.inf], [1]])
    np.testing.assert_array_equal(folded, [[1, 5], [np.nan, 0.5]])
    assert np.isfinite(fold([np.inf, -np.inf], 0, 1)).all()


def test_fold_at_a_bound_leaves_no_heap() -> None:
    raw = np.random.default_rng(0).normal(0.1, 0.2, size=400_000)
    filled = constraints(("x",), low={"x": 0}).apply(raw[:, None], np.ones((len(raw), 1), dtype=bool))[:, 0]
    density = math.exp(-0.5 * (0.1 / 0.2) ** 2) / (0.2 * math.sqrt(2 * math.pi))
    width = 0.01
    assert np.mean(filled < width) == pytest.approx(2 * density * width, rel=0.05)
    assert np.mean(filled == 0) == 0


def test_folded_whole_numbers_of_an_even_spread_are_even() -> None:
    raw = np.random.default_rng(0).uniform(-3.5, 4.5, size=(80_000, 1))
    everywhere = np.ones(raw.shape, dtype=bool)
    for kinds in [{"whole": ["x"]}, {"allowed": {"x": [0.0, 1.0]}}]:
        binary = constraints(("x",), low={"x": 0}, high={"x": 1}, **kinds)
        assert np.mean(binary.apply(raw, everywhere)) == pytest.approx(0.5, abs=0.01)
        assert binary.apply(np.array([[-0.7], [0.4], [0.6], [1.7]]), everywhere[:4]).ravel().tolist() == [0, 0, 1, 1]


# --- rules


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("low <= high", ["low <= high"]),
        ("high>low", ["low < high"]),
        ("low<high", ["low < high"]),
        (" age >= 18 ", ["age >= 18"]),
        ("-1.5e-3 < age", ["age > -0.0015"]),
        ("age < 120", ["age < 120"]),
        ("0 <= low <= mid < high", ["low >= 0", "low <= mid", "mid < high"]),
        ("`systolic bp` >= `diastolic bp`", ["`diastolic bp` <= `systolic bp`"]),
        ("systolic bp > 0", ["`systolic bp` > 0"]),
        ("`a<=b` < `tick``s`", ["`a<=b` < `tick``s`"]),
        ("`2020` <= 2021", ["`2020` <= 2021"]),
    ],
)
def test_rule_text_is_read_and_written_alike(text, expected) -> None:
    names = ["low", "mid", "high", "age", "systolic bp", "diastolic bp", "a<=b", "tick`s", "2020"]
    rules = parse_rules(text, names)
    assert list(map(str, rules)) == expected
    assert parse_rules(expected, names) == rules


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a <", "< a", "a < < b", "a << b", "a == b", "a =< b", "a => b", "a <== b", "a != b"),
        *("a < `b", "a < ``", "a `b` < c", "1 < 2", "a < a", "a < 1e999", None, 3),
    ],
)
def test_rule_that_cannot_be_read_is_refused_with_an_example(text) -> None:
    with pytest.raises(ParameterError, match="'low <= high'") as caught:
        parse_rules([text], NAMES)
    assert repr(text) in str(caught.value)


def test_rule_with_unknown_column_names_the_closest() -> None:
    for text in ["heigth > weight", "`heigth` > weight", "weight < heigth < 3"]:
        with pytest.raises(ParameterError, match="Did you mean 'height'"):
            parse_rules([text], ["height", "weight"])
    with pytest.raises(ParameterError, match="Did you mean 'height'"):
        constraints(("height", "weight"), [Rule("heigth", "weight")])


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2, unique=True), st.booleans())
def test_rule_text_of_any_names_comes_back(names, strict) -> None:
    for rule in [Rule(*names, strict), Rule(names[0], 1.5, strict), Rule(-1e300, names[1], strict)]:
        assert parse_rules([str(rule)], names) == [rule]


def test_cycle_of_rules_is_refused_and_named() -> None:
    with pytest.raises(ParameterError, match=r"(a <= b <= c <= a|b <= c <= a <= b|c <= a <= b <= c)"):
        constraints(rules=["a <= b <= c", "c < a"])
    with pytest.raises(ParameterError, match="a <= a"):
        constraints(rules=[Rule("a", "a")])


@given(rule_sets)
def test_closure_holds_what_a_search_of_all_ways_finds(rules) -> None:
    found = {(rule.smaller, rule.larger): rule.strict for rule in close_rules(rules)}
    expected: dict[tuple[str, str], bool] = {}
    for length in range(2, 5):
        for way in itertools.combinations(NAMES, length):
            steps = [[r.strict for r in rules if (r.smaller, r.larger) == s] for s in itertools.pairwise(way)]
            if all(steps):
                ends = (way[0], way[-1])
                expected[ends] = expected.get(ends, False) or any(itertools.chain(*steps))
    assert found == expected
    order = order_columns(rules)
    assert all(order.index(smaller) < order.index(larger) for smaller, larger in found)


# --- apply


@given(rule_sets, raws, masks, st.data())
def test_fills_keep_all_constraints_when_the_observed_cells_do(rules, raw, missing, data) -> None:
    steps = data.draw(arrays(np.int64, (6, 4), elements=st.integers(1, 4)))
    truth = np.cumsum(steps, axis=1).astype(float)  # rises from a to d, so that every rule holds
    options = {name: np.unique(np.append(truth[:, k], [-4.0, 2.0, 31.5])) for k, name in enumerate(NAMES)}
    kinds = dict(zip(NAMES, data.draw(st.lists(st.sampled_from("rwo"), min_size=4, max_size=4)), strict=True))
    whole = [name for name, kind in kinds.items() if kind == "w"]
    allowed = {name: options[name] for name, kind in kinds.items() if kind == "o"}
    low, high = dict(zip(NAMES, truth.min(axis=0), strict=True)), dict(zip(NAMES, truth.max(axis=0), strict=True))
    given_constraints = constraints(rules=rules, low=low, high=high, whole=whole, allowed=allowed)
    values = np.where(missing, raw, truth)
    before = values.copy()
    filled = given_constraints.apply(values, missing)
    assert values.tobytes() == before.tobytes()
    assert filled[~missing].tobytes() == values[~missing].tobytes()
    assert ((filled >= truth.min(axis=0)) & (filled <= truth.max(axis=0))).all()
    assert kept(close_rules(rules), filled).all()
    for k, name in enumerate(NAMES):
        assert name not in whole or (filled[:, k] == np.rint(filled[:, k])).all()
        assert name not in allowed or np.isin(filled[:, k], options[name]).all()
    assert given_constraints.broken_rules(dict(zip(NAMES, filled.T, strict=True))) == {}


@given(rule_sets, raws, masks, arrays(np.float64, (6, 4), elements=st.integers(0, 3)), st.data())
def test_rules_hold_whenever_any_completion_exists(rules, raw, missing, observed, data) -> None:
    options = {name: np.array([0.0, 1.0, 3.0]) for name in data.draw(st.sets(st.sampled_from(NAMES)))}
    bounds = {"low": dict.fromkeys(NAMES, 0.0), "high": dict.fromkeys(NAMES, 3.0), "allowed": options}
    try:
        given_constraints = constraints(rules=rules, whole=NAMES, **bounds)
    except ParameterError:
        choices = [options.get(name, np.arange(4.0)) for name in NAMES]
        assert not kept(rules, np.array(list(itertools.product(*choices)))).any()
        return
    filled = given_constraints.apply(np.where(missing, raw, observed), missing)
    for row in range(len(raw)):
        choices = [
            options.get(name, np.arange(4.0)) if missing[row, k] else [observed[row, k]] for k, name in enumerate(NAMES)
        ]
        if kept(rules, np.array(list(itertools.product(*choices)))).any():
            assert kept(rules, filled[[row]])[0]
    assert np.isin(filled, np.arange(4.0)).all()


@given(rule_sets, raws, masks, raws)
def test_fills_stay_in_bounds_when_observed_cells_contradict_the_rules(rules, raw, missing, observed) -> None:
    bounds = {"low": {"a": -5.0, "b": -9.5, "d": 0.0}, "high": {"a": 5.0, "c": 7.0}}
    given_constraints = constraints(rules=rules, whole=["b"], allowed={"c": [-20.0, 0.0, 6.0]}, **bounds)
    filled = given_constraints.apply(np.where(missing, raw, observed), missing)
    assert filled[~missing].tobytes() == observed[~missing].tobytes()
    fills = np.where(missing, filled, 0.0)
    assert (fills >= [-5, -9.5, -20, 0]).all()
    assert (fills <= [5, np.inf, 7, np.inf]).all()
    assert (fills[:, 1] == np.rint(fills[:, 1])).all()
    assert np.isin(fills[:, 2], [-20.0, 0.0, 6.0]).all()
    assert given_constraints.broken_rules(
        dict(zip(NAMES, np.where(missing, filled, np.nan).T, strict=True))
    ).keys() <= set(map(str, close_rules(rules)))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("missing", list(itertools.product([False, True], repeat=3)))
def test_chain_of_three_holds_for_every_pattern(missing, whole, strict) -> None:
    names = ("low", "mid", "high")
    rng = np.random.default_rng(0)
    truth = np.cumsum(rng.integers(1, 5, size=(500, 3)), axis=1).astype(float)
    mask = np.tile(missing, (500, 1))
    values = np.where(mask, rng.normal(5, 9, size=truth.shape), truth)
    rule = "low < mid < high" if strict else "low <= mid <= high"
    filled = constraints(names, ["high <= 20", rule, "low >= 0"], whole=names if whole else ()).apply(values, mask)
    assert filled[~mask].tobytes() == values[~mask].tobytes()
    assert kept(parse_rules(rule, names), filled, names).all()
    assert ((filled >= 0) & (filled <= 20)).all()
    assert not whole or (filled == np.rint(filled)).all()


def test_fill_slightly_past_its_partner_comes_back_slightly_inside() -> None:
    filled = constraints(("a", "b"), ["a <= b"]).apply(np.array([[5.25, 5.0], [5.0, 4.5]]), np.eye(2, dtype=bool))
    assert filled.tolist() == [[4.75, 5], [5, 5.5]]


def test_fill_between_contradicting_cells_follows_the_bounds_alone() -> None:
    missing = np.array([[False, True, False]])
    filled = constraints(("a", "b", "c"), ["a <= b <= c"], low={"b": 0}).apply(np.array([[5.0, -9.0, 3.0]]), missing)
    assert filled.tolist() == [[5, 9, 3]]


def test_fill_without_a_value_of_its_kind_is_the_nearest_one() -> None:
    values, missing = np.array([[4.1, 90.0, 4.2], [4.8, -90.0, 4.9]]), np.array([[False, True, False]] * 2)
    for kinds in [{"whole": ["b"]}, {"allowed": {"b": [0.0, 4.0, 5.0, 90.0]}}]:
        filled = constraints(("a", "b", "c"), ["a <= b <= c"], **kinds).apply(values, missing)
        assert filled[:, 1].tolist() == [4, 5]


def test_nan_and_infinite_partners_bind_nothing() -> None:
    given_constraints = constraints(("a", "b", "c"), ["a < b < c"], low={"a": 0})
    values = np.array([[-1.0, np.nan, 9.0], [np.nan, -5.0, np.inf], [-np.inf, -5.0, np.nan], [2.0, np.inf, 1.0]])
    missing = np.array([[True, True, False], [True, True, False], [False, True, True], [False, False, True]])
    filled = given_constraints.apply(values, missing)
    np.testing.assert_array_equal(filled, [[1, np.nan, 9], [np.nan, -5, np.inf], [-np.inf, -5, np.nan], [2, np.inf, 1]])


def test_whole_fills_have_no_negative_zero() -> None:
    filled = constraints(("x",), whole=["x"]).apply(np.array([[-0.2]]), np.array([[True]]))
    assert not np.signbit(filled[0, 0])


# --- construction, reports and files


def test_impossible_constraints_are_refused() -> None:
    impossible = [
        {"rules": ["a >= 18"], "high": {"a": 10}},
        {"low": {"a": 0.2}, "high": {"a": 0.8}, "whole": ["a"]},
        {"low": {"a": 0.2}, "allowed": {"a": [-1.0, 0.0]}},
        {"allowed": {"a": [0.5]}, "whole": ["a"]},
        {"rules": ["a <= b <= c"], "low": {"a": 3}, "high": {"c": 2}},
        {"rules": ["a < b < c"], "low": {"a": 0}, "high": {"c": 1}, "whole": ["a", "b", "c"]},
        {"low": {"a": np.nan}},
    ]
    for case in impossible:
        with pytest.raises(ParameterError, match="Column 'a' has to have"):
            constraints(**case)
    with pytest.raises(ParameterError, match="every name only once"):
        constraints(("a", "a"))


def test_broken_rules_count_only_observed_cells() -> None:
    names = ("age", "grade", "low", "mid", "high")
    given_constraints = constraints(names, ["age < 120", "low <= mid < high"], low={"age": 0, "high": -1})
    values = np.array([[-1, 1, 3, 0, 2], [120, 3, 1, 2, 2], [1.5, 7, 2, 2, 3], [-7, 2, 0, 1, 2]], dtype=float)
    missing = np.zeros(values.shape, dtype=bool)
    missing[0, 3] = missing[2, 1] = missing[3, 0] = True
    cells = dict(zip(names, np.where(missing, np.nan, values).T, strict=True))
    assert given_constraints.broken_rules(cells) == {"age < 120": 1, "mid < high": 1, "low < high": 1}


def test_header_comes_back_through_json() -> None:
    given_constraints = constraints(
        rules=["a < b <= c", "a > 0", "c <= 9.5"], low={"d": 1}, whole=["b"], allowed={"d": [3.0, 1.0, 2.0]}
    )
    header = given_constraints.to_dict()
    again = Constraints.from_dict(json.loads(json.dumps(header, allow_nan=False)))
    assert again.to_dict() == header
    rng = np.random.default_rng(0)
    values, missing = rng.normal(0, 9, size=(200, 4)), rng.random((200, 4)) < 0.5
    assert again.apply(values, missing).tobytes() == given_constraints.apply(values, missing).tobytes()
    cells = dict(zip(NAMES, values.T, strict=True))
    assert again.broken_rules(cells) == given_constraints.broken_rules(cells)
    assert {"a > 0", "c <= 9.5", "a < b"} <= given_constraints.broken_rules(cells).keys()


def test_table_without_constraints_or_missing_cells_is_unchanged() -> None:
    values = np.random.default_rng(0).normal(size=(50, 4))
    assert constraints().apply(values, np.ones(values.shape, dtype=bool)).tobytes() == values.tobytes()
    ruled = constraints(rules=["a < b"], low={"c": 0})
    assert ruled.apply(values, np.zeros(values.shape, dtype=bool)).tobytes() == values.tobytes()

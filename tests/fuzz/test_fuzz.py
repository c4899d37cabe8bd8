"""The quick part of the fuzzers, and everything that they have found so far. `make fuzz` runs them for an hour."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz_contract import Finding, check_contract, compare
from fuzz_targets import TARGETS, mixed_frame, run_case, served

from mcflow.baselines.simple import MeanImputer
from mcflow.errors import DataError

#: Cases of each target that `make test` runs.
QUICK = {"requests": 100}
#: Cases that broke the contract once: targets and numbers.
KNOWN: list[tuple[str, int]] = [tuple(case) for case in json.loads((Path(__file__).parent / "known.json").read_text())]


@pytest.fixture(scope="module", autouse=True)
def _server_ends() -> Iterator[None]:
    yield
    if served.cache_info().currsize:
        served().close()
        served.cache_clear()


@pytest.mark.parametrize("target", TARGETS)
def test_target_when_fuzzed_keeps_the_contract(target) -> None:
    outcomes = {run_case(target, number) for number in range(QUICK.get(target, 200))}
    assert outcomes <= {"refused", "filled"}


@pytest.mark.parametrize(("target", "number"), KNOWN)
def test_case_that_broke_the_contract_once_keeps_it(target, number) -> None:
    assert run_case(target, number) in ("refused", "filled")


def test_contract_takes_documented_errors_only() -> None:
    def refuse() -> None:
        raise DataError("Give another table.")

    def crash() -> None:
        raise KeyError("x")

    assert check_contract(refuse) == "refused"
    with pytest.raises(Finding, match="KeyError"):
        check_contract(crash)


def test_contract_sees_changed_and_missing_cells() -> None:
    frame = mixed_frame()
    imputer = MeanImputer().fit(frame)
    filled = imputer.transform(frame)
    compare(frame, filled, imputer.schema_)
    seen, missing = frame["x"].first_valid_index(), frame["x"].isna().idxmax()
    with pytest.raises(Finding, match="have changed"):
        compare(frame, filled.assign(x=filled["x"].where(filled.index != seen, 5.0)), imputer.schema_)
    with pytest.raises(Finding, match="missing cells afterwards"):
        compare(frame, filled.assign(x=filled["x"].where(filled.index != missing)), imputer.schema_)
    with pytest.raises(Finding, match="became"):
        compare(frame, filled.iloc[1:], imputer.schema_)

"""A stand-in for mcflow that takes no time to fit."""

from __future__ import annotations

from typing import Any

import pytest

from mcflow.baselines import make


@pytest.fixture
def swift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a normal distribution take the part of mcflow."""

    def stand_in(kind: Any, preset: str, parameters: dict[str, Any]) -> Any:
        known = {name: value for name, value in parameters.items() if name not in ("max_time", "verbose")}
        return make("em", **known)

    monkeypatch.setattr("mcflow.benchmarks.methods._mcflow", stand_in)

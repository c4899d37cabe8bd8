"""A fixture that replaces mcflow by a method that is quick to fit."""

from __future__ import annotations

from typing import Any

import pytest

from mcflow.baselines import make


@pytest.fixture
def swift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace mcflow by a multivariate Gaussian."""

    def stand_in(kind: Any, preset: str, parameters: dict[str, Any]) -> Any:
        known = {name: value for name, value in parameters.items() if name not in ("max_time", "verbose")}
        return make("em", **known)

    monkeypatch.setattr("mcflow.evaluation.methods.build_mcflow", stand_in)

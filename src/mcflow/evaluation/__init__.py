"""How well a table's own holes can be filled: known cells are hidden, filled by several methods, and compared."""

from __future__ import annotations

from mcflow.evaluation.result import Evaluation
from mcflow.evaluation.run import evaluate

__all__ = ["Evaluation", "evaluate"]

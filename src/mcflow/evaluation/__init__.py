"""Evaluate imputation methods on a table: hide known cells, fill them by several methods and compare the errors."""

__all__ = ["DrawRanking", "Evaluation", "evaluate", "rank_draws"]

from typing import TYPE_CHECKING

from mcflow.lazy import lazily

if TYPE_CHECKING:
    from mcflow.evaluation.ranking import DrawRanking, rank_draws
    from mcflow.evaluation.result import Evaluation
    from mcflow.evaluation.run import evaluate

__getattr__, __dir__ = lazily(
    __name__, __all__, {"ranking": "DrawRanking rank_draws", "result": "Evaluation", "run": "evaluate"}
)

"""What the methods of an evaluation answered, kept until all have spoken."""

from __future__ import annotations

__all__ = ["Outcome"]

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mcflow.data.schema import TableSchema
from mcflow.errors import DataError, McflowError
from mcflow.evaluation.contenders import OURS, REFERENCE, Answer, Contender, Question
from mcflow.evaluation.judging import overall_standing, score_columns, score_method
from mcflow.evaluation.result import Evaluation, MethodScore
from mcflow.evaluation.scores import CellLosses, losses_of
from mcflow.evaluation.task import Task
from mcflow.evaluation.verdict import verdict
from mcflow.typing import Array, FloatArray


@dataclass
class Outcome:
    """What the methods said of the hidden cells, repeat after repeat.

    Parameters
    ----------
    names : list of str
        The methods.
    failed : dict of str
        Those that failed, and why.
    seconds : dict of list of float
        How long each took, by repeat.
    cut_short : list of str
        How far fits of mcflow had come that had to end because the time was up.
    """

    names: list[str]
    failed: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cut_short: list[str] = field(default_factory=list)
    _asked: list[tuple[Question, FloatArray, Array]] = field(default_factory=list)
    _answers: dict[str, list[Answer]] = field(default_factory=dict)

    @property
    def n_cells(self) -> int:
        """Hidden cells over all repeats."""
        return sum(len(truth) for _, truth, _ in self._asked)

    def ask(self, question: Question, truth: FloatArray, rows: Array) -> None:
        """Take up the cells of a repeat."""
        self._asked.append((question, truth, rows))

    def hear(self, one: Contender, imputer: Any, seed: int) -> None:
        """Let a method answer; what goes wrong in it is kept in words."""
        try:
            answer = one.answer(imputer, self._asked[-1][0], seed)
        except Exception as error:
            kind = "" if isinstance(error, McflowError) else f"{type(error).__name__}: "
            self.failed[one.name] = kind + (str(error).partition("\n")[0] or "no reason given")
            self._answers.pop(one.name, None)
            return
        self._answers.setdefault(one.name, []).append(answer)
        self.seconds.setdefault(one.name, []).append(answer.seconds)
        if one.name == OURS and answer.cut_short:
            self.cut_short.append(answer.cut_short)

    def notes(self, max_time: float | None) -> list[str]:
        """Say when mcflow had less time than it would have taken."""
        if not self.cut_short:
            return []
        far = f"{max_time:g} s, which were {self.cut_short[-1]}"
        return [f"mcflow was fitted for {far}; with more time it may do better (max_time, --max-time)."]

    def _cells(self, schema: TableSchema) -> CellLosses:
        positions = np.concatenate([question.positions for question, _, _ in self._asked])
        truth = np.concatenate([truth for _, truth, _ in self._asked])
        losses, inside = {}, {}
        for name, answers in self._answers.items():
            filled = np.concatenate([answer.filled for answer in answers])
            losses[name] = np.full(len(truth), np.nan)
            for position in np.unique(positions):
                here = positions == position
                losses[name][here] = losses_of(schema.columns[position], truth[here], filled[here])
            inside[name] = np.concatenate([_inside(a, t) for a, (_, t, _) in zip(answers, self._asked, strict=True)])
        return CellLosses(np.concatenate([rows for _, _, rows in self._asked]), positions, losses, inside)

    def summary(self, task: Task, repeats: int, level: float, settings: dict[str, Any]) -> Evaluation:
        """Score everything that was said."""
        if REFERENCE in self.failed:
            raise DataError(f"Even the mean cannot be filled in: {self.failed[REFERENCE]}")
        cells = self._cells(task.schema)
        columns = score_columns(cells, task.schema)
        order = [OURS, *(name for name in self.names if name != OURS)]
        methods = tuple(
            MethodScore(name, error_message=self.failed[name])
            if name in self.failed
            else score_method(name, float(np.mean(self.seconds[name])), cells, columns)
            for name in order
        )
        others = [name for name in cells.losses if name != OURS] if OURS in cells.losses else []
        overall = {name: overall_standing(cells, name) for name in others}
        return Evaluation(
            rows=task.frame.n_rows,
            columns=len(task.schema.columns),
            hidden_cells=self.n_cells,
            repeats=repeats,
            level=level,
            methods=methods,
            per_column=columns,
            verdict=verdict(columns, methods, overall, level),
            settings=settings,
        )


def _inside(answer: Answer, truth: FloatArray) -> FloatArray:
    """Return 1 where an interval holds the truth, 0 where it does not, NaN where there is none."""
    if answer.low is None or answer.high is None:
        return np.full(len(truth), np.nan)
    held = (answer.low <= truth) & (truth <= answer.high)
    return np.where(np.isnan(answer.low) | np.isnan(answer.high), np.nan, held)

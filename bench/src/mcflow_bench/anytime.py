"""Accuracy against time: mcflow under several time limits beside methods that take the time they take."""

from __future__ import annotations

__all__ = ["ANYTIME", "BUDGETS", "ENVIRONMENTS", "PEERS", "QUICK_ANYTIME", "AnytimeSuite", "labels"]

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from mcflow.errors import ParameterError, did_you_mean
from mcflow.evaluation.methods import MethodSpec
from mcflow_bench.suites import N_FOLDS, Cell, FrameTask, Suite

#: Time limits of mcflow in seconds; it is also measured without one.
BUDGETS = (2.0, 5.0, 10.0, 20.0, 40.0, 80.0)

#: The loops over the columns, by label: for numbers those of scikit-learn, with categories those of `mcflow.baselines`.
_LOOPS = {"ridge": "mice", "boosted": "boosted", "forest": "missforest"}

#: Methods with a virtual environment of their own, which fill training and test rows together.
ENVIRONMENTS = ("miceforest", "hyperimpute")

#: The methods that mcflow is compared with, in the order of the report.
PEERS = (*_LOOPS, *ENVIRONMENTS)


def labels(budgets: Sequence[float] = BUDGETS, peers: Sequence[str] = PEERS) -> tuple[str, ...]:
    """Return the methods of a suite: mcflow under each time limit and without one, and the peers.

    Examples
    --------
    >>> labels((2.0,), ("ridge",))
    ('mcflow(max_time=2.0)', 'mcflow', 'ridge')
    """
    limited = (str(MethodSpec("mcflow", (("max_time", float(budget)),))) for budget in budgets)
    return (*limited, "mcflow", *peers)


@dataclass(frozen=True)
class AnytimeSuite(Suite):
    """A grid of tables and methods, one run each: the first fold, 20 % of the cells hidden.

    Examples
    --------
    >>> suite = AnytimeSuite(("adult",), ("ridge", "miceforest"))
    >>> [cell.task.method for cell in suite.cells(lambda name: (Path(name), ""))][0]
    'mice'
    """

    mixed: tuple[str, ...] = field(default=("adult",), kw_only=True)  # tables whose columns of text are categories
    rate: float = field(default=0.2, kw_only=True)
    fold: int = field(default=0, kw_only=True)
    rows: int | None = field(default=None, kw_only=True)  # number of first rows to use
    environments: str = field(default="build/environments", kw_only=True)  # folder of the virtual environments

    def split_methods(self) -> tuple[list[float], list[str]]:
        """Return the time limits of mcflow, and the other methods."""
        limits = [dict(MethodSpec.parse(method).parameters).get("max_time") for method in self.methods]
        return [limit for limit in limits if limit], [method for method in self.methods if method in PEERS]

    def _check_grid(self) -> None:
        for method in self.methods:
            name = MethodSpec.parse(method).name
            if name not in ("mcflow", *PEERS):
                known, hint = ", ".join(PEERS), did_you_mean(name, PEERS)
                raise ParameterError(f"There is no method {name!r} beside mcflow. Known are {known}.{hint}")
        if self.rows is not None and self.rows < 2 * N_FOLDS:
            raise ParameterError(f"rows is {self.rows}, but has to be at least {2 * N_FOLDS}.")

    def _cells(self, found: Mapping[str, tuple[Path, str]]) -> Iterator[Cell]:
        for table, method in product(self.data, self.methods):
            path, sha256 = found[table]
            mixed = table in self.mixed
            spec = self._spec(method, mixed=mixed)
            yield Cell(FrameTask(table, sha256, self.rows, mixed, self.rate, self.fold, spec, self.seed), path, method)

    def _spec(self, label: str, *, mixed: bool) -> str:
        """Return the method that a label stands for on a table with or without categories."""
        if label in _LOOPS:
            return (
                _LOOPS[label] if mixed else str(MethodSpec("python:mcflow_bench.rivals.loops:loop", (("name", label),)))
            )
        if label in ENVIRONMENTS:
            given = (("folder", f"{self.environments}/{label}"), ("name", label))
            return str(MethodSpec("python:mcflow_bench.rivals.environments:EnvironmentImputer", given))
        return label


#: What `make anytime` measures.
ANYTIME = AnytimeSuite(("letter", "credit", "california", "adult"), labels())

#: The same at a size that only shows that it runs.
QUICK_ANYTIME = AnytimeSuite(
    ("letter", "adult"), labels((2.0, 5.0), ("ridge", "miceforest")), rows=500, time_limit=180.0
)

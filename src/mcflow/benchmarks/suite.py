"""What is measured: data sets, mechanisms, rates, methods and folds, as plain data that is easy to edit."""

from __future__ import annotations

__all__ = ["SUITES", "Cell", "Extra", "Setting", "Suite", "Task"]

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from mcflow.benchmarks.keys import file_word, key_of
from mcflow.benchmarks.methods import MethodSpec
from mcflow.benchmarks.tasks import AnyCell, AnyTask
from mcflow.errors import ParameterError, did_you_mean

#: Counts up when the same settings would give other figures, so that old results are not taken for new ones.
PROTOCOL = 1

N_FOLDS = 5

MECHANISMS = ("mcar", "mar", "mnar_self", "mnar_logistic", "mnar_quantile")


@dataclass(frozen=True)
class Task(AnyTask):
    """Everything that decides the figures of one cell.

    Parameters
    ----------
    table : str
        Name of the data set.
    sha256 : str
        Checksum of its file.
    rows : int or None
        How many of its first rows are used; None for all.
    mechanism : str
        How cells are hidden, one of `MECHANISMS`.
    rate : float
        Share of hidden cells.
    fold : int
        Which fifth is the test fold; also the seed of the split and the mask.
    method : str
        As `MethodSpec` writes it.
    seed : int
        The method's random_state.

    Examples
    --------
    >>> task = Task("letter", "", None, "mcar", 0.2, 0, "mean", 0)
    >>> task.key == Task("letter", "", None, "mcar", 0.2, 0, "mean", 0).key, task.name
    (True, 'letter-mcar-0.2-mean-fold0-...')
    """

    program: ClassVar[str] = "mcflow.benchmarks.cell"
    subject: ClassVar[str] = "table"

    table: str
    sha256: str
    rows: int | None
    mechanism: str
    rate: float
    fold: int
    method: str
    seed: int

    @property
    def key(self) -> str:
        """Return a hash of all settings, the same on every machine."""
        return key_of({"protocol": PROTOCOL, **self.settings})

    @property
    def name(self) -> str:
        """Return a name for a file: readable, and different for every key."""
        return f"{self.table}-{self.mechanism}-{self.rate:g}-{file_word(self.method)}-fold{self.fold}-{self.key[:12]}"

    @property
    def words(self) -> str:
        """Return the task as a line of progress has it."""
        return f"{self.table}, {self.mechanism} {self.rate:g}, fold {self.fold}, {self.method}"


@dataclass(frozen=True)
class Cell(AnyCell):
    """A cell of a table: see `AnyCell`."""

    task: Task
    asked_folds: int = N_FOLDS


@dataclass(frozen=True)
class Setting:
    """Another way to run one method on one table.

    Parameters
    ----------
    table, method : str
        As the suite lists them.
    folds : tuple of int, optional
        In place of the suite's.
    parameters : mapping
        In place of those of the method, for this table only.
    note : str
        Why, or what differs; printed below the table.
    """

    table: str
    method: str
    folds: tuple[int, ...] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Extra:
    """A method that is run on some tables only, after all others."""

    method: str
    tables: tuple[str, ...]
    folds: tuple[int, ...] = (0,)
    note: str = ""


@dataclass(frozen=True)
class Suite:
    """A grid of cells.

    Parameters
    ----------
    tables, methods, mechanisms, rates, folds
        The grid. Methods are run in this order, so cheap ones should come first.
    rows : int or None
        How many of a table's first rows are used.
    seed : int
        Every method's random_state.
    time_limit : float
        Seconds that a cell may take.
    settings : tuple of Setting
        Exceptions from the grid.
    extras : tuple of Extra
        Additions to it.

    Examples
    --------
    >>> suite = Suite(tables=("letter",), methods=("mean", "em"), folds=(0, 1))
    >>> [(c.task.method, c.task.fold) for c in suite.cells(lambda name: (Path(name), ""))]
    [('mean', 0), ('em', 0), ('mean', 1), ('em', 1)]
    """

    tables: tuple[str, ...]
    methods: tuple[str, ...]
    mechanisms: tuple[str, ...] = ("mcar",)
    rates: tuple[float, ...] = (0.2,)
    folds: tuple[int, ...] = tuple(range(N_FOLDS))
    rows: int | None = None
    seed: int = 0
    time_limit: float = 3600.0
    settings: tuple[Setting, ...] = ()
    extras: tuple[Extra, ...] = ()

    def check(self) -> None:
        """Raise `ParameterError` when something in the grid cannot be.

        Raises
        ------
        ParameterError
            With what was given and what is allowed.
        """
        for mechanism in self.mechanisms:
            if mechanism not in MECHANISMS:
                known = ", ".join(MECHANISMS)
                hint = did_you_mean(mechanism, MECHANISMS)
                raise ParameterError(f"There is no mechanism {mechanism!r}. Known are {known}.{hint}")
        self._check_numbers()
        if not (self.tables and self.methods and self.mechanisms and self.rates and self.folds):
            raise ParameterError("There is nothing to measure: a list of tables, methods, rates or folds is empty.")
        for method in (*self.methods, *(extra.method for extra in self.extras)):
            MethodSpec.parse(method)

    def _check_numbers(self) -> None:
        for rate in self.rates:
            if not 0 < rate < 1:
                raise ParameterError(f"A rate is {rate!r}, but has to be above 0 and below 1.")
        for fold in self.folds:
            if fold not in range(N_FOLDS):
                raise ParameterError(f"A fold is {fold!r}, but has to be a whole number from 0 to {N_FOLDS - 1}.")
        if self.rows is not None and self.rows < 2 * N_FOLDS:
            raise ParameterError(f"rows is {self.rows}, but has to be at least {2 * N_FOLDS}.")
        if self.time_limit <= 0:
            raise ParameterError(f"time_limit is {self.time_limit!r} seconds, but has to be above 0.")

    def cells(self, find: Callable[[str], tuple[Path, str]]) -> list[Cell]:
        """Return the cells in the order in which they are run: fold by fold, methods as listed, then the extras.

        Parameters
        ----------
        find : callable
            From the name of a table to its file and the file's SHA-256.

        Returns
        -------
        list of Cell
        """
        self.check()
        wanted = dict.fromkeys([*self.tables, *(name for extra in self.extras for name in extra.tables)])
        files = {name: find(name) for name in wanted}
        cells = [*self._grid(files), *self._added(files)]
        return list({cell.task.key: cell for cell in cells}.values())

    def _grid(self, files: Mapping[str, tuple[Path, str]]) -> Iterator[Cell]:
        chosen = {(s.table, s.method): s for s in self.settings}
        every = sorted({*self.folds, *(fold for s in self.settings for fold in s.folds or ())})
        for fold, mechanism, rate, method, table in product(
            every, self.mechanisms, self.rates, self.methods, self.tables
        ):
            setting = chosen.get((table, method), Setting(table, method))
            if fold in (self.folds if setting.folds is None else setting.folds):
                spec = MethodSpec.parse(method).with_parameters(setting.parameters)
                task = Task(table, files[table][1], self.rows, mechanism, rate, fold, str(spec), self.seed)
                yield Cell(task, files[table][0], _canonical(method), setting.note, len(self.folds))

    def _added(self, files: Mapping[str, tuple[Path, str]]) -> Iterator[Cell]:
        for extra, mechanism, rate in product(self.extras, self.mechanisms, self.rates):
            for fold, table in product(extra.folds, extra.tables):
                method = _canonical(extra.method)
                task = Task(table, files[table][1], self.rows, mechanism, rate, fold, method, self.seed)
                yield Cell(task, files[table][0], method, extra.note, len(self.folds))


def _canonical(method: str) -> str:
    return str(MethodSpec.parse(method))


_TWO = (0, 1)

#: The paper's Table 1: 20 % of the cells missing completely at random, five folds. Slow pairs have fewer.
PAPER = Suite(
    tables=("letter", "credit", "news"),
    methods=(
        "mean",
        "median",
        "em",
        "softimpute",
        "mice",
        "knn",
        "autoencoder",
        "gain",
        "mcflow:paper(max_epochs=64)",
        "mcflow",
        "boosted",
        "missforest",
    ),
    settings=(
        Setting("letter", "mcflow", folds=_TWO),
        Setting("credit", "mcflow", folds=(0,)),
        Setting("news", "mcflow", folds=(0,)),
        Setting("credit", "missforest", folds=_TWO, parameters={"max_rounds": 4}, note="4 rounds at most"),
        Setting(
            "news",
            "missforest",
            parameters={"n_trees": 40, "max_rows": 4000, "max_rounds": 3},
            note="40 trees of 4,000 rows each, 3 rounds at most",
        ),
    ),
    extras=(Extra("mcflow:paper(max_epochs=500)", tables=("letter",)),),
)

#: A look at everything in minutes: few rows, one fold, small networks and few trees.
QUICK = Suite(
    tables=("letter", "credit", "news"),
    methods=(
        "mean",
        "median",
        "em",
        "softimpute(n_penalties=8)",
        "mice(n_chains=2,n_rounds=4)",
        "knn",
        "autoencoder(max_steps=1000)",
        "gain(max_steps=2000)",
        "mcflow:paper(max_epochs=192)",
        "mcflow(max_epochs=60)",
        "boosted(n_iter=20,max_rounds=1)",
        "missforest(n_trees=10,max_rounds=1)",
    ),
    folds=(0,),
    rows=2000,
    time_limit=180.0,
)

#: Draws and intervals: the methods that have a distribution for a missing cell, one fold, slow pairs as above.
DRAWS = Suite(
    tables=("letter", "credit", "news", "bean", "california"),
    methods=("em", "mice", "missforest", "mcflow"),
    folds=(0,),
    settings=tuple(replace(setting, folds=None) for setting in PAPER.settings if setting.method == "missforest"),
)

#: Whether it runs, not what it finds.
QUICK_DRAWS = Suite(
    tables=("letter", "credit", "news", "bean", "california"),
    methods=("em", "mice(n_chains=2,n_rounds=4)", "missforest(n_trees=10,max_rounds=1)", "mcflow(max_epochs=8)"),
    folds=(0,),
    rows=1000,
    time_limit=180.0,
)

#: The suites by name.
SUITES: dict[str, Suite] = {"paper": PAPER, "quick": QUICK, "draws": DRAWS, "quick-draws": QUICK_DRAWS}

"""What the benchmarks measure, as data: data sets, missing cells or pixels, methods and folds."""

from __future__ import annotations

__all__ = [
    "ENERGY_SUITES",
    "IMAGE_SUITES",
    "TABLE_SUITES",
    "Cell",
    "EnergySuite",
    "EnergyTask",
    "Extra",
    "FrameTask",
    "ImageSuite",
    "ImageTask",
    "Setting",
    "Suite",
    "TableSuite",
    "TableTask",
    "Task",
    "file_word",
    "key_of",
    "mask_word",
    "task_from",
]

import abc
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from mcflow.errors import ParameterError, did_you_mean
from mcflow.evaluation.methods import MethodSpec

#: Folds of the cross-validation of a table.
N_FOLDS = 5

#: Missing-data mechanisms for tables, as `mcflow.missingness` names them.
MECHANISMS = ("mcar", "mar", "mnar_self", "mnar_logistic", "mnar_quantile")

#: The paper's fractions of missing pixels.
RATES = tuple(f"0.{tenth}" for tenth in range(1, 10))

_SIDES = ("left", "right", "top", "bottom", "random")


def key_of(settings: Mapping[str, Any]) -> str:
    """Return a hash of JSON-serialisable settings that is the same on every machine."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def file_word(text: str) -> str:
    """Return a method or a mask as a part of a file name.

    Examples
    --------
    >>> file_word("missforest(n_trees=30)")
    'missforest_n_trees=30'
    """
    return re.sub(r"[^A-Za-z0-9.=]+", "_", text).strip("_")[:60]


def mask_word(word: str) -> str:
    """Return the canonical spelling of a mask of pixels.

    Examples
    --------
    >>> mask_word("pixels:0.50"), mask_word(".9"), mask_word("blocks:0.25"), mask_word("halves")
    ('0.5', '0.9', 'blocks:0.25', 'halves:random')
    """
    # `mcflow.images.masks` would import torch: the process that starts the cells has to stay small.
    kind, colon, rest = (part.strip() for part in word.strip().partition(":"))
    if not colon:
        kind, rest = ("halves", "random") if kind == "halves" else ("pixels", kind)
    if kind == "halves" and rest in _SIDES:
        return f"halves:{rest}"
    if kind in {"pixels", "blocks"} and 0 < _number(rest) < 1:
        return f"{'blocks:' if kind == 'blocks' else ''}{_number(rest):g}"
    raise ParameterError(
        f"{word!r} does not say which pixels are missing. Write a fraction above 0 and below 1 such as 0.5, or "
        "blocks:0.25, or halves:left."
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class Task(abc.ABC):
    """The settings that determine the scores of one cell, as fields that JSON can hold; `method` is one of them."""

    #: "table", "frame", "dataset" or "images"; also the field that names the data set.
    kind: ClassVar[str]
    #: Increased when the same settings would give other scores, so that old results are not taken for new ones.
    version: ClassVar[Mapping[str, int]]

    @property
    def settings(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)

    @property
    def key(self) -> str:
        """Return a hash of all settings that is the same on every machine."""
        return key_of({**self.version, **self.settings})

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Return a readable file name that differs for every key."""

    @property
    @abc.abstractmethod
    def words(self) -> str:
        """Return the description for a line of progress."""


@dataclass(frozen=True)
class TableTask(Task):
    """The settings of one cell of a table."""

    kind: ClassVar[str] = "table"
    version: ClassVar[Mapping[str, int]] = {"protocol": 1}

    table: str  # name of the data set
    sha256: str  # checksum of its file
    rows: int | None  # number of first rows to use; None for all
    mechanism: str  # one of `MECHANISMS`
    rate: float  # fraction of hidden cells
    fold: int  # which fifth of the rows is the test fold; also the seed of the split and of the mask
    method: str  # as `MethodSpec` writes it
    seed: int  # random_state of the method

    @property
    def name(self) -> str:
        """Return a readable file name that differs for every key."""
        return f"{self.table}-{self.mechanism}-{self.rate:g}-{file_word(self.method)}-fold{self.fold}-{self.key[:12]}"

    @property
    def words(self) -> str:
        """Return the description for a line of progress."""
        return f"{self.table}, {self.mechanism} {self.rate:g}, fold {self.fold}, {self.method}"


@dataclass(frozen=True)
class EnergyTask(Task):
    """The settings of one cell of the energy distance: draws of a table of any column types."""

    kind: ClassVar[str] = "frame"
    version: ClassVar[Mapping[str, int]] = {"energy_protocol": 1}

    frame: str  # name of the data set
    sha256: str  # checksum of its file
    mechanism: str  # "mcar" or "mar"
    rate: float  # fraction of hidden cells
    mask: int  # number of the mask; also the method's random_state
    draws: int  # completed tables
    method: str  # as `MethodSpec` writes it

    @property
    def name(self) -> str:
        """Return a readable file name that differs for every key."""
        return f"{self.frame}-{self.mechanism}-{self.rate:g}-{file_word(self.method)}-mask{self.mask}-{self.key[:12]}"

    @property
    def words(self) -> str:
        """Return the description for a line of progress."""
        return f"{self.frame}, {self.mechanism} {self.rate:g}, mask {self.mask}, {self.method}"


@dataclass(frozen=True)
class ImageTask(Task):
    """The settings of one cell of images."""

    kind: ClassVar[str] = "images"
    version: ClassVar[Mapping[str, int]] = {"image_protocol": 1}

    images: str  # name of the set
    sha256: str  # checksum of its images and labels
    n_train: int | None  # number of first training images to use; None for all
    n_test: int | None  # number of first test images to use; None for all
    mask: str  # as `mask_word` writes it
    method: str  # as `MethodSpec` writes it
    seed: int  # random_state of the method

    @property
    def name(self) -> str:
        """Return a readable file name that differs for every key."""
        return f"{self.images}-{file_word(self.mask)}-{file_word(self.method)}-{self.key[:12]}"

    @property
    def words(self) -> str:
        """Return the description for a line of progress."""
        return f"{self.images}, {self.mask}, {self.method}"


@dataclass(frozen=True)
class FrameTask(Task):
    """The settings of one cell of a table with or without its categorical columns."""

    kind: ClassVar[str] = "dataset"
    version: ClassVar[Mapping[str, int]] = {"frame_protocol": 1}

    dataset: str  # name of the data set
    sha256: str  # checksum of its file
    rows: int | None  # number of first rows to use; None for all
    mixed: bool  # whether columns of text are used, as categories
    rate: float  # fraction of hidden cells
    fold: int  # which fifth of the rows is the test fold; also the seed of the split and of the mask
    method: str  # as `MethodSpec` writes it
    seed: int  # random_state of the method

    @property
    def name(self) -> str:
        """Return a readable file name that differs for every key."""
        return f"{self.dataset}-{self.rate:g}-{file_word(self.method)}-fold{self.fold}-{self.key[:12]}"

    @property
    def words(self) -> str:
        """Return the description for a line of progress."""
        return f"{self.dataset}, {self.rate:g}, {self.method}"


def task_from(settings: Mapping[str, Any]) -> Task:
    """Return the task of stored settings; the field that names the data set tells its kind."""
    kinds: tuple[type[Task], ...] = (TableTask, EnergyTask, FrameTask, ImageTask)
    return next(kind(**settings) for kind in kinds if kind.kind in settings)


@dataclass(frozen=True)
class Cell:
    """A task, and what is needed to run it and to report it."""

    task: Task
    path: Path  # file of the table, or folder of the image set
    label: str  # row of the report that the result belongs to
    note: str = ""  # printed below the report
    asked_folds: int = 1  # folds that the suite asks for


@dataclass(frozen=True)
class Setting:
    """Another way to run one method on one table."""

    table: str  # one of the suite's tables
    method: str  # as the suite lists it
    folds: tuple[int, ...] | None = None  # replace the suite's
    parameters: Mapping[str, Any] = field(default_factory=dict)  # replace the method's, for this table only
    note: str = ""  # the difference in words, printed below the table


@dataclass(frozen=True)
class Extra:
    """A method that is run on some data sets only, after the grid."""

    method: str
    data: tuple[str, ...]  # names of tables or image sets
    folds: tuple[int, ...] = (0,)  # of tables
    masks: tuple[str, ...] = ()  # of images
    note: str = ""  # printed below the table


@dataclass(frozen=True)
class Suite(abc.ABC):
    """A grid of cells: every method on every data set, and extras."""

    data: tuple[str, ...]  # names of the tables or image sets
    methods: tuple[str, ...]  # run in this order, so cheap ones should come first
    seed: int = field(default=0, kw_only=True)  # random_state of every method
    time_limit: float = field(default=3600.0, kw_only=True)  # seconds that one cell may take
    extras: tuple[Extra, ...] = field(default=(), kw_only=True)

    def check(self) -> None:
        """Raise `ParameterError` when the grid is empty or has an impossible value."""
        self._check_grid()
        if not (self.data and self.methods):
            raise ParameterError("There is nothing to measure: the list of data sets or of methods is empty.")
        for method in (*self.methods, *(extra.method for extra in self.extras)):
            MethodSpec.parse(method)
        if self.time_limit <= 0:
            raise ParameterError(f"time_limit is {self.time_limit!r} seconds, but has to be above 0.")

    @property
    def all_data(self) -> tuple[str, ...]:
        """Return the data sets of the grid and of the extras, each once."""
        return tuple(dict.fromkeys([*self.data, *(name for extra in self.extras for name in extra.data)]))

    def cells(self, find: Callable[[str], tuple[Path, str]]) -> list[Cell]:
        """Return the cells in the order in which they are run: the grid with methods as listed, then the extras.

        `find` returns the path and the checksum of a data set.
        """
        self.check()
        found = {name: find(name) for name in self.all_data}
        return list({cell.task.key: cell for cell in self._cells(found)}.values())

    @abc.abstractmethod
    def _check_grid(self) -> None:
        """Raise `ParameterError` when a field that only this kind of suite has is wrong."""

    @abc.abstractmethod
    def _cells(self, found: Mapping[str, tuple[Path, str]]) -> Iterator[Cell]:
        """Yield all cells; one that occurs twice is run once."""


@dataclass(frozen=True)
class TableSuite(Suite):
    """A grid of tables, missing-data mechanisms, rates, methods and folds.

    Examples
    --------
    >>> suite = TableSuite(data=("letter",), methods=("mean", "em"), folds=(0, 1))
    >>> [(c.task.method, c.task.fold) for c in suite.cells(lambda name: (Path(name), ""))]
    [('mean', 0), ('em', 0), ('mean', 1), ('em', 1)]
    """

    mechanisms: tuple[str, ...] = ("mcar",)
    rates: tuple[float, ...] = (0.2,)
    folds: tuple[int, ...] = tuple(range(N_FOLDS))
    rows: int | None = None  # number of first rows to use
    settings: tuple[Setting, ...] = ()  # exceptions from the grid
    seed_by_fold: bool = False  # use the number of the fold as the method's random_state

    def _check_grid(self) -> None:
        _check_hiding(self.mechanisms, MECHANISMS, self.rates)
        for fold in self.folds:
            if fold not in range(N_FOLDS):
                raise ParameterError(f"A fold is {fold!r}, but has to be a whole number from 0 to {N_FOLDS - 1}.")
        if self.rows is not None and self.rows < 2 * N_FOLDS:
            raise ParameterError(f"rows is {self.rows}, but has to be at least {2 * N_FOLDS}.")
        if not (self.mechanisms and self.rates and self.folds):
            raise ParameterError("There is nothing to measure: the list of mechanisms, rates or folds is empty.")

    def _cells(self, found: Mapping[str, tuple[Path, str]]) -> Iterator[Cell]:
        chosen = {(s.table, s.method): s for s in self.settings}
        every = sorted({*self.folds, *(fold for s in self.settings for fold in s.folds or ())})
        conditions = product(every, self.mechanisms, self.rates)
        for (fold, mechanism, rate), method, table in product(conditions, self.methods, self.data):
            setting = chosen.get((table, method), Setting(table, method))
            if fold in (self.folds if setting.folds is None else setting.folds):
                label, (path, sha256) = MethodSpec.parse(method), found[table]
                spec, seed = str(label.with_parameters(setting.parameters)), self._seed(fold)
                task = TableTask(table, sha256, self.rows, mechanism, rate, fold, spec, seed)
                yield Cell(task, path, str(label), setting.note, len(self.folds))
        for extra, mechanism, rate in product(self.extras, self.mechanisms, self.rates):
            spec = str(MethodSpec.parse(extra.method))
            for fold, table in product(extra.folds, extra.data):
                path, sha256 = found[table]
                task = TableTask(table, sha256, self.rows, mechanism, rate, fold, spec, self._seed(fold))
                yield Cell(task, path, spec, extra.note, len(self.folds))

    def _seed(self, fold: int) -> int:
        return fold if self.seed_by_fold else self.seed


def _check_hiding(mechanisms: tuple[str, ...], known: tuple[str, ...], rates: tuple[float, ...]) -> None:
    for mechanism in mechanisms:
        if mechanism not in known:
            hint = did_you_mean(mechanism, known)
            raise ParameterError(f"There is no mechanism {mechanism!r}. Known are {', '.join(known)}.{hint}")
    for rate in rates:
        if not 0 < rate < 1:
            raise ParameterError(f"A rate is {rate!r}, but has to be above 0 and below 1.")


@dataclass(frozen=True)
class EnergySuite(Suite):
    """A grid of tables, missing-data mechanisms, rates, masks and methods, scored by the energy distance of draws.

    Examples
    --------
    >>> suite = EnergySuite(("fat",), ("mcflow",), mechanisms=("mcar",), rates=(0.2,), masks=(0, 1))
    >>> [(c.task.mask, c.task.draws) for c in suite.cells(lambda name: (Path(name), ""))]
    [(0, 4), (1, 4)]
    """

    mechanisms: tuple[str, ...] = ("mcar", "mar")
    rates: tuple[float, ...] = (0.1, 0.2, 0.3)
    masks: tuple[int, ...] = (0, 1, 2, 3)
    draws: int = 4  # completed tables of each method

    def _check_grid(self) -> None:
        _check_hiding(self.mechanisms, ("mcar", "mar"), self.rates)
        if self.draws < 1 or any(mask < 0 for mask in self.masks):
            raise ParameterError(
                f"draws is {self.draws} and the masks are {', '.join(map(str, self.masks))}, but at least 1 draw and "
                "masks from 0 are needed."
            )
        if not (self.mechanisms and self.rates and self.masks):
            raise ParameterError("There is nothing to measure: the list of mechanisms, rates or masks is empty.")

    def _cells(self, found: Mapping[str, tuple[Path, str]]) -> Iterator[Cell]:
        grid = product(self.masks, self.mechanisms, self.rates, self.methods, self.data)
        for mask, mechanism, rate, method, name in grid:
            (path, sha256), label = found[name], str(MethodSpec.parse(method))
            task = EnergyTask(name, sha256, mechanism, rate, mask, self.draws, label)
            yield Cell(task, path, label, asked_folds=len(self.masks))


@dataclass(frozen=True)
class ImageSuite(Suite):
    """A grid of image sets, masks and methods.

    Examples
    --------
    >>> suite = ImageSuite(("mnist",), ("mean", "nearest"), ("0.5", "0.9"))
    >>> [(c.task.method, c.task.mask) for c in suite.cells(lambda name: (Path(name), ""))]
    [('mean', '0.5'), ('nearest', '0.5'), ('mean', '0.9'), ('nearest', '0.9')]
    """

    masks: tuple[str, ...] = RATES
    n_train: int | None = None  # number of first training images to use; None for all
    n_test: int | None = None  # number of first test images to use; None for all
    time_limit: float = field(default=7200.0, kw_only=True)

    def _check_grid(self) -> None:
        if not self.masks:
            raise ParameterError("There is nothing to measure: the list of rates is empty.")
        for name, number in (("n_train", self.n_train), ("n_test", self.n_test)):
            if number is not None and number < 2:
                raise ParameterError(f"{name} is {number}, but has to be at least 2.")

    def _cells(self, found: Mapping[str, tuple[Path, str]]) -> Iterator[Cell]:
        grids = [(self.masks, self.methods, self.data, "")]
        grids += [(extra.masks, (extra.method,), extra.data, extra.note) for extra in self.extras]
        for masks, methods, data, note in grids:
            for mask, method, name in product(masks, methods, data):
                label, (folder, sha256) = str(MethodSpec.parse(method)), found[name]
                task = ImageTask(name, sha256, self.n_train, self.n_test, mask_word(mask), label, self.seed)
                yield Cell(task, folder, label, note)


#: The paper's Table 1: 20 % of the cells missing completely at random, five folds. Slow pairs have fewer folds.
PAPER_TABLES = TableSuite(
    data=("letter", "credit", "news"),
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
        Setting("letter", "mcflow", folds=(0, 1)),
        Setting("credit", "mcflow", folds=(0,)),
        Setting("news", "mcflow", folds=(0,)),
        Setting("credit", "missforest", folds=(0, 1), parameters={"max_rounds": 4}, note="4 rounds at most"),
        Setting(
            "news",
            "missforest",
            parameters={"n_trees": 40, "max_rows": 4000, "max_rounds": 3},
            note="40 trees of 4,000 rows each, 3 rounds at most",
        ),
    ),
    extras=(
        Extra("mcflow:paper(max_epochs=500)", ("letter", "credit", "news"), folds=(0, 1)),
        Extra("mcflow:paper(max_epochs=500)", ("letter",), folds=(2, 3, 4)),
        Extra(
            "mcflow:paper(batch_size=64,max_epochs=500)",
            ("letter", "credit"),
            folds=(0, 1),
            note="the batch size of the authors' program, where the paper has 128",
        ),
    ),
)

#: All methods in minutes: few rows, one fold, small networks and few trees.
QUICK_TABLES = TableSuite(
    data=("letter", "credit", "news"),
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

#: Draws and intervals: the methods with a distribution for a missing cell, one fold.
DRAWS = TableSuite(
    data=("letter", "credit", "news", "bean", "california"),
    methods=("em", "mice", "missforest", "mcflow"),
    folds=(0,),
    settings=tuple(replace(setting, folds=None) for setting in PAPER_TABLES.settings if setting.method == "missforest"),
)

#: The same at a size that only shows that it runs.
QUICK_DRAWS = TableSuite(
    data=DRAWS.data,
    methods=("em", "mice(n_chains=2,n_rounds=4)", "missforest(n_trees=10,max_rounds=1)", "mcflow(max_epochs=8)"),
    folds=(0,),
    rows=1000,
    time_limit=180.0,
)

#: The suites of tables by name.
TABLE_SUITES: dict[str, TableSuite] = {
    "paper": PAPER_TABLES,
    "quick": QUICK_TABLES,
    "draws": DRAWS,
    "quick-draws": QUICK_DRAWS,
}

#: The energy distance of draws on tables of a published benchmark, beside R's mice on the same masks; and a short run.
ENERGY_SUITES: dict[str, EnergySuite] = {
    "energy": EnergySuite(
        data=("concrete", "airfoil_self_noise", "PimaIndiansDiabetes", "german", "nels88", "fat"),
        methods=("mcflow", "R:mice.cart", "R:mice.pmm", "R:mice.rf"),
        time_limit=900.0,
    ),
    "quick": EnergySuite(
        data=("nels88",),
        methods=("mcflow(max_epochs=8)", "R:mice.cart"),
        mechanisms=("mcar",),
        rates=(0.2,),
        masks=(0,),
        draws=2,
        time_limit=180.0,
    ),
}

_IMAGE_METHODS = ("mean", "nearest", "gain", "misgan", "mcflow")

#: The suites of images by name: the paper's Tables 2 to 4 with blocks of pixels added, and a short run on MNIST.
IMAGE_SUITES: dict[str, ImageSuite] = {
    "paper": ImageSuite(
        data=("mnist", "cifar10", "celeba"),
        methods=_IMAGE_METHODS,
        extras=(
            Extra(
                "mcflow:paper(max_time=1800)",
                ("mnist",),
                masks=("0.5",),
                note="half an hour of training, not 500 epochs",
            ),
            *(Extra(method, ("mnist",), masks=("blocks:0.25",)) for method in _IMAGE_METHODS),
        ),
    ),
    "quick": ImageSuite(
        data=("mnist",),
        methods=("mean", "nearest", "gain(max_time=20)", "misgan(max_time=30)", "mcflow(max_time=40)"),
        masks=("0.1", "0.5", "0.9"),
        n_train=5000,
        n_test=2000,
        time_limit=300.0,
    ),
}

"""What is measured of images: sets, shares of missing pixels and methods, as plain data that is easy to edit."""

from __future__ import annotations

__all__ = ["IMAGE_SUITES", "ImageCell", "ImageExtra", "ImageSuite", "ImageTask", "mask_word"]

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import ClassVar

from mcflow.benchmarks.keys import file_word, key_of
from mcflow.benchmarks.methods import MethodSpec
from mcflow.benchmarks.tasks import AnyCell, AnyTask
from mcflow.errors import ParameterError

#: Counts up when the same settings would give other figures, so that old results are not taken for new ones.
PROTOCOL = 1

#: The paper's shares of missing pixels.
RATES = tuple(f"0.{tenth}" for tenth in range(1, 10))

_SIDES = ("left", "right", "top", "bottom", "random")


def mask_word(word: str) -> str:
    """Return how pixels are hidden, always written in the same way.

    Parameters
    ----------
    word : str
        As `mcflow.masks.mask_images` reads it: "0.5", "pixels:0.5", "blocks:0.25" or "halves:left".

    Returns
    -------
    str

    Raises
    ------
    ParameterError
        When it is none of these, or hides nothing or everything.

    Examples
    --------
    >>> mask_word("pixels:0.50"), mask_word(".9"), mask_word("blocks:0.25"), mask_word("halves")
    ('0.5', '0.9', 'blocks:0.25', 'halves:random')
    """
    # Not by `mcflow.masks`, which takes torch along: the process that starts cells has to stay small.
    kind, colon, rest = (part.strip() for part in word.strip().partition(":"))
    if not colon:
        kind, rest = ("halves", "random") if kind == "halves" else ("pixels", kind)
    if kind == "halves" and rest in _SIDES:
        return f"halves:{rest}"
    if kind in {"pixels", "blocks"} and 0 < _number(rest) < 1:
        return f"{'blocks:' if kind == 'blocks' else ''}{_number(rest):g}"
    raise ParameterError(
        f"{word!r} does not say which pixels are missing. Write a share above 0 and below 1 such as 0.5, or "
        "blocks:0.25, or halves:left."
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class ImageTask(AnyTask):
    """Everything that decides the figures of one cell.

    Parameters
    ----------
    images : str
        Name of the set.
    sha256 : str
        Checksum of its images and labels.
    n_train, n_test : int or None
        How many of its first training and test images are used; None for all.
    mask : str
        As `mask_word` writes it.
    method : str
        As `MethodSpec` writes it.
    seed : int
        The method's random_state.

    Examples
    --------
    >>> ImageTask("mnist", "", None, None, "blocks:0.25", "gain", 0).name
    'mnist-blocks_0.25-gain-...'
    """

    program: ClassVar[str] = "mcflow.benchmarks.image_cell"
    subject: ClassVar[str] = "images"

    images: str
    sha256: str
    n_train: int | None
    n_test: int | None
    mask: str
    method: str
    seed: int

    @property
    def key(self) -> str:
        """Return a hash of all settings, the same on every machine."""
        return key_of({"image_protocol": PROTOCOL, **self.settings})

    @property
    def name(self) -> str:
        """Return a name for a file: readable, and different for every key."""
        return f"{self.images}-{file_word(self.mask)}-{file_word(self.method)}-{self.key[:12]}"

    @property
    def words(self) -> str:
        """Return the task as a line of progress has it."""
        return f"{self.images}, {self.mask}, {self.method}"


@dataclass(frozen=True)
class ImageCell(AnyCell):
    """A cell of images: see `AnyCell`."""

    task: ImageTask


@dataclass(frozen=True)
class ImageExtra:
    """A method that is run on some sets and masks only, after all others."""

    method: str
    sets: tuple[str, ...]
    masks: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class ImageSuite:
    """A grid of cells.

    Parameters
    ----------
    sets, methods, masks
        The grid. Methods are run in this order, so cheap ones should come first.
    n_train, n_test : int or None
        How many of a set's first training and test images are used; None for all.
    seed : int
        Every method's random_state.
    time_limit : float
        Seconds that a cell may take.
    extras : tuple of ImageExtra
        Additions to the grid.

    Examples
    --------
    >>> suite = ImageSuite(("mnist",), ("mean", "nearest"), ("0.5", "0.9"))
    >>> [(c.task.method, c.task.mask) for c in suite.cells(lambda name: (Path(name), ""))]
    [('mean', '0.5'), ('nearest', '0.5'), ('mean', '0.9'), ('nearest', '0.9')]
    """

    sets: tuple[str, ...]
    methods: tuple[str, ...]
    masks: tuple[str, ...] = RATES
    n_train: int | None = None
    n_test: int | None = None
    seed: int = 0
    time_limit: float = 7200.0
    extras: tuple[ImageExtra, ...] = ()

    def check(self) -> None:
        """Raise `ParameterError` when something in the grid cannot be.

        Raises
        ------
        ParameterError
            With what was given and what is allowed.
        """
        if not (self.sets and self.methods and self.masks):
            raise ParameterError("There is nothing to measure: a list of sets, methods or rates is empty.")
        for method in (*self.methods, *(extra.method for extra in self.extras)):
            MethodSpec.parse(method)
        for name, number in (("n_train", self.n_train), ("n_test", self.n_test)):
            if number is not None and number < 2:
                raise ParameterError(f"{name} is {number}, but has to be at least 2.")
        if self.time_limit <= 0:
            raise ParameterError(f"time_limit is {self.time_limit!r} seconds, but has to be above 0.")

    @property
    def all_sets(self) -> tuple[str, ...]:
        """Return the sets of the grid and of the additions, each once."""
        return tuple(dict.fromkeys([*self.sets, *(name for extra in self.extras for name in extra.sets)]))

    def cells(self, find: Callable[[str], tuple[Path, str]]) -> list[ImageCell]:
        """Return the cells in the order in which they are run: mask by mask, methods as listed, then the extras.

        Parameters
        ----------
        find : callable
            From the name of a set to the folder where it is and its checksum.

        Returns
        -------
        list of ImageCell
        """
        self.check()
        places = {name: find(name) for name in self.all_sets}
        cells = [self._cell(places[name], name, mask, method, note) for name, mask, method, note in self.asked()]
        return list({cell.task.key: cell for cell in cells}.values())

    def asked(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield set, mask, method and note of every cell.

        Yields
        ------
        tuple of str
        """
        for mask, method, name in product(self.masks, self.methods, self.sets):
            yield name, mask_word(mask), str(MethodSpec.parse(method)), ""
        for extra in self.extras:
            for mask, name in product(extra.masks, extra.sets):
                yield name, mask_word(mask), str(MethodSpec.parse(extra.method)), extra.note

    def _cell(self, place: tuple[Path, str], name: str, mask: str, method: str, note: str) -> ImageCell:
        folder, sha256 = place
        task = ImageTask(name, sha256, self.n_train, self.n_test, mask, method, self.seed)
        return ImageCell(task, folder, method, note)


_METHODS = ("mean", "nearest", "gain", "misgan", "mcflow")

#: The paper's Tables 2 to 4: pixels missing completely at random, its three sets and nine rates; and blocks.
PAPER = ImageSuite(
    sets=("mnist", "cifar10", "celeba"),
    methods=_METHODS,
    extras=(
        ImageExtra("mcflow:paper(max_time=1800)", ("mnist",), ("0.5",), "half an hour of training, not 500 epochs"),
        *(
            ImageExtra(method, ("mnist",), ("blocks:0.25",))
            for method in ("mean", "nearest", "gain", "misgan", "mcflow")
        ),
    ),
)

#: A look at everything in minutes: few digits and short training.
QUICK = ImageSuite(
    sets=("mnist",),
    methods=("mean", "nearest", "gain(max_time=20)", "misgan(max_time=30)", "mcflow(max_time=40)"),
    masks=("0.1", "0.5", "0.9"),
    n_train=5000,
    n_test=2000,
    time_limit=300.0,
)

#: The suites by name.
IMAGE_SUITES: dict[str, ImageSuite] = {"paper": PAPER, "quick": QUICK}

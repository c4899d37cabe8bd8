"""Rows of a store of images gathered by what they share: methods against masks, for every set."""

from __future__ import annotations

__all__ = ["ImageSection", "image_sections", "mask_title", "set_title"]

from collections.abc import Iterable
from dataclasses import dataclass, field

from mcflow.benchmarks.methods import MethodSpec
from mcflow.benchmarks.store import Row

_TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "celeba": "CelebA"}
_ORDER = ("mean", "nearest", "gain", "misgan", "mcflow:paper", "mcflow")
_KINDS = ("", "blocks", "halves")


@dataclass
class ImageSection:
    """All results of one number of images and one seed.

    Parameters
    ----------
    n_train, n_test : int or None
        First images that were used, None for all.
    seed : int
        The methods' random_state.
    rows : dict of dict
        Results by set, mask and method, failed ones among them.
    """

    n_train: int | None
    n_test: int | None
    seed: int
    rows: dict[tuple[str, str, str], Row] = field(default_factory=dict)

    @property
    def sets(self) -> list[str]:
        """Return the sets, the paper's first and in its order."""
        order = list(_TITLES)
        return sorted({key[0] for key in self.rows}, key=lambda s: (order.index(s) if s in order else len(order), s))

    def masks(self, images: str) -> list[str]:
        """Return the masks of a set: rates, then blocks, then halves."""
        return sorted({mask for name, mask, _ in self.rows if name == images}, key=_place)

    def methods(self, images: str) -> list[str]:
        """Return the methods of a set, from the simplest to ours."""
        found = {method for name, _, method in self.rows if name == images}

        def place(method: str) -> tuple[int, str]:
            name = MethodSpec.parse(method).name
            return (_ORDER.index(name) if name in _ORDER else len(_ORDER), method)

        return sorted(found, key=place)

    def value(self, images: str, mask: str, method: str, measure: str) -> float | None:
        """Return a measure, None where there is none."""
        row = self.rows.get((images, mask, method))
        if row is None or row["status"] != "done":
            return None
        found = row["scores"].get(measure, {}).get("value")
        return None if found is None else float(found)

    def of_set(self, images: str) -> list[Row]:
        """Return all results of a set."""
        return [row for (name, _, _), row in sorted(self.rows.items()) if name == images]


def image_sections(rows: Iterable[Row]) -> list[ImageSection]:
    """Gather rows into sections.

    Parameters
    ----------
    rows : iterable of dict
        What `Store.rows` returned.

    Returns
    -------
    list of ImageSection
        Whole sets first. Where a cell was run on more than one version of a set, the newest result counts.
    """
    sections: dict[tuple[int | None, int | None, int], ImageSection] = {}
    for row in sorted(rows, key=lambda row: str(row.get("date", ""))):
        task = row["task"]
        group = (task["n_train"], task["n_test"], task["seed"])
        section = sections.setdefault(group, ImageSection(*group))
        section.rows[task["images"], task["mask"], row["label"]] = row
    whole = float("inf")
    return [sections[group] for group in sorted(sections, key=lambda g: (-(g[0] or whole), -(g[1] or whole), g[2]))]


def set_title(images: str) -> str:
    """Return how reports call a set.

    Examples
    --------
    >>> set_title("cifar10"), set_title("my_own")
    ('CIFAR-10', 'My own')
    """
    return _TITLES.get(images, images.replace("_", " ").capitalize())


def mask_title(mask: str) -> str:
    """Return a mask in words.

    Examples
    --------
    >>> mask_title("0.5"), mask_title("blocks:0.25"), mask_title("halves:left")
    ('50 %', 'block of 25 %', 'left half')
    """
    kind, _, rest = mask.rpartition(":")
    if kind == "halves":
        return f"{rest} half"
    return f"{'block of ' if kind else ''}{100 * float(rest):g} %"


def _place(mask: str) -> tuple[int, float, str]:
    kind, _, rest = mask.rpartition(":")
    return (_KINDS.index(kind), 0.0, rest) if kind == "halves" else (_KINDS.index(kind), float(rest), "")

"""Gather stored results into sections of equal settings: methods against tables, and methods against masks."""

from __future__ import annotations

__all__ = ["Entry", "ImageSection", "Section", "data_title", "image_sections", "measured_on", "sections_of"]

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

from mcflow.evaluation.methods import MethodSpec
from mcflow_bench.data.catalog import CATALOG
from mcflow_bench.data.image_sets import IMAGE_SETS
from mcflow_bench.report.blocks import count_words
from mcflow_bench.report.ranks import Ranking, rank_methods
from mcflow_bench.store import Row

#: Order of the methods for images in a report.
_IMAGE_METHODS = ("mean", "nearest", "gain", "misgan", "mcflow:paper", "mcflow")
#: Order of the kinds of masks in a report; fractions of pixels have no prefix.
_MASK_KINDS = ("", "blocks", "halves")


@dataclass
class Entry:
    """All folds of one method on one table."""

    rows: dict[int, Row] = field(default_factory=dict)  # results by fold, with failed ones

    @property
    def done(self) -> dict[int, Row]:
        """Return the results of the folds that did not fail."""
        return {fold: row for fold, row in sorted(self.rows.items()) if row["status"] == "done"}

    @property
    def failed(self) -> dict[int, Row]:
        """Return the results of the folds that failed."""
        return {fold: row for fold, row in sorted(self.rows.items()) if row["status"] != "done"}

    @property
    def asked(self) -> int:
        """Return the number of folds that were asked for."""
        return max(int(row.get("asked_folds", 1)) for row in self.rows.values())

    def values(self, score: str = "rmse") -> dict[int, float]:
        """Return a score by fold."""
        found = {fold: row["scores"].get(score, {}).get("value") for fold, row in self.done.items()}
        return {fold: value for fold, value in found.items() if value is not None}

    def mean(self, score: str = "rmse") -> float | None:
        """Return the mean of a score over folds, or None if there is none."""
        values = self.values(score)
        return fmean(values.values()) if values else None

    def deviation(self) -> float | None:
        """Return the standard deviation of the RMSE over folds, or None with fewer than two."""
        values = list(self.values().values())
        return stdev(values) if len(values) > 1 else None

    def seconds(self) -> float | None:
        """Return the mean time of fit and fill together."""
        found = [row["fit_s"] + row["transform_s"] for row in self.done.values()]
        return fmean(found) if found else None

    def draw_seconds(self) -> float | None:
        """Return the mean time of the draws that were scored."""
        found = [row["draw_s"] for row in self.done.values() if row.get("draw_s") is not None]
        return fmean(found) if found else None

    def peak_mib(self) -> float | None:
        """Return the largest peak memory of a fold's process."""
        found = [row["peak_mib"] for row in self.done.values() if row.get("peak_mib") is not None]
        return max(found) if found else None


@dataclass
class Section:
    """All results on tables with one mechanism, rate, number of rows and seed."""

    mechanism: str
    rate: float
    n_rows: int | None  # number of first rows that were used, None for all
    seed: int
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)  # by method and table

    @property
    def tables(self) -> list[str]:
        """Return the tables, those of the catalog first and in its order."""
        return sorted({table for _, table in self.entries}, key=lambda name: (_place(name, CATALOG), name))

    @property
    def methods(self) -> list[str]:
        """Return the methods, ranked ones by their rank, then the others by name."""
        found = {method for method, _ in self.entries}
        ranked = list(self.ranking.ranks) if self.ranking else []
        return ranked + sorted(found - set(ranked))

    @property
    def rows(self) -> list[Row]:
        """Return all results."""
        return [row for entry in self.entries.values() for row in entry.rows.values()]

    @property
    def notes(self) -> list[str]:
        """Return the notes on how methods were run."""
        return [
            f"`{method}` on {data_title(table)}: {note}."
            for (method, table), entry in sorted(self.entries.items())
            for note in sorted({row["note"] for row in entry.rows.values() if row.get("note")})
        ]

    @cached_property
    def ranking(self) -> Ranking | None:
        """Return the ranks of the methods with a result on every table, over the folds that all of them have."""
        tables = {table for _, table in self.entries}
        scores: dict[str, dict[tuple[str, int], float]] = {}
        for (method, table), entry in sorted(self.entries.items()):
            own = scores.setdefault(method, {})
            own |= {(table, fold): value for fold, value in entry.values().items()}
        complete = [method for method, own in scores.items() if {table for table, _ in own} == tables]
        return rank_methods(scores, complete)  # type: ignore[arg-type]

    def entry(self, method: str, table: str) -> Entry:
        """Return the results of a method on a table, possibly none."""
        return self.entries.get((method, table), Entry())

    def worse_than_the_mean(self) -> list[tuple[str, str, float, float]]:
        """Return method, table and both RMSEs where a method is worse than the column mean on the same folds."""
        found = []
        for (method, table), entry in sorted(self.entries.items()):
            plain = self.entry("mean", table).values()
            own = entry.values()
            shared = [fold for fold in own if fold in plain]
            if MethodSpec.parse(method).name != "mean" and shared:
                ours, theirs = fmean(own[f] for f in shared), fmean(plain[f] for f in shared)
                if ours > theirs:
                    found.append((method, table, ours, theirs))
        return found


def sections_of(rows: Iterable[Row]) -> list[Section]:
    """Gather results on tables into sections."""
    groups: dict[tuple[str, float, int | None, int], dict[tuple[str, str], list[Row]]] = {}
    for row in rows:
        task = row["task"]
        group = groups.setdefault((task["mechanism"], task["rate"], task["rows"], task["seed"]), {})
        group.setdefault((row["label"], task["table"]), []).append(row)
    order = sorted(groups, key=lambda g: (g[0] != "mcar", g[0], g[1], g[2] is not None, g[2] or 0, g[3]))
    return [Section(*group, {pair: _newest(found) for pair, found in groups[group].items()}) for group in order]


def _newest(rows: list[Row]) -> Entry:
    """Return the folds of the newest method and data among results with one label."""

    def way(row: Row) -> tuple[str, str]:
        return row["task"]["method"], row["task"]["sha256"]

    latest = max(rows, key=lambda row: str(row.get("date", "")))
    return Entry({row["task"]["fold"]: row for row in rows if way(row) == way(latest)})


@dataclass
class ImageSection:
    """All results on images with one number of images and one seed."""

    n_train: int | None  # number of first images that were used, None for all
    n_test: int | None
    seed: int
    rows: dict[tuple[str, str, str], Row] = field(default_factory=dict)  # by set, mask and method, with failed ones

    @property
    def is_complete(self) -> bool:
        """Return whether all images of the sets were used."""
        return self.n_train is None and self.n_test is None

    @property
    def sets(self) -> list[str]:
        """Return the sets, public ones first and in the paper's order."""
        return sorted({images for images, _, _ in self.rows}, key=lambda name: (_place(name, IMAGE_SETS), name))

    def masks(self, images: str) -> list[str]:
        """Return the masks of a set: fractions, then blocks, then halves."""
        return sorted({mask for name, mask, _ in self.rows if name == images}, key=_mask_place)

    def methods(self, images: str) -> list[str]:
        """Return the methods of a set, from the simplest to ours."""
        found = {method for name, _, method in self.rows if name == images}
        return sorted(found, key=lambda method: (_place(MethodSpec.parse(method).name, _IMAGE_METHODS), method))

    def value(self, images: str, mask: str, method: str, measure: str) -> float | None:
        """Return a score, or None if there is none."""
        row = self.rows.get((images, mask, method))
        if row is None or row["status"] != "done":
            return None
        found = row["scores"].get(measure, {}).get("value")
        return None if found is None else float(found)

    def of_set(self, images: str) -> list[Row]:
        """Return all results of a set."""
        return [row for (name, _, _), row in sorted(self.rows.items()) if name == images]


def image_sections(rows: Iterable[Row]) -> list[ImageSection]:
    """Gather results on images into sections; newer results replace older ones."""
    sections: dict[tuple[int | None, int | None, int], ImageSection] = {}
    for row in sorted(rows, key=lambda row: str(row.get("date", ""))):
        task = row["task"]
        group = (task["n_train"], task["n_test"], task["seed"])
        section = sections.setdefault(group, ImageSection(*group))
        section.rows[task["images"], task["mask"], row["label"]] = row
    most = float("inf")
    return [sections[group] for group in sorted(sections, key=lambda g: (-(g[0] or most), -(g[1] or most), g[2]))]


def _mask_place(mask: str) -> tuple[int, float, str]:
    kind, _, rest = mask.rpartition(":")
    return (_MASK_KINDS.index(kind), 0.0, rest) if kind == "halves" else (_MASK_KINDS.index(kind), float(rest), "")


def _place(name: str, order: Collection[str]) -> int:
    """Return the position of a name in an order, behind all others if it is unknown."""
    return list(order).index(name) if name in order else len(order)


def data_title(name: str) -> str:
    """Return the title of a table or an image set in reports, such as "News", "CIFAR-10" or "My own"."""
    entry = CATALOG.get(name) or IMAGE_SETS.get(name)
    return entry.title if entry else name.replace("_", " ").capitalize()


def measured_on(rows: Sequence[Row]) -> str:
    """Return where results were measured: machine, threads, load and versions."""
    machines = {f"{m['cpu']}, {m['cores']} cores, {m['ram_gib']} GiB" for m in _parts(rows, "machine")}
    used = {", ".join(f"{k} {v}" for k, v in sorted(found.items())) for found in _parts(rows, "versions")}
    threads = {
        f"{count_words(row['threads'], 'thread')}, {count_words(row['jobs'], 'cell')} at a time"
        for row in rows
        if "threads" in row
    }
    loads = [load for row in rows for load in row.get("load", ()) if load is not None]
    load = f"load {min(loads):.1f} to {max(loads):.1f}" if loads else ""
    return (
        f"Measured on {'; '.join(sorted(machines))}; {' or '.join(sorted(threads))}; {load}; "
        f"{' or '.join(sorted(used))}."
    )


def _parts(rows: Sequence[Row], name: str) -> list[dict[str, Any]]:
    return [row[name] for row in rows if row.get(name)]

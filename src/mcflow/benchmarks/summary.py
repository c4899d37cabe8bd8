"""Rows of a store gathered by what they share: sections of one mechanism and rate, methods against tables."""

from __future__ import annotations

__all__ = ["Entry", "Section", "sections_of"]

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean, stdev

from mcflow.benchmarks.methods import MethodSpec
from mcflow.benchmarks.ranks import Ranking, rank_methods
from mcflow.benchmarks.store import Row
from mcflow.data.catalog import CATALOG


@dataclass
class Entry:
    """All folds of one method on one table.

    Parameters
    ----------
    rows : dict of dict
        Results by fold, failed ones among them.
    """

    rows: dict[int, Row] = field(default_factory=dict)

    @property
    def done(self) -> dict[int, Row]:
        """Return the results of the folds that did not fail."""
        return {fold: row for fold, row in sorted(self.rows.items()) if row["status"] == "done"}

    @property
    def failed(self) -> dict[int, Row]:
        """Return the rows of the folds that failed."""
        return {fold: row for fold, row in sorted(self.rows.items()) if row["status"] != "done"}

    @property
    def asked(self) -> int:
        """Return how many folds were asked for."""
        return max(int(row.get("asked_folds", 1)) for row in self.rows.values())

    @property
    def notes(self) -> list[str]:
        """Return what was said of how the method was run here."""
        return sorted({row["note"] for row in self.rows.values() if row.get("note")})

    def values(self, score: str = "rmse") -> dict[int, float]:
        """Return a score by fold."""
        found = {fold: row["scores"].get(score, {}).get("value") for fold, row in self.done.items()}
        return {fold: value for fold, value in found.items() if value is not None}

    def mean(self, score: str = "rmse") -> float | None:
        """Return a score's mean over folds, None when there is none."""
        values = self.values(score)
        return fmean(values.values()) if values else None

    def deviation(self) -> float | None:
        """Return the standard deviation of the RMSE over folds (n − 1), None with fewer than two."""
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
        """Return the largest memory of a fold's process."""
        found = [row["peak_mib"] for row in self.done.values() if row.get("peak_mib") is not None]
        return max(found) if found else None


@dataclass
class Section:
    """All results of one mechanism, rate, number of rows and seed.

    Parameters
    ----------
    mechanism : str
        How cells were hidden.
    rate : float
        Share of them.
    n_rows : int or None
        First rows that were used, None for all.
    seed : int
        The methods' random_state.
    entries : dict of Entry
        By method and table.
    """

    mechanism: str
    rate: float
    n_rows: int | None
    seed: int
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)

    @property
    def tables(self) -> list[str]:
        """Return the tables, those of the catalog first and in its order."""
        order = list(CATALOG)
        found = {table for _, table in self.entries}
        return sorted(found, key=lambda name: (order.index(name) if name in order else len(order), name))

    @property
    def methods(self) -> list[str]:
        """Return the methods, the ranked ones by their rank, then the others by name."""
        found = {method for method, _ in self.entries}
        ranked = list(self.ranking.ranks) if self.ranking else []
        return ranked + sorted(found - set(ranked))

    @property
    def ranking(self) -> Ranking | None:
        """Return the ranks of the methods that have a result on every table, over the blocks that all of them have."""
        tables = {table for _, table in self.entries}
        scores: dict[str, dict[tuple[str, int], float]] = {}
        for (method, table), entry in sorted(self.entries.items()):
            own = scores.setdefault(method, {})
            own |= {(table, fold): value for fold, value in entry.values().items()}
        whole = [method for method, own in scores.items() if {table for table, _ in own} == tables]
        return rank_methods(scores, whole)  # type: ignore[arg-type]

    def entry(self, method: str, table: str) -> Entry:
        """Return what is known of a method on a table, perhaps nothing."""
        return self.entries.get((method, table), Entry())

    def worse_than_the_mean(self) -> list[tuple[str, str, float, float]]:
        """Return method, table and both RMSEs wherever a method is behind the column mean on the folds of both."""
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
    """Gather rows into sections.

    Parameters
    ----------
    rows : iterable of dict
        What `Store.rows` returned.

    Returns
    -------
    list of Section
        The paper's mechanism first, all rows of the tables first. Where a method was run on a table in more than one
        way or on more than one version of its file, the way of the newest result counts.
    """
    groups: dict[tuple[str, float, int | None, int], dict[tuple[str, str], list[Row]]] = {}
    for row in rows:
        task = row["task"]
        group = groups.setdefault((task["mechanism"], task["rate"], task["rows"], task["seed"]), {})
        group.setdefault((row["label"], task["table"]), []).append(row)
    order = sorted(groups, key=lambda g: (g[0] != "mcar", g[0], g[1], g[2] is not None, g[2] or 0, g[3]))
    return [Section(*group, {pair: _newest(found) for pair, found in groups[group].items()}) for group in order]


def _newest(rows: list[Row]) -> Entry:
    def way(row: Row) -> tuple[str, str]:
        return row["task"]["method"], row["task"]["sha256"]

    latest = max(rows, key=lambda row: str(row.get("date", "")))
    return Entry({row["task"]["fold"]: row for row in rows if way(row) == way(latest)})

"""The report on the energy distance of draws: ratios to R's mice on the same masks, and published figures beside it."""

from __future__ import annotations

__all__ = ["FIGURE", "MARK", "EnergyTable", "Peers", "Place", "draw_ratios", "energy_blocks", "energy_checks"]

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, geometric_mean, stdev
from typing import Any, NamedTuple

from mcflow.evaluation.methods import MethodSpec
from mcflow_bench.report.blocks import (
    NO_RESULTS,
    Block,
    Bullets,
    Figure,
    Grid,
    Heading,
    Paragraph,
    bullets,
    count_words,
    seconds_words,
    short_number,
)
from mcflow_bench.report.draws import Check
from mcflow_bench.report.ranks import INK, SVG, svg_text
from mcflow_bench.report.summary import measured_on
from mcflow_bench.store import Row
from mcflow_bench.suites import EnergySuite

#: Name of the block of a page that holds the tables.
MARK = "energy"
#: File of the plot.
FIGURE = "energy-ratios.svg"

_OWN = "mcflow"
_CART = "R:mice.cart"
#: Methods of R's mice, and their names in files of stored and published figures.
_MICE = {"R:mice.cart": "mice_cart", "R:mice.pmm": "mice_pmm", "R:mice.rf": "mice_rf"}
#: Required ratio to mice's cart on every table, and as a geometric mean.
_EACH, _MEAN = 1.0, 0.9
#: Required geometric mean of the ratios to the best method of mice.
_BEST = 1.0
#: Columns named in the split of the distance.
_N_COLUMNS = 3


class Place(NamedTuple):
    """A table, a mechanism and a rate."""

    frame: str
    mechanism: str
    rate: float


@dataclass(frozen=True)
class Peers:
    """Figures of other methods that were not measured in this run."""

    stored: Mapping[tuple[Place, str], Mapping[int, float]] = field(default_factory=dict)  # by mask, on the same masks
    published: Mapping[Place, Mapping[str, float]] = field(default_factory=dict)  # by method, on other masks

    @classmethod
    def read(cls, folder: Path | None) -> Peers:
        """Read `mice_same_masks.csv` and `published.csv` where a folder has them."""
        stored: dict[tuple[Place, str], dict[int, float]] = {}
        for line in _lines(folder, "mice_same_masks.csv"):
            place = Place(line["set_id"], line.get("mechanism") or "mcar", float(line["ratio"]))
            if (value := _number(line["energy_std"])) is not None:
                stored.setdefault((place, line["method"]), {})[int(line["seed"])] = value
        published: dict[Place, dict[str, float]] = {}
        for line in _lines(folder, "published.csv"):
            if (value := _number(line["energy_std"])) is not None:
                place = Place(line["set_id"], line["mechanism"], float(line["ratio"]))
                published.setdefault(place, {})[line["method"]] = value
        return cls(stored, published)


def _lines(folder: Path | None, name: str) -> list[dict[str, str]]:
    if folder is None or not (folder / name).is_file():
        return []
    with (folder / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class EnergyTable:
    """The results of a suite by place, method and mask, with stored figures where R's mice was not measured."""

    suite: EnergySuite
    rows: Mapping[tuple[Place, str], Mapping[int, Row]]
    peers: Peers

    @classmethod
    def gather(cls, rows: Sequence[Row], suite: EnergySuite, peers: Peers) -> EnergyTable:
        """Select the results with the draws, masks, mechanisms, rates and tables of a suite."""
        found: dict[tuple[Place, str], dict[int, Row]] = {}
        for row in rows:
            task = row["task"]
            place = Place(task["frame"], task["mechanism"], task["rate"])
            wanted = place.frame in suite.data and place.mechanism in suite.mechanisms and place.rate in suite.rates
            if wanted and task["draws"] == suite.draws and task["mask"] in suite.masks:
                found.setdefault((place, row["label"]), {})[task["mask"]] = row
        return cls(suite, found, peers)

    @property
    def places(self) -> list[Place]:
        """Return the places with a result, in the order of the suite."""
        known = {place for place, _ in self.rows}
        grid = (Place(f, m, r) for m in self.suite.mechanisms for f in self.suite.data for r in self.suite.rates)
        return [place for place in grid if place in known]

    @property
    def own(self) -> str:
        """Return mcflow with its parameters, as it was measured."""
        found = sorted({method for _, method in self.rows if MethodSpec.parse(method).name == _OWN})
        return found[0] if found else _OWN

    @property
    def others(self) -> list[str]:
        """Return the other methods: R's mice first."""
        measured = dict.fromkeys(method for _, method in self.rows if method != self.own)
        return [*_MICE, *(method for method in measured if method not in _MICE)]

    def values(self, place: Place, method: str, score: str = "energy") -> list[float]:
        """Return a score by mask; stored figures if the method was not measured on all masks of mcflow."""
        found = {mask: row["scores"][score]["value"] for mask, row in self._done(place, method).items()}
        if self.is_stored(place, method) and score == "energy":
            stored = self.peers.stored[place, _MICE[method]]
            found = {mask: value for mask, value in stored.items() if mask in self.suite.masks}
        return list(found.values())

    def _done(self, place: Place, method: str) -> dict[int, Row]:
        rows = self.rows.get((place, method), {})
        return {mask: row for mask, row in sorted(rows.items()) if row["status"] == "done"}

    def is_stored(self, place: Place, method: str) -> bool:
        """Tell whether the figures of a method are stored ones."""
        return not self._done(place, method) and (place, _MICE.get(method, "")) in self.peers.stored

    def mean(self, place: Place, method: str, score: str = "energy") -> float | None:
        """Return the mean of a score over masks, or None."""
        values = self.values(place, method, score)
        return fmean(values) if values else None

    def ratio(self, place: Place, to: Sequence[str]) -> float | None:
        """Return the ratio of mcflow to the best of some methods, by their means over masks."""
        own, others = self.mean(place, self.own), [self.mean(place, method) for method in to]
        known = [value for value in others if value is not None]
        return own / min(known) if own is not None and known else None

    def rank(self, place: Place) -> str:
        """Return the rank of mcflow among published figures, and the best of them."""
        own, published = self.mean(place, self.own), self.peers.published.get(place)
        if own is None or not published:
            return "–"
        best = min(published, key=published.__getitem__)
        rank = sum(value < own for value in published.values()) + 1
        return f"{rank} of {len(published) + 1} ({best} {short_number(published[best], 3)})"


def energy_blocks(table: EnergyTable, figures: Sequence[Figure] = ()) -> list[Block]:
    """Return the parts of the report."""
    if not table.places:
        return [NO_RESULTS]
    blocks: list[Block] = [*figures]
    for mechanism in table.suite.mechanisms:
        places = [place for place in table.places if place.mechanism == mechanism]
        if places:
            blocks += [Heading({"mcar": "Completely at random", "mar": "At random"}[mechanism], 3)]
            blocks += [_grid(table, places), Paragraph(_means(table, places))]
    blocks += [Paragraph(_caption(table)), Paragraph(f"Requirements on `{table.own}`:")]
    blocks += [Bullets(tuple(map(str, energy_checks(table))))]
    blocks += [Heading("Where draws differ", 3), _split(table), Paragraph(_SPLIT_CAPTION)]
    return [*blocks, *bullets(_alarms(table), alarm=True)]


def _grid(table: EnergyTable, places: Sequence[Place]) -> Grid:
    others = table.others
    header = ["table", "missing", f"`{table.own}`", "fill", *(f"`{method}`" for method in others)]
    lines = []
    for place in places:
        stored = ["*" if table.is_stored(place, method) else "" for method in others]
        means = [
            f"{short_number(table.mean(place, method), 3)}{mark}" for method, mark in zip(others, stored, strict=True)
        ]
        ratios = [_ratio_words(table.ratio(place, to), limit) for to, limit in (((_CART,), _EACH), (list(_MICE), None))]
        fill = short_number(table.mean(place, table.own, "fill_energy"), 3)
        facts = place.frame, f"{100 * place.rate:g} %", _spread(table, place), fill
        lines.append((*facts, *means, *ratios, table.rank(place)))
    return Grid((*header, "/ cart", "/ best of mice", "rank among published"), tuple(lines))


def _means(table: EnergyTable, places: Sequence[Place]) -> str:
    """Return the geometric means of the ratios over all tables, by rate."""
    words = []
    for name, to in (("cart", (_CART,)), ("the best of mice", tuple(_MICE))):
        found = []
        for rate in table.suite.rates:
            known = [one for p in places if p.rate == rate and (one := table.ratio(p, to)) is not None]
            found += [f"{short_number(geometric_mean(known), 2)} at {100 * rate:g} %"] if known else []
        words += [f"to {name} {', '.join(found)}"] if found else []
    return f"Geometric means of the ratios: {'; '.join(words)}." if words else "R's mice has no figures here."


def _spread(table: EnergyTable, place: Place) -> str:
    values = table.values(place, table.own)
    if not values:
        return "–"
    error = f" ± {short_number(stdev(values) / math.sqrt(len(values)), 3)}" if len(values) > 1 else ""
    return f"{short_number(fmean(values), 3)}{error}"


def _ratio_words(ratio: float | None, limit: float | None) -> str:
    text = short_number(ratio, 2)
    return f"**{text}**" if ratio is not None and limit is not None and round(ratio, 3) > limit else text


def energy_checks(table: EnergyTable) -> list[Check]:
    """Return the requirements on the ratios to mice on the same masks."""
    if "mcar" not in table.suite.mechanisms:
        return []
    places = [Place(frame, "mcar", rate) for frame in table.suite.data for rate in table.suite.rates]
    cart, best = ([table.ratio(place, to) for place in places] for to in ((_CART,), tuple(_MICE)))
    known = [ratio for ratio in cart if ratio is not None]
    each = None if len(known) < len(cart) else max(round(ratio, 3) for ratio in known) <= _EACH
    highest = f"highest {max(known):.3f}" if known else ""
    return [
        Check(f"The ratio to mice's cart is at most {_EACH:.2f} on every table and rate, MCAR", each, highest),
        _mean_check("Its geometric mean", cart, _MEAN),
        _mean_check("The geometric mean of the ratio to the best of mice's cart, pmm and rf", best, _BEST),
    ]


def _mean_check(words: str, ratios: Sequence[float | None], limit: float) -> Check:
    known = [ratio for ratio in ratios if ratio is not None]
    mean = geometric_mean(known) if known else math.nan
    met = None if len(known) < len(ratios) or not known else round(mean, 3) <= limit
    return Check(f"{words} is at most {limit:.2f}", met, f"{mean:.3f}" if known else "")


_SPLIT_CAPTION = (
    "The energy distance of mcflow's draws, split by column: the columns with the largest parts, in percent of the "
    "whole, over all masks and rates. A part includes what a column's relations to others contribute."
)


def _split(table: EnergyTable) -> Grid:
    lines = []
    for mechanism in table.suite.mechanisms:
        for frame in table.suite.data:
            parts: dict[str, float] = {}
            for place in (one for one in table.places if (one.frame, one.mechanism) == (frame, mechanism)):
                for row in table._done(place, table.own).values():
                    for name, part in row["columns"].items():
                        parts[name] = parts.get(name, 0.0) + part
            total = sum(parts.values())
            if total > 0:
                first = sorted(parts, key=parts.__getitem__, reverse=True)[:_N_COLUMNS]
                words = ", ".join(f"`{name}` {100 * parts[name] / total:.0f} %" for name in first)
                lines.append((frame, mechanism.upper(), words))
    return Grid(("table", "mechanism", "largest parts"), tuple(lines))


def _caption(table: EnergyTable) -> str:
    rows = [row for found in table.rows.values() for row in found.values()]
    versions = sorted({row["mice"] for row in rows if row.get("mice")})
    mice = f"R's mice {' or '.join(versions)} was run on the same masks. " if versions else ""
    if any(table.is_stored(place, method) for place in table.places for method in _MICE):
        mice += "Figures with * are stored ones of R's mice 3.15 on the same masks, with one imputation each. "
    own = [row for (_, method), found in table.rows.items() if method == table.own for row in found.values()]
    seconds = [row["fit_s"] + row["draw_s"] for row in own if row["status"] == "done"]
    time = f"mcflow's fit and draws take {seconds_words(fmean(seconds))} on average. " if seconds else ""
    sizes = f"{count_words(len(table.suite.masks), 'mask')} and {count_words(table.suite.draws, 'draw')}"
    return (
        f"Energy distance of a draw to the complete table, the mean over {sizes}, with the standard error over masks; "
        f"`fill` is that of a point fill. Lower is better. {mice}Ratios are those of mcflow to mice's cart and to the "
        "best of its cart, pmm and rf; in bold where mcflow is worse than cart. Ranks are among published figures on "
        "**other masks**, the best of them in brackets; a mask moves a score by 10 to 30 %, so ranks are a guide only. "
        f"{time}{measured_on(rows)}"
    )


def _alarms(table: EnergyTable) -> Iterator[str]:
    started: dict[tuple[str, str, int], dict[str, list[str]]] = {}  # rates by table
    for (place, method), found in table.rows.items():
        rate = f"{100 * place.rate:g}"
        for mask, row in sorted(found.items()):
            if row["status"] != "done":
                where = f"`{method}` on {place.frame}, {place.mechanism} {rate} %, mask {mask}"
                yield f"{where}: {row['message'].rstrip('.')}."
        if len(found) < len(table.suite.masks):
            started.setdefault((method, place.mechanism, len(found)), {}).setdefault(place.frame, []).append(rate)
    for (method, mechanism, n_masks), rates in started.items():
        where = "; ".join(f"{frame} {', '.join(of_frame)} %" for frame, of_frame in rates.items())
        yield f"`{method}`, {mechanism}: {n_masks} of {len(table.suite.masks)} masks so far on {where}."


def draw_ratios(table: EnergyTable) -> str | None:
    """Draw the ratios to mice's cart as SVG, a panel for each mechanism; None if there is no ratio."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    ratios = {place: ratio for place in table.places if (ratio := table.ratio(place, (_CART,))) is not None}
    mechanisms = [name for name in table.suite.mechanisms if any(place.mechanism == name for place in ratios)]
    if not ratios:
        return None
    frames = [frame for frame in table.suite.data if any(place.frame == frame for place in ratios)]
    with mpl.rc_context(SVG):
        canvas = Canvas(figsize=(8.5, 1.2 + 0.34 * len(frames)))
        panels: Any = canvas.subplots(1, len(mechanisms), sharey=True, sharex=True, squeeze=False)[0]
        for axes, mechanism in zip(panels, mechanisms, strict=True):
            _panel(axes, {p: r for p, r in ratios.items() if p.mechanism == mechanism}, frames, table.suite.rates)
            axes.set_title(mechanism.upper(), color=INK, fontsize=10)
        handles, labels = panels[0].get_legend_handles_labels()
        legend = canvas.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False, fontsize=9,
                               bbox_to_anchor=(0.5, -0.16), labelcolor=INK)  # fmt: skip
        legend.set_in_layout(True)
        return svg_text(canvas)


def _panel(axes: Any, ratios: Mapping[Place, float], frames: Sequence[str], rates: Sequence[float]) -> None:
    axes.axvline(1, lw=1, color=INK)
    for number, rate in enumerate(rates):
        found = {place.frame: ratio for place, ratio in ratios.items() if place.rate == rate}
        heights = [-frames.index(frame) + 0.2 * (1 - number) for frame in found]
        label = f"{100 * rate:g} % missing"
        axes.plot(list(found.values()), heights, "osD^v"[number % 5], ms=5, color=f"C{number}", label=label)
    axes.set_yticks([-place for place in range(len(frames))], frames)
    axes.set_xlabel("energy distance relative to mice's cart", color=INK, fontsize=9)
    axes.tick_params(colors=INK, labelsize=9)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(INK)

"""Draw how time and memory grow: docs/pictures/growth_time.svg and growth_memory.svg from what is stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcflow.data.files import replacing

STORED = Path(__file__).parent / "results" / "growth.json"
FOLDER = Path(__file__).parent.parent / "docs" / "pictures"

INK, FIT, FILL = "#22313f", "#5b8db8", "#e8963a"

#: For each picture, the name of its axis and the two lines: what is stored, what it is called, and its colour.
PICTURES = {
    "growth_time": (
        "seconds",
        (("epoch_s", "one pass of training", FIT), ("transform_s", "filling all rows", FILL)),
    ),
    "growth_memory": (
        "peak memory, MiB",
        (("fit_peak_mib", "fit", FIT), ("transform_peak_mib", "filling all rows", FILL)),
    ),
}


def draw(result: dict[str, Any], unit: str, lines: Sequence[tuple[str, str, str]]) -> Any:
    """Return a figure of two panels, by rows and by columns, both axes in powers of ten."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.4, 3.6), facecolor="white", layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, axis, fixed in zip(panels, ("rows", "columns"), ("columns", "rows"), strict=True):
        cases = result[f"by_{axis}"]
        for name, words, colour in lines:
            axes.loglog([c[axis] for c in cases], [c[name] for c in cases], "o-", color=colour, label=words, lw=1.6)
        same = {f"{c[fixed]:,}" for c in cases}
        axes.set_xlabel(f"{axis}, at {', '.join(sorted(same))} {fixed}", color=INK)
        axes.grid(visible=True, which="major", color="#e3e8ec", lw=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(unit, color=INK)
    panels[0].legend(frameon=False)
    return figure


def draw_pictures() -> None:
    """Write every picture; the same results give the same bytes."""
    import matplotlib

    result = json.loads(STORED.read_text())
    FOLDER.mkdir(exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "mcflow", "svg.fonttype": "path"}):
        for name, (unit, lines) in PICTURES.items():
            with replacing(FOLDER / f"{name}.svg") as temporary:
                draw(result, unit, lines).savefig(temporary, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    draw_pictures()

"""The trace of a Monte Carlo chain: whether it has settled, moves, and forgets where it began."""

from __future__ import annotations

__all__ = ["plot_trace"]

from typing import TYPE_CHECKING, Any

import numpy as np

from mcflow.errors import DataError, ParameterError
from mcflow.report.diagnostics_canvas import (
    COVERED,
    INK,
    MISSED,
    WARM,
    add_legend,
    check_matplotlib,
    panel_grid,
    shorten,
    thin,
)
from mcflow.typing import Array, FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Steps, rows and cells that are drawn at most.
MOST_STEPS, MOST_ROWS, MOST_CELLS = 1_000, 15, 10


def plot_trace(trace: Any) -> Figure:
    """Draw the trace of a Monte Carlo chain.

    Parameters
    ----------
    trace : ChainTrace or object
        With the arrays `log_density` and `accepted` of shape (n_steps, n_rows) and `values` of shape
        (n_steps, n_cells). Where it has them: `burn_in` (or `n_burn_in`), the steps at the beginning that are not
        used; `names`, the names of the cells, or `cells`, their row and column; `moves`, the kind of every step.

    Returns
    -------
    matplotlib.figure.Figure
        Panels, from left to right the steps, with the burn-in shaded: the log-density of rows, with the mean in bold;
        the share of accepted steps so far, for each kind of move; and the values of up to ten cells.

    Raises
    ------
    ParameterError
        When the object holds no trace, as a model without a chain.
    DataError
        When the trace has no step, or its arrays do not fit together.
    MissingExtraError
        When matplotlib is not installed.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> steps = rng.normal(size=(200, 4)).cumsum(axis=0)
    >>> moved = rng.random((200, 4)) < 0.4
    >>> trace = SimpleNamespace(log_density=-np.abs(steps), accepted=moved, values=steps[:, :2], burn_in=50)
    >>> figure = plot_trace(trace)
    >>> [axes.get_title() for axes in figure.axes]
    ['log-density of 4 rows', 'accepted: 42 % after the burn-in', 'cell 0', 'cell 1']
    """
    check_matplotlib()
    density, accepted, values = _arrays(trace)
    burn_in = _burn_in(trace, len(density))
    shown = thin(values.shape[1], MOST_CELLS)
    names = _cell_names(trace, values.shape[1])
    title = f"Trace of a chain of {len(density):,} steps, {burn_in:,} of them burn-in"
    if len(shown) < values.shape[1]:
        title += f"; {len(shown)} of {values.shape[1]:,} cells"
    figure, panels = panel_grid(2 + len(shown), title)
    steps = thin(len(density), MOST_STEPS)
    _draw_density(panels[0], density, steps)
    _draw_acceptance(panels[1], accepted, steps, burn_in, getattr(trace, "moves", None))
    for axes, cell in zip(panels[2:], shown, strict=True):
        _draw_cell(axes, values[:, cell], steps, burn_in)
        axes.set_title(shorten(names[cell], 30), color=INK, fontsize=8)
    for axes in panels:
        if burn_in:
            axes.axvspan(0, burn_in, color=INK, alpha=0.18, lw=0, label="burn-in")
        axes.set_xlim(0, len(density))
        axes.set_xlabel("step", fontsize=7)
    add_legend(figure, _handles(burn_in))
    return figure


def _arrays(trace: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log-density, acceptance and values as arrays that fit together."""
    parts = ("log_density", "accepted", "values")
    if any(callable(getattr(trace, name, callable)) for name in parts):  # which `values` of a dictionary is, too
        raise ParameterError(
            f"trace is of type {type(trace).__name__}, which holds no trace of a chain. Only models that draw by a "
            "chain have one: MCFlowImputer(preset='paper'). Give the trace that it returned."
        )
    density, accepted, values = (np.asarray(getattr(trace, name), dtype=float) for name in parts)
    shapes = f"log_density {density.shape}, accepted {accepted.shape} and values {values.shape}"
    if density.ndim != 2 or values.ndim != 2 or density.shape != accepted.shape or len(values) != len(density):
        raise DataError(
            f"The trace has the shapes {shapes}, but all three need a row for each step, and the first two a column "
            "for each row of the table."
        )
    if not density.size:
        raise DataError(f"The trace is empty: it has the shapes {shapes}. Record a chain of at least one step and row.")
    return np.where(np.isfinite(density), density, np.nan), accepted, values


def _burn_in(trace: Any, n_steps: int) -> int:
    found = getattr(trace, "burn_in", getattr(trace, "n_burn_in", 0))
    return int(min(max(found or 0, 0), n_steps))


def _cell_names(trace: Any, n_cells: int) -> list[str]:
    """Return the cells' names, of which a trace may know the words, the places or nothing."""
    names = getattr(trace, "names", None)
    if names is not None and len(names) == n_cells:
        return [str(name) for name in names]
    cells = getattr(trace, "cells", None)
    if cells is not None and len(cells) == n_cells:
        return [f"row {row}, column {column}" for row, column in np.asarray(cells).tolist()]
    return [f"cell {place}" for place in range(n_cells)]


def _draw_density(axes: Any, density: FloatArray, steps: Array) -> None:
    for row in thin(density.shape[1], MOST_ROWS):
        axes.plot(steps, density[steps, row], color=COVERED, lw=0.5, alpha=0.3, label="row")
    seen = np.isfinite(density[steps])
    mean = np.where(seen, density[steps], 0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
    mean[~seen.any(axis=1)] = np.nan
    axes.plot(steps, mean, color=MISSED, lw=1.3, label="mean", zorder=3)
    axes.set_ylabel("log-density", fontsize=7)
    axes.set_title(f"log-density of {density.shape[1]:,} rows", color=INK, fontsize=8)


def _draw_acceptance(axes: Any, accepted: FloatArray, steps: Array, burn_in: int, moves: Any) -> None:
    """Draw running means of the share of rows that moved, of all steps and of every kind."""
    shares = accepted.mean(axis=1)
    kinds = list(dict.fromkeys(moves)) if moves is not None and len(moves) == len(shares) else []
    for kind, colour in zip(kinds if len(kinds) > 1 else [], WARM, strict=False):
        own = np.flatnonzero([move == kind for move in moves])
        some = thin(len(own), MOST_STEPS)
        running = 100 * _running_mean(shares[own])[some]
        axes.plot(own[some], running, color=colour, lw=0.9, label=str(kind))
        axes.annotate(str(kind), (own[-1], running[-1]), xytext=(-2, 2), textcoords="offset points", color=colour,
                      fontsize=7, ha="right", va="bottom")  # fmt: skip
    axes.plot(steps, 100 * _running_mean(shares)[steps], color=INK, lw=1.8, label="all moves")
    axes.set_ylim(0, 100)
    axes.set_ylabel("accepted so far, %", fontsize=7)
    after = shares[burn_in:] if burn_in < len(shares) else shares
    words = " after the burn-in" if 0 < burn_in < len(shares) else ""
    axes.set_title(f"accepted: {100 * after.mean():.0f} %{words}", color=INK, fontsize=8)


def _running_mean(values: FloatArray) -> FloatArray:
    means: FloatArray = np.cumsum(values) / np.arange(1, len(values) + 1)
    return means


def _draw_cell(axes: Any, values: FloatArray, steps: Array, burn_in: int) -> None:
    axes.plot(steps, values[steps], color=COVERED, lw=0.7, label="value")
    axes.set_ylabel("value", fontsize=7)
    if burn_in < len(values):
        axes.hlines(np.mean(values[burn_in:]), burn_in, len(values), color=MISSED, lw=1.3, label="mean", zorder=3)


def _handles(burn_in: int) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Line2D([], [], color=COVERED, lw=0.7, label="a row, a cell"),
        Line2D([], [], color=MISSED, lw=1.3, label="mean of the rows, of a cell's draws"),
        Line2D([], [], color=INK, lw=1.8, label="all moves"),
    ]
    if burn_in:
        handles.append(Patch(color=INK, alpha=0.18, lw=0, label="burn-in"))
    return handles

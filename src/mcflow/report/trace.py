"""Plot the trace of a Markov chain: log-densities, acceptance rates and values of cells."""

from __future__ import annotations

__all__ = ["plot_trace"]

from typing import TYPE_CHECKING, Any

import numpy as np

from mcflow.errors import DataError, ParameterError
from mcflow.report import canvas
from mcflow.report.tables import evenly_spaced
from mcflow.typing import Array, FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_STEPS = 1_000  #: Maximum number of steps that are drawn.
MAX_ROWS = 15  #: Maximum number of rows whose log-density is drawn.
MAX_CELLS = 10  #: Maximum number of cells that are drawn.


def plot_trace(trace: Any) -> Figure:
    """Plot the trace of a Markov chain.

    Parameters
    ----------
    trace : ChainTrace or object
        An object with the arrays `log_density` and `accepted` of shape (n_steps, n_rows) and `values` of shape
        (n_steps, n_cells). Optional attributes: `burn_in`, the number of discarded steps at the beginning; `names`,
        the names of the cells, or `cells`, their rows and columns; `moves`, the kind of every step.

    Returns
    -------
    matplotlib.figure.Figure
        Panels over the steps, with the burn-in shaded: the log-density of rows with their mean; the running acceptance
        rate of each kind of move; and the values of up to ten cells.

    Raises
    ------
    ParameterError
        If the object holds no trace.
    DataError
        If the trace has no step, or the shapes of its arrays do not match.
    MissingExtraError
        If matplotlib is not installed.

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
    canvas.check_matplotlib()
    density, accepted, values = _arrays(trace)
    burn_in = int(np.clip(getattr(trace, "burn_in", 0), 0, len(density)))
    shown = evenly_spaced(values.shape[1], MAX_CELLS)
    names = _cell_names(trace, values.shape[1])
    title = f"Trace of a Markov chain: {len(density):,} steps, {burn_in:,} of them burn-in"
    if len(shown) < values.shape[1]:
        title += f"; {len(shown)} of {values.shape[1]:,} cells"
    figure, panels = canvas.panel_grid(2 + len(shown), title)
    steps = evenly_spaced(len(density), MAX_STEPS)
    _draw_density(panels[0], density, steps)
    _draw_acceptance(panels[1], accepted, steps, burn_in, getattr(trace, "moves", None))
    for axes, cell in zip(panels[2:], shown, strict=True):
        axes.plot(steps, values[steps, cell], color=canvas.BLUE, lw=0.7, label="value")
        if burn_in < len(values):
            mean = np.mean(values[burn_in:, cell])
            axes.hlines(mean, burn_in, len(values), color=canvas.ORANGE, lw=1.3, label="mean", zorder=3)
        axes.set_ylabel("value", fontsize=7)
        axes.set_title(canvas.shorten(names[cell], 30), fontsize=8)
    keys = [
        canvas.line_key("one row, one cell", canvas.BLUE, lw=0.7),
        canvas.line_key("mean of the rows, of the cell after burn-in", canvas.ORANGE, lw=1.3),
        canvas.line_key("all moves", canvas.INK, lw=1.8),
    ]
    if burn_in:
        keys.append(canvas.area_key("burn-in", canvas.INK, 0.18))
    for axes in panels:
        if burn_in:
            axes.axvspan(0, burn_in, color=canvas.INK, alpha=0.18, lw=0, label="burn-in")
        axes.set_xlim(0, len(density))
        axes.set_xlabel("step", fontsize=7)
    canvas.add_legend(figure, keys)
    return figure


def _arrays(trace: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log-density and acceptance, (n_steps, n_rows), and values, (n_steps, n_cells)."""
    parts = ("log_density", "accepted", "values")
    if any(callable(getattr(trace, name, callable)) for name in parts):  # `values` of a dictionary is callable, too
        raise ParameterError(
            f"trace is of type {type(trace).__name__}, which holds no trace of a chain. Only models that draw by a "
            "Markov chain have one: MCFlowImputer(preset='paper'). Give the trace that it returned."
        )
    density, accepted, values = (np.asarray(getattr(trace, name), dtype=float) for name in parts)
    shapes = f"log_density {density.shape}, accepted {accepted.shape} and values {values.shape}"
    if density.ndim != 2 or values.ndim != 2 or density.shape != accepted.shape or len(values) != len(density):
        raise DataError(
            f"The trace has the shapes {shapes}, but all three need one row per step, and the first two one column per "
            "row of the table."
        )
    if not density.size:
        raise DataError(f"The trace is empty: it has the shapes {shapes}. Record a chain of at least one step and row.")
    return np.where(np.isfinite(density), density, np.nan), accepted, values


def _cell_names(trace: Any, n_cells: int) -> list[str]:
    """Return the names of the cells, from `names`, from `cells` or by number."""
    names = getattr(trace, "names", None)
    if names is not None and len(names) == n_cells:
        return [str(name) for name in names]
    cells = getattr(trace, "cells", None)
    if cells is not None and len(cells) == n_cells:
        return [f"row {row}, column {column}" for row, column in np.asarray(cells).tolist()]
    return [f"cell {place}" for place in range(n_cells)]


def _draw_density(axes: Any, density: FloatArray, steps: Array) -> None:
    for row in evenly_spaced(density.shape[1], MAX_ROWS):
        axes.plot(steps, density[steps, row], color=canvas.BLUE, lw=0.5, alpha=0.3, label="row")
    seen = np.isfinite(density[steps])
    mean = np.where(seen, density[steps], 0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
    mean[~seen.any(axis=1)] = np.nan
    axes.plot(steps, mean, color=canvas.ORANGE, lw=1.3, label="mean", zorder=3)
    axes.set_ylabel("log-density", fontsize=7)
    axes.set_title(f"log-density of {density.shape[1]:,} rows", fontsize=8)


def _draw_acceptance(axes: Any, accepted: FloatArray, steps: Array, burn_in: int, moves: Any) -> None:
    """Draw running acceptance rates of all steps and of every kind of move."""
    shares = accepted.mean(axis=1)
    kinds = list(dict.fromkeys(moves)) if moves is not None and len(moves) == len(shares) else []
    for kind, colour in zip(kinds if len(kinds) > 1 else [], canvas.ACCENTS, strict=False):
        own = np.flatnonzero([move == kind for move in moves])
        some = evenly_spaced(len(own), MAX_STEPS)
        running = 100 * _running_mean(shares[own])[some]
        axes.plot(own[some], running, color=colour, lw=0.9, label=str(kind))
        axes.annotate(str(kind), (own[-1], running[-1]), xytext=(-2, 2), textcoords="offset points", color=colour,
                      fontsize=7, ha="right", va="bottom")  # fmt: skip
    axes.plot(steps, 100 * _running_mean(shares)[steps], color=canvas.INK, lw=1.8, label="all moves")
    axes.set_ylim(0, 100)
    axes.set_ylabel("running acceptance rate, %", fontsize=7)
    after = shares[burn_in:] if burn_in < len(shares) else shares
    words = " after the burn-in" if 0 < burn_in < len(shares) else ""
    axes.set_title(f"accepted: {100 * after.mean():.0f} %{words}", fontsize=8)


def _running_mean(values: FloatArray) -> FloatArray:
    return np.asarray(np.cumsum(values) / np.arange(1, len(values) + 1))

"""What people read about a fill."""

from __future__ import annotations

from mcflow.report.diagnostics import plot_calibration, plot_distributions, plot_overimputation, plot_trace
from mcflow.report.sensitivity import plot_sensitivity
from mcflow.report.summary import summarise

__all__ = [
    "plot_calibration",
    "plot_distributions",
    "plot_overimputation",
    "plot_sensitivity",
    "plot_trace",
    "summarise",
]

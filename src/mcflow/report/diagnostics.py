"""Diagnostics of multiple imputation as pictures: figures that are returned, never shown."""

from __future__ import annotations

__all__ = ["plot_calibration", "plot_distributions", "plot_overimputation", "plot_trace"]

from mcflow.report.diagnostics_calibration import plot_calibration
from mcflow.report.diagnostics_distributions import plot_distributions
from mcflow.report.diagnostics_overimputation import plot_overimputation
from mcflow.report.diagnostics_trace import plot_trace

"""What people read about a fill."""

from __future__ import annotations

from mcflow.report.diagnostics import plot_calibration, plot_distributions, plot_overimputation, plot_trace
from mcflow.report.facts import report_facts
from mcflow.report.html import check_report, report_html, write_report
from mcflow.report.sensitivity import plot_sensitivity
from mcflow.report.summary import summarise

__all__ = [
    "check_report",
    "plot_calibration",
    "plot_distributions",
    "plot_overimputation",
    "plot_sensitivity",
    "plot_trace",
    "report_facts",
    "report_html",
    "summarise",
    "write_report",
]

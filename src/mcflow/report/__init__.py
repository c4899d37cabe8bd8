"""Reports on imputed tables: summaries, an HTML page and diagnostic plots."""

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

from typing import TYPE_CHECKING

from mcflow.lazy import lazily

if TYPE_CHECKING:
    from mcflow.report.distributions import plot_distributions
    from mcflow.report.facts import report_facts
    from mcflow.report.html import check_report, report_html, write_report
    from mcflow.report.overimputation import plot_calibration, plot_overimputation
    from mcflow.report.sensitivity import plot_sensitivity
    from mcflow.report.tables import summarise
    from mcflow.report.trace import plot_trace

__getattr__, __dir__ = lazily(
    __name__,
    __all__,
    {
        "distributions": "plot_distributions",
        "facts": "report_facts",
        "html": "check_report report_html write_report",
        "overimputation": "plot_calibration plot_overimputation",
        "sensitivity": "plot_sensitivity",
        "tables": "summarise",
        "trace": "plot_trace",
    },
)

"""What people read about a fill."""

from __future__ import annotations

from mcflow.report.summary import summarise

__all__ = ["summarise"]

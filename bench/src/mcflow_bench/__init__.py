"""Benchmarks of mcflow that anyone can run, stop and resume."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"

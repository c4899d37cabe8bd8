"""What is missing, and what stands there first."""

from __future__ import annotations

from mcflow.masks.initial import Marginals

__all__ = ["Marginals"]

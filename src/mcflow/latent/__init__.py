"""The latent layer: networks that complete rows in the flow's latent space."""

from __future__ import annotations

from mcflow.latent.heads import LevelHead
from mcflow.latent.mapper import LatentMapper

__all__ = ["LatentMapper", "LevelHead"]

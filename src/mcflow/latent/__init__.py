"""The latent layer: networks that complete rows, in the flow's latent space or before it."""

from __future__ import annotations

from mcflow.latent.heads import LevelHead
from mcflow.latent.mapper import LatentMapper
from mcflow.latent.masked import Answer, MaskedMapper, cross_entropy

__all__ = ["Answer", "LatentMapper", "LevelHead", "MaskedMapper", "cross_entropy"]

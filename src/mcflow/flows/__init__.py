"""The flow layer: invertible maps with exact densities."""

from __future__ import annotations

from mcflow.flows.conditional import ConditionalFlow
from mcflow.flows.coupling import AffineCoupling
from mcflow.flows.marginals import PointMarginals
from mcflow.flows.networks import FlatModule, NetworkBatch
from mcflow.flows.realnvp import RealNVP, draw_masks

__all__ = [
    "AffineCoupling",
    "ConditionalFlow",
    "FlatModule",
    "NetworkBatch",
    "PointMarginals",
    "RealNVP",
    "draw_masks",
]

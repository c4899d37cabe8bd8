"""The flow layer: invertible maps with exact densities."""

from __future__ import annotations

from mcflow.flows.coupling import AffineCoupling
from mcflow.flows.networks import FlatModule, NetworkBatch
from mcflow.flows.realnvp import RealNVP, draw_masks

__all__ = ["AffineCoupling", "FlatModule", "NetworkBatch", "RealNVP", "draw_masks"]

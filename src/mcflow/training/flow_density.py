"""The density of a flow as a chain asks for it."""

from __future__ import annotations

__all__ = ["FlowDensity", "doubled"]

import copy
from typing import TypeVar

import torch

from mcflow.flows.realnvp import RealNVP
from mcflow.typing import FloatArray

Network = TypeVar("Network", bound=torch.nn.Module)


class FlowDensity:
    """The log-density of a flow and its gradient, in float64.

    Parameters
    ----------
    flow : RealNVP
        A copy of it is kept, on the same device if that has float64.

    Examples
    --------
    >>> import numpy as np
    >>> identity = RealNVP(torch.tensor([[True, False], [False, True]]))
    >>> value, gradient = FlowDensity(identity).slope(np.array([[0.5, -1.0]]))
    >>> gradient.tolist()
    [[-0.5, 1.0]]
    """

    def __init__(self, flow: RealNVP) -> None:
        self.flow = doubled(flow)

    def value(self, rows: FloatArray) -> FloatArray:
        """Return the log-density of rows, of shape (n_rows,)."""
        with torch.inference_mode():
            way = self.flow.run(torch.from_numpy(rows).to(self.flow.theta.device), keep=False)
            found: FloatArray = (self.flow.base_log_prob(way.out) + way.log_det).cpu().numpy()
        return found

    def slope(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the same and its gradient, of shape (n_rows, n_places)."""
        with torch.inference_mode():
            way = self.flow.run(torch.from_numpy(rows).to(self.flow.theta.device))
            value = self.flow.base_log_prob(way.out) + way.log_det
            gradient = self.flow.run_back(way, -way.out, 1.0, weights=False)
        return value.cpu().numpy(), gradient.cpu().numpy()


def doubled(network: Network) -> Network:
    """Return a copy of a network in float64, on the CPU where the device has no such thing."""
    device = next(network.parameters()).device
    return copy.deepcopy(network).to("cpu" if device.type == "mps" else device).double()

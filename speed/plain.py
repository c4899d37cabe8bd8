"""The plain way, for comparison: every s and t its own `nn.Sequential`, masks multiplied in, autograd throughout."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mcflow.flows import RealNVP
from mcflow.latent import LatentMapper


def perceptron(width: int, n_layers: int, last: nn.Module | None = None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(n_layers):
        layers += [nn.Linear(width, width), nn.LeakyReLU()]
    layers[-1:] = [last] if last is not None else []
    return nn.Sequential(*layers)


class PlainFlow(nn.Module):
    """RealNVP in the structure of the authors' program."""

    masks: Tensor

    def __init__(self, masks: Tensor, n_layers: int = 4) -> None:
        super().__init__()
        n_couplings, width = masks.shape
        self.register_buffer("masks", masks.float())
        self.scales = nn.ModuleList([perceptron(width, n_layers, nn.Tanh()) for _ in range(n_couplings)])
        self.shifts = nn.ModuleList([perceptron(width, n_layers) for _ in range(n_couplings)])
        self.prior = torch.distributions.MultivariateNormal(torch.zeros(width), torch.eye(width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        log_det = x.new_zeros(len(x))
        for mask, scale_of, shift_of in zip(self.masks, self.scales, self.shifts, strict=True):
            kept = mask * x
            scale = scale_of(kept) * (1 - mask)
            shift = shift_of(kept) * (1 - mask)
            x = (1 - mask) * (x * torch.exp(scale) + shift) + kept
            log_det = log_det + scale.sum(1)
        return x, log_det

    def inverse(self, z: Tensor) -> Tensor:
        steps = list(zip(self.masks, self.scales, self.shifts, strict=True))
        for mask, scale_of, shift_of in reversed(steps):
            kept = mask * z
            scale = scale_of(kept) * (1 - mask)
            shift = shift_of(kept) * (1 - mask)
            z = kept + (1 - mask) * ((z - shift) * torch.exp(-scale))
        return z

    def log_prob(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z, log_det = self(x)
        return z, self.prior.log_prob(z) + log_det


class PlainTrainer:
    """Concurrent updates of G and H by autograd and `torch.optim.Adam`, from the weights of a fast pair."""

    def __init__(self, flow: RealNVP, mapper: LatentMapper, learning_rate: float, likelihood_weight: float) -> None:
        self.flow = PlainFlow(flow.masks)
        self.mapper = perceptron(flow.n_columns, 5)
        self._copy(flow, mapper)
        self.flow_adam = torch.optim.Adam(self.flow.parameters(), lr=learning_rate)
        self.latent_adam = torch.optim.Adam(self.mapper.parameters(), lr=learning_rate)
        self.likelihood_weight = likelihood_weight

    @torch.no_grad()
    def _copy(self, flow: RealNVP, mapper: LatentMapper) -> None:
        for k, coupling in enumerate(flow.couplings):
            for which, networks in enumerate((self.flow.scales, self.flow.shifts)):
                layers = [layer for layer in networks[k].modules() if isinstance(layer, nn.Linear)]
                self._copy_coupling(layers, coupling.networks.weights, which, flow.masks[k])
        layers = [layer for layer in self.mapper.modules() if isinstance(layer, nn.Linear)]
        for layer, weight, bias in zip(layers, mapper.network.weights[::2], mapper.network.weights[1::2], strict=True):
            layer.weight.copy_(weight[0].T)
            layer.bias.copy_(bias[0, 0])

    @staticmethod
    def _copy_coupling(layers: list[nn.Linear], weights: list[Tensor], which: int, mask: Tensor) -> None:
        for layer, weight, bias in zip(layers, weights[::2], weights[1::2], strict=True):
            first, last = layer is layers[0], layer is layers[-1]
            rows = ~mask if last else torch.ones_like(mask)
            columns = mask if first else torch.ones_like(mask)
            layer.weight[rows.nonzero(), columns.nonzero().T] = weight[which].T
            layer.bias[rows] = bias[which, 0]

    def step(self, rows: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Update once; `seen` is each observed cell's weight in its row's mean squared error."""
        z, log_p = self.flow.log_prob(rows)
        flow_loss = -log_p.mean()
        x_hat = self.flow.inverse(self.mapper(z.detach()))
        _, log_p_hat = self.flow.log_prob(x_hat)
        squared = ((x_hat - rows).square() * seen).sum() / len(rows)
        latent_loss = squared - self.likelihood_weight * log_p_hat.mean()
        self.flow_adam.zero_grad()
        self.latent_adam.zero_grad()
        flow_loss.backward()
        gradients = torch.autograd.grad(latent_loss, list(self.mapper.parameters()))
        for parameter, gradient in zip(self.mapper.parameters(), gradients, strict=True):
            parameter.grad = gradient
        self.flow_adam.step()
        self.latent_adam.step()
        return flow_loss.detach(), latent_loss.detach()

"""What a flow does: a small RealNVP learns two moons, and its latent space is a round cloud."""

from __future__ import annotations

__all__ = ["draw_latent", "learn_moons"]

from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import make_moons

from drawing.theme import Theme
from mcflow.fitting.initialisation import draw_masks
from mcflow.paper.networks import RealNVP

STEPS, ROWS, N_COUPLINGS = 4000, 1500, 24


class Moons(NamedTuple):
    """Rows, their side, their places in latent space, and the density on a grid."""

    rows: np.ndarray
    side: np.ndarray
    latent: np.ndarray
    density: np.ndarray


def learn_moons() -> Moons:
    """Train the flow, and keep what the picture shows."""
    rows, side = make_moons(ROWS, noise=0.07, random_state=0)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    generator = torch.Generator().manual_seed(0)
    flow = RealNVP(draw_masks(N_COUPLINGS, 2, generator), generator=generator)
    x = torch.as_tensor(rows, dtype=torch.float32)
    optimiser = torch.optim.Adam([flow.theta], lr=2e-3)
    for _ in range(STEPS):
        batch = x[torch.randint(len(x), (256,), generator=generator)]
        optimiser.zero_grad()
        loss = -flow.log_prob(batch).mean()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        line = torch.linspace(-2.3, 2.3, 180)
        grid = torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1).reshape(-1, 2)
        density = flow.log_prob(grid).exp().reshape(180, 180).numpy()
        return Moons(rows, side, flow(x)[0].numpy(), density)


def draw_latent(theme: Theme, moons: Moons) -> Any:
    """Return a figure: rows, their latent places, and the density with a row that lacks a cell."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.4, 3.5), facecolor="none", layout="constrained")
    data, latent, filled = figure.subplots(1, 3)
    colours = np.where(moons.side == 0, theme.seen, theme.latent)
    data.scatter(*moons.rows.T, s=4, c=colours, lw=0, rasterized=True)
    latent.scatter(*moons.latent.T, s=4, c=colours, lw=0, rasterized=True)
    angle = np.linspace(0, 2 * np.pi, 200)
    for radius in (1, 2, 3):
        latent.plot(radius * np.cos(angle), radius * np.sin(angle), color=theme.soft, lw=0.7)
    rising = LinearSegmentedColormap.from_list("rising", [theme.seen + "00", theme.seen])
    filled.imshow(moons.density, extent=(-2.3, 2.3, -2.3, 2.3), origin="lower", cmap=rising, vmax=0.45)
    _missing_cell(filled, theme, moons.density)
    titles = ("rows in data space", "the same rows in latent space", "density, and a row with only x observed")
    for axes, title, reach in zip((data, latent, filled), titles, (2.3, 3.4, 2.3), strict=True):
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
        axes.set_facecolor("none")
        axes.set_title(title, color=theme.ink, fontsize=10)
        axes.spines[:].set_color(theme.soft)
    return figure


def _missing_cell(axes: Any, theme: Theme, density: np.ndarray) -> None:
    """Draw the conditional density of the second cell of a row whose first cell is observed."""
    place = 104
    line = np.linspace(-2.3, 2.3, 180)
    x, along = line[place], density[:, place]
    axes.axvline(x, color=theme.soft, lw=0.8, ls="--")
    axes.fill_betweenx(line, x, x + along / along.max(), color=theme.filled, alpha=0.75, lw=0)

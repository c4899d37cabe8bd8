"""When to refill and restart, and when to stop."""

from __future__ import annotations

__all__ = ["cosine", "is_refill_epoch", "is_stable"]

import math

from mcflow.training.history import History


def cosine(done: float) -> float:
    r"""Return :math:`\tfrac12 (1 + \cos \pi s)`: 1 at the beginning and before it, 0 at the end and after it.

    Parameters
    ----------
    done : float
        The share s that is done.

    Returns
    -------
    float

    Examples
    --------
    >>> [round(cosine(done), 3) for done in (0, 0.5, 1, 2)]
    [1.0, 0.5, 0.0, 0.0]
    """
    return 0.5 * (1 + math.cos(math.pi * min(max(done, 0.0), 1.0)))


def is_refill_epoch(epoch: int) -> bool:
    """Tell whether missing cells are refilled and G restarted after this epoch: at every power of two.

    Parameters
    ----------
    epoch : int
        From 1.

    Returns
    -------
    bool

    Examples
    --------
    >>> [epoch for epoch in range(1, 20) if is_refill_epoch(epoch)]
    [1, 2, 4, 8, 16]
    """
    return epoch > 0 and epoch & (epoch - 1) == 0


def is_stable(history: History, tolerance: float, window: int) -> bool:
    """Tell whether both losses have stopped moving.

    Parameters
    ----------
    history : History
        The fit so far.
    tolerance : float
        Share of a loss's whole range that counts as standing still; zero never does.
    window : int
        Epochs to average.

    Returns
    -------
    bool
        True when, for both losses, the last two windows since G's restart differ by at most the tolerance.
    """
    if tolerance <= 0 or not history.epochs:
        return False
    stage = history.epochs[-1].stage
    recent = [epoch for epoch in history.epochs if epoch.stage == stage]
    if len(recent) < 2 * window:
        return False
    return all(_stands_still(history.column(name), tolerance, window) for name in ("flow_loss", "latent_loss"))


def _stands_still(losses: list[float], tolerance: float, window: int) -> bool:
    before = sum(losses[-2 * window : -window]) / window
    after = sum(losses[-window:]) / window
    return abs(after - before) <= tolerance * (max(losses) - min(losses))

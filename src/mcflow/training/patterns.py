"""Holes that go together: rows whose pattern of holes can be laid over other rows, to learn what is really asked."""

from __future__ import annotations

__all__ = ["PATTERN_ROWS", "TOGETHER", "patterns_of"]

import torch
from torch import Tensor

#: Rows that are looked at, at most.
PATTERN_ROWS = 50_000

#: How much a hole has to tell of another one, from 0 to 1, before patterns matter.
TOGETHER = 0.5


def patterns_of(seen: Tensor) -> Tensor | None:
    """Return the patterns of holes, where cells go missing together.

    Parameters
    ----------
    seen : Tensor of shape (n_rows, n_columns)
        Boolean, True where observed.

    Returns
    -------
    Tensor of shape (n_patterns, n_columns) or None
        True where missing: the holes of each row that has some. None where cells are missing one by one, as then cells
        that are hidden one by one ask the same questions.

    Notes
    -----
    For each column with holes, its highest correlation with the holes of another column is taken. Patterns are given
    when the mean of these, in which a hole counts once, is above `TOGETHER`.

    Examples
    --------
    >>> import torch
    >>> alone = torch.tensor([[True, False, True], [True, True, False], [True, True, True]])
    >>> patterns_of(alone) is None
    True
    >>> together = torch.tensor([[True, False, False], [True, True, True], [True, True, True]])
    >>> patterns_of(together)
    tensor([[False,  True,  True]])
    """
    holes = ~seen[:PATTERN_ROWS]
    rates = holes.float().mean(0)
    some = (rates > 0) & (rates < 1)
    if int(some.sum()) < 2:
        return None
    likeness = torch.corrcoef(holes[:, some].float().T).fill_diagonal_(0)
    weights = rates[some] / rates[some].sum()
    together = float((likeness.amax(1) * weights).sum())
    return holes[holes.any(1)] if together > TOGETHER else None

"""Multiple imputation by chained regressions."""

from __future__ import annotations

__all__ = ["MiceImputer"]

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from mcflow.baselines.base import Baseline
from mcflow.baselines.chained import Chain, Design, fit_chain, replay
from mcflow.config import Interval, Options
from mcflow.data.schema import Column
from mcflow.imputers.draws import DrawsMixin
from mcflow.random import seed_from
from mcflow.typing import FloatArray

#: Rows that are filled together.
ROWS_AT_ONCE = 8192


class MiceImputer(DrawsMixin, Baseline):
    r"""Fill the holes of a table by chained Bayesian regressions.

    Parameters
    ----------
    n_chains : int, default=10
        Chains that are run and kept, each with its own draw of all regressions.
    n_rounds : int, default=10
        Times that every column is refilled, at fit and again for new rows.
    ridge : float, default=0.005
        Prior precision of a coefficient, as a share of what the rows say of it when all columns are standardised and
        unrelated. It keeps columns that nearly determine each other from leading a chain away.
    **table
        The arguments of `Baseline`: kinds, roles, bounds, allowed, rules, unseen, restore_integers, add_indicator,
        keep_empty_features, random_state.

    Attributes
    ----------
    chains_ : list of list
        The regressions of each chain's last round, one a column.

    Notes
    -----
    A column of numbers is regressed on all others over the rows that have it. Noise and coefficients are drawn from
    their posterior, and its missing cells from the regression:

    .. math::

        \sigma^2 = \frac{\|y - X \hat\beta\|^2}{g},\quad \beta = \hat\beta + \sigma A^{-1/2} w,\quad
        y^\mathrm{mis} = X^\mathrm{mis} \beta + \sigma e,

    with :math:`A = X^\top X + \lambda n I` for n rows and the ridge λ, a chi-squared g, and standard normal w and e.
    Levels follow a multinomial logistic regression that is fitted to a bootstrap sample of at most 5,000 rows; of a
    column with more than 32 levels, the rarest are one group, in which levels are drawn by their frequency. Draws stay
    within the column's bounds, and within a range's width of what was observed where bounds are open, so that one bad
    draw does not lead the chain away.

    New rows are filled by the kept regressions: a chain starts from draws of the columns' observed values and goes
    through all columns `n_rounds` times. `draw` gives the last round's draws, the k-th table by chain k modulo
    `n_chains`. `transform` gives their average over the chains and the second half of the rounds, with the noise e of
    the last step averaged out: numbers are the average of the regressions' means, levels those with the highest
    average probability.

    References
    ----------
    S. van Buuren and K. Groothuis-Oudshoorn, "mice: Multivariate Imputation by Chained Equations in R", Journal of
    Statistical Software 45(3), 2011. S. van Buuren, "Flexible Imputation of Missing Data", 2nd edition, 2018,
    algorithm 3.1.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.baselines.mice import MiceImputer
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(200, 1)) + 0.1 * rng.normal(size=(200, 3))
    >>> rows[0, 2] = np.nan
    >>> imputer = MiceImputer(n_chains=5, random_state=0).fit(rows)
    >>> bool(abs(imputer.transform(rows)[0, 2] - rows[0, :2].mean()) < 0.2)
    True
    >>> len({float(table[0, 2]) for table in imputer.draw(rows, m=3, random_state=0)})
    3
    """

    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        "n_chains": Interval(int, 1),
        "n_rounds": Interval(int, 1),
        "ridge": Interval(float, 0, low_open=True),
    }
    chains_: list[Chain]
    design_: Design

    def __init__(self, *, n_chains: int = 10, n_rounds: int = 10, ridge: float = 0.005, **table: Any) -> None:
        super().__init__(**table)
        self.n_chains = n_chains
        self.n_rounds = n_rounds
        self.ridge = ridge

    def _fit_values(self, values: FloatArray, columns: list[Column], low: FloatArray, high: FloatArray) -> None:
        seed = seed_from(self.random_state)
        design = Design(values, columns, low, high)
        streams = [np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(self.n_chains)]
        chains = [fit_chain(design, values, self.n_rounds, self.ridge, rng) for rng in streams if columns]
        self.seed_, self.design_, self.chains_ = seed, design, chains

    def _fill_values(self, values: FloatArray) -> FloatArray:
        return self._by_parts(values, self._average)

    def _draw_values(self, values: FloatArray, number: int, seed: int) -> FloatArray:
        chain = self.chains_[number % len(self.chains_)]
        return self._by_parts(values, lambda part: replay(self.design_, chain, part, self.n_rounds, seed)[0])

    def _by_parts(self, values: FloatArray, fill: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Fill the rows that have a hole, a few thousand at a time."""
        filled = values.copy()
        holed = np.flatnonzero(np.isnan(values).any(axis=1))
        for start in range(0, len(holed), ROWS_AT_ONCE):
            part = holed[start : start + ROWS_AT_ONCE]
            filled[part] = fill(values[part])
        return filled

    def _average(self, values: FloatArray) -> FloatArray:
        """Return what the chains expect on average."""
        missing = np.isnan(values)
        seeds = np.random.SeedSequence(self.seed_).generate_state(len(self.chains_), np.uint64)
        runs = [
            replay(self.design_, chain, values, self.n_rounds, int(seed))[1]
            for chain, seed in zip(self.chains_, seeds, strict=True)
        ]
        cells = np.zeros(values.shape)
        for k, regression in enumerate(self.chains_[0]):
            if missing[:, k].any():
                cells[missing[:, k], k] = regression.best(np.mean([run[k] for run in runs], axis=0))
        return np.where(missing, self.design_.write(cells), values)

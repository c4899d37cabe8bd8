"""Draws and quantiles of missing cells by the flow of the last stage, codes in and codes out."""

from __future__ import annotations

__all__ = ["FlowDraws"]

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from mcflow.data.codecs import LevelCode, TableCodec
from mcflow.latent.heads import LevelHead
from mcflow.masks.initial import Marginals
from mcflow.random import hash_rows
from mcflow.training.calibration import Calibration, masses_beyond
from mcflow.training.chain import MOVES, N_SLOTS, Chain, ChainTrace, Jumps
from mcflow.training.flow_density import FlowDensity, doubled
from mcflow.training.ladder import height_of, rung
from mcflow.training.stages import Box, Stage, complete_through
from mcflow.training.threads import map_on_threads, share_out
from mcflow.typing import Array, BoolArray, FloatArray

#: Moves before the first draw, and from each draw to the next.
BURN_IN, THINNING = 90, 9

#: States of a chain that stand for a cell's distribution, and moves from one to the next.
N_STATES, STATE_EVERY = 99, 3

#: Rows whose chains run together: few enough for the caches.
ROWS_TOGETHER = 1024

#: Share of the observed cells that is hidden to set quantiles right, and how many cells and rows that may take.
HIDDEN_SHARE, ENOUGH_CELLS, MOST_ROWS = 0.2, 3_000, 1_000

#: Missing cells that a trace follows.
TRACED_CELLS = 8

#: Round-off of a mass.
CLOSE = 1e-9


class FlowDraws:
    """Chains over the missing cells of rows, with the codec and the heads of levels around them.

    Parameters
    ----------
    stages : sequence of Stage
        All of them give a chain its start; the last one's flow is its law.
    codec : TableCodec
        Between codes and network units.
    marginals : Marginals
        Of the codes.
    heads : mapping of int to LevelHead
        By column of levels.
    box : Box
        Bounds in network units.
    seed : int
        The seed of the fit, for the first fill and for quantiles.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        codec: TableCodec,
        marginals: Marginals,
        *,
        heads: Mapping[int, LevelHead],
        box: Box,
        seed: int,
    ) -> None:
        self.codec, self.marginals, self.box, self.seed = codec, marginals, box, seed
        self.stages = [Stage(doubled(stage.flow), doubled(stage.mapper)) for stage in stages]
        self.density = FlowDensity(stages[-1].flow)
        self.heads = {k: LevelHead(head.weight.double(), head.bias.double()) for k, head in heads.items()}
        self.jumps = Jumps.from_marginals(codec, marginals)
        kinds = [column.kind for column in codec.columns]
        #: Columns whose cells have no order, and those of which only some values may be.
        self.nominal = np.array([kind in ("boolean", "category") for kind in kinds])
        self.discrete = np.array([column.whole or column.kind == "ordered" for column in codec.columns])

    def chain(self, values: FloatArray, hashes: Array) -> Chain:
        """Return the chain of some rows at its start: the completed row, levels at their nearest word.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing; every row has a hole.
        hashes : ndarray of shape (n_rows,)
            Of the rows.

        Returns
        -------
        Chain
        """
        missing = np.isnan(values)
        rows = self.codec.encode(self.marginals.fill_rows(values, self.seed))
        device = self.density.flow.theta.device
        marks = torch.from_numpy(self.codec.spread(missing)).to(device)
        start = complete_through(self.stages, torch.from_numpy(rows).to(device), marks, self.box).cpu().numpy()
        sharp = self.codec.encode(self.codec.decode(start))
        of_levels = np.isin(self.codec.owner, list(self.heads))
        start = np.where(self.codec.spread(missing) & of_levels, sharp, start)
        return Chain(self.density, start, missing, jumps=self.jumps, box=self.box, hashes=hashes, burn_in=BURN_IN)

    def draws(self, values: FloatArray, m: int, seed: int, ids: FloatArray | None = None) -> Iterator[FloatArray]:
        """Draw completed tables; see `FlowModel.draws`."""
        holed = np.flatnonzero(np.isnan(values).any(axis=1))
        hashes = hash_rows(values if ids is None else np.column_stack([values, ids]), seed)
        parts = share_out(holed, ROWS_TOGETHER)
        chains = map_on_threads(lambda rows: self._warm(values[rows], hashes[rows]), parts)
        for _ in range(m):
            filled = values.copy()
            for rows, codes in zip(parts, map_on_threads(self._next, chains), strict=True):
                filled[rows] = np.where(np.isnan(values[rows]), codes, values[rows])
            yield filled

    def _warm(self, values: FloatArray, hashes: Array) -> Chain:
        chain = self.chain(values, hashes)
        chain.advance(BURN_IN)
        return chain

    def _next(self, chain: Chain, n_moves: int = THINNING) -> FloatArray:
        chain.advance(n_moves)
        return self.codes(chain)

    def codes(self, chain: Chain) -> FloatArray:
        """Return a chain's state as codes: numbers by their scale, levels drawn from their probabilities.

        Parameters
        ----------
        chain : Chain

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            Anything where a cell is observed.
        """
        values = np.zeros(chain.missing.shape)
        for k, (coder, place) in enumerate(zip(self.codec.coders, self.codec.places, strict=True)):
            if isinstance(coder, LevelCode):
                rows = np.flatnonzero(chain.missing[:, k])
                values[rows, k] = self._drawn_levels(chain, k, rows)
            else:
                values[:, k] = coder.decode(chain.rows[:, place.start])
        return values

    def _drawn_levels(self, chain: Chain, column: int, rows: Array) -> FloatArray:
        chances = self.heads[column].probabilities(torch.from_numpy(chain.rows[rows])).numpy()
        slots = np.full(len(rows), N_SLOTS + self.codec.n_places + column)
        levels = (chances.cumsum(axis=1) < chain.uniforms(slots, rows)[:, None]).sum(axis=1)
        drawn: FloatArray = np.minimum(levels, chances.shape[1] - 1).astype(np.float64)
        return drawn

    def first(self, values: FloatArray, hashes: Array) -> FloatArray:
        """Return rows completed by the first draw of chains whose random numbers the hashes decide."""
        return np.where(np.isnan(values), self._next(self._warm(values, hashes)), values)

    def trace(self, values: FloatArray, seed: int, n_steps: int) -> ChainTrace:
        """Follow the chains of some rows; see `FlowModel.trace`."""
        holed = np.flatnonzero(np.isnan(values).any(axis=1))
        some = values[holed]
        chain = self.chain(some, hash_rows(some, seed))
        cells = np.argwhere(np.isnan(some))[:TRACED_CELLS]
        densities, accepted, followed = [], [], []
        for _ in range(n_steps):
            followed.append(self._next(chain, 1)[cells[:, 0], cells[:, 1]])
            densities.append(chain.current)
            accepted.append(chain.accepted)
        return ChainTrace(
            np.array(densities).reshape(n_steps, len(holed)),
            np.array(accepted, dtype=bool).reshape(n_steps, len(holed)),
            np.array(followed).reshape(n_steps, len(cells)),
            rows=holed,
            cells=np.column_stack([holed[cells[:, 0]], cells[:, 1]]),
            moves=tuple(MOVES[k % len(MOVES)] for k in range(n_steps)),
            burn_in=BURN_IN,
        )

    def quantiles(
        self, values: FloatArray, probabilities: FloatArray, calibration: Calibration | None
    ) -> Iterator[FloatArray]:
        """Fill holes with quantiles; see `FlowModel.quantiles`."""
        missing = np.isnan(values)
        holed = np.flatnonzero(missing.any(axis=1))
        parts = share_out(holed, ROWS_TOGETHER)
        masses = [masses_beyond(q, calibration, len(self.nominal)) for q in probabilities]
        found = map_on_threads(lambda rows: self._read(values[rows], masses), parts)
        cells = np.concatenate(found, axis=1) if found else np.empty((len(probabilities), 0))
        for of_table in cells:
            filled = values.copy()
            filled[missing] = of_table
            yield filled

    def _read(self, values: FloatArray, masses: Sequence[tuple[bool, FloatArray]]) -> FloatArray:
        """Return quantiles of the missing cells of some rows, of shape (n_quantiles, n_cells)."""
        columns = np.isnan(values).nonzero()[1]
        ladder = self._ladder(values)
        found = [rung(ladder, self._height(mass[columns], columns, upper)) for upper, mass in masses]
        return np.where(self.nominal[columns], np.nan, np.stack(found))

    def _height(self, mass: FloatArray, columns: Array, upper: bool) -> FloatArray:
        """Return where on the ladder a mass lies: on a rung where only some values may be, else between rungs."""
        height = np.where(self.discrete[columns], np.ceil(mass * N_STATES - CLOSE), mass * (N_STATES + 1))
        return N_STATES + 1 - height if upper else height

    def _ladder(self, values: FloatArray) -> FloatArray:
        """Return the states of each missing cell in rising order, between the ends of its range."""
        missing = np.isnan(values)
        columns = missing.nonzero()[1]
        chain = self._warm(values, hash_rows(values, self.seed))
        states = np.sort([self._next(chain, STATE_EVERY)[missing] for _ in range(N_STATES)], axis=0)
        states = np.where(self.discrete[columns], np.rint(states), states)
        low, high = (end[columns] for end in self._ends())
        span = states[-1] - states[0]
        low = np.where(np.isfinite(low), np.minimum(low, states[0]), states[0] - span)
        high = np.where(np.isfinite(high), np.maximum(high, states[-1]), states[-1] + span)
        return np.concatenate([low[None], states, high[None]])  # (N_STATES + 2, n_cells)

    def _ends(self) -> tuple[FloatArray, FloatArray]:
        """Return the bounds of columns as codes."""
        low, high = np.zeros(len(self.nominal)), np.zeros(len(self.nominal))
        for k, (coder, place) in enumerate(zip(self.codec.coders, self.codec.places, strict=True)):
            if isinstance(coder, LevelCode):
                high[k] = coder.n_levels - 1
            else:
                ends = np.array([self.box.low[place.start], self.box.high[place.start]], dtype=np.float64)
                low[k], high[k] = coder.decode(ends)
        return low, high

    def calibration(self, values: FloatArray) -> Calibration | None:
        """Hide observed cells of some rows and see where among their states the truths are.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing.

        Returns
        -------
        Calibration or None
            None when no cell has an order.
        """
        rng = np.random.default_rng([self.seed, 1])
        n_rows = min(MOST_ROWS, math.ceil(ENOUGH_CELLS / (HIDDEN_SHARE * values.shape[1])))
        some = values[rng.permutation(len(values))[:n_rows]]
        targets = np.array([column.role == "targets_only" for column in self.codec.columns])
        hide = ((rng.random(some.shape) < HIDDEN_SHARE) | targets) & ~np.isnan(some)
        judged = hide & ~self.nominal
        some, hide, judged = (part[judged.any(axis=1)] for part in (some, hide, judged))
        if not len(some):
            return None
        parts = share_out(np.arange(len(some)), ROWS_TOGETHER)
        found = map_on_threads(lambda rows: self._masses(some[rows], hide[rows], judged[rows]), parts)
        below, above = np.concatenate(found, axis=1)
        return Calibration.from_scores(below, above, judged.nonzero()[1], values.shape[1])

    def _masses(self, values: FloatArray, hide: BoolArray, judged: BoolArray) -> FloatArray:
        """Return the masses stated at or below the judged cells, and at or above them, of shape (2, n_cells)."""
        holed = np.where(hide, np.nan, values)
        ladder = self._ladder(holed)[:, judged[np.isnan(holed)]]
        truth, columns = values[judged], judged.nonzero()[1]
        states = ladder[1:-1]
        at_or_below, at_or_above = (states <= truth).mean(axis=0), (states >= truth).mean(axis=0)
        height = height_of(ladder, truth) / (N_STATES + 1)
        discrete = self.discrete[columns]
        return np.stack([np.where(discrete, at_or_below, height), np.where(discrete, at_or_above, 1 - height)])

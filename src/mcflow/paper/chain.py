"""Draws of missing cells given the observed ones: Metropolis–Hastings chains under the exact density of a flow."""

from __future__ import annotations

__all__ = ["Chain", "ChainTrace", "ConditionalSampler", "FlowDensity", "Jumps", "in_float64", "quantile_at", "rank_of"]

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri

from mcflow.columns.codecs import CategoryCode, KnotScale, TableCodec
from mcflow.columns.marginals import Marginals
from mcflow.fitting.distributed import map_on_threads, share_out
from mcflow.paper.algorithm import Box, fold
from mcflow.paper.config import PaperConfig
from mcflow.paper.networks import RealNVP
from mcflow.random import cell_uniforms
from mcflow.typing import Array, BoolArray, FloatArray

#: Moves of a chain in turn: independent proposal of a column, random walk of a place, Hamiltonian move of all places.
MOVES = ("jump", "walk", "glide")

N_LEAPFROG = 3  #: Leapfrog steps of a Hamiltonian move.
JITTER = 0.4  #: Relative range in which the step size of a Hamiltonian move varies.
N_BINS = 64  #: Histogram bins of the observed distribution of a column of numbers.
UNIFORM_SHARE = 0.05  #: Fraction of a proposal distribution that is uniform.
WALK_ACCEPTANCE = 0.44  #: Target acceptance rate of random walks.
GLIDE_ACCEPTANCE = 0.7  #: Target acceptance rate of Hamiltonian moves.
FIRST_GAIN = 2.0  #: First gain of the adaptation of step sizes.
GAIN_POWER = 0.6  #: Power of the number of moves with which the gain decreases.
RESOLUTION = 2.0**-22  #: States and logarithms of step sizes are rounded to multiples of this.

#: Indices of the uniform numbers of a row and step, and their number; those of the places come next.
ACCEPT, CHOOSE, MOVE, N_SLOTS = range(4)

ROUND_OFF = 1e-9  #: Tolerance for round-off when a mass is converted to a number of states.
GOLDEN_RATIO = (5**0.5 - 1) / 2  #: Multiples of it, modulo 1, are evenly distributed in [0, 1).

Hashes = npt.NDArray[np.uint64]
Network = TypeVar("Network", bound=torch.nn.Module)


class FlowDensity:
    """Log-density of a flow and its gradient, in float64."""

    def __init__(self, flow: RealNVP) -> None:
        self.flow = in_float64(flow)

    def value(self, rows: FloatArray) -> FloatArray:
        """Return the log-density (n_rows,) of rows (n_rows, n_places)."""
        with torch.inference_mode():
            passed = self.flow.run(torch.from_numpy(rows).to(self.flow.theta.device), keep=False)
            found: FloatArray = (self.flow.base_log_prob(passed.out) + passed.log_det).cpu().numpy()
        return found

    def slope(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log-density (n_rows,) and its gradient (n_rows, n_places)."""
        with torch.inference_mode():
            passed = self.flow.run(torch.from_numpy(rows).to(self.flow.theta.device))
            value = self.flow.base_log_prob(passed.out) + passed.log_det
            gradient = self.flow.run_back(passed, -passed.out, 1.0, weights=False)
        return value.cpu().numpy(), gradient.cpu().numpy()


def in_float64(network: Network) -> Network:
    """Return a copy of a network in float64, on the CPU if the device does not support it."""
    device = next(network.parameters()).device
    return copy.deepcopy(network).to("cpu" if device.type == "mps" else device).double()


class Jumps:
    r"""Proposals for one column at a time that do not depend on its current value, so that they cross empty regions.

    A column of numbers proposes a value from a histogram q of its observed values, mixed with a uniform distribution.
    The Hastings correction is :math:`q(x) / q(x')`.

    A categorical column proposes a category b with its observed frequency P. The places in which the codewords of b and
    of the current category a differ are mirrored, :math:`x' = 1 - x`. The map is its own inverse and preserves volume,
    so that the correction is :math:`P(a) / P(b)`. A row whose places form no codeword does not move.
    """

    def __init__(self, codec: TableCodec, marginals: Marginals) -> None:
        counts = [_counts(coder, marginals.quantiles[:, k]) for k, coder in enumerate(codec.coders)]
        nominal = [isinstance(coder, CategoryCode) and not _shares_a_place(coder) for coder in codec.coders]
        sizes = np.bincount(codec.owner, minlength=len(counts))
        columns, n_bins = np.arange(len(counts)), [len(count) for count in counts]
        self.owner = codec.owner  # (n_places,) column of each place
        # (n_bins,) probabilities of the bins or categories, column by column
        self.masses: FloatArray = np.concatenate([count / count.sum() for count in counts])
        self.starts = np.cumsum([0, *n_bins])  # (n_columns + 1,) index of the first bin of each column
        self.categorical = np.array(nominal)  # (n_columns,) columns whose bins are categories, as zeros and ones
        # (n_columns,) categorical columns with a place per category; the others are coded in binary
        self.one_hot = self.categorical & (np.array(n_bins) == sizes)
        sums = np.cumsum(self.masses) - self.masses
        # (n_bins,) cumulative probability of the bins of a column before each bin
        self._before = np.clip(sums - np.repeat(sums[self.starts[:-1]], n_bins), 0.0, 1.0)
        self._increasing = np.repeat(columns, n_bins) + self._before  # one increasing array for all columns
        self._first = np.searchsorted(self.owner, columns)  # (n_columns,) first place of each column
        self._offset = np.arange(len(self.owner)) - self._first[self.owner]  # (n_places,) index within the column

    def propose(self, rows: FloatArray, columns: Array, uniforms: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Propose a value of one column of each row (n_rows, n_places); also return the log-correction of Hastings."""
        bins = np.searchsorted(self._increasing, columns + uniforms, "right") - 1
        bins = np.clip(bins, self.starts[columns], self.starts[columns + 1] - 1)
        proposed, correction = rows.copy(), np.empty(len(rows))
        nominal = self.categorical[columns]
        proposed[nominal], correction[nominal] = self._other_category(rows[nominal], columns[nominal], bins[nominal])
        numbers = np.flatnonzero(~nominal)
        places = self._first[columns[numbers]]
        share = (uniforms[numbers] - self._before[bins[numbers]]) / self.masses[bins[numbers]]
        index = bins[numbers] - self.starts[columns[numbers]]
        proposed[numbers, places] = (index + np.clip(share, 0.0, 1.0)) / N_BINS
        correction[numbers] = self._log_mass(rows[numbers, places], columns[numbers])
        correction[numbers] -= np.log(self.masses[bins[numbers]])
        return proposed, correction

    def _log_mass(self, x: FloatArray, columns: Array) -> FloatArray:
        """Return the log-probability of the bin of each number; minus infinity outside [0, 1]."""
        index = np.clip(np.floor(x * N_BINS), 0, N_BINS - 1).astype(np.int64)
        inside = (x >= 0) & (x <= 1)
        return np.where(inside, np.log(self.masses[self.starts[columns] + index]), -np.inf)

    def _other_category(self, rows: FloatArray, columns: Array, bins: Array) -> tuple[FloatArray, FloatArray]:
        """Mirror the places in which the codewords of two categories differ."""
        own = self.owner == columns[:, None]  # (n_rows, n_places)
        one_hot, count = self.one_hot[columns], np.diff(self.starts)[columns]
        bits = (rows > 0.5) & own
        weights = np.where(one_hot[:, None], self._offset, 1 << np.where(own, self._offset, 0))
        code = (bits * weights).sum(axis=1)
        valid = np.where(one_hot, bits.sum(axis=1) == 1, code < count)
        wanted = (bins - self.starts[columns])[:, None]
        binary = ((wanted >> np.where(own, self._offset, 0)) & 1) > 0
        flip = (np.where(one_hot[:, None], self._offset == wanted, binary) & own) ^ bits
        old = self.masses[self.starts[columns] + np.where(valid, code, 0)]
        correction = np.where(valid, np.log(old) - np.log(self.masses[bins]), -np.inf)
        return np.where(flip, 1 - rows, rows), correction


def _shares_a_place(coder: CategoryCode) -> bool:
    """Return whether more than two ordered categories share one place."""
    return coder.ordered and coder.n_categories != 2


def _counts(coder: KnotScale | CategoryCode, values: FloatArray) -> FloatArray:
    """Return the probabilities, up to a factor, of the categories or bins of a column."""
    if isinstance(coder, CategoryCode) and not _shares_a_place(coder):
        return np.bincount(values.astype(np.int64), minlength=coder.n_categories).astype(np.float64) + 1
    noise: FloatArray = (np.arange(len(values), dtype=np.float64) * GOLDEN_RATIO % 1.0)[:, None]
    encoded = coder.encode(values, noise) if isinstance(coder, CategoryCode) else coder.encode(values)
    counts = np.histogram(np.clip(encoded, 0.0, 1.0), N_BINS, (0.0, 1.0))[0] / len(values)
    return (1 - UNIFORM_SHARE) * counts + UNIFORM_SHARE / N_BINS


class ChainTrace(NamedTuple):
    """States of chains, step by step."""

    log_density: FloatArray  # (n_steps, n_rows) log-density of every row after each step, in encoded units
    accepted: BoolArray  # (n_steps, n_rows) whether the proposal was accepted
    values: FloatArray  # (n_steps, n_cells) values of some missing cells
    rows: Array  # (n_rows,) positions of the incomplete rows in the table
    cells: Array  # (n_cells, 2) row and column of the traced cells in the table
    moves: tuple[str, ...]  # kind of each step, one of `MOVES`
    burn_in: int  # first steps, in which step sizes are adapted and from which no draw is taken
    names: tuple[str, ...] = ()  # names of the traced cells, if known


class Chain:
    r"""Independent Markov chains, one per row, over the missing places given the observed ones.

    A proposal x' from the density :math:`q(x' \mid x)` is accepted with probability

    .. math:: \alpha(x, x') = \min\left\{1,\; \frac{p(x')\, q(x \mid x')}{p(x)\, q(x' \mid x)}\right\},

    so that :math:`p(x_{mis} \mid x_{obs}) \propto p(x_{mis}, x_{obs})` on the box is invariant (Hastings 1970). The
    moves alternate:

    * jump: an independent proposal of one column, see `Jumps`; outside the box p is 0;
    * walk: a random walk of one place, :math:`x' = \mathrm{fold}(x + s\,\varepsilon)` with normal :math:`\varepsilon`.
      Reflection at the bounds keeps the walk symmetric, so that q cancels;
    * glide: Hamiltonian Monte Carlo of all missing places (Neal 2011). With normal momenta v, it takes a few leapfrog
      steps
      :math:`v \leftarrow v + \tfrac12 s \nabla \log p`, :math:`x \leftarrow x + s v`,
      :math:`v \leftarrow v + \tfrac12 s \nabla \log p`. A place that reaches a bound is reflected and its momentum
      reversed (Afshar & Domke 2015). The map preserves volume and is its own inverse up to the sign of all momenta, so
      that

      .. math:: \alpha = \min\left\{1,\; \frac{p(x')}{p(x)} \exp\left(\tfrac12 |v|^2 - \tfrac12 |v'|^2\right)\right\}.

    During the burn-in, :math:`\log s` is adapted by :math:`\gamma_t (\alpha - \alpha^*)` with a decreasing gain
    (Andrieu & Thoms 2008). All computations are in float64. Hamiltonian dynamics in a density with several modes is
    chaotic: round-off, which depends on the other rows of a batch, would grow into a different draw. States and step
    sizes are therefore rounded after each move, far more coarsely than round-off and more finely than a draw needs.

    `steps` are the initial step sizes. Without `jumps`, each column has one place, and `moves` must not have jumps.

    Shapes: `rows` (n_rows, n_places), `missing` (n_rows, n_columns), `steps` (n_places,), `hashes` (n_rows,),
    `current` (n_rows,), `accepted` (n_rows,).
    """

    def __init__(
        self,
        density: FlowDensity,
        rows: FloatArray,
        missing: BoolArray,
        *,
        steps: FloatArray,
        box: Box,
        hashes: Hashes,
        burn_in: int,
        jumps: Jumps | None = None,
        moves: tuple[str, ...] = MOVES,
    ) -> None:
        self.density = density
        self.rows = np.array(rows, dtype=np.float64)
        self.missing = missing
        self.jumps = jumps
        self.box = Box(box.low.double(), box.high.double())
        self.hashes = hashes
        self.burn_in = burn_in
        self.moves = moves
        self.step = 0
        self.accepted = np.zeros(len(rows), dtype=bool)
        self._columns, self._column_starts = _cells(missing)
        self._moving = missing if jumps is None else missing[:, jumps.owner]
        self._places, self._place_starts = _cells(self._moving)
        self._owners = np.repeat(np.arange(len(rows)), np.diff(self._place_starts))
        self._log_walk = np.log(steps)[self._places]
        self._log_glide = -np.log(2.0) - 0.25 * np.log(np.diff(self._place_starts))
        self._visits = np.zeros(len(self._places))
        self._low, self._high = (bound.numpy() for bound in self.box)
        self.rows[self._moving] = self._folded(self.rows[self._moving], self._places)
        self.current = self._inside(self.rows, density.value(self.rows))

    def advance(self, n_moves: int) -> None:
        """Make some moves in every row."""
        for _ in range(n_moves):
            move = self.moves[self.step % len(self.moves)]
            with np.errstate(all="ignore"):  # a proposal whose density is not a number is rejected
                {"jump": self._jump, "walk": self._walk, "glide": self._glide}[move]()
            self.step += 1

    def uniforms(self, slots: Array, rows: Array) -> FloatArray:
        """Return a uniform number of the current step for each pair of a slot and a row."""
        return cell_uniforms(self.hashes[rows], slots, np.array([self.step])).reshape(-1)

    def _row_uniforms(self, slot: int) -> FloatArray:
        return self.uniforms(np.full(len(self.rows), slot), np.arange(len(self.rows)))

    def _choose(self, starts: Array) -> Array:
        """Choose one missing cell of each row."""
        return starts[:-1] + (self._row_uniforms(CHOOSE) * np.diff(starts)).astype(np.int64)

    def _jump(self) -> None:
        assert self.jumps is not None
        columns = self._columns[self._choose(self._column_starts)]
        proposed, correction = self.jumps.propose(self.rows, columns, self._row_uniforms(MOVE))
        self._decide(proposed, self._inside(proposed, self.density.value(proposed)), correction)

    def _walk(self) -> None:
        cells = self._choose(self._place_starts)
        rows, places = np.arange(len(self.rows)), self._places[cells]
        moved = self.rows[rows, places] + np.exp(self._log_walk[cells]) * ndtri(self._row_uniforms(MOVE))
        proposed = self.rows.copy()
        proposed[rows, places] = self._folded(moved, places)
        acceptance = self._decide(proposed, self.density.value(proposed), 0.0)
        if self.step < self.burn_in:
            self._visits[cells] += 1
            gain = FIRST_GAIN * self._visits[cells] ** -GAIN_POWER
            self._log_walk[cells] = _rounded(self._log_walk[cells] + gain * (acceptance - WALK_ACCEPTANCE))

    def _glide(self) -> None:
        at = self._owners, self._places
        jitter = 1 + JITTER * (self._row_uniforms(MOVE) - 0.5)
        size = np.exp(self._log_walk + self._log_glide[self._owners]) * jitter[self._owners]
        momentum = ndtri(self.uniforms(N_SLOTS + self._places, self._owners))
        before = self._energy(momentum)
        x, gradient = self.rows.copy(), self.density.slope(self.rows)[1][at]
        for _ in range(N_LEAPFROG):
            momentum = momentum + size * gradient / 2
            moved = x[at] + size * momentum
            x[at] = self._folded(moved, self._places)
            momentum = np.where(self._reversed(moved), -momentum, momentum)
            value, slope = self.density.slope(x)
            gradient = slope[at]
            momentum = momentum + size * gradient / 2
        acceptance = self._decide(x, value, before - self._energy(momentum))
        if self.step < self.burn_in:
            gain = FIRST_GAIN * (self.step // len(self.moves) + 1) ** -GAIN_POWER
            self._log_glide = _rounded(self._log_glide + gain * (acceptance - GLIDE_ACCEPTANCE))

    def _energy(self, momentum: FloatArray) -> FloatArray:
        """Return the kinetic energy of each row."""
        return np.bincount(self._owners, weights=momentum**2, minlength=len(self.rows)) / 2

    def _folded(self, x: FloatArray, places: Array) -> FloatArray:
        """Reflect values of some places at their bounds."""
        folded = fold(torch.from_numpy(x), Box(self.box.low[places], self.box.high[places])).numpy()
        return np.clip(_rounded(folded), self._low[places], self._high[places])

    def _reversed(self, x: FloatArray) -> BoolArray:
        """Return which missing places were reflected an odd number of times."""
        low, high = self._low[self._places], self._high[self._places]
        odd = np.floor((x - low) / (high - low)) % 2 == 1
        return np.where(np.isfinite(high - low), odd & (high > low), (x < low) | (x > high))

    def _decide(self, proposed: FloatArray, value: FloatArray, correction: FloatArray | float) -> FloatArray:
        """Accept or reject the proposal of each row; return the acceptance probabilities (n_rows,)."""
        ratio = np.where(value < np.inf, value - self.current + correction, -np.inf)
        ratio[np.isnan(ratio)] = -np.inf
        self.accepted = np.log(self._row_uniforms(ACCEPT)) < ratio
        self.rows[self.accepted] = proposed[self.accepted]
        self.current = np.where(self.accepted, value, self.current)
        return np.exp(np.minimum(ratio, 0.0))

    def _inside(self, rows: FloatArray, value: FloatArray) -> FloatArray:
        """Return the log-density, minus infinity outside the box or if it is not a number."""
        outside = (((rows < self._low) | (rows > self._high)) & self._moving).any(axis=1)
        return np.where(outside | ~(value < np.inf), -np.inf, value)


def _rounded(x: FloatArray) -> FloatArray:
    return np.rint(x / RESOLUTION) * RESOLUTION


def _cells(missing: BoolArray) -> tuple[Array, Array]:
    """Return the columns of the missing cells, row by row, and the index of the first cell of each row."""
    return np.nonzero(missing)[1], np.concatenate([[0], np.cumsum(missing.sum(axis=1))])


@dataclass(frozen=True)
class ConditionalSampler:
    """Draw missing cells and read their quantiles from chains that run side by side on several threads."""

    config: PaperConfig
    begin: Callable[[Array], Chain]  # returns the chain of the rows at some positions, in its initial state
    read: Callable[[Chain], FloatArray]  # returns the cells (n_rows, n_columns) of a chain
    low: FloatArray  # (n_columns,) lowest values
    high: FloatArray  # (n_columns,) highest values
    discrete: BoolArray  # (n_columns,) columns whose quantiles are states
    rows_together: int  # number of rows whose chains run on one thread

    def draws(self, rows: Array, m: int) -> Iterator[FloatArray]:
        """Yield m draws (n_rows, n_columns) of the rows at some positions."""
        chains = map_on_threads(self.warm_up, share_out(rows, self.rows_together))
        for _ in range(m):
            yield np.concatenate(map_on_threads(self.next_draw, chains))

    def warm_up(self, rows: Array) -> Chain:
        """Return the chain of the rows at some positions after the burn-in."""
        chain = self.begin(rows)
        chain.advance(self.config.burn_in)
        return chain

    def next_draw(self, chain: Chain) -> FloatArray:
        """Advance a chain to its next draw; return its cells (n_rows, n_columns)."""
        chain.advance(self.config.thinning)
        return self.read(chain)

    def states(self, rows: Array) -> tuple[FloatArray, BoolArray]:
        """Return the sorted states (n_states + 2, n_cells) of missing cells between their bounds, and the mask."""
        chain = self.warm_up(rows)
        missing = chain.missing
        columns = missing.nonzero()[1]
        states = np.empty((self.config.n_states + 2, len(columns)))
        for state in states[1:-1]:
            chain.advance(self.config.state_thinning)
            state[:] = self.read(chain)[missing]
        states[1:-1].sort(axis=0)
        discrete = self.discrete[columns]
        states[1:-1, discrete] = np.rint(states[1:-1, discrete])
        low, high, span = self.low[columns], self.high[columns], states[-2] - states[1]
        states[0] = np.where(np.isfinite(low), np.minimum(low, states[1]), states[1] - span)
        states[-1] = np.where(np.isfinite(high), np.maximum(high, states[-2]), states[-2] + span)
        return states, missing

    def quantiles(self, rows: Array, masses: Sequence[tuple[bool, FloatArray]]) -> FloatArray:
        """Return quantiles (n_quantiles, n_cells) of the missing cells.

        Each quantile is given by whether its mass lies above it, and by this mass in every column (n_columns,).
        """

        def read(part: Array) -> FloatArray:
            states, missing = self.states(part)
            columns = missing.nonzero()[1]
            return np.stack([quantile_at(states, self._rank(mass, columns, upper)) for upper, mass in masses])

        return np.concatenate(map_on_threads(read, share_out(rows, self.rows_together)), axis=1)

    def _rank(self, mass: FloatArray, columns: Array, upper: bool) -> FloatArray:
        """Return the ranks of quantiles: of a state in discrete columns, between states in the others."""
        n_states, mass = self.config.n_states, mass[columns]
        rank = np.where(self.discrete[columns], np.ceil(mass * n_states - ROUND_OFF), mass * (n_states + 1))
        return n_states + 1 - rank if upper else rank

    def tail_masses(self, rows: Array, truth: FloatArray, scored: BoolArray) -> FloatArray:
        """Return the predicted probabilities (2, n_cells) at or below, and at or above, the true values of cells.

        `scored` marks the missing cells to evaluate; like `truth`, it has the rows of the whole table.
        """

        def score(part: Array) -> FloatArray:
            states, missing = self.states(part)
            states = states[:, scored[part][missing]]
            values, discrete = truth[part][scored[part]], self.discrete[scored[part].nonzero()[1]]
            rank = rank_of(states, values) / (self.config.n_states + 1)
            below, above = (states[1:-1] <= values).mean(axis=0), (states[1:-1] >= values).mean(axis=0)
            return np.stack([np.where(discrete, below, rank), np.where(discrete, above, 1 - rank)])

        return np.concatenate(map_on_threads(score, share_out(rows, self.rows_together)), axis=1)


def quantile_at(states: FloatArray, rank: FloatArray) -> FloatArray:
    """Return the value of each cell at a rank among its sorted states (n_states, n_cells), by linear interpolation."""
    lower = np.clip(np.floor(rank), 0, len(states) - 2).astype(np.int64)
    below, above = (np.take_along_axis(states, (lower + k)[None], axis=0)[0] for k in (0, 1))
    return np.asarray(below + (rank - lower) * (above - below))


def rank_of(states: FloatArray, values: FloatArray) -> FloatArray:
    """Return the rank of values among sorted states, clipped to the first and the last: undo `quantile_at`."""
    lower = np.clip((states <= values).sum(axis=0) - 1, 0, len(states) - 2)
    below, above = (np.take_along_axis(states, (lower + k)[None], axis=0)[0] for k in (0, 1))
    share = (values - below) / np.where(above > below, above - below, 1.0)
    return np.asarray(lower + np.clip(share, 0.0, 1.0))

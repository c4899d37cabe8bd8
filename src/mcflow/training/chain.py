"""Draws of the missing cells given the observed ones: a Metropolis–Hastings chain in an exact density."""

from __future__ import annotations

__all__ = ["MOVES", "Chain", "ChainTrace", "Density", "Jumps"]

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri

from mcflow.data.codecs import KnotScale, LevelCode, TableCodec
from mcflow.masks.initial import Marginals
from mcflow.random import cell_uniforms
from mcflow.training.stages import Box, fold
from mcflow.typing import Array, BoolArray, FloatArray

#: The moves of a chain, in turn: a column jumps, one place walks, all missing places glide.
MOVES = ("jump", "walk", "glide")

#: Pushes of a glide, and how much the length of one varies.
N_PUSHES, JITTER = 3, 0.4

#: Pieces in which a column's observed distribution is kept, and the share of it that is spread evenly over the range.
N_PIECES, EVEN_SHARE = 64, 0.05

#: Acceptance that the steps of walks and of glides are adapted to.
WANTED_WALK, WANTED_GLIDE = 0.44, 0.7

#: How fast the gain of the adaptation falls with the moves that were made, and where it starts.
GAIN_POWER, FIRST_GAIN = 0.6, 2.0

#: States and the logarithms of step sizes are kept to multiples of this.
GRAIN = 2.0**-22

#: What random numbers of a row and a step are for; the places of the row come after these.
ACCEPT, CHOOSE, MOVE, N_SLOTS = 0, 1, 2, 3

#: Multiples of it, less their whole part, lie evenly in [0, 1).
GOLDEN_RATIO = (5**0.5 - 1) / 2

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Jumps:
    r"""Proposals of one column at a time that do not look at where the column is: they cross empty regions.

    Parameters
    ----------
    owner : ndarray of shape (n_places,)
        The column of each place.
    masses : ndarray of shape (n_atoms,)
        Of each column's pieces or levels, one column after the other; every column's add up to 1.
    starts : ndarray of shape (n_columns + 1,)
        Where each column's atoms begin.
    words : ndarray of bool of shape (n_columns,)
        Columns whose atoms are levels, written as zeros and ones.
    one_hot : ndarray of bool of shape (n_columns,)
        Of those, the ones with a place for each level; others are written in binary.
    spread : ndarray of shape (n_places,)
        The standard deviation of each place, with which walks begin.

    Notes
    -----
    A column of numbers proposes a value of its observed distribution, of which the density q is known: N even pieces
    of [0, 1], a share of it spread evenly. The Hastings correction is :math:`q(x) / q(x')`.

    A column of levels proposes a level b with its observed frequency P. The places in which the words of b and of the
    level a that the row has differ are mirrored, :math:`x' = 1 - x`. That is its own inverse and keeps volumes, so that
    the correction is :math:`P(a) / P(b)`. A row whose places are no level's word stays.

    Examples
    --------
    >>> masses = np.array([0.25, 0.75])  # of two levels, written as 0 and 1
    >>> jumps = Jumps(np.array([0]), masses, np.array([0, 2]), np.array([True]), np.array([False]), np.ones(1))
    >>> proposed, correction = jumps.propose(np.array([[0.125]]), np.array([0]), np.array([0.5]))
    >>> proposed.tolist(), np.exp(correction).round(3).tolist()
    ([[0.875]], [0.333])
    """

    owner: Array
    masses: FloatArray
    starts: Array
    words: BoolArray
    one_hot: BoolArray
    spread: FloatArray

    @classmethod
    def from_marginals(cls, codec: TableCodec, marginals: Marginals) -> Jumps:
        """Read proposals off the observed distributions of columns.

        Parameters
        ----------
        codec : TableCodec
            Between codes and the chain's units.
        marginals : Marginals
            Of the codes.

        Returns
        -------
        Jumps
        """
        counts = [_counts(coder, marginals.quantiles[:, k]) for k, coder in enumerate(codec.coders)]
        encoded = codec.encode(marginals.quantiles)
        nominal = [isinstance(coder, LevelCode) and not _on_a_line(coder) for coder in codec.coders]
        sizes = np.bincount(codec.owner, minlength=len(codec.coders))
        return cls(
            owner=codec.owner,
            masses=np.concatenate([count / count.sum() for count in counts]),
            starts=np.cumsum([0, *(len(count) for count in counts)]),
            words=np.array(nominal),
            one_hot=np.array([n and len(c) == size for n, c, size in zip(nominal, counts, sizes, strict=True)]),
            spread=np.maximum(encoded.std(axis=0), 1e-3),
        )

    @classmethod
    def even(cls, spread: FloatArray) -> Jumps:
        """Propose anything between 0 and 1 with the same chance.

        Parameters
        ----------
        spread : ndarray of shape (n_places,)
            The standard deviation of each place; every place is a column.

        Returns
        -------
        Jumps
        """
        n_places = len(spread)
        return cls(
            owner=np.arange(n_places),
            masses=np.full(n_places * N_PIECES, 1 / N_PIECES),
            starts=np.arange(n_places + 1) * N_PIECES,
            words=np.zeros(n_places, dtype=bool),
            one_hot=np.zeros(n_places, dtype=bool),
            spread=spread,
        )

    @cached_property
    def _before(self) -> FloatArray:
        """The mass of a column's atoms before each one."""
        sums = np.cumsum(self.masses) - self.masses
        return np.clip(sums - np.repeat(sums[self.starts[:-1]], np.diff(self.starts)), 0.0, 1.0)

    @cached_property
    def _ladder(self) -> FloatArray:
        """The same with the column's number added: one rising series for all columns."""
        return np.repeat(np.arange(len(self.words)), np.diff(self.starts)) + self._before

    @cached_property
    def _first(self) -> Array:
        """The first place of each column."""
        return np.searchsorted(self.owner, np.arange(len(self.words)))

    @cached_property
    def _offset(self) -> Array:
        """The number of each place inside its column."""
        return np.arange(len(self.owner)) - self._first[self.owner]

    def propose(self, rows: FloatArray, columns: Array, uniforms: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Propose a new value of one column of each row.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_places)
        columns : ndarray of shape (n_rows,)
            The column of each row.
        uniforms : ndarray of shape (n_rows,)
            Inside (0, 1).

        Returns
        -------
        proposed : ndarray of shape (n_rows, n_places)
        correction : ndarray of shape (n_rows,)
            The logarithm of the Hastings correction; minus infinity for a row that stays.
        """
        atoms = np.searchsorted(self._ladder, columns + uniforms, "right") - 1
        atoms = np.clip(atoms, self.starts[columns], self.starts[columns + 1] - 1)
        proposed, correction = rows.copy(), np.empty(len(rows))
        words = self.words[columns]
        proposed[words], correction[words] = self._other_level(rows[words], columns[words], atoms[words])
        numbers = np.flatnonzero(~words)
        places = self._first[columns[numbers]]
        share = (uniforms[numbers] - self._before[atoms[numbers]]) / self.masses[atoms[numbers]]
        piece = atoms[numbers] - self.starts[columns[numbers]]
        proposed[numbers, places] = (piece + np.clip(share, 0.0, 1.0)) / N_PIECES
        correction[numbers] = self._log_mass(rows[numbers, places], columns[numbers])
        correction[numbers] -= np.log(self.masses[atoms[numbers]])
        return proposed, correction

    def _log_mass(self, x: FloatArray, columns: Array) -> FloatArray:
        """Return the logarithm of the mass of the piece in which each number lies; there is none outside [0, 1]."""
        piece = np.clip(np.floor(x * N_PIECES), 0, N_PIECES - 1).astype(np.int64)
        inside = (x >= 0) & (x <= 1)
        return np.where(inside, np.log(self.masses[self.starts[columns] + piece]), -np.inf)

    def _other_level(self, rows: FloatArray, columns: Array, atoms: Array) -> tuple[FloatArray, FloatArray]:
        """Mirror the places in which the words of two levels differ."""
        own = self.owner == columns[:, None]  # (n_rows, n_places)
        one_hot, count = self.one_hot[columns], np.diff(self.starts)[columns]
        bits = (rows > 0.5) & own
        weights = np.where(one_hot[:, None], self._offset, 1 << np.where(own, self._offset, 0))
        code = (bits * weights).sum(axis=1)
        valid = np.where(one_hot, bits.sum(axis=1) == 1, code < count)
        wanted = (atoms - self.starts[columns])[:, None]
        binary = ((wanted >> np.where(own, self._offset, 0)) & 1) > 0
        flip = (np.where(one_hot[:, None], self._offset == wanted, binary) & own) ^ bits
        old = self.masses[self.starts[columns] + np.where(valid, code, 0)]
        correction = np.where(valid, np.log(old) - np.log(self.masses[atoms]), -np.inf)
        return np.where(flip, 1 - rows, rows), correction


def _on_a_line(coder: LevelCode) -> bool:
    """Tell whether levels share a place, more than two of them."""
    return coder.ordered and coder.n_levels != 2


def _counts(coder: KnotScale | LevelCode, values: FloatArray) -> FloatArray:
    """Return the masses, up to a factor, of a column's levels or of the pieces of its range."""
    if isinstance(coder, LevelCode) and not _on_a_line(coder):
        return np.bincount(values.astype(np.int64), minlength=coder.n_levels).astype(np.float64) + 1
    noise: FloatArray = (np.arange(len(values), dtype=np.float64) * GOLDEN_RATIO % 1.0)[:, None]
    encoded = coder.encode(values, noise) if isinstance(coder, LevelCode) else coder.encode(values)
    counts = np.histogram(np.clip(encoded, 0.0, 1.0), N_PIECES, (0.0, 1.0))[0] / len(values)
    return (1 - EVEN_SHARE) * counts + EVEN_SHARE / N_PIECES


class Density(Protocol):
    """The law of a chain: the logarithm of a density, up to a constant, and its gradient."""

    def value(self, rows: FloatArray) -> FloatArray:
        """Return the logarithm of the density of rows of shape (n_rows, n_places), of shape (n_rows,)."""

    def slope(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the same and its gradient, of shape (n_rows, n_places)."""


class ChainTrace(NamedTuple):
    """What a chain did, step by step.

    Parameters
    ----------
    log_density : ndarray of shape (n_steps, n_rows)
        Of every row after each step, in network units.
    accepted : ndarray of bool of shape (n_steps, n_rows)
        Whether the row moved.
    values : ndarray of shape (n_steps, n_cells)
        Of some missing cells.
    rows : ndarray of shape (n_rows,)
        Where the rows with holes stand in the table.
    cells : ndarray of shape (n_cells, 2)
        Row and column of each of those cells in the table.
    moves : tuple of str
        The kind of each step, one of `MOVES`.
    burn_in : int
        Steps at the beginning in which steps are adapted; no draw is taken from them.
    names : tuple of str
        Of the cells, where they are known.
    """

    log_density: FloatArray
    accepted: BoolArray
    values: FloatArray
    rows: Array
    cells: Array
    moves: tuple[str, ...]
    burn_in: int
    names: tuple[str, ...] = ()


class Chain:
    r"""Many Markov chains side by side, one a row, whose law is that of the missing places given the observed ones.

    Parameters
    ----------
    density : Density
        The law p of complete rows.
    rows : ndarray of shape (n_rows, n_places)
        Where to start: complete, inside the box. Float64.
    missing : ndarray of bool of shape (n_rows, n_columns)
        Columns that move; at least one a row.
    jumps : Jumps
        Proposals of one column, and which places are a column's.
    box : Box
        Bounds of the places.
    hashes : ndarray of shape (n_rows,)
        From `mcflow.random.hash_rows`: all that a row's random numbers come from, besides the number of the step.
    burn_in : int
        Moves in which step sizes are adapted to each row's own acceptance; then they stay as they are.
    moves : tuple of str
        Of `MOVES`, those that take turns.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, n_places)
        The state.
    current : ndarray of shape (n_rows,)
        Its log-density.
    accepted : ndarray of bool of shape (n_rows,)
        Which rows moved last.
    step : int
        Moves that were made.

    Notes
    -----
    A proposal x' from the density :math:`q(x' \mid x)` is accepted with probability

    .. math:: \alpha(x, x') = \min\left\{1,\; \frac{p(x')\, q(x \mid x')}{p(x)\, q(x' \mid x)}\right\},

    which keeps :math:`p(x_{mis} \mid x_{obs}) \propto p(x_{mis}, x_{obs})` on the box [1]_. The moves take turns:

    * one column jumps, see `Jumps`; outside the box p is 0;
    * one place walks: :math:`x' = \mathrm{fold}(x + s\,\varepsilon)` with normal :math:`\varepsilon`. Reflection at the
      bounds leaves the walk symmetric, so that q cancels;
    * all missing places glide (Hamiltonian Monte Carlo [2]_): with normal momenta v they follow a few pushes
      :math:`v \leftarrow v + \tfrac12 s \nabla \log p`, :math:`x \leftarrow x + s v`,
      :math:`v \leftarrow v + \tfrac12 s \nabla \log p`. A place that meets a bound is reflected and its momentum turned
      round [3]_. That keeps volumes and is its own inverse when all momenta are turned round, so that

      .. math:: \alpha = \min\left\{1,\; \frac{p(x')}{p(x)} \exp\left(\tfrac12 |v|^2 - \tfrac12 |v'|^2\right)\right\}.

    Through the burn-in, :math:`\log s` moves by :math:`\gamma_t (\alpha - \alpha^*)` with a falling gain [4]_.
    Everything is in float64. Glides in a density of several modes are chaotic: what is round-off at first, and differs
    with the rows that a row comes with, would grow into another draw. So states and step sizes are rounded after each
    move, far coarser than round-off and far finer than a draw has to be.

    References
    ----------
    .. [1] Hastings, W. K. (1970). Monte Carlo sampling methods using Markov chains and their applications.
       Biometrika, 57, 97-109.
    .. [2] Neal, R. M. (2011). MCMC using Hamiltonian dynamics. In Handbook of Markov Chain Monte Carlo, chapter 5.
    .. [3] Afshar, H. M., & Domke, J. (2015). Reflection, refraction, and Hamiltonian Monte Carlo. NIPS 28.
    .. [4] Andrieu, C., & Thoms, J. (2008). A tutorial on adaptive MCMC. Statistics and Computing, 18, 343-373.

    Examples
    --------
    >>> from mcflow.random import hash_rows
    >>> class Wedge:
    ...     def value(self, rows):
    ...         return np.log(rows[:, 0])
    ...     def slope(self, rows):
    ...         return np.log(rows[:, 0]), 1 / rows
    >>> start, holes = np.full((500, 1), 0.5), np.ones((500, 1), dtype=bool)
    >>> hashes = hash_rows(np.arange(500.0)[:, None], 0)
    >>> chain = Chain(Wedge(), start, holes, jumps=Jumps.even(np.ones(1)), box=Box.unit(1), hashes=hashes)
    >>> chain.advance(60)
    >>> bool(abs(chain.rows.mean() - 2 / 3) < 0.05)
    True
    """

    def __init__(
        self,
        density: Density,
        rows: FloatArray,
        missing: BoolArray,
        *,
        jumps: Jumps,
        box: Box,
        hashes: Hashes,
        burn_in: int = 90,
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
        self._moving = missing[:, jumps.owner]
        self._places, self._place_starts = _cells(self._moving)
        self._owners = np.repeat(np.arange(len(rows)), np.diff(self._place_starts))
        self._log_walk = np.log(jumps.spread)[self._places]
        self._log_glide = -np.log(2.0) - 0.25 * np.log(np.diff(self._place_starts))
        self._visits = np.zeros(len(self._places))
        self._low, self._high = (bound.numpy() for bound in self.box)
        self.rows[self._moving] = self._folded(self.rows[self._moving], self._places)
        self.current = self._inside(self.rows, density.value(self.rows))

    @property
    def step_sizes(self) -> tuple[FloatArray, FloatArray]:
        """Of the walk of every missing place, row by row, and the factor of each row's glides."""
        return np.exp(self._log_walk), np.exp(self._log_glide)

    def advance(self, n_moves: int) -> None:
        """Make some moves, of all rows each."""
        for _ in range(n_moves):
            move = self.moves[self.step % len(self.moves)]
            with np.errstate(all="ignore"):  # what is no number is not accepted
                {"jump": self._jump, "walk": self._walk, "glide": self._glide}[move]()
            self.step += 1

    def uniforms(self, slots: Array, rows: Array) -> FloatArray:
        """Return a uniform number of the current step for each pair of a slot, at least 0, and a row."""
        return cell_uniforms(self.hashes[rows], slots, np.array([self.step])).reshape(-1)

    def _row_uniforms(self, slot: int) -> FloatArray:
        return self.uniforms(np.full(len(self.rows), slot), np.arange(len(self.rows)))

    def _chosen(self, starts: Array) -> Array:
        """Choose one of each row's cells."""
        return starts[:-1] + (self._row_uniforms(CHOOSE) * np.diff(starts)).astype(np.int64)

    def _jump(self) -> None:
        columns = self._columns[self._chosen(self._column_starts)]
        proposed, correction = self.jumps.propose(self.rows, columns, self._row_uniforms(MOVE))
        self._decide(proposed, self._inside(proposed, self.density.value(proposed)), correction)

    def _walk(self) -> None:
        cells = self._chosen(self._place_starts)
        rows, places = np.arange(len(self.rows)), self._places[cells]
        moved = self.rows[rows, places] + np.exp(self._log_walk[cells]) * ndtri(self._row_uniforms(MOVE))
        proposed = self.rows.copy()
        proposed[rows, places] = self._folded(moved, places)
        chance = self._decide(proposed, self.density.value(proposed), 0.0)
        if self.step < self.burn_in:
            self._visits[cells] += 1
            gain = FIRST_GAIN * self._visits[cells] ** -GAIN_POWER
            self._log_walk[cells] = _grained(self._log_walk[cells] + gain * (chance - WANTED_WALK))

    def _glide(self) -> None:
        at = self._owners, self._places
        jitter = 1 + JITTER * (self._row_uniforms(MOVE) - 0.5)
        size = np.exp(self._log_walk + self._log_glide[self._owners]) * jitter[self._owners]
        speed = ndtri(self.uniforms(N_SLOTS + self._places, self._owners))
        before = self._energy(speed)
        x, gradient = self.rows.copy(), self.density.slope(self.rows)[1][at]
        for _ in range(N_PUSHES):
            speed = speed + size * gradient / 2
            moved = x[at] + size * speed
            x[at] = self._folded(moved, self._places)
            speed = np.where(self._turned(moved), -speed, speed)
            value, slope = self.density.slope(x)
            gradient = slope[at]
            speed = speed + size * gradient / 2
        chance = self._decide(x, value, before - self._energy(speed))
        if self.step < self.burn_in:
            turn = self.step // len(self.moves) + 1
            gain = FIRST_GAIN * turn**-GAIN_POWER
            self._log_glide = _grained(self._log_glide + gain * (chance - WANTED_GLIDE))

    def _energy(self, speed: FloatArray) -> FloatArray:
        """Return half the squared length of each row's momenta."""
        return np.bincount(self._owners, weights=speed**2, minlength=len(self.rows)) / 2

    def _folded(self, x: FloatArray, places: Array) -> FloatArray:
        """Reflect numbers of some places at their bounds."""
        folded = fold(torch.from_numpy(x), Box(self.box.low[places], self.box.high[places])).numpy()
        return np.clip(_grained(folded), self._low[places], self._high[places])

    def _turned(self, x: FloatArray) -> BoolArray:
        """Tell which of the missing places met bounds an odd number of times on their way."""
        low, high = self._low[self._places], self._high[self._places]
        often = np.floor((x - low) / (high - low)) % 2 == 1
        return np.where(np.isfinite(high - low), often & (high > low), (x < low) | (x > high))

    def _decide(self, proposed: FloatArray, value: FloatArray, correction: FloatArray | float) -> FloatArray:
        """Accept or reject each row's proposal, and return the probability with which that was done."""
        ratio = np.where(value < np.inf, value - self.current + correction, -np.inf)
        ratio[np.isnan(ratio)] = -np.inf
        self.accepted = np.log(self._row_uniforms(ACCEPT)) < ratio
        self.rows[self.accepted] = proposed[self.accepted]
        self.current = np.where(self.accepted, value, self.current)
        chance: FloatArray = np.exp(np.minimum(ratio, 0.0))
        return chance

    def _inside(self, rows: FloatArray, value: FloatArray) -> FloatArray:
        """Return the target's logarithm: minus infinity outside the box and where it is no number."""
        outside = (((rows < self._low) | (rows > self._high)) & self._moving).any(axis=1)
        return np.where(outside | ~(value < np.inf), -np.inf, value)


def _grained(x: FloatArray) -> FloatArray:
    """Round off what is smaller than a grain."""
    rounded: FloatArray = np.rint(x / GRAIN) * GRAIN
    return rounded


def _cells(missing: BoolArray) -> tuple[Array, Array]:
    """Return the columns of the missing cells, row by row, and where each row begins."""
    return np.nonzero(missing)[1], np.concatenate([[0], np.cumsum(missing.sum(axis=1))])

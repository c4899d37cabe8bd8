"""The paper's method on tables: fit, fill, draws and quantiles, from codes to codes."""

from __future__ import annotations

__all__ = ["CategoryHead", "PaperModel", "TableChains"]

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mcflow.columns.codecs import CategoryCode, TableCodec
from mcflow.columns.marginals import Marginals
from mcflow.columns.schema import Column
from mcflow.errors import ParameterError
from mcflow.fitting.calibration import Calibration, masses_beyond
from mcflow.fitting.callbacks import Callback, History
from mcflow.fitting.distributed import ALONE, Workers, one_thread_when_small
from mcflow.fitting.trainer import closing_all, notify_phase
from mcflow.paper.algorithm import ROWS_AT_ONCE, Box, Stage, Trainer, complete, log_density, stage_tensors, stages_from
from mcflow.paper.chain import MOVES, N_SLOTS, Chain, ChainTrace, ConditionalSampler, FlowDensity, Jumps, in_float64
from mcflow.paper.config import PaperConfig
from mcflow.random import Streams, hash_rows
from mcflow.typing import Array, BoolArray, FloatArray, Header

MAX_HEAD_ROWS = 50_000  #: Maximum number of rows in a round of hiding cells for the category heads.
MAX_HEAD_ROUNDS = 20  #: Maximum number of such rounds.
ROWS_TOGETHER = 1024  #: Rows whose chains run together; few enough for the caches of a processor.
MIN_STEP = 1e-3  #: Smallest initial step size of a place.
TRACED_CELLS = 8  #: Missing cells that a trace follows.


class PaperModel:
    """Flow G, latent network H and category heads of a table, with the codec of its columns."""

    def __init__(self, config: PaperConfig, codec: TableCodec, marginals: Marginals, box: Box, seed: int) -> None:
        self.config, self.codec, self.marginals, self.box, self.seed = config, codec, marginals, box, seed
        self.history = History(ending="nothing to learn")
        self.stages: list[Stage] = []
        self.heads: dict[int, CategoryHead] = {}
        self.calibrates = True
        self.calibration: Calibration | None = None
        self.density: bool | str = True

    def fit(
        self,
        values: FloatArray,
        streams: Streams,
        device: torch.device,
        callbacks: Sequence[Callback] = (),
        more: object = None,
        *,
        workers: Workers = ALONE,
    ) -> None:
        """Train on codes (n_rows, n_columns) in which NaN marks missing cells."""
        if not workers.alone:
            raise ParameterError(
                f"The preset 'paper' is fitted by one process, and there are {workers.number}: its steps are too "
                "small to be shared. Use preset='default', or start a single process."
            )
        first = self.marginals.fill(values, streams.fill.random(values.shape))
        rows = torch.from_numpy(self.codec.encode(first, streams.fill)).to(device, torch.float32)
        missing = torch.from_numpy(self.codec.spread(np.isnan(values))).to(device)
        trainer = Trainer(self.config, rows, missing, streams, callbacks=callbacks, box=self.box)
        with closing_all(callbacks):
            self.stages = trainer.train()
            self.history = trainer.history
            notify_phase(callbacks, "calibrating" if self.calibrates else "fitting the category heads")
            self._fit_heads(values, streams.fill)
            self.calibration = TableChains(self).calibration(values) if self.calibrates else None

    @classmethod
    def prepare(
        cls,
        values: FloatArray,
        columns: list[Column],
        box: tuple[FloatArray, FloatArray],
        seed: int,
        config: PaperConfig,
        *,
        n_rows: int | None = None,
    ) -> PaperModel:
        """Return an unfitted model for a table; all its rows have to be in memory."""
        if n_rows is not None and n_rows != len(values):
            raise ParameterError(
                "The paper's method refills all rows in memory, and cannot train on a stream. Use preset='default', or "
                "fit on a sample."
            )
        codec = TableCodec.from_values(values, columns, config.scaling)
        low, high = (torch.from_numpy(bound) for bound in codec.box(*box))
        return cls(config, codec, Marginals.from_values(values), Box(low, high), seed)

    @staticmethod
    def time_of_copies(config: PaperConfig, n_models: int) -> float:
        """Return the time of a fit with bootstrap copies, as a multiple of that of the first model."""
        return n_models

    @property
    def is_fitted(self) -> bool:
        """Whether there are any stages; there are none when every column was constant."""
        return bool(self.stages)

    def warm_start(self, earlier: object) -> None:
        """Refuse: G restarts at every refill."""
        raise ParameterError("warm_start=True needs preset='default'. Leave one of them out.")

    def category_frequencies(self, values: FloatArray, column: int) -> FloatArray:
        """Return the frequencies (n_rows, n_categories) with which draws have each category of a column."""
        return self.probabilities(values, np.full(values.shape, np.nan))[column]

    def bootstrap_copy(self, seed: int) -> PaperModel:
        """Return an unfitted model for resampled rows."""
        return PaperModel(self.config, self.codec, self.marginals, self.box, seed)

    def tensors(self) -> dict[str, Array]:
        """Return everything learned as arrays by name."""
        tensors = stage_tensors(self.stages)
        for k, head in self.heads.items():
            tensors |= {f"head.{k}.weight": head.weight.numpy(), f"head.{k}.bias": head.bias.numpy()}
        tensors |= self.calibration.tensors() if self.calibration is not None else {}
        box = torch.stack(self.box).numpy()
        return tensors | self.codec.tensors() | {"quantiles": self.marginals.quantiles, "box": box}

    @classmethod
    def from_tensors(
        cls, arrays: dict[str, Array], columns: list[Column], config: PaperConfig, header: Header, device: torch.device
    ) -> PaperModel:
        """Undo `tensors`."""
        codec = TableCodec.from_tensors(columns, arrays)
        box = Box(*torch.from_numpy(arrays["box"]))
        model = cls(config, codec, Marginals(arrays["quantiles"]), box, header["seed"])
        model.stages = stages_from(arrays, config, device)
        for k in model.categories if model.stages else ():
            weight, bias = (torch.from_numpy(arrays[f"head.{k}.{part}"]) for part in ("weight", "bias"))
            model.heads[k] = CategoryHead(weight, bias)
        model.calibration = Calibration.from_tensors(arrays)
        return model

    @property
    def categories(self) -> dict[int, int]:
        """Number of categories of each categorical column."""
        return {k: c.n_categories for k, c in enumerate(self.codec.coders) if isinstance(c, CategoryCode)}

    def _fit_heads(self, values: FloatArray, rng: np.random.Generator) -> None:
        """Hide observed cells, complete the rows, and fit the heads to predict the hidden categories."""
        if not self.categories:
            return
        rows: dict[int, list[Tensor]] = {k: [] for k in self.categories}
        hidden: dict[int, list[Tensor]] = {k: [] for k in self.categories}
        n_rows = min(len(values), MAX_HEAD_ROWS)
        n_rounds = math.ceil(self.config.head_cells / (self.config.hidden_share * n_rows))
        for _ in range(min(MAX_HEAD_ROUNDS, n_rounds)):
            some, hide = _hide_cells(values, n_rows, self.config.hidden_share, self.codec, rng)
            incomplete = np.where(hide, np.nan, some)
            done = self._complete(incomplete, self.marginals.fill(incomplete, rng.random(some.shape)))
            for k in self.categories:
                rows[k].append(done[torch.from_numpy(hide[:, k])])
                hidden[k].append(torch.from_numpy(some[hide[:, k], k]).long())
        for k, n_categories in self.categories.items():
            seen = values[~np.isnan(values[:, k]), k].astype(np.int64)
            counts = torch.from_numpy(np.bincount(seen, minlength=n_categories)).float()
            with one_thread_when_small(n_categories * self.codec.n_places):
                self.heads[k] = CategoryHead.fit(torch.cat(rows[k]), torch.cat(hidden[k]), counts)

    def _complete(self, values: FloatArray, first: FloatArray) -> Tensor:
        """Return rows completed from their first fill, encoded, on the CPU."""
        device = self.stages[0].flow.theta.device
        rows = torch.from_numpy(self.codec.encode(first)).to(device, torch.float32)
        missing = torch.from_numpy(self.codec.spread(np.isnan(values))).to(device)
        return complete(self.stages, rows, missing, self.box).cpu()

    def fill(self, values: FloatArray) -> FloatArray:
        """Complete rows (n_rows, n_columns)."""
        incomplete = np.isnan(values).any(axis=1)
        rows = values[incomplete]
        done = self._complete(rows, self.marginals.fill_rows(rows, self.seed))
        filled = values.copy()
        filled[incomplete] = np.where(np.isnan(rows), self._decode(done, np.isnan(rows)), rows)
        return filled

    def _decode(self, done: Tensor, missing: BoolArray) -> FloatArray:
        """Return the codes of completed rows; categories are predicted only where they are missing."""
        values = np.zeros(missing.shape)
        network = done.numpy().astype(np.float64)
        for k, (coder, place) in enumerate(zip(self.codec.coders, self.codec.places, strict=True)):
            if isinstance(coder, CategoryCode):
                rows = done[torch.from_numpy(missing[:, k])]
                best = [self.heads[k].probabilities(part).argmax(1) for part in rows.split(ROWS_AT_ONCE)]
                values[missing[:, k], k] = torch.cat(best).numpy()
            else:
                values[:, k] = coder.decode(network[:, place.start])
        return values

    def probabilities(self, values: FloatArray, seen: FloatArray) -> dict[int, FloatArray]:
        """Return the probabilities (n_rows, n_categories) by column; where `seen` has a code, its probability is 1."""
        done = self._complete(values, self.marginals.fill_rows(values, self.seed))
        found = {}
        for k, n_categories in self.categories.items():
            p = self.heads[k].probabilities(done).numpy().astype(np.float64)
            known = ~np.isnan(seen[:, k])
            p[known] = np.eye(n_categories)[seen[known, k].astype(np.int64)]
            found[k] = p
        return found

    def draws(self, values: FloatArray, m: int, seed: int, ids: FloatArray | None = None) -> Iterator[FloatArray]:
        """Yield m completed tables (n_rows, n_columns), drawn by chains from the density of the last flow."""
        incomplete = np.flatnonzero(np.isnan(values).any(axis=1))
        if not len(incomplete):
            yield from (values.copy() for _ in range(m))
            return
        hashes = hash_rows(values if ids is None else np.column_stack([values, ids]), seed)
        rows = values[incomplete]
        for codes in TableChains(self).sampler(values, hashes).draws(incomplete, m):
            filled = values.copy()
            filled[incomplete] = np.where(np.isnan(rows), codes, rows)
            yield filled

    def redraw(self, values: FloatArray, hashes: Array, _number: int) -> FloatArray:
        """Return rows completed by the first draw of their chains, with random numbers decided by `hashes`."""
        sampler = TableChains(self).sampler(values, hashes)
        codes = sampler.next_draw(sampler.warm_up(np.arange(len(values))))
        return np.where(np.isnan(values), codes, values)

    def trace(self, values: FloatArray, seed: int, n_steps: int) -> ChainTrace:
        """Record the chains of the incomplete rows of a table (n_rows, n_columns) from their start."""
        incomplete = np.flatnonzero(np.isnan(values).any(axis=1))
        rows = values[incomplete]
        chains = TableChains(self)
        chain = chains.chain(rows, hash_rows(rows, seed))
        cells = np.argwhere(np.isnan(rows))[:TRACED_CELLS]
        densities, accepted, states = [], [], []
        for _ in range(n_steps):
            chain.advance(1)
            states.append(chains.codes(chain)[cells[:, 0], cells[:, 1]])
            densities.append(chain.current)
            accepted.append(chain.accepted)
        return ChainTrace(
            np.array(densities).reshape(n_steps, len(rows)),
            np.array(accepted, dtype=bool).reshape(n_steps, len(rows)),
            np.array(states).reshape(n_steps, len(cells)),
            rows=incomplete,
            cells=np.column_stack([incomplete[cells[:, 0]], cells[:, 1]]),
            moves=tuple(MOVES[k % len(MOVES)] for k in range(n_steps)),
            burn_in=self.config.burn_in,
        )

    def quantiles(self, values: FloatArray, probabilities: FloatArray) -> Iterator[FloatArray]:
        """Yield a table (n_rows, n_columns) for each probability; cells of unordered categories stay missing."""
        missing = np.isnan(values)
        if not missing.any():
            yield from (values.copy() for _ in probabilities)
            return
        chains = TableChains(self)
        masses = [masses_beyond(q, self.calibration, values.shape[1]) for q in probabilities]
        sampler = chains.sampler(values, hash_rows(values, self.seed))
        nominal = chains.nominal[missing.nonzero()[1]]
        for cells in sampler.quantiles(np.flatnonzero(missing.any(axis=1)), masses):
            filled = values.copy()
            filled[missing] = np.where(nominal, np.nan, cells)
            yield filled

    def log_density(self, values: FloatArray) -> FloatArray:
        """Return the log-density (n_rows,) of complete rows under the last flow, in the units of the codes."""
        flow, rows = self.stages[-1].flow, torch.from_numpy(self.codec.encode(values))
        return log_density(flow, rows) + self.codec.log_slope(values)

    def sample(self, n_rows: int, seed: int) -> FloatArray:
        """Draw new rows (n_rows, n_columns) from the last flow."""
        drawn = self.stages[-1].flow.sample(n_rows, torch.Generator().manual_seed(seed))
        return self.codec.decode(drawn.cpu().numpy().astype(np.float64))


def _hide_cells(
    values: FloatArray, n_rows: int, share: float, codec: TableCodec, rng: np.random.Generator
) -> tuple[FloatArray, BoolArray]:
    """Return random rows and which of their observed cells to hide; columns that are only targets are always hidden."""
    targets = np.array([column.role == "targets_only" for column in codec.columns])
    rows = values[rng.permutation(len(values))[:n_rows]]
    return rows, ((rng.random(rows.shape) < share) | targets) & ~np.isnan(rows)


@dataclass(frozen=True)
class CategoryHead:
    r"""Multinomial logistic regression on completed rows: :math:`p(k) \propto \exp(x W_k + b_k)`.

    The completed row contains H's own prediction of the category. The head is fitted on cells that were hidden from
    the networks, so that its probabilities are valid for missing cells.
    """

    weight: Tensor  # (n_places, n_categories)
    bias: Tensor  # (n_categories,)

    @classmethod
    def fit(cls, rows: Tensor, categories: Tensor, counts: Tensor, max_steps: int = 60) -> CategoryHead:
        """Fit on completed rows (n_rows, n_places), their hidden categories and the counts of observed categories."""
        prior = ((counts + 1) / (counts + 1).sum()).log()
        with torch.inference_mode(False), torch.enable_grad():
            x, y = rows.clone(), categories.clone()
            weight = torch.zeros(x.shape[1], len(counts), device=x.device, requires_grad=True)
            shift = torch.zeros(len(counts), device=x.device, requires_grad=True)
            optimiser = torch.optim.LBFGS(
                [weight, shift], max_iter=max_steps, line_search_fn="strong_wolfe", tolerance_grad=1e-6
            )

            def loss() -> Tensor:
                optimiser.zero_grad()
                logits = x @ weight + shift + prior
                penalty = (weight.square().sum() + shift.square().sum()) / 2
                value = torch.nn.functional.cross_entropy(logits, y) + penalty / max(len(y), 1)
                value.backward()
                return value

            if len(y):
                optimiser.step(loss)
        return cls(weight.detach(), (shift.detach() + prior))

    def probabilities(self, rows: Tensor) -> Tensor:
        """Return the probabilities (n_rows, n_categories) of the categories."""
        return (rows @ self.weight + self.bias).softmax(1)


class TableChains:
    """Chains over the missing cells of a table under the density of the last flow of a model."""

    def __init__(self, model: PaperModel) -> None:
        self.model, self.config, self.codec, self.box = model, model.config, model.codec, model.box
        self.stages = [Stage(in_float64(stage.flow), in_float64(stage.mapper)) for stage in model.stages]
        self.density = FlowDensity(model.stages[-1].flow)
        self.heads = {k: CategoryHead(head.weight.double(), head.bias.double()) for k, head in model.heads.items()}
        self.jumps = Jumps(self.codec, model.marginals)
        self.steps = np.maximum(self.codec.encode(model.marginals.quantiles).std(axis=0), MIN_STEP)
        self.nominal = np.array([column.kind in ("boolean", "category") for column in self.codec.columns])
        self.discrete = np.array([column.whole or column.kind == "ordered" for column in self.codec.columns])

    def sampler(self, values: FloatArray, hashes: Array) -> ConditionalSampler:
        """Return the sampler of a table; `hashes` (n_rows,) decide the random numbers of its rows."""
        low, high = self._bounds()
        return ConditionalSampler(
            self.config,
            lambda rows: self.chain(values[rows], hashes[rows]),
            self.codes,
            low=low,
            high=high,
            discrete=self.discrete,
            rows_together=ROWS_TOGETHER,
        )

    def chain(self, values: FloatArray, hashes: Array) -> Chain:
        """Return the chain of rows (n_rows, n_columns); it starts at completed rows with categories as codewords."""
        missing = np.isnan(values)
        rows = self.codec.encode(self.model.marginals.fill_rows(values, self.model.seed))
        device = self.density.flow.theta.device
        marks = torch.from_numpy(self.codec.spread(missing)).to(device)
        start = complete(self.stages, torch.from_numpy(rows).to(device), marks, self.box).cpu().numpy()
        codewords = self.codec.encode(self.codec.decode(start))
        of_categories = np.isin(self.codec.owner, list(self.heads))
        start = np.where(self.codec.spread(missing) & of_categories, codewords, start)
        return Chain(
            self.density,
            start,
            missing,
            steps=self.steps,
            box=self.box,
            hashes=hashes,
            burn_in=self.config.burn_in,
            jumps=self.jumps,
        )

    def codes(self, chain: Chain) -> FloatArray:
        """Return the state of a chain as codes (n_rows, n_columns), with categories drawn from their probabilities."""
        values = np.zeros(chain.missing.shape)
        for k, (coder, place) in enumerate(zip(self.codec.coders, self.codec.places, strict=True)):
            if isinstance(coder, CategoryCode):
                rows = np.flatnonzero(chain.missing[:, k])
                values[rows, k] = self._draw_categories(chain, k, rows)
            else:
                values[:, k] = coder.decode(chain.rows[:, place.start])
        return values

    def _draw_categories(self, chain: Chain, column: int, rows: Array) -> FloatArray:
        p = self.heads[column].probabilities(torch.from_numpy(chain.rows[rows])).numpy()
        slots = np.full(len(rows), N_SLOTS + self.codec.n_places + column)
        categories = (p.cumsum(axis=1) < chain.uniforms(slots, rows)[:, None]).sum(axis=1)
        return np.asarray(np.minimum(categories, p.shape[1] - 1), dtype=np.float64)

    def _bounds(self) -> tuple[FloatArray, FloatArray]:
        """Return the lowest and highest codes (n_columns,) of the columns."""
        low, high = np.zeros(len(self.nominal)), np.zeros(len(self.nominal))
        for k, (coder, place) in enumerate(zip(self.codec.coders, self.codec.places, strict=True)):
            if isinstance(coder, CategoryCode):
                high[k] = coder.n_categories - 1
            else:
                ends = np.array([self.box.low[place.start], self.box.high[place.start]], dtype=np.float64)
                low[k], high[k] = coder.decode(ends)
        return low, high

    def calibration(self, values: FloatArray) -> Calibration | None:
        """Hide observed cells of some rows (n_rows, n_columns), and compare their states with the true values."""
        config, rng = self.config, np.random.default_rng([self.model.seed, 1])
        n_rows = math.ceil(config.calibration_cells / (config.hidden_share * values.shape[1]))
        rows, hide = _hide_cells(values, min(config.calibration_rows, n_rows), config.hidden_share, self.codec, rng)
        scored = hide & ~self.nominal
        rows, hide, scored = (part[scored.any(axis=1)] for part in (rows, hide, scored))
        if not len(rows):
            return None
        incomplete = np.where(hide, np.nan, rows)
        sampler = self.sampler(incomplete, hash_rows(incomplete, self.model.seed))
        below, above = sampler.tail_masses(np.arange(len(rows)), rows, scored)
        return Calibration.from_scores(below, above, scored.nonzero()[1], values.shape[1])

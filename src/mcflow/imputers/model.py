"""The fitted model behind the imputer: codes in, codes out."""

from __future__ import annotations

__all__ = ["FlowModel"]

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from mcflow.config import Settings
from mcflow.data.codecs import LevelCode, TableCodec
from mcflow.data.schema import Column
from mcflow.imputers.flow_draws import FlowDraws
from mcflow.latent.heads import LevelHead
from mcflow.masks.initial import Marginals
from mcflow.random import Streams
from mcflow.training import Box, Callback, History, Stage, Trainer, closing_all, complete_through, tell_phase
from mcflow.training.calibration import Calibration
from mcflow.training.chain import ChainTrace
from mcflow.training.stages import ROWS_AT_ONCE, stage_tensors, stages_from
from mcflow.training.threads import one_thread_when_small
from mcflow.typing import Array, BoolArray, FloatArray, Header

#: Share of the observed cells that is hidden to fit the heads.
HIDDEN_SHARE = 0.2
#: Hidden cells that are enough for a head, and rows that are looked at together.
ENOUGH_CELLS, MANY_ROWS, MOST_ROUNDS = 20_000, 50_000, 20


class FlowModel:
    """Flow, latent network and heads of levels, with the codec around them.

    Parameters
    ----------
    settings : Settings
        The preset with its overrides.
    codec : TableCodec
        Between codes and network units.
    marginals : Marginals
        Of the codes, for the first fill.
    box : tuple of ndarray of shape (n_places,)
        Bounds in network units.
    seed : int
        The seed of the fit.

    Attributes
    ----------
    calibrates : bool
        Whether a fit hides some cells at its end, to set the quantiles right.
    calibration : Calibration or None
        What those cells said.
    """

    def __init__(
        self,
        settings: Settings,
        codec: TableCodec,
        marginals: Marginals,
        box: tuple[FloatArray, FloatArray],
        seed: int,
    ) -> None:
        self.settings = settings
        self.codec = codec
        self.marginals = marginals
        self.box = Box(torch.from_numpy(box[0]), torch.from_numpy(box[1]))
        self.seed = seed
        self.history = History(ending="nothing to learn")
        self.stages: list[Stage] = []
        self.heads: dict[int, LevelHead] = {}
        self.calibrates = True
        self.calibration: Calibration | None = None

    def fit(
        self, values: FloatArray, streams: Streams, device: torch.device, callbacks: Sequence[Callback] = ()
    ) -> None:
        """Learn from codes with holes.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            NaN where missing.
        streams : Streams
            Where every random number comes from.
        device : torch.device
            Where to compute.
        callbacks : sequence of Callback
            Told of the progress.
        """
        first = self.marginals.fill(values, streams.fill.random(values.shape))
        rows = torch.from_numpy(self.codec.encode(first, streams.fill)).to(device, torch.float32)
        missing = torch.from_numpy(self.codec.spread(np.isnan(values))).to(device)
        trainer = Trainer(self.settings, rows, missing, streams, callbacks=callbacks, box=self.box)
        with closing_all(callbacks):
            self.stages = trainer.train()
            self.history = trainer.history
            tell_phase(callbacks, "calibrating")
            self._fit_heads(values, streams.fill)
            self.calibration = self._draws().calibration(values) if self.calibrates else None

    @classmethod
    def prepare(
        cls,
        values: FloatArray,
        columns: list[Column],
        box: tuple[FloatArray, FloatArray],
        seed: int,
        settings: Settings,
    ) -> FlowModel:
        """Return a model for a table, not fitted yet."""
        codec = TableCodec.from_values(values, columns, settings.data.scaling)
        return cls(settings, codec, Marginals.from_values(values), codec.box(*box), seed)

    def again(self, seed: int) -> FlowModel:
        """Return a model for other rows of the same table, not fitted yet."""
        box = self.box.low.numpy(), self.box.high.numpy()
        return FlowModel(self.settings, self.codec, self.marginals, box, seed)

    def tensors(self) -> dict[str, Array]:
        """Return what was learned as arrays by name, for a file."""
        tensors = {name: tensor.detach().cpu().numpy() for name, tensor in stage_tensors(self.stages).items()}
        for k, head in self.heads.items():
            tensors |= {f"head.{k}.weight": head.weight.numpy(), f"head.{k}.bias": head.bias.numpy()}
        tensors |= self.calibration.tensors() if self.calibration is not None else {}
        box = np.stack((self.box.low.numpy(), self.box.high.numpy()))
        return tensors | self.codec.tensors() | {"quantiles": self.marginals.quantiles, "box": box}

    @classmethod
    def from_tensors(
        cls, arrays: dict[str, Array], columns: list[Column], settings: Settings, header: Header, device: torch.device
    ) -> FlowModel:
        """Undo `tensors`."""
        codec = TableCodec.from_tensors(columns, arrays)
        box = arrays["box"][0], arrays["box"][1]
        model = cls(settings, codec, Marginals(arrays["quantiles"]), box, header["seed"])
        stages = {name: torch.from_numpy(a).to(device) for name, a in arrays.items() if name.startswith("stage.")}
        model.stages = stages_from(stages, header["n_stages"], settings)
        for k in model.levels if model.stages else ():
            weight, bias = (torch.from_numpy(arrays[f"head.{k}.{part}"]) for part in ("weight", "bias"))
            model.heads[k] = LevelHead(weight, bias)
        model.calibration = Calibration.from_tensors(arrays)
        return model

    @property
    def levels(self) -> dict[int, int]:
        """The columns of levels, with how many they have."""
        return {k: c.n_levels for k, c in enumerate(self.codec.coders) if isinstance(c, LevelCode)}

    def _fit_heads(self, values: FloatArray, rng: np.random.Generator) -> None:
        """Hide observed cells, complete the rows, and learn the levels that were hidden."""
        if not self.levels:
            return
        rows: dict[int, list[Tensor]] = {k: [] for k in self.levels}
        hidden: dict[int, list[Tensor]] = {k: [] for k in self.levels}
        n_rows = min(len(values), MANY_ROWS)
        targets = np.array([column.role == "targets_only" for column in self.codec.columns])
        for _ in range(min(MOST_ROUNDS, math.ceil(ENOUGH_CELLS / (HIDDEN_SHARE * n_rows)))):
            some = values[rng.permutation(len(values))[:n_rows]]
            hide = ((rng.random(some.shape) < HIDDEN_SHARE) | targets) & ~np.isnan(some)
            holed = np.where(hide, np.nan, some)
            done = self._complete(holed, self.marginals.fill(holed, rng.random(some.shape)))
            for k in self.levels:
                rows[k].append(done[torch.from_numpy(hide[:, k])])
                hidden[k].append(torch.from_numpy(some[hide[:, k], k]).long())
        for k, n_levels in self.levels.items():
            seen = values[~np.isnan(values[:, k]), k].astype(np.int64)
            counts = torch.from_numpy(np.bincount(seen, minlength=n_levels)).float()
            with one_thread_when_small(n_levels * self.codec.n_places):
                self.heads[k] = LevelHead.fit(torch.cat(rows[k]), torch.cat(hidden[k]), counts)

    def _complete(self, values: FloatArray, first: FloatArray) -> Tensor:
        """Complete rows in network units, on the CPU."""
        device = self.stages[0].flow.theta.device
        rows = torch.from_numpy(self.codec.encode(first)).to(device, torch.float32)
        missing = torch.from_numpy(self.codec.spread(np.isnan(values))).to(device)
        return complete_through(self.stages, rows, missing, self.box).cpu()

    def fill(self, values: FloatArray) -> FloatArray:
        """Complete new rows.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            Numbers as the networks have them, levels as the likeliest.
        """
        holes = np.isnan(values).any(axis=1)
        holed = values[holes]
        done = self._complete(holed, self.marginals.fill_rows(holed, self.seed))
        filled = values.copy()
        filled[holes] = np.where(np.isnan(holed), self._decode(done, np.isnan(holed)), holed)
        return filled

    def _decode(self, done: Tensor, missing: BoolArray) -> FloatArray:
        """Turn completed rows into codes; levels are looked up only where they are missing."""
        values = np.zeros(missing.shape)
        network = done.numpy().astype(np.float64)
        for k, (coder, place) in enumerate(zip(self.codec.coders, self.codec.places, strict=True)):
            if isinstance(coder, LevelCode):
                values[missing[:, k], k] = self._likeliest(done[torch.from_numpy(missing[:, k])], k)
            else:
                values[:, k] = coder.decode(network[:, place.start])
        return values

    def _likeliest(self, rows: Tensor, column: int) -> FloatArray:
        parts = [self.heads[column].probabilities(part).argmax(1) for part in rows.split(ROWS_AT_ONCE)]
        return torch.cat(parts).numpy().astype(np.float64)

    def probabilities(self, values: FloatArray, seen: FloatArray) -> dict[int, FloatArray]:
        """Return the probability of every level.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes to complete from, NaN where missing.
        seen : ndarray of shape (n_rows, n_columns)
            Codes as they were observed: there a level has probability 1.

        Returns
        -------
        dict of ndarray of shape (n_rows, n_levels)
            By column.
        """
        done = self._complete(values, self.marginals.fill_rows(values, self.seed))
        found = {}
        for k, n_levels in self.levels.items():
            chances = self.heads[k].probabilities(done).numpy().astype(np.float64)
            known = ~np.isnan(seen[:, k])
            chances[known] = np.eye(n_levels)[seen[known, k].astype(np.int64)]
            found[k] = chances
        return found

    def _draws(self) -> FlowDraws:
        return FlowDraws(self.stages, self.codec, self.marginals, heads=self.heads, box=self.box, seed=self.seed)

    def draws(self, values: FloatArray, m: int, seed: int, ids: FloatArray | None = None) -> Iterator[FloatArray]:
        """Draw completed tables by a chain whose law is the last flow's, given the observed cells.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing.
        m : int
            Tables to draw: states of one chain a row, some moves apart. Each is made when it is asked for.
        seed : int
            Together with a row it decides the row's draws.
        ids : ndarray of shape (n_rows,), optional
            Tells equal rows apart.

        Yields
        ------
        ndarray of shape (n_rows, n_columns)
            Numbers as the chain has them, levels drawn from their probabilities given the rest of the row.
        """
        if np.isnan(values).any():
            yield from self._draws().draws(values, m, seed, ids)
        else:
            yield from (values.copy() for _ in range(m))

    def redraw(self, values: FloatArray, hashes: Array, _number: int) -> FloatArray:
        """Return rows completed by the first draw of their chains, with random numbers that the hashes decide."""
        return self._draws().first(values, hashes)

    def trace(self, values: FloatArray, seed: int, n_steps: int = 300) -> ChainTrace:
        """Follow the chains of some rows from their start, for a look at how they mix.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing; a few rows.
        seed : int
            As for `draws`, whose chains these are.
        n_steps : int, default=300
            Moves to follow.

        Returns
        -------
        ChainTrace
            Log-densities and moves of the rows with holes, and the values of the first few missing cells.
        """
        return self._draws().trace(values, seed, n_steps)

    def quantiles(self, values: FloatArray, probabilities: FloatArray) -> Iterator[FloatArray]:
        """Fill holes with quantiles of what they may be: a table for each probability.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing.
        probabilities : ndarray of shape (n_quantiles,)
            In [0, 1].

        Yields
        ------
        ndarray of shape (n_rows, n_columns)
            Read off the states of each row's chain, at masses that the calibration moves. NaN stays in columns of
            levels without an order.
        """
        if np.isnan(values).any():
            yield from self._draws().quantiles(values, probabilities, self.calibration)
        else:
            yield from (values.copy() for _ in probabilities)

    def log_density(self, values: FloatArray) -> FloatArray:
        """Return each complete row's log-density by the last flow, in the units of the codes."""
        flow = self.stages[-1].flow
        rows = torch.from_numpy(self.codec.encode(values)).to(flow.theta)
        with torch.inference_mode(), one_thread_when_small(rows.numel()):
            parts = [flow.log_prob(part) for part in rows.split(ROWS_AT_ONCE)]
        network: FloatArray = torch.cat(parts).cpu().numpy().astype(np.float64)
        return network + self.codec.log_slope(values)

    def sample(self, n_rows: int, seed: int) -> FloatArray:
        """Draw new rows from the last flow, as codes."""
        drawn = self.stages[-1].flow.sample(n_rows, torch.Generator().manual_seed(seed))
        return self.codec.decode(drawn.cpu().numpy().astype(np.float64))

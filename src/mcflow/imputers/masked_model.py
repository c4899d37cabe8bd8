"""The fitted model of the default preset: codes in, codes out."""

from __future__ import annotations

__all__ = ["MaskedModel", "MaskedStage", "MoreRows"]

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mcflow.config import Settings
from mcflow.data.codecs import check_ranges
from mcflow.data.grids import TableGrid
from mcflow.data.schema import Column
from mcflow.flows.conditional import ConditionalFlow
from mcflow.imputers.blending import Blend
from mcflow.imputers.masked_draws import MaskedDraws
from mcflow.latent.masked import TARGETS_AT_ONCE, MaskedMapper
from mcflow.random import Streams
from mcflow.training.calibration import Calibration
from mcflow.training.callbacks import Callback, closing_all, tell_phase
from mcflow.training.density import draw, fit_density, log_density
from mcflow.training.hidden import HiddenTrainer
from mcflow.training.history import History
from mcflow.training.parallel import ALONE, Workers
from mcflow.training.predictive import Predictive
from mcflow.training.sizes import fitting
from mcflow.training.threads import map_on_threads
from mcflow.typing import Array, FloatArray, Header

#: Places inside the atoms of a row over which its mass is averaged.
MASS_POINTS = 16

#: The share of the time that H has when there is a limit; the flow has the rest.
LATENT_SHARE = 0.8

#: The share after which a factored density of a small table, which comes before H, is left out if it is not learned.
FACTORED_SHARE = 0.5

#: The share of a fit's epochs, and of its time, that a second one on other rows of the table has.
AGAIN_SHARE = 0.25

#: Seconds that it has in any case.
LEAST_TIME = 0.1

#: Steps of the flow, as a share of those of H and at least and at most.
FLOW_SHARE, FEWEST_STEPS, MOST_STEPS = 0.1, 200, 2_000


class MaskedStage(NamedTuple):
    """The networks G and H of the default preset."""

    flow: ConditionalFlow
    mapper: MaskedMapper


class MoreRows(NamedTuple):
    """Rows that H learns from, in units and perhaps on disk.

    Parameters
    ----------
    units : Tensor of shape (n_rows, n_columns)
        Float32; any number where a cell is missing.
    seen : Tensor of shape (n_rows, n_columns)
        Boolean, True where observed.
    """

    units: Tensor
    seen: Tensor


class MaskedModel(MaskedDraws):
    """A mask-aware H, a flow around its answers, and the blend of estimates after it.

    Parameters
    ----------
    settings : Settings
        With every size as a number.
    columns : sequence of Column
        Those that the networks see.
    grid : TableGrid
        Their units, knots and points.
    box : tuple of ndarray of shape (n_columns,)
        Bounds of the codes.
    seed : int, default=0
        The seed of the fit.
    """

    def __init__(
        self,
        settings: Settings,
        columns: Sequence[Column],
        grid: TableGrid,
        box: tuple[FloatArray, FloatArray],
        seed: int = 0,
    ) -> None:
        self.settings, self.columns, self.grid, self.box, self.seed = settings, tuple(columns), grid, box, seed
        self.history = History(ending="nothing to learn")
        self.stages: list[MaskedStage] = []
        self.blend = Blend(self.columns, grid)
        self.calibrates = True
        self.calibration: Calibration | None = None
        self._earlier: MaskedModel | None = None
        self._elder: MaskedModel | None = None
        self.start = time.perf_counter()

    @classmethod
    def prepare(
        cls,
        values: FloatArray,
        columns: list[Column],
        box: tuple[FloatArray, FloatArray],
        seed: int,
        settings: Settings,
        *,
        n_rows: int | None = None,
    ) -> MaskedModel:
        """Return a model for a table, not fitted yet; `n_rows` counts those that are not among the values too."""
        start = time.perf_counter()
        check_ranges(columns)
        settings = fitting(settings, n_rows or len(values), values.shape[1])
        grid = TableGrid.from_values(values, columns, settings.latent.n_knots, settings.latent.n_points)
        model = cls(settings, columns, grid, box, seed)
        model.start = start  # a limit of time counts from here
        return model

    def go_on_from(self, earlier: MaskedModel) -> None:
        """Begin the fit with another model's networks, if it had the same columns."""
        theirs, ours = ([(c.name, c.kind, c.levels) for c in model.columns] for model in (earlier, self))
        if theirs == ours and earlier.stages:
            self.grid, self._earlier = earlier.grid, earlier
            self.blend = Blend(self.columns, self.grid)
            self.settings = replace(self.settings, flow=earlier.settings.flow, latent=earlier.settings.latent)

    def again(self, seed: int) -> MaskedModel:
        """Return a model for other rows of the same table, which goes on from this one's networks, for a shorter time.

        How estimates are weighed and probabilities set right stays as it is here.
        """
        train = self.settings.train
        n_epochs = max(1, math.ceil(AGAIN_SHARE * len(self.history.epochs)))
        settings = replace(
            self.settings, train=replace(train, max_epochs=n_epochs, max_time=AGAIN_SHARE * train.max_time)
        )
        model = MaskedModel(settings, self.columns, self.grid, self.box, seed)
        model._earlier = model._elder = self
        return model

    def _networks(self, generator: torch.Generator | None = None) -> MaskedStage:
        """Make G and H; without a generator their weights are zero."""
        latent, grid = self.settings.latent, self.grid
        points, n_points = torch.from_numpy(grid.points), torch.from_numpy(grid.n_points)
        mapper = MaskedMapper(
            torch.from_numpy(grid.knots),
            points,
            n_points,
            torch.from_numpy(grid.bends),
            n_members=latent.n_members,
            width=latent.width,
            n_blocks=latent.n_blocks,
            reads_mask=latent.reads_mask,
            generator=generator,
        )
        flow = ConditionalFlow(
            len(self.columns), latent.width, n_couplings=self.settings.flow.n_couplings, generator=generator
        )
        return MaskedStage(flow, mapper)

    def fit(
        self,
        values: FloatArray,
        streams: Streams,
        device: torch.device,
        callbacks: Sequence[Callback] = (),
        more: MoreRows | None = None,
        *,
        workers: Workers = ALONE,
    ) -> None:
        """Learn from codes with holes, NaN where missing; H also from more rows, which begin with these.

        All workers teach H together. The first one does the rest, and all have the model in the end.
        """
        if more is not None:
            self.start = time.perf_counter()  # a limit of time is one of learning: to read all rows comes on top
        exact = self.grid.units(values)
        self.blend.means = np.nanmean(exact, axis=0)
        units = torch.from_numpy(np.nan_to_num(exact, copy=False).astype(np.float32)).to(device)
        del exact
        seen = torch.from_numpy(~np.isnan(values)).to(device)
        stage = self._networks(streams.weights)
        stage.mapper.start_at(_shares(stage.mapper, units.cpu(), seen.cpu()))
        if self._earlier is not None:
            for network, other in zip(stage, self._earlier.stages[0], strict=True):
                network.load_state_dict(other.state_dict())
            self._earlier = None
        flow, mapper = stage.flow.to(device), stage.mapper.to(device)
        with closing_all(callbacks):
            rows = MoreRows(units, seen) if more is None else more
            trainer = self._fit_mapper(values, mapper, rows, streams=streams, callbacks=callbacks, workers=workers)
            self.history, self.stages = trainer.history, [MaskedStage(flow, mapper)]
            if workers.is_first:
                tell_phase(callbacks, "calibrating")
                self._judge(values, trainer, streams.fill)
                if self.calibration is not None:
                    flow.standardise(torch.from_numpy(self.calibration.scale))
                tell_phase(callbacks, "fitting the density")
                self._fit_flow(self.stages[0], units, seen, streams)
            self._take_from_first(workers, device)

    def _take_from_first(self, workers: Workers, device: torch.device) -> None:
        """Be what the first worker's model is."""
        if workers.alone:
            return
        arrays, history = workers.from_first((self.tensors(), self.history.to_dict()) if workers.is_first else ({}, {}))
        if not workers.is_first:
            header = {"seed": self.seed, "n_stages": len(self.stages)}
            model = MaskedModel.from_tensors(arrays, list(self.columns), self.settings, header, device)
            self.blend, self.calibration, self.stages = model.blend, model.calibration, model.stages
            self.history, self._elder = History.from_dict(history), None

    def _fit_mapper(
        self,
        values: FloatArray,
        mapper: MaskedMapper,
        rows: MoreRows,
        *,
        streams: Streams,
        callbacks: Sequence[Callback],
        workers: Workers,
    ) -> HiddenTrainer:
        """Train H on hidden cells, for its share of the time; return what knows the cells that were held out."""
        limit = self.settings.train.max_time
        if self._elder is None and workers.is_first:
            tell_phase(callbacks, "preparing")
            self.blend.factor(values, self.seed, self.start + FACTORED_SHARE * limit if limit else None)
        left = self.start + limit - time.perf_counter()
        seconds = LATENT_SHARE * max(left, LEAST_TIME) if limit else 0.0
        trainer = HiddenTrainer(
            *(self.settings, mapper, rows.units, rows.seen, streams),
            callbacks=callbacks,
            seconds=seconds,
            held_among=len(values),
            workers=workers,
        )
        trainer.train()
        mapper.eval()
        return trainer

    def _fit_flow(self, stage: MaskedStage, units: Tensor, seen: Tensor, streams: Streams) -> None:
        """Train G on what H says of hidden cells, for the rest of the time."""
        train = self.settings.train
        n_steps = train.max_epochs * max(1, len(units) // train.batch_size)
        n_steps = int(min(max(FLOW_SHARE * n_steps, FEWEST_STEPS), MOST_STEPS))
        fit_density(
            stage.mapper,
            self.marginals(units.device),
            stage.flow,
            units,
            seen,
            streams,
            n_steps=min(n_steps, 10 * train.max_epochs),
            batch_size=train.batch_size,
            deadline=self.start + train.max_time if train.max_time else None,
        )
        stage.flow.eval()

    def _judge(self, values: FloatArray, trainer: HiddenTrainer, rng: np.random.Generator) -> None:
        """Weigh the estimates of numbers, and set stated probabilities right, by the cells that were held out."""
        if self._elder is not None:  # rows that were drawn twice show what was held out
            self.blend.follow(self._elder.blend, values, self.seed)
            self.calibration, self._elder = self._elder.calibration, None
            return
        held = trainer.held.cells.cpu().numpy()
        found = [part.cpu().numpy().astype(np.float64) for part in trainer.held_answers()]
        said = trainer.held_chances().cpu()
        cells = Predictive(self.marginals(said.device), held.nonzero()[2], said[None])
        log_density = cells.log_density(found[2])
        blended = self.blend.fit(values, trainer.held.rows.cpu().numpy(), held, found, log_density, rng=rng)
        if self.calibrates:
            self.calibration = cells.judged(blended, found[2], self.levels)

    def fill(self, values: FloatArray) -> FloatArray:
        """Complete new rows: numbers as blended means, levels as the likeliest."""
        filled = values.copy()

        def fill_part(rows: Array) -> None:
            filled[rows] = self._filled(values[rows])

        map_on_threads(fill_part, self._parts(values))
        return filled

    def _filled(self, values: FloatArray) -> FloatArray:
        missing = np.isnan(values)
        columns = missing.nonzero()[1]
        chances, direct = (found.mean(0) for found in self._asked(values, missing)[:2])
        points = self.stages[0].mapper.points[torch.from_numpy(columns).to(chances.device)]
        means = (chances * points).sum(1).cpu().numpy().astype(np.float64)
        units = self.blend.units(values, missing, means, direct.cpu().numpy(), self._box_in_units())
        codes = values.copy()
        numbers = units * self.grid.spread[columns] + self.grid.centre[columns]
        codes[missing] = np.clip(numbers, *(bound[columns] for bound in self.box))
        for k in self.levels:
            here = torch.from_numpy(columns == k).to(chances.device)
            codes[missing[:, k], k] = self._by_level(k, chances[here]).argmax(axis=1)
        return codes

    def _by_level(self, column: int, chances: Tensor) -> FloatArray:
        """Turn probabilities of places, of shape (n_cells, n_points), into those of a column's levels."""
        places, shares = self.grid.places[column], self.grid.shares[column]
        assert places is not None
        assert shares is not None
        found = chances.cpu().numpy()[:, places] * shares
        by_level: FloatArray = found / found.sum(axis=1, keepdims=True)
        return by_level

    def probabilities(self, values: FloatArray, seen: FloatArray) -> dict[int, FloatArray]:
        """Return the probability of every level by column; where `seen` has a code, that one's is 1."""
        found = {k: np.zeros((len(values), n_levels)) for k, n_levels in self.levels.items()}
        wanted = np.zeros((self._rows_at_once(), len(self.columns)), dtype=bool)
        wanted[:, list(found)] = True
        for first in range(0, len(values), len(wanted)):
            rows = slice(first, first + len(wanted))
            chances = self._asked(values[rows], wanted[: len(values[rows])])[0]
            by_column = chances.mean(0).unflatten(0, (-1, len(found)))
            for place, (k, table) in enumerate(found.items()):
                table[rows] = self._by_level(k, by_column[:, place])
        for k, table in found.items():
            known = ~np.isnan(seen[:, k])
            table[known] = np.eye(table.shape[1])[seen[known, k].astype(np.int64)]
        return found

    def log_density(self, values: FloatArray) -> FloatArray:
        """Return each complete row's log-density in the units of the codes, times the mass of cells at atoms.

        The mass is a mean over `MASS_POINTS` places inside the atoms, the same for all rows.
        """
        stage, device = self.stages[0], self.stages[0].mapper.points.device
        precise = torch.float32 if device.type == "mps" else torch.float64
        mapper, flow = copy.deepcopy(stage.mapper).to(precise), copy.deepcopy(stage.flow).to(precise)
        marginals = self.marginals(device).to(precise)
        units = torch.from_numpy(self.grid.units(values)).to(device, precise)
        parts = []
        for rows in units.split(self._rows_at_once()):
            nothing = torch.zeros(rows.shape, dtype=torch.bool, device=device)
            places = self._places_in_atoms().to(rows)[:, None].expand(-1, *rows.shape)
            parts.append(log_density(mapper, marginals, flow, rows, nothing, ~nothing, places).cpu())
        density: FloatArray = torch.cat(parts).numpy().astype(np.float64)
        spread_out = ~marginals.at_atoms(units).cpu().numpy()
        in_units: FloatArray = spread_out @ np.log(self.grid.spread)
        return density - in_units

    def _places_in_atoms(self) -> Tensor:
        """Return points of a lattice in the unit cube, of shape (n_points, n_columns); one if there is no atom."""
        n_points = MASS_POINTS if self.grid.atoms.any() else 1
        steps = np.sqrt(np.arange(2, 2 + len(self.columns)) + 0.5)  # irrational, so that no two columns go together
        lattice = (0.5 + np.arange(n_points)[:, None] * steps) % 1.0
        return torch.from_numpy(lattice.astype(np.float32))

    def sample(self, n_rows: int, seed: int) -> FloatArray:
        """Draw new rows, as codes."""
        normals = torch.randn(n_rows, len(self.columns), generator=torch.Generator().manual_seed(seed))
        parts = [self._decoded(self._drawn(some)) for some in normals.split(self._rows_at_once())]
        return np.concatenate(parts)

    def _drawn(self, normals: Tensor) -> FloatArray:
        stage, device = self.stages[0], self.stages[0].mapper.points.device
        nothing = torch.zeros(normals.shape, dtype=torch.bool, device=device)
        blank = torch.zeros(normals.shape, device=device)
        units = draw(stage.mapper, self.marginals(device), stage.flow, blank, nothing, ~nothing, normals.to(device))
        return units.cpu().numpy().astype(np.float64)

    def _decoded(self, units: FloatArray) -> FloatArray:
        """Turn units into codes, those of levels too."""
        codes = self.grid.numbers(units)
        for k in self.levels:
            answers = self.grid.answers[k]
            assert answers is not None
            codes[:, k] = answers[units[:, k].astype(np.int64)]
        return codes

    def tensors(self) -> dict[str, Array]:
        """Return what was learned as arrays by name, for a file."""
        arrays = self.grid.tensors() | self.blend.tensors() | {"box": np.stack(self.box)}
        arrays |= self.calibration.tensors() if self.calibration is not None else {}
        for stage in self.stages:
            for name, network in zip(stage._fields, stage, strict=True):
                arrays |= {f"{name}.{key}": t.detach().cpu().numpy() for key, t in network.state_dict().items()}
        return arrays

    @classmethod
    def from_tensors(
        cls, arrays: dict[str, Array], columns: list[Column], settings: Settings, header: Header, device: torch.device
    ) -> MaskedModel:
        """Undo `tensors`."""
        box = arrays["box"][0], arrays["box"][1]
        model = cls(settings, columns, TableGrid.from_tensors(arrays), box, header["seed"])
        model.blend = Blend.from_tensors(arrays, columns, model.grid)
        model.calibration = Calibration.from_tensors(arrays)
        if header["n_stages"]:
            stage = model._networks()
            for name, network in zip(stage._fields, stage, strict=True):
                own = {key: array for key, array in arrays.items() if key.startswith(f"{name}.")}
                network.load_state_dict({k.removeprefix(f"{name}."): torch.from_numpy(a) for k, a in own.items()})
                network.to(device).eval()
            model.stages = [stage]
        return model


def _shares(mapper: MaskedMapper, units: Tensor, seen: Tensor) -> Tensor:
    """Return the share of each point among a column's observed cells, none of them nothing."""
    counts = torch.zeros(mapper.n_points, mapper.n_columns)
    for some, known in zip(units.split(TARGETS_AT_ONCE), seen.split(TARGETS_AT_ONCE), strict=True):
        below, share = mapper.targets(some)
        counts.scatter_add_(0, below, torch.where(known, 1 - share, 0.0))
        counts.scatter_add_(0, (below + 1).clamp(max=mapper.n_points - 1), torch.where(known, share, 0.0))
    return ((counts + 0.5) / (counts + 0.5).sum(0)).T

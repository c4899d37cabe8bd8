"""The fitted model of the default preset: codes in, codes out."""

from __future__ import annotations

__all__ = ["MaskedModel"]

import contextlib
import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from mcflow.columns.codecs import check_ranges
from mcflow.columns.schema import Column
from mcflow.errors import ParameterError
from mcflow.fitting.calibration import Calibration
from mcflow.fitting.callbacks import Callback, History
from mcflow.fitting.distributed import (
    ALONE,
    Workers,
    kernels_on_all_threads,
    kernels_on_one_thread,
    map_on_threads,
    share_out,
)
from mcflow.fitting.out_of_core import TrainingRows
from mcflow.fitting.trainer import closing_all, notify_phase
from mcflow.masked.blend import Blend
from mcflow.masked.climb import Climb
from mcflow.masked.config import MaskedConfig
from mcflow.masked.donors import Donors, fit_donors
from mcflow.masked.draws import CellDraws
from mcflow.masked.encoding import TableGrid
from mcflow.masked.flow import ConditionalFlow, JointDensity
from mcflow.masked.ladder import Ladder
from mcflow.masked.network import MIN_THREAD_WIDTH, TARGETS_AT_ONCE, MaskedNetwork, MaskedTrainer, patterns_of
from mcflow.masked.predictor import Predictor
from mcflow.random import Streams, seed_from
from mcflow.typing import Array, FloatArray, Header

Module = TypeVar("Module", bound=torch.nn.Module)

MASS_POINTS = 16  # quadrature points per point mass when the probability of a row is averaged over them
PROBABILITY_ROWS = 16_384  # rows whose probabilities are computed together
MIN_TIME = 0.1  # minimum training time of a bootstrap copy, in seconds
KEPT_ROWS = 65_536  # rows kept after the fit, for donors and G; more are a random sample
FLOW_STREAM = 0x666C6F77  # separates the random numbers of G from those of the same seed used elsewhere


class MaskedModel:
    """Network H, trees, blend and calibration, with donors and a flow G that are fitted when they are first needed.

    H and the trees fill cells, and H predicts their distributions. Donors give the draws. G gives `log_density` and
    `sample` only.
    """

    def __init__(
        self,
        config: MaskedConfig,
        columns: Sequence[Column],
        grid: TableGrid,
        box: tuple[FloatArray, FloatArray],
        seed: int = 0,
    ) -> None:
        self.config, self.columns, self.grid, self.box, self.seed = config, tuple(columns), grid, box, seed
        self.history = History(ending="nothing to learn")
        self.network: MaskedNetwork | None = None
        self.blend = Blend(self.columns, grid, config)
        self.ladder = Ladder(grid, config, seed)
        self.calibrates = True
        self.calibration: Calibration | None = None
        self.density: bool | str = "auto"
        self.start = time.perf_counter()
        self._flow: ConditionalFlow | None = None
        self._donors: Donors | None = None
        self._rows: FloatArray | None = None
        self._initial: MaskedNetwork | None = None
        self._parent: MaskedModel | None = None

    @classmethod
    def prepare(
        cls,
        values: FloatArray,
        columns: list[Column],
        box: tuple[FloatArray, FloatArray],
        seed: int,
        config: MaskedConfig,
        *,
        n_rows: int | None = None,
    ) -> MaskedModel:
        """Return an unfitted model for a table; `n_rows` counts rows out of memory too."""
        start = time.perf_counter()
        check_ranges(columns)
        config = config.for_table(n_rows or len(values), values.shape[1])
        model = cls(config, columns, TableGrid.from_values(values, columns, config.n_knots, config.n_points), box, seed)
        model.start = start  # a time limit counts from here
        return model

    @staticmethod
    def time_of_copies(config: MaskedConfig, n_models: int) -> float:
        """Return the time of a fit with bootstrap copies, as a multiple of that of the first model."""
        return 1 + config.refit_share * (n_models - 1)

    @property
    def is_fitted(self) -> bool:
        """Whether there is a network; there is none when every column was constant."""
        return self.network is not None

    @cached_property
    def predictor(self) -> Predictor:
        """H with the blend, once H is fitted."""
        assert self.network is not None
        return Predictor(self.box, self.network, self.blend, self.ladder)

    @property
    def categories(self) -> dict[int, int]:
        """Number of categories of each categorical column."""
        return self.grid.n_categories

    @property
    def _draws(self) -> CellDraws:
        return CellDraws(self.predictor, self.calibration, self.donors, self.seed)

    def warm_start(self, earlier: object) -> None:
        """Start the training from an earlier model's network, if both have the same columns."""
        if not isinstance(earlier, MaskedModel):
            return
        theirs, ours = ([(c.name, c.kind, c.categories) for c in model.columns] for model in (earlier, self))
        if theirs == ours and earlier.network is not None:
            self.grid, self._initial = earlier.grid, earlier.network
            sizes = {name: getattr(earlier.config, name) for name in ("width", "n_members", "n_blocks")}
            sizes |= {name: getattr(earlier.config, name) for name in ("n_knots", "n_points", "n_couplings")}
            self.config = replace(self.config, **sizes)
            self.blend = Blend(self.columns, self.grid, self.config)
            self.ladder = Ladder(self.grid, self.config, self.seed)

    def bootstrap_copy(self, seed: int) -> MaskedModel:
        """Return an unfitted model for resampled rows that starts from this one's network and trains for less time.

        The weights of the blend and the calibration are those of this model.
        """
        share = self.config.refit_share
        n_epochs = max(1, math.ceil(share * len(self.history.epochs)))
        config = replace(self.config, max_epochs=n_epochs, max_time=share * self.config.max_time)
        model = MaskedModel(config, self.columns, self.grid, self.box, seed)
        model.density, model._initial, model._parent = self.density, self.network, self
        return model

    def _new_network(self, generator: torch.Generator | None = None) -> MaskedNetwork:
        """Return H with random weights; without a generator they are zero."""
        config, grid = self.config, self.grid
        return MaskedNetwork(
            torch.from_numpy(grid.knots),
            torch.from_numpy(grid.points),
            torch.from_numpy(grid.n_points),
            torch.from_numpy(grid.asinh_params),
            n_members=config.n_members,
            width=config.width,
            n_blocks=config.n_blocks,
            generator=generator,
        )

    def _new_flow(self, generator: torch.Generator | None = None) -> ConditionalFlow:
        """Return G with random weights; without a generator they are zero."""
        n_couplings = self.config.n_couplings
        return ConditionalFlow(len(self.columns), self.config.width, n_couplings=n_couplings, generator=generator)

    def fit(
        self,
        values: FloatArray,
        streams: Streams,
        device: torch.device,
        callbacks: Sequence[Callback] = (),
        more: TrainingRows | None = None,
        *,
        workers: Workers = ALONE,
    ) -> None:
        """Learn from codes, NaN where missing; H also from `more` rows, which start with these.

        All workers train H together. The first one does the rest and sends the model to the others.
        """
        if more is not None:
            self.start = time.perf_counter()  # the time limit is for the training; reading the rows is not counted
        if self.density == "auto" and not workers.alone:
            self.density = True  # fitted later, under a time limit, it would differ between the workers
        exact = self.grid.units(values)
        self.blend.means = np.nanmean(exact, axis=0)
        units = torch.from_numpy(np.nan_to_num(exact, copy=False).astype(np.float32)).to(device)
        del exact
        seen = torch.from_numpy(~np.isnan(values)).to(device)
        network = self._new_network(streams.weights)
        network.start_at(_shares(network, units.cpu(), seen.cpu()))
        if self._initial is not None:
            network.load_state_dict(self._initial.state_dict())
            self._initial = None
        network.to(device)
        with closing_all(callbacks), kernels_on_one_thread():
            rows = TrainingRows(units, seen)
            trainer = MaskedTrainer(
                *(self.config, network, *(rows if more is None else more), streams),
                callbacks=callbacks,
                validation_among=len(values),
                workers=workers,
            )
            climb = Climb(self.ladder, self.blend, trainer, values, self._deadline)
            if workers.is_first:
                notify_phase(callbacks, "growing trees on observed cells")
                climb.start(self.seed if self._parent is None else None)
                trainer.seconds_after = climb.expected_seconds
            trainer.limit_time(self._training_seconds(climb))
            with self._kernel_threads():
                trainer.train()
            network.eval()
            self.history, self.network = trainer.history, network
            self._rows = _sample(values, self.seed)
            if workers.is_first:
                self._finish(climb, streams.fill, callbacks)
            self._take_from_first(workers, device)

    def _kernel_threads(self) -> contextlib.AbstractContextManager[None]:
        """Return a context with all threads for the kernels of a single large network under a time limit.

        Other fits run each kernel on one thread, so that their results do not depend on the number of threads.
        """
        single = self.config.n_members == 1 and self.config.width >= MIN_THREAD_WIDTH
        return kernels_on_all_threads() if single and self.config.max_time else contextlib.nullcontext()

    @property
    def _deadline(self) -> float | None:
        """Time of the clock at which the fit should end, None without a limit."""
        return self.start + self.config.max_time if self.config.max_time else None

    def _training_seconds(self, climb: Climb) -> float:
        """Return the time for the training of H: what the trees, the calibration and G leave of the limit."""
        if self._deadline is None:
            return 0.0
        limit, left = self.config.max_time, self._deadline - time.perf_counter()
        reserved = self.config.flow_time_share if self.density is True else self.config.calibration_time_share
        return max(left - reserved * limit - climb.reserved_seconds(), MIN_TIME)

    def _finish(self, climb: Climb, rng: np.random.Generator, callbacks: Sequence[Callback]) -> None:
        """Climb the rest of the ladder, fit the blend and the calibration, and G if it is wanted now."""
        notify_phase(callbacks, "growing trees on completed rows")
        with self._kernel_threads():
            climb.climb()
        notify_phase(callbacks, "calibrating" if self.calibrates else "weighing the estimates")
        if self._parent is None:
            calibration = climb.calibrate(rng)
            self.calibration = calibration if self.calibrates else None
        else:  # resampled rows show what was a validation cell of the first fit
            self.blend.refit_on(self._parent.blend, climb.values, self.seed)
            self.calibration, self._parent = self._parent.calibration, None
        if self.density is True:
            notify_phase(callbacks, "fitting the density")
            self._fit_flow(self.start + self.config.max_time)

    def _take_from_first(self, workers: Workers, device: torch.device) -> None:
        """Copy the model of the first worker."""
        if workers.alone:
            return
        arrays, history = workers.from_first((self._arrays(), self.history.to_dict()) if workers.is_first else ({}, {}))
        if not workers.is_first:
            model = MaskedModel.from_tensors(arrays, list(self.columns), self.config, {"seed": self.seed}, device)
            self.blend, self.ladder, self.network = model.blend, model.ladder, model.network
            self.calibration = model.calibration
            self._flow, self._donors = model._flow, model._donors
            self.history, self._parent = History.from_dict(history), None

    def flow(self) -> ConditionalFlow:
        """Return G, which is fitted at its first use unless the fit did so."""
        if self._flow is None:
            self._fit_flow(time.perf_counter() + self.config.flow_time_share * self.config.max_time)
        assert self._flow is not None
        return self._flow

    def _fit_flow(self, deadline: float) -> None:
        """Train G on what H predicts for hidden cells, with random numbers that depend on the seed alone."""
        if self._rows is None or self.network is None or self.density is False:
            raise ParameterError(
                "This model was fitted with density=False, so that it has no joint density. "
                "Fit with density='auto' or True to sample rows or score them."
            )
        config, device = self.config, self.network.points.device
        units = torch.from_numpy(np.nan_to_num(self.grid.units(self._rows)).astype(np.float32)).to(device)
        seen = torch.from_numpy(~np.isnan(self._rows)).to(device)
        generator = torch.Generator().manual_seed(seed_from(np.random.default_rng([self.seed, FLOW_STREAM])) % 2**63)
        flow = self._new_flow(generator).to(units.device)
        if self.calibration is not None:
            flow.scale.copy_(torch.from_numpy(self.calibration.scale))
        n_steps = config.max_epochs * max(1, len(units) // config.batch_size)
        n_steps = int(min(max(config.flow_steps_share * n_steps, config.min_flow_steps), config.max_flow_steps))
        JointDensity(self.network, self.grid.marginals(units.device), flow).fit(
            units,
            seen,
            generator,
            n_steps=min(n_steps, 10 * config.max_epochs),
            batch_size=config.batch_size,
            learning_rate=config.flow_learning_rate,
            deadline=deadline if config.max_time else None,
        )
        self._flow = flow.eval()

    def donors(self) -> Donors:
        """Return the donors of draws, which are grown at their first use."""
        if self._donors is None:
            if self._rows is None or self.network is None:
                raise ParameterError(
                    "This model file is of an earlier format and has no donors to draw from. Fit the model again."
                )
            patterns = patterns_of(torch.from_numpy(~np.isnan(self._rows)))
            with kernels_on_one_thread():
                self._donors = fit_donors(
                    *(self.ladder.inputs, self._rows, self.predictor.ask_all, self._completed, self.config),
                    patterns=None if patterns is None else patterns.numpy(),
                    seed=self.seed,
                )
        return self._donors

    def _completed(self, values: FloatArray) -> FloatArray:
        """Return training rows with their missing cells drawn independently, to grow donor trees on."""
        normals = np.random.default_rng([self.seed, FLOW_STREAM]).normal(size=(1, int(np.isnan(values).sum())))
        completed: FloatArray = self._draws.independent(values, self.predictor.predict(values), normals)[0]
        return completed

    def fill(self, values: FloatArray) -> FloatArray:
        """Complete rows: numbers with blended means, categories with the most probable one."""
        predictor = self.predictor
        (filled,) = predictor.tables(values, lambda rows: predictor.fill(values[rows])[None], 1)
        return filled

    def probabilities(self, values: FloatArray, seen: FloatArray) -> dict[int, FloatArray]:
        """Return the probabilities (n_rows, n_categories) by column; where `seen` has a code, its probability is 1."""
        missing, columns = np.isnan(values), list(self.categories)
        wanted = np.flatnonzero((missing & np.isnan(seen))[:, columns].any(axis=1))
        parts = share_out(wanted, PROBABILITY_ROWS) if len(wanted) else []
        predicted = map_on_threads(lambda rows: self.predictor.probabilities(values[rows]), parts)
        found = {}
        for k, n_categories in self.categories.items():
            found[k] = np.zeros((len(values), n_categories))
            for rows, of_rows in zip(parts, predicted, strict=True):
                found[k][rows[missing[rows, k]]] = of_rows[k]
            known = ~np.isnan(seen[:, k])
            found[k][known] = np.eye(n_categories)[seen[known, k].astype(np.int64)]
        return found

    def draws(self, values: FloatArray, m: int, seed: int, ids: FloatArray | None = None) -> Iterator[FloatArray]:
        """Yield m completed tables; see `CellDraws.draws`."""
        if self.network is None:  # every column was constant
            yield from (values.copy() for _ in range(m))
            return
        yield from self._draws.draws(values, m, seed, ids)

    def redraw(self, values: FloatArray, hashes: Array, number: int) -> FloatArray:
        """Return rows completed as in draw `number` of a series; see `CellDraws.redraw`."""
        return self._draws.redraw(values, hashes, number)

    def category_frequencies(self, values: FloatArray, column: int) -> FloatArray:
        """Return the frequencies (n_rows, n_categories) with which draws have each category of a column."""
        predicted = self.probabilities(values, np.full(values.shape, np.nan))[column]
        return self._draws.category_frequencies(values, column, predicted)

    def quantiles(self, values: FloatArray, probabilities: FloatArray) -> Iterator[FloatArray]:
        """Yield a completed table for each probability; see `CellDraws.quantiles`."""
        if self.network is None:
            yield from (values.copy() for _ in probabilities)
            return
        yield from self._draws.quantiles(values, probabilities)

    def log_density(self, values: FloatArray) -> FloatArray:
        """Return each complete row's log-density in the units of the codes, times the mass of cells at point masses.

        The mass is averaged over `MASS_POINTS` quadrature points inside the point masses, the same for all rows.
        """
        flow, network = self.flow(), self.predictor.network
        device = network.points.device
        precise = torch.float32 if device.type == "mps" else torch.float64
        marginals = self.grid.marginals(device).to(precise)
        joint = JointDensity(copy.deepcopy(network).to(precise), marginals, copy.deepcopy(flow).to(precise))
        units = torch.from_numpy(self.grid.units(values)).to(device, precise)
        parts = []
        for rows in units.split(self.predictor.rows_at_once):
            nothing = torch.zeros(rows.shape, dtype=torch.bool, device=device)
            places = self._quadrature().to(rows)[:, None].expand(-1, *rows.shape)
            parts.append(joint.log_density(rows, nothing, ~nothing, places).cpu())
        density: FloatArray = torch.cat(parts).numpy().astype(np.float64)
        spread_out = ~marginals.at_point_masses(units).cpu().numpy()
        in_units: FloatArray = spread_out @ np.log(self.grid.spread)
        return density - in_units

    def _quadrature(self) -> Tensor:
        """Return a lattice (n_points, n_columns) in the unit cube; a single point if there is no point mass."""
        n_points = MASS_POINTS if self.grid.point_masses.any() else 1
        steps = np.sqrt(np.arange(2, 2 + len(self.columns)) + 0.5)  # irrational, so that no two columns go together
        lattice = (0.5 + np.arange(n_points)[:, None] * steps) % 1.0
        return torch.from_numpy(lattice.astype(np.float32))

    def sample(self, n_rows: int, seed: int) -> FloatArray:
        """Draw new rows, as codes."""
        flow, network = self.flow(), self.predictor.network
        device = network.points.device
        joint = JointDensity(network, self.grid.marginals(device), flow)
        normals = torch.randn(n_rows, len(self.columns), generator=torch.Generator().manual_seed(seed))
        parts = []
        for some in normals.split(self.predictor.rows_at_once):
            nothing = torch.zeros(some.shape, dtype=torch.bool, device=device)
            blank = torch.zeros(some.shape, device=device)
            units = joint.draw(blank, nothing, ~nothing, some.to(device))
            parts.append(self.grid.codes_of(units.cpu().numpy().astype(np.float64)))
        return np.concatenate(parts)

    def tensors(self) -> dict[str, Array]:
        """Return everything learned as arrays by name, for a file; G is fitted if it may be needed."""
        if self.network is not None and self._rows is not None:  # models of files have all that they need
            self.donors()
            if self.density is not False:
                self.flow()
        return self._arrays()

    def _arrays(self) -> dict[str, Array]:
        """Return what is fitted so far as arrays by name."""
        arrays = self.grid.tensors() | self.blend.tensors() | self.ladder.tensors() | {"box": np.stack(self.box)}
        arrays |= self.calibration.tensors() if self.calibration is not None else {}
        arrays |= self._donors.tensors() if self._donors is not None else {}
        for name, module in (("network", self.network), ("flow", self._flow)):
            if module is not None:
                arrays |= {f"{name}.{key}": t.detach().cpu().numpy() for key, t in module.state_dict().items()}
        return arrays

    @classmethod
    def from_tensors(
        cls, arrays: dict[str, Array], columns: list[Column], config: MaskedConfig, header: Header, device: torch.device
    ) -> MaskedModel:
        """Undo `tensors`."""
        box = arrays["box"][0], arrays["box"][1]
        model = cls(config, columns, TableGrid.from_tensors(arrays), box, header["seed"])
        model.blend = Blend.from_tensors(arrays, columns, model.grid, config)
        model.ladder = Ladder.from_tensors(arrays, model.grid, config, header["seed"])
        model.calibration = Calibration.from_tensors(arrays)
        model._donors = Donors.from_tensors(arrays, model.ladder.inputs)
        model.network = _loaded(arrays, "network", model._new_network, device)
        model._flow = _loaded(arrays, "flow", model._new_flow, device)
        model.density = model._flow is not None
        return model


def _loaded(arrays: dict[str, Array], name: str, make: Callable[[], Module], device: torch.device) -> Module | None:
    """Return a module with its weights among the arrays, None if they have none."""
    own = {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}
    if not own:
        return None
    module = make()
    module.load_state_dict({key: torch.from_numpy(array) for key, array in own.items()})
    return module.to(device).eval()


def _sample(values: FloatArray, seed: int) -> FloatArray:
    """Return the rows, or a random sample of `KEPT_ROWS` of them in their order."""
    if len(values) <= KEPT_ROWS:
        return values
    rng = np.random.default_rng([seed, FLOW_STREAM])
    return values[np.sort(rng.choice(len(values), KEPT_ROWS, replace=False))]


def _shares(network: MaskedNetwork, units: Tensor, seen: Tensor) -> Tensor:
    """Return the relative frequency (n_columns, n_points) of each point in a column, none of them zero."""
    counts = torch.zeros(network.n_points, network.n_columns)
    for some, known in zip(units.split(TARGETS_AT_ONCE), seen.split(TARGETS_AT_ONCE), strict=True):
        below, share = network.targets(some)
        counts.scatter_add_(0, below, torch.where(known, 1 - share, 0.0))
        counts.scatter_add_(0, (below + 1).clamp(max=network.n_points - 1), torch.where(known, share, 0.0))
    return ((counts + 0.5) / (counts + 0.5).sum(0)).T

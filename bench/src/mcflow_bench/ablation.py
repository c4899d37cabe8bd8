"""The contribution of each ingredient of a preset: accuracy without it, and the density with and without the flow."""

from __future__ import annotations

__all__ = [
    "ABLATION",
    "DENSITIES",
    "QUICK_ABLATION",
    "SPEED",
    "VARIANTS",
    "Variant",
    "ablation_suite",
    "density_scores",
    "identity_flow",
    "measure_densities",
    "method_of",
    "run_densities",
    "variant",
]

import copy
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcflow.errors import McflowError, ParameterError, did_you_mean
from mcflow.evaluation.methods import MethodSpec
from mcflow.imputers.presets import Config
from mcflow.masked.config import MaskedConfig
from mcflow.paper.config import PaperConfig
from mcflow_bench.data.catalog import read_numbers, table_source
from mcflow_bench.machine import peak_mib
from mcflow_bench.protocol import Split, split_table
from mcflow_bench.runner import Listener, Progress
from mcflow_bench.store import Row, Store
from mcflow_bench.suites import Cell, TableSuite, TableTask

if TYPE_CHECKING:
    from torch import Tensor

    from mcflow import MCFlowImputer
    from mcflow.masked.flow import ConditionalFlow
    from mcflow.masked.model import MaskedModel
    from mcflow.metrics import Score

#: Fractions of hidden cells that are tried instead of the preset's.
HIDE_SHARES = (0.05, 0.1, 0.35, 0.5)
#: Folder of the densities inside that of the suites.
DENSITIES = "densities"
#: Folder of the times inside that of the suites.
SPEED = "speed"


@dataclass(frozen=True)
class Variant:
    """A preset with some settings changed."""

    label: str  # the change in words
    changes: Mapping[str, Any] = field(default_factory=dict)  # fields of the preset's configuration
    against: str = "full"  # name of the unchanged preset that it is compared with
    few_rows: bool = False  # measured on few rows, because the ingredient serves small tables only

    @property
    def settings(self) -> Config:
        """Return the preset of `MCFlowImputer`."""
        return replace(_BASES[self.against], **self.changes)


#: The unchanged presets.
_BASES: dict[str, Config] = {"full": MaskedConfig(), "paper": PaperConfig()}


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


_SHARE = MaskedConfig().hide_share

#: The variants by name, each unchanged preset followed by those that are derived from it. A line here is a row.
VARIANTS: dict[str, Variant] = {
    "full": Variant(f"default preset, hides {_percent(_SHARE)} of the cells"),
    "no_hidden": Variant("learns from the observed cells, none is hidden", {"hide_share": 0.0}),
    "no_knots": Variant("reads numbers without knots", {"n_knots": 0}),
    "no_trees": Variant("no trees, H alone", {"trees": False}),
    "no_observed": Variant("no trees on observed cells", {"observed_trees": False}),
    "no_chained": Variant("no trees on rows completed by the trees on observed cells", {"min_network_error": 1e9}),
    "no_again": Variant("no second pass of trees on completed rows", {"min_gain": 1.0}),
    "one_member": Variant("one network, so one track, instead of several", {"n_members": 1}),
    "no_gaussian": Variant("no Gaussian in the blend", {"gaussian": False}, few_rows=True),
    "no_factored": Variant("no factored density", {"factored": False}, few_rows=True),
    **{f"hide_{s:g}": Variant(f"hides {_percent(s)}", {"hide_share": s}) for s in HIDE_SHARES if s != _SHARE},
    "paper": Variant("paper's preset", against="paper"),
    "no_refills": Variant("never refills", {"refills": False}, against="paper"),
}


def variant(name: str, *, max_epochs: int | None = None, random_state: int | None = None) -> MCFlowImputer:
    """Return the unfitted imputer of a variant."""
    from mcflow import MCFlowImputer

    if name not in VARIANTS:
        known = ", ".join(VARIANTS)
        raise ParameterError(f"There is no variant {name!r}. Known are {known}.{did_you_mean(name, VARIANTS)}")
    return MCFlowImputer(preset=VARIANTS[name].settings, max_epochs=max_epochs, random_state=random_state)


def ablation_suite(
    *,
    rows: int,
    max_epochs: int,
    seeds: tuple[int, ...],
    paper_epochs: int = 0,
    few_rows: bool = False,
    time_limit: float = 900.0,
) -> TableSuite:
    """Return the variants for many rows, or those for few, on Letter.

    A seed determines the split, the hidden cells and the fit.

    Examples
    --------
    >>> suite = ablation_suite(rows=600, max_epochs=4, paper_epochs=8, seeds=(0,))
    >>> method_of(suite, "no_refills")
    "python:mcflow_bench.ablation:variant(max_epochs=8,name='no_refills')"
    """
    epochs = {"full": max_epochs, "paper": paper_epochs}
    methods = [
        str(MethodSpec(f"python:{__name__}:variant", (("max_epochs", epochs[VARIANTS[name].against]), ("name", name))))
        for name in _names(few_rows)
    ]
    return TableSuite(("letter",), tuple(methods), folds=seeds, rows=rows, seed_by_fold=True, time_limit=time_limit)


def _names(few_rows: bool) -> list[str]:
    """Return the names of the variants for few or for many rows, with the presets that they are compared with."""
    own = [name for name, one in VARIANTS.items() if one.few_rows == few_rows]
    bases = {VARIANTS[name].against for name in own}
    return [name for name in VARIANTS if name in own or name in bases]


def method_of(suite: TableSuite, name: str) -> str | None:
    """Return the method of a variant as a suite writes it, or None if the suite does not have it."""
    specs = map(MethodSpec.parse, suite.methods)
    return next((str(spec) for spec in specs if dict(spec.parameters).get("name") == name), None)


#: Many rows, with which the multivariate Gaussian, which could replace what a variant lacks, joins the blend only if it
#: clearly lowers the error; and few rows, for the ingredients that serve small tables only.
ABLATION = (
    ablation_suite(rows=6500, max_epochs=64, paper_epochs=64, seeds=(0, 1, 2)),
    ablation_suite(rows=1000, max_epochs=400, seeds=(0, 1, 2), few_rows=True),
)

#: The same at a size that only shows that it runs.
QUICK_ABLATION = (
    ablation_suite(rows=500, max_epochs=4, paper_epochs=4, seeds=(0,), time_limit=180.0),
    ablation_suite(rows=300, max_epochs=4, seeds=(0,), few_rows=True, time_limit=180.0),
)


def identity_flow(flow: ConditionalFlow) -> ConditionalFlow:
    """Return a copy of a flow as the identity, under which missing cells are independent given the observed ones."""
    import torch

    identity = copy.deepcopy(flow)
    with torch.no_grad():
        for weight in identity.parameters():
            weight.zero_()
        identity.scale.fill_(1.0)
    return identity


def density_scores(imputer: MCFlowImputer, split: Split, seed: int) -> dict[str, Score]:
    r"""Score the log-densities of test rows under a fitted imputer.

    A column with few values has a probability for each. For uniform u within the probability mass of the value x,
    :math:`E_u \log p(x, u) \le \log p(x)`, with equality without the flow, so the gain of the flow is not overstated.
    """
    import numpy as np
    import torch

    from mcflow.masked.model import MaskedModel

    model, columns = imputer.model_, imputer.schema_.model_among_coded
    if not isinstance(model, MaskedModel):
        raise ParameterError("The densities of hidden cells need preset='default'. Fit with that.")
    units = torch.from_numpy(model.grid.units(split.test[:, columns]).astype(np.float32))
    hidden = torch.from_numpy(split.hidden_test[:, columns])
    uniforms = torch.rand(units.shape, generator=torch.Generator().manual_seed(seed))
    scores = {}
    for ending, flow in (("", model.flow()), ("_independent", identity_flow(model.flow()))):
        for name, chosen in (("hidden", hidden), ("rows", torch.ones_like(hidden))):
            scores[name + ending] = _density_score(model, flow, units, chosen, uniforms)
    return scores


def _density_score(model: MaskedModel, flow: ConditionalFlow, units: Tensor, chosen: Tensor, uniforms: Tensor) -> Score:
    """Return the mean log-density per chosen cell given all other cells of its row."""
    import torch

    from mcflow.masked.flow import JointDensity
    from mcflow.metrics import Score

    network = model.predictor.network
    device = network.points.device
    joint, found = JointDensity(network, model.grid.marginals(device), flow), []
    for part in zip(units.split(4096), (~chosen).split(4096), chosen.split(4096), uniforms.split(4096), strict=True):
        rows, shown, asked, places = (tensor.to(device) for tensor in part)
        found.append(joint.log_density(rows, shown, asked, places).cpu())
    density, counts = torch.cat(found).double(), chosen.sum(1).double()
    mean = density.sum() / counts.sum()
    error = (density - mean * counts).square().sum().sqrt() / counts.sum()
    return Score(float(mean), float(error))


def run_densities(
    suite: TableSuite,
    output: Path,
    *,
    data: Path | None = None,
    threads: int = 1,
    retry: bool = False,
    quiet: bool = False,
) -> None:
    """Measure the densities of the suite's default preset that are not in a folder yet, one after the other."""
    cells = replace(suite, methods=suite.methods[:1]).cells(partial(table_source, folder=data))
    store = Store(output / DENSITIES)
    with store.locked():
        known = store.finished(retry=retry)
        left = [cell for cell in cells if cell.task.key not in known]
        display: Listener = Listener() if quiet else Progress(left, store.rows(), 1)
        with display:
            measure_densities(left, store, threads=threads, listener=display)


def measure_densities(
    cells: Iterable[Cell],
    store: Store,
    *,
    threads: int = 1,
    listener: Listener | None = None,
    fit: Callable[[TableTask, Split], MCFlowImputer] | None = None,
) -> None:
    """Fit the method of each cell in this process, and store the scores of its densities."""
    import torch

    listener = listener or Listener()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for cell in cells:
            row = _density_row(cell, fit or _fitted) | {"threads": threads}
            store.add(cell.task, row)
            listener.on_end(cell, row)
    finally:
        torch.set_num_threads(before)


def _fitted(task: TableTask, split: Split) -> MCFlowImputer:
    imputer = MethodSpec.parse(task.method).build(task.seed, split.train.shape[1])
    fitted: MCFlowImputer = imputer.fit(split.incomplete_train)
    return fitted


def _density_row(cell: Cell, fit: Callable[[TableTask, Split], MCFlowImputer]) -> Row:
    start = time.perf_counter()
    try:
        assert isinstance(cell.task, TableTask)
        result = {"status": "done", "message": "", "scores": _cell_scores(cell.task, cell.path, fit)}
    except McflowError as error:
        result = {"status": "error", "message": f"{type(error).__name__}: {error}"}
    seconds = round(time.perf_counter() - start, 3)
    return {"task": cell.task.settings, "label": cell.label, "seconds": seconds, "peak_mib": peak_mib()} | result


def _cell_scores(
    task: TableTask, path: Path, fit: Callable[[TableTask, Split], MCFlowImputer]
) -> dict[str, dict[str, Any]]:
    """Score the densities of a cell, and its RMSE, which shows that the fit is that of the same cell of the suite."""
    from mcflow import metrics

    values = read_numbers(path, task.table).values[: task.rows]
    split = split_table(values, task.fold, task.rate, task.mechanism)
    imputer = fit(task, split)
    filled = imputer.transform(split.incomplete_test)
    scores = {"rmse": metrics.rmse(split.test, filled, split.hidden_test, split.span)}
    scores |= density_scores(imputer, split, task.seed)
    return {name: {"value": score.value, "error": score.error} for name, score in scores.items()}

"""What the flow is worth: the log-density of test cells with it, and as if they were independent."""

from __future__ import annotations

__all__ = ["FOLDER", "density_scores", "measure_densities", "run_densities", "without_flow"]

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcflow.benchmarks.ablation import AblationSuite
from mcflow.benchmarks.display import Progress
from mcflow.benchmarks.machine import peak_mib
from mcflow.benchmarks.protocol import Split, split_table
from mcflow.benchmarks.runner import Listener
from mcflow.benchmarks.store import Row, Store
from mcflow.benchmarks.suite import Cell
from mcflow.data.catalog import locate, read_numbers
from mcflow.data.downloads import checksum
from mcflow.errors import McflowError, ParameterError

if TYPE_CHECKING:
    from torch import Tensor

    from mcflow import MCFlowImputer
    from mcflow.imputers.masked_model import MaskedModel, MaskedStage
    from mcflow.metrics import Score

#: Where densities are kept, beside the cells of the suite.
FOLDER = "densities"


def without_flow(stage: MaskedStage) -> MaskedStage:
    """Return G and H with a G that leaves every cell as it is, so that cells are independent given the shown ones.

    Parameters
    ----------
    stage : MaskedStage
        Left as it is.

    Returns
    -------
    MaskedStage
    """
    import torch

    flow = copy.deepcopy(stage.flow)
    with torch.no_grad():
        for weight in flow.parameters():
            weight.zero_()
        flow.scale.fill_(1.0)
    return stage._replace(flow=flow)


def density_scores(imputer: MCFlowImputer, split: Split, seed: int) -> dict[str, Score]:
    r"""Score the densities that a fitted imputer gives to test rows.

    Parameters
    ----------
    imputer : MCFlowImputer
        Fitted with the default preset.
    split : Split
        Test rows and which of their cells are hidden.
    seed : int
        Decides where in the mass of its value a cell of a column with few values is.

    Returns
    -------
    dict of Score
        The mean log-density a cell, in units of the columns' deviations: of the hidden cells of a row together given
        the others (hidden), and of whole rows (rows); both also without the flow (hidden_independent,
        rows_independent).

    Raises
    ------
    ParameterError
        When the imputer was fitted with another preset.

    Notes
    -----
    A column with few values has a mass for each. For uniform u within the mass of the value x,
    :math:`E_u \log p(x, u) \le \log p(x)`, with equality without the flow, so the flow's part is not overstated.
    """
    import numpy as np
    import torch

    from mcflow.imputers.masked_model import MaskedModel

    model, columns = imputer.model_, imputer.schema_.among_coded(model=True)
    if not isinstance(model, MaskedModel):
        raise ParameterError("The densities of hidden cells are those of preset='default'. Fit with that.")
    units = torch.from_numpy(model.grid.units(split.test[:, columns]).astype(np.float32))
    hidden = torch.from_numpy(split.hidden_test[:, columns])
    uniforms = torch.rand(units.shape, generator=torch.Generator().manual_seed(seed))
    scores = {}
    for ending, stage in (("", model.stages[0]), ("_independent", without_flow(model.stages[0]))):
        for name, chosen in (("hidden", hidden), ("rows", torch.ones_like(hidden))):
            scores[name + ending] = _score(model, stage, units, chosen, uniforms)
    return scores


def _score(model: MaskedModel, stage: MaskedStage, units: Tensor, chosen: Tensor, uniforms: Tensor) -> Score:
    """Return the mean log-density a chosen cell, given all others of its row."""
    import torch

    from mcflow.metrics import Score
    from mcflow.training.density import log_density

    device = stage.mapper.points.device
    marginals, found = model.marginals(device), []
    for part in zip(units.split(4096), (~chosen).split(4096), chosen.split(4096), uniforms.split(4096), strict=True):
        rows, shown, asked, places = (tensor.to(device) for tensor in part)
        found.append(log_density(stage.mapper, marginals, stage.flow, rows, shown, asked, places).cpu())
    density, counts = torch.cat(found).double(), chosen.sum(1).double()
    mean = density.sum() / counts.sum()
    error = (density - mean * counts).square().sum().sqrt() / counts.sum()
    return Score(float(mean), float(error))


def run_densities(
    suite: AblationSuite,
    output: Path,
    *,
    data: Path | None = None,
    threads: int = 1,
    retry: bool = False,
    quiet: bool = False,
) -> None:
    """Measure the densities of a suite's default preset that are not in a folder yet, one after the other.

    Parameters
    ----------
    suite : AblationSuite
        Its first method is fitted, for every table and seed.
    output : Path
        Folder of the results.
    data : Path, optional
        Folder of tables, by default the one that MCFLOW_DATA names; tables that are not there are downloaded.
    threads : int, default=1
        Of a fit.
    retry : bool, default=False
        Do again what failed.
    quiet : bool, default=False
        Show no progress.
    """

    def find(name: str) -> tuple[Path, str]:
        path = locate(name, data)
        return path, checksum(path)

    cells = replace(suite, methods=suite.methods[:1]).cells(find)
    store = Store(output / FOLDER)
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
    fit: Callable[[Cell, Split], MCFlowImputer] | None = None,
) -> None:
    """Fit the method of each cell in this process, and keep the scores of its densities.

    Parameters
    ----------
    cells : iterable of Cell
        One fit each.
    store : Store
        Where results go, as soon as they are there.
    threads : int, default=1
        Of a fit.
    listener : Listener, optional
        Hears of progress.
    fit : callable, optional
        Takes a cell and its split and returns a fitted imputer, in place of the cell's method.
    """
    import torch

    listener = listener or Listener()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for cell in cells:
            row = _row(cell, fit or _fitted) | {"threads": threads}
            store.add(cell.task, row)
            listener.on_end(cell, row)
    finally:
        torch.set_num_threads(before)


def _fitted(cell: Cell, split: Split) -> MCFlowImputer:
    import numpy as np

    from mcflow.benchmarks.methods import MethodSpec

    imputer = MethodSpec.parse(cell.task.method).build(cell.task.seed, split.train.shape[1])
    fitted: MCFlowImputer = imputer.fit(np.where(split.hidden_train, np.nan, split.train))
    return fitted


def _row(cell: Cell, fit: Callable[[Cell, Split], MCFlowImputer]) -> Row:
    start = time.perf_counter()
    try:
        result = {"status": "done", "message": "", "scores": _scores(cell, fit)}
    except McflowError as error:
        result = {"status": "error", "message": f"{type(error).__name__}: {error}"}
    seconds = round(time.perf_counter() - start, 3)
    about: Row = {"task": asdict(cell.task), "label": cell.label, "seconds": seconds, "peak_mib": peak_mib()}
    return about | result


def _scores(cell: Cell, fit: Callable[[Cell, Split], MCFlowImputer]) -> dict[str, dict[str, Any]]:
    """Score a cell; with the RMSE, which tells that the fit is the one of the same cell of the benchmark."""
    import numpy as np

    from mcflow import metrics

    task = cell.task
    values = read_numbers(cell.path, task.table).values[: task.rows]
    split = split_table(values, task.fold, task.rate, task.mechanism)
    imputer = fit(cell, split)
    filled = imputer.transform(np.where(split.hidden_test, np.nan, split.test))
    scores = {"rmse": metrics.rmse(split.test, filled, split.hidden_test, split.span)}
    scores |= density_scores(imputer, split, task.seed)
    return {name: {"value": score.value, "error": score.error} for name, score in scores.items()}

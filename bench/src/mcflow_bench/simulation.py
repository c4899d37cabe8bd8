"""Simulated studies with known coefficients: simulate, hide cells, impute, analyse, and repeat.

Cells are hidden at random given a column z that is always observed. A study is one method on one design; its
replications run in several processes and are stored in one file, so that an interrupted run can be continued.
"""

from __future__ import annotations

__all__ = [
    "DESIGNS",
    "METHODS",
    "REFERENCES",
    "REPLICATIONS",
    "SimulationDesign",
    "SimulationStore",
    "Study",
    "hide",
    "replicate",
    "run_simulation",
    "simulate",
    "study_of",
]

import inspect
import json
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from mcflow.errors import McflowWarning, ParameterError, did_you_mean
from mcflow.evaluation.methods import MethodSpec
from mcflow.files.atomic import write_text
from mcflow.typing import Array, FloatArray
from mcflow_bench.machine import machine, thread_variables, versions
from mcflow_bench.rivals.rmice import build_method, is_r
from mcflow_bench.store import Outcome, Store
from mcflow_bench.suites import file_word, key_of

if TYPE_CHECKING:
    from pathlib import Path

#: Increased when the same settings would give other results, so that old results are not taken for new ones.
PROTOCOL = 1

#: Analyses that need no imputation: the tables before cells were hidden, and their complete rows.
REFERENCES = {"full": "full data", "complete": "complete cases"}

#: The methods that are compared by default; a fit has five seconds, since a study fits hundreds of small tables. Those
#: of R take part where R's mice is installed; its default is pmm for numbers and logistic regression for categories.
METHODS = (*REFERENCES, "mcflow(max_time=5)", "R:mice.norm", "R:mice.default", "R:mice.cart")

#: Simulated tables of each design by default.
REPLICATIONS = 100

#: Slopes of the logistic regression of missingness on z, by the place of a column among those with missing cells.
SLOPES = (1.5, -1.5, 1.5)

#: Correlation of z with the outcome.
PROXY = 0.6

#: Clusters of the clustered design.
N_CLUSTERS = 20

#: Number of progress lines per study.
_LINES = 10


@dataclass(frozen=True)
class SimulationDesign:
    """A regression model with known coefficients."""

    label: str  # in words
    formula: str  # the model that generates the outcome, and that is fitted
    truth: Mapping[str, float]  # coefficients by term; the analysis may have further ones
    features: tuple[str, ...]  # columns of the model
    incomplete: tuple[str, ...]  # columns with missing cells
    make: Callable[[np.random.Generator, int], dict[str, Array]]  # simulates a number of rows without y and z
    mean: Callable[[Mapping[str, Array]], FloatArray]  # expected outcome given these columns, or its log-odds
    products: tuple[tuple[str, str], ...] = ()  # pairs of columns that the analysis multiplies
    binary: bool = False  # whether the outcome is "yes" or "no"
    latent: tuple[str, ...] = ()  # simulated columns that the table does not have

    def prepared(self, table: pa.Table) -> pa.Table:
        """Return a completed table with the products of the model."""
        for left, right in self.products:
            product = table[left].to_numpy() * table[right].to_numpy()
            name = f"{left}^2" if left == right else f"{left}:{right}"
            table = table.append_column(name, pa.array(product))
        return table

    def outcome(self, columns: Mapping[str, Array], rng: np.random.Generator) -> Array:
        """Simulate the outcome of the given columns."""
        centre = self.mean(columns)
        if not self.binary:
            return centre + rng.normal(size=len(centre))
        from scipy.special import expit

        return np.where(rng.random(len(centre)) < expit(centre), "yes", "no")


def _pair(rng: np.random.Generator, rows: int) -> dict[str, Array]:
    """Simulate two Gaussian columns with a correlation of 0.5."""
    first, second = rng.normal(size=(2, rows))
    return {"x1": first, "x2": 0.5 * first + np.sqrt(0.75) * second}


def _group(rng: np.random.Generator, rows: int) -> dict[str, Array]:
    """Simulate three groups of unequal size and a Gaussian column whose mean depends on the group."""
    codes = rng.choice(3, size=rows, p=[0.4, 0.35, 0.25])
    return {"x1": rng.normal(size=rows) + np.array([0.0, 0.5, -0.5])[codes], "g": np.array(["a", "b", "c"])[codes]}


def _skewed(rng: np.random.Generator, rows: int) -> dict[str, Array]:
    """Simulate a log-normal column and a Gaussian one that has a correlation of 0.5 with its logarithm."""
    columns = _pair(rng, rows)
    return {"x1": np.exp(0.75 * columns["x1"]), "x2": columns["x2"]}


def _clusters(rng: np.random.Generator, rows: int) -> dict[str, Array]:
    """Simulate clusters whose effects on the outcome correlate with the cluster means of x1 by 0.5."""
    codes = np.arange(rows) % N_CLUSTERS
    between, other = rng.normal(size=(2, N_CLUSTERS))
    columns = _pair(rng, rows)
    sites = np.array([f"site {number:02d}" for number in range(1, N_CLUSTERS + 1)])
    effects = 0.5 * between + np.sqrt(0.75) * other
    return {"x1": columns["x1"] + between[codes], "x2": columns["x2"], "site": sites[codes], "effect": effects[codes]}


#: The designs by name; the random numbers of a design depend on its place.
DESIGNS: dict[str, SimulationDesign] = {
    "linear": SimulationDesign(
        label="Linear",
        formula="y ~ x1 + x2",
        truth={"Intercept": 1.0, "x1": 1.0, "x2": -0.5},
        features=("x1", "x2"),
        incomplete=("x1", "x2", "y"),
        make=_pair,
        mean=lambda x: 1 + x["x1"] - 0.5 * x["x2"],
    ),
    "interaction": SimulationDesign(
        label="Interaction",
        formula="y ~ x1 + x2 + x1:x2",
        truth={"Intercept": 1.0, "x1": 1.0, "x2": -0.5, "x1:x2": 0.5},
        features=("x1", "x2", "x1:x2"),
        incomplete=("x1", "x2", "y"),
        make=_pair,
        mean=lambda x: 1 + x["x1"] - 0.5 * x["x2"] + 0.5 * x["x1"] * x["x2"],
        products=(("x1", "x2"),),
    ),
    "category": SimulationDesign(
        label="Categorical column with three categories",
        formula="y ~ x1 + g",
        truth={"Intercept": 1.0, "x1": 1.0, "g[T.b]": 1.0, "g[T.c]": -0.8},
        features=("x1", "g"),
        incomplete=("x1", "g", "y"),
        make=_group,
        mean=lambda x: 1 + x["x1"] + (x["g"] == "b") - 0.8 * (x["g"] == "c"),
    ),
    "logistic": SimulationDesign(
        label="Logistic outcome",
        formula="logit P(y = yes) ~ x1 + x2",
        truth={"Intercept": -0.5, "x1": 1.0, "x2": -0.5},
        features=("x1", "x2"),
        incomplete=("x1", "x2", "y"),
        make=_pair,
        mean=lambda x: -0.5 + x["x1"] - 0.5 * x["x2"],
        binary=True,
    ),
    "square": SimulationDesign(
        label="Square",
        formula="y ~ x1 + x2 + x1^2",
        truth={"Intercept": 1.0, "x1": 1.0, "x2": -0.5, "x1^2": 0.5},
        features=("x1", "x2", "x1^2"),
        incomplete=("x1", "x2", "y"),
        make=_pair,
        mean=lambda x: 1 + x["x1"] - 0.5 * x["x2"] + 0.5 * x["x1"] ** 2,
        products=(("x1", "x1"),),
    ),
    "skewed": SimulationDesign(
        label="Skewed predictor",
        formula="y ~ x1 + x2",
        truth={"Intercept": 1.0, "x1": 1.0, "x2": -0.5},
        features=("x1", "x2"),
        incomplete=("x1", "x2", "y"),
        make=_skewed,
        mean=lambda x: 1 + x["x1"] - 0.5 * x["x2"],
    ),
    "clustered": SimulationDesign(
        label="Clusters",
        formula="y ~ x1 + x2 + site",
        truth={"x1": 1.0, "x2": -0.5},
        features=("x1", "x2", "site"),
        incomplete=("x1", "x2", "y"),
        make=_clusters,
        mean=lambda x: 1 + x["x1"] - 0.5 * x["x2"] + x["effect"],
        latent=("effect",),
    ),
}


@dataclass(frozen=True)
class Study:
    """The settings of a method on a design; with the number of a replication they determine its result."""

    design: str  # a key of `DESIGNS`
    method: str  # as `MethodSpec` writes it, or a key of `REFERENCES`
    rows: int = 400  # of each simulated table
    m: int = 20  # draws
    rate: float = 0.3  # fraction of hidden cells in each incomplete column

    @property
    def key(self) -> str:
        """Return a hash of all settings that is the same on every machine."""
        return key_of({"protocol": PROTOCOL, **asdict(self)})

    @property
    def name(self) -> str:
        """Return a readable file name that differs for every key."""
        return f"{self.design}-{file_word(self.method)}-{self.key[:12]}"


def study_of(design: str, method: str, **sizes: Any) -> Study:
    """Return a study after checking its design, its method and its sizes."""
    if design not in DESIGNS:
        raise ParameterError(
            f"There is no design {design!r}. Known are {', '.join(DESIGNS)}.{did_you_mean(design, DESIGNS)}"
        )
    study = Study(design, method if method in REFERENCES else str(MethodSpec.parse(method)), **sizes)
    if study.rows < 50 or study.m < 1 or not 0 < study.rate < 0.9:
        raise ParameterError(
            f"rows is {study.rows}, m {study.m} and the rate {study.rate}, but at least 50 rows, 1 draw and a rate "
            "between 0 and 0.9 are needed."
        )
    if method not in REFERENCES:
        _built(study, 0)
    return study


def simulate(design: str, rows: int, number: int) -> dict[str, Array]:
    """Simulate the complete table of one replication."""
    rng, chosen = _generator(design, number, 0), DESIGNS[design]
    columns = chosen.make(rng, rows)
    columns["y"] = chosen.outcome(columns, rng)
    numbers = (columns["y"] == "yes").astype(np.float64) if chosen.binary else columns["y"]
    outcome = (numbers - numbers.mean()) / numbers.std()
    columns["z"] = PROXY * outcome + np.sqrt(1 - PROXY**2) * rng.normal(size=rows)
    return {name: values for name, values in columns.items() if name not in chosen.latent}


def hide(design: str, columns: Mapping[str, Array], rate: float, number: int) -> pa.Table:
    r"""Hide cells of a table at random given z, which is always observed.

    The cell of column j is hidden with probability :math:`1 / (1 + e^{-a_j - b_j z})`, where :math:`b_j` is 1.5 or
    -1.5 and :math:`a_j` makes the mean of these probabilities the rate. Cells are hidden independently given z.
    """
    rng = _generator(design, number, 1)
    arrays = {name: pa.array(values) for name, values in columns.items()}
    for name, slope in zip(DESIGNS[design].incomplete, SLOPES, strict=True):
        probabilities = _probabilities(slope * columns["z"], rate)
        hidden = rng.random(len(probabilities)) < probabilities
        arrays[name] = pa.array(columns[name], mask=hidden)
    return pa.table(arrays)


def _probabilities(scores: FloatArray, rate: float) -> FloatArray:
    """Return logistic probabilities with the given mean."""
    from scipy.optimize import brentq
    from scipy.special import expit

    shift = brentq(lambda a: expit(scores + a).mean() - rate, -50, 50)
    probabilities: FloatArray = expit(scores + shift)
    return probabilities


def _generator(design: str, number: int, use: int) -> np.random.Generator:
    return np.random.default_rng([PROTOCOL, list(DESIGNS).index(design), number, use])


def replicate(study: Study, number: int) -> dict[str, Any]:
    """Simulate, hide cells, impute and analyse once; an error is a result too.

    Examples
    --------
    >>> found = replicate(Study("linear", "full"), 0)
    >>> found["tables"], bool(abs(found["estimate"][1] - 1) < 0.2)
    (1, True)
    """
    columns = simulate(study.design, study.rows, number)
    incomplete = hide(study.design, columns, study.rate, number)
    start = time.perf_counter()
    try:
        if study.method == "full":
            tables: Iterable[pa.Table] = iter([pa.table(columns)])
        elif study.method == "complete":
            tables = iter([incomplete.drop_null()])
        else:
            tables = iter(list(_filled(study, incomplete, number)))
        seconds = time.perf_counter() - start
        return _analysed(DESIGNS[study.design], tables) | {"seconds": round(seconds, 3)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def _analysed(design: SimulationDesign, tables: Iterable[pa.Table]) -> dict[str, Any]:
    from sklearn.linear_model import LinearRegression, LogisticRegression

    from mcflow.pool import fit_pooled

    model = LogisticRegression(C=np.inf) if design.binary else LinearRegression()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", McflowWarning)  # the references are one table each
        fit = fit_pooled(model, map(design.prepared, tables), target="y", features=design.features)
    if not set(design.truth) <= set(fit.names):
        raise ParameterError(f"The analysis has the terms {', '.join(fit.names)}.")
    kept = [fit.names.index(term) for term in design.truth]
    low, high = fit.interval[kept].T
    found = {"estimate": fit.estimate[kept], "low": low, "high": high}
    return {name: [float(f"{value:.7g}") for value in values] for name, values in found.items()} | {"tables": fit.m}


def _filled(study: Study, incomplete: pa.Table, number: int) -> Iterator[pa.Table]:
    """Fit the method and yield its draws, or its fill if it has no draws."""
    imputer, options = _built(study, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", McflowWarning)
        imputer.fit(incomplete)
        if hasattr(imputer, "draw"):
            yield from imputer.draw(incomplete, m=study.m, random_state=number, **options)
        else:
            yield imputer.transform(incomplete)


def _built(study: Study, seed: int) -> tuple[Any, dict[str, Any]]:
    """Return the imputer and the arguments of its draws; the parameters of a method may be of either."""
    spec = MethodSpec.parse(study.method)
    if is_r(spec.name):
        return build_method(spec, seed), {}
    if spec.name.startswith("python:"):
        return spec.build(seed, len(DESIGNS[study.design].incomplete) + 1), {}
    plain = MethodSpec(spec.name).build(seed, 1)
    known = inspect.signature(plain.draw).parameters if hasattr(plain, "draw") else {}
    taken = {name for name in known if name not in ("X", "m", "random_state")} - set(plain.get_params(deep=False))
    own = {name: value for name, value in spec.parameters if name not in taken}
    # The imputer detects the column types: a table may have categories, which MethodSpec does not expect.
    imputer = MethodSpec(spec.name).with_parameters({"kinds": None} | own).build(seed, 1)
    return imputer, {name: value for name, value in spec.parameters if name in taken}


class SimulationStore(Store):
    """A folder with a file for each study.

    A file is replaced atomically after every replication. One that cannot be read counts as missing.
    """

    required: ClassVar[frozenset[str]] = frozenset({"key", "study", "replications"})

    @cached_property
    def _about(self) -> dict[str, Any]:
        return {"machine": machine(), "versions": versions()}

    def read(self, study: Study) -> dict[int, dict[str, Any]]:
        """Return the replications of a study by number."""
        row = self._read(self.cells / f"{study.name}.json")
        if row is None or row["key"] != study.key:
            return {}
        return {int(number): found for number, found in row["replications"].items()}

    def write(self, study: Study, found: dict[int, dict[str, Any]]) -> None:
        """Store the replications of a study, replacing earlier ones."""
        row = {"key": study.key, "study": asdict(study), "terms": list(DESIGNS[study.design].truth), **self._about}
        lines = ",\n".join(f'  "{number}": {json.dumps(found[number], sort_keys=True)}' for number in sorted(found))
        text = json.dumps(row, indent=1, sort_keys=True, allow_nan=False)
        write_text(self.cells / f"{study.name}.json", f'{text[:-2]},\n "replications": {{\n{lines}\n }}\n}}\n')


def run_simulation(
    studies: Sequence[Study],
    replications: int,
    output: Path,
    *,
    jobs: int = 2,
    threads: int = 1,
    retry: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Run the replications that are not in a folder yet."""
    store = SimulationStore(output)
    before = done = failed = 0
    with store.locked(), _mapping(jobs, threads) as mapping:
        for study in studies:
            known = store.read(study)
            found = {number: one for number, one in known.items() if not (retry and "error" in one)}
            left = [number for number in range(replications) if number not in found]
            before += replications - len(left)
            for line in _work(study, left, found, store, mapping):
                say(line)
            done += len(left)
            failed += sum("error" in found[number] for number in range(replications))
    return Outcome(before, done, failed)


_Mapping = Callable[[Callable[[int], dict[str, Any]], Iterable[int]], Iterable[dict[str, Any]]]


def _work(
    study: Study, left: list[int], found: dict[int, dict[str, Any]], store: SimulationStore, mapping: _Mapping
) -> Iterator[str]:
    """Run replications, store each as soon as it is there, and yield lines of progress."""
    start = time.monotonic()
    for count, (number, one) in enumerate(zip(left, mapping(partial(replicate, study), left), strict=True), 1):
        found[number] = one
        store.write(study, found)
        if "error" in one:
            yield f"{study.design}, {study.method}, replication {number}: {one['error']}"
        if count % max(len(left) // _LINES, 1) == 0 or count == len(left):
            each = (time.monotonic() - start) / count
            rest = each * (len(left) - count)
            yield f"{study.design}, {study.method}: {count}/{len(left)}, {each:.2f} s each, {rest:.0f} s left"


@contextmanager
def _mapping(jobs: int, threads: int) -> Iterator[_Mapping]:
    """Give a `map` that runs in several processes, or in this one."""
    if jobs == 1:
        with _limited(threads):
            yield map
        return
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(threads,)
    )
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(threads: int) -> None:
    """Set up a process: limit its threads, ignore Ctrl-C, and end it with its parent."""
    from threadpoolctl import threadpool_limits

    os.environ.update(thread_variables(threads))  # for torch, which is imported if a method needs it
    threadpool_limits(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _limited(threads: int) -> Iterator[None]:
    """Limit the threads of the numerical libraries."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads):
            yield
    finally:
        torch.set_num_threads(before)

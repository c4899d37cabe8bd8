"""Simulated tables with known coefficients, holes that depend on what is seen, and the analysis of what was filled."""

from __future__ import annotations

__all__ = ["DESIGNS", "METHODS", "REFERENCES", "SimulationDesign", "Study", "hide", "replicate", "simulate", "study_of"]

import inspect
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mcflow.benchmarks.keys import file_word, key_of
from mcflow.benchmarks.methods import MethodSpec
from mcflow.errors import McflowWarning, ParameterError, did_you_mean
from mcflow.typing import Array, FloatArray

#: Counts up when the same settings would give other figures, so that old results are not taken for new ones.
PROTOCOL = 1

#: What the methods are compared with: the tables before cells were hidden, and their rows without a hole.
REFERENCES = {"full": "full data", "complete": "complete cases"}

#: What is compared when nothing else is asked for; five seconds, since a study fits hundreds of small tables.
METHODS = (*REFERENCES, "mcflow(max_time=5)", "mice", "em")

#: How strongly a column's holes depend on z, by its place among the columns with holes.
SLOPES = (1.5, -1.5, 1.5)

#: Correlation of z with the outcome.
PROXY = 0.6


@dataclass(frozen=True)
class SimulationDesign:
    """A model of which the coefficients are known.

    Parameters
    ----------
    label : str
        In plain words.
    formula : str
        The model that is fitted, and that made the outcome.
    truth : mapping of str to float
        Coefficients by term.
    features : tuple of str
        Columns of the model.
    holed : tuple of str
        Columns that get holes.
    make : callable
        Takes a generator and a number of rows, and returns the columns but y and z.
    mean : callable
        Takes these columns and returns the expected outcome.
    products : tuple of (str, str)
        Columns that the analysis multiplies.
    """

    label: str
    formula: str
    truth: Mapping[str, float]
    features: tuple[str, ...]
    holed: tuple[str, ...]
    make: Callable[[np.random.Generator, int], dict[str, Array]]
    mean: Callable[[Mapping[str, Array]], FloatArray]
    products: tuple[tuple[str, str], ...] = ()

    def prepared(self, table: pa.Table) -> pa.Table:
        """Return a completed table with the products that the model has."""
        for left, right in self.products:
            product = table[left].to_numpy() * table[right].to_numpy()
            table = table.append_column(f"{left}:{right}", pa.array(product))
        return table


def _pair(rng: np.random.Generator, rows: int) -> dict[str, Array]:
    """Two normal columns with a correlation of 0.5."""
    first, second = rng.normal(size=(2, rows))
    return {"x1": first, "x2": 0.5 * first + np.sqrt(0.75) * second}


def _group(rng: np.random.Generator, rows: int) -> dict[str, Array]:
    """Three groups of unlike size, and a normal column whose mean depends on the group."""
    codes = rng.choice(3, size=rows, p=[0.4, 0.35, 0.25])
    return {"x1": rng.normal(size=rows) + np.array([0.0, 0.5, -0.5])[codes], "g": np.array(["a", "b", "c"])[codes]}


#: The designs by name.
DESIGNS: dict[str, SimulationDesign] = {
    "linear": SimulationDesign(
        label="Linear",
        formula="y ~ x1 + x2",
        truth={"Intercept": 1.0, "x1": 1.0, "x2": -0.5},
        features=("x1", "x2"),
        holed=("x1", "x2", "y"),
        make=_pair,
        mean=lambda x: 1 + x["x1"] - 0.5 * x["x2"],
    ),
    "interaction": SimulationDesign(
        label="Interaction",
        formula="y ~ x1 + x2 + x1:x2",
        truth={"Intercept": 1.0, "x1": 1.0, "x2": -0.5, "x1:x2": 0.5},
        features=("x1", "x2", "x1:x2"),
        holed=("x1", "x2", "y"),
        make=_pair,
        mean=lambda x: 1 + x["x1"] - 0.5 * x["x2"] + 0.5 * x["x1"] * x["x2"],
        products=(("x1", "x2"),),
    ),
    "category": SimulationDesign(
        label="Category of three levels",
        formula="y ~ x1 + g",
        truth={"Intercept": 1.0, "x1": 1.0, "g[T.b]": 1.0, "g[T.c]": -0.8},
        features=("x1", "g"),
        holed=("x1", "g", "y"),
        make=_group,
        mean=lambda x: 1 + x["x1"] + (x["g"] == "b") - 0.8 * (x["g"] == "c"),
    ),
}


@dataclass(frozen=True)
class Study:
    """Everything that decides the figures of a method on a design, but the number of the replication.

    Parameters
    ----------
    design : str
        A key of `DESIGNS`.
    method : str
        As `MethodSpec` writes it, or a key of `REFERENCES`.
    rows : int, default=400
        Of each simulated table.
    m : int, default=20
        Draws.
    rate : float, default=0.3
        Share of the cells that are hidden in each column that has holes.

    Examples
    --------
    >>> study = Study("linear", "mice(n_chains=20)")
    >>> study.key == Study("linear", "mice(n_chains=20)").key, study.name
    (True, 'linear-mice_n_chains=20-...')
    """

    design: str
    method: str
    rows: int = 400
    m: int = 20
    rate: float = 0.3

    @property
    def key(self) -> str:
        """Return a hash of all settings, the same on every machine."""
        return key_of({"protocol": PROTOCOL, **asdict(self)})

    @property
    def name(self) -> str:
        """Return a name for a file: readable, and different for every key."""
        return f"{self.design}-{file_word(self.method)}-{self.key[:12]}"


def study_of(design: str, method: str, **sizes: Any) -> Study:
    """Return a study after a look at whether there is such a design and such a method.

    Parameters
    ----------
    design : str
        A key of `DESIGNS`.
    method : str
        A key of `REFERENCES`, or a method such as ``"mice(n_chains=20)"``.
    **sizes : object
        rows, m and rate of `Study`.

    Returns
    -------
    Study

    Raises
    ------
    ParameterError
        When there is no such design, method or parameter, or a size is out of its range.
    """
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
    """Make the table of one replication, without holes.

    Parameters
    ----------
    design : str
        A key of `DESIGNS`.
    rows : int
        Its rows.
    number : int
        Of the replication; it decides everything.

    Returns
    -------
    dict of ndarray
        Columns of the model, the outcome y with normal noise of variance 1, and z, which is related to y and is not
        part of the model.

    Examples
    --------
    >>> list(simulate("linear", 100, 0))
    ['x1', 'x2', 'y', 'z']
    """
    rng = _generator(design, number, 0)
    columns = DESIGNS[design].make(rng, rows)
    columns["y"] = DESIGNS[design].mean(columns) + rng.normal(size=rows)
    outcome = (columns["y"] - columns["y"].mean()) / columns["y"].std()
    columns["z"] = PROXY * outcome + np.sqrt(1 - PROXY**2) * rng.normal(size=rows)
    return columns


def hide(design: str, columns: Mapping[str, Array], rate: float, number: int) -> pa.Table:
    r"""Hide cells of a table at random given z, which is always seen.

    Parameters
    ----------
    design : str
        A key of `DESIGNS`.
    columns : mapping of str to ndarray
        What `simulate` returned.
    rate : float
        Share of the cells of a column that are hidden, on average.
    number : int
        Of the replication; it decides which cells.

    Returns
    -------
    pyarrow.Table

    Notes
    -----
    The cell of column j is hidden with probability :math:`1 / (1 + e^{-a_j - b_j z})`, where :math:`b_j` is 1.5 or
    -1.5 and :math:`a_j` makes the mean of these probabilities the rate. Cells are hidden independently given z.
    """
    rng = _generator(design, number, 1)
    arrays = {name: pa.array(values) for name, values in columns.items()}
    for name, slope in zip(DESIGNS[design].holed, SLOPES, strict=True):
        chances = _chances(slope * columns["z"], rate)
        hidden = rng.random(len(chances)) < chances
        arrays[name] = pa.array(columns[name], mask=hidden)
    return pa.table(arrays)


def _chances(scores: FloatArray, rate: float) -> FloatArray:
    """Return logistic probabilities of the given mean."""
    from scipy.optimize import brentq
    from scipy.special import expit

    shift = brentq(lambda a: expit(scores + a).mean() - rate, -50, 50)
    chances: FloatArray = expit(scores + shift)
    return chances


def _generator(design: str, number: int, use: int) -> np.random.Generator:
    return np.random.default_rng([PROTOCOL, list(DESIGNS).index(design), number, use])


def replicate(study: Study, number: int) -> dict[str, Any]:
    """Simulate, hide, fill and analyse once.

    Parameters
    ----------
    study : Study
        What to do.
    number : int
        Of the replication. All methods get the same table with the same number.

    Returns
    -------
    dict
        estimate, low and high, a number for each term; tables, how many were analysed; and seconds of filling. Or an
        error, when the method fails.

    Examples
    --------
    >>> found = replicate(Study("linear", "full"), 0)
    >>> found["tables"], bool(abs(found["estimate"][1] - 1) < 0.2)
    (1, True)
    """
    columns = simulate(study.design, study.rows, number)
    holed = hide(study.design, columns, study.rate, number)
    start = time.perf_counter()
    try:
        if study.method == "full":
            tables: Iterable[pa.Table] = iter([pa.table(columns)])
        elif study.method == "complete":
            tables = iter([holed.drop_null()])
        else:
            tables = iter(list(_filled(study, holed, number)))
        seconds = time.perf_counter() - start
        return _analysed(DESIGNS[study.design], tables) | {"seconds": round(seconds, 3)}
    except Exception as error:  # a failure is a result too
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def _analysed(design: SimulationDesign, tables: Iterable[pa.Table]) -> dict[str, Any]:
    from sklearn.linear_model import LinearRegression

    from mcflow.pool import fit_pooled

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", McflowWarning)  # the references are one table each
        fit = fit_pooled(LinearRegression(), map(design.prepared, tables), target="y", features=design.features)
    if fit.names != tuple(design.truth):
        raise ParameterError(f"The analysis has the terms {', '.join(fit.names)}.")
    found = {"estimate": fit.estimate, "low": fit.interval[:, 0], "high": fit.interval[:, 1]}
    return {name: [float(f"{value:.7g}") for value in values] for name, values in found.items()} | {"tables": fit.m}


def _filled(study: Study, holed: pa.Table, number: int) -> Iterator[pa.Table]:
    """Fit the method and give its draws, or its one fill when it has no draws."""
    imputer, options = _built(study, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", McflowWarning)
        imputer.fit(holed)
        if hasattr(imputer, "draw"):
            yield from imputer.draw(holed, m=study.m, random_state=number, **options)
        else:
            yield imputer.transform(holed)


def _built(study: Study, seed: int) -> tuple[Any, dict[str, Any]]:
    """Return the imputer and the arguments of its draws, both of which may stand in the brackets of a method."""
    spec = MethodSpec.parse(study.method)
    if spec.name.startswith("python:"):
        return spec.build(seed, len(DESIGNS[study.design].holed) + 1), {}
    plain = MethodSpec(spec.name).build(seed, 1)
    known = inspect.signature(plain.draw).parameters if hasattr(plain, "draw") else {}
    taken = {name for name in known if name not in ("X", "m", "random_state")} - set(plain.get_params(deep=False))
    own = {name: value for name, value in spec.parameters if name not in taken}
    # The kinds of columns are found by the imputer: a table may have levels, which MethodSpec does not expect.
    imputer = MethodSpec(spec.name).with_parameters({"kinds": None} | own).build(seed, 1)
    return imputer, {name: value for name, value in spec.parameters if name in taken}

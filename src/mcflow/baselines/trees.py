"""Chained tree models: MissForest and its counterpart with gradient-boosted trees."""

from __future__ import annotations

__all__ = [
    "BoostedImputer",
    "Chain",
    "ChainedTrees",
    "CompactForest",
    "Constant",
    "Donors",
    "Layout",
    "MissForestImputer",
    "Model",
    "differences",
    "has_converged",
    "one_hot",
]

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn import ensemble

from mcflow.baselines.base import Baseline, DrawsMixin
from mcflow.columns.marginals import Marginals
from mcflow.columns.schema import CATEGORY_KINDS, Column
from mcflow.config import Interval, Options
from mcflow.random import row_uniforms, seed_from
from mcflow.typing import Array, BoolArray, FloatArray

MAX_ONE_HOT = 16  #: Maximum number of categories that forests read one-hot encoded; others enter as codes.
MAX_NATIVE_CATEGORIES = 255  #: Maximum number of categories that boosted trees split natively.
MIN_ITERATIONS = 20  #: Minimum number of boosting iterations for a column of many categories.
DRAW_ROUNDS = 10  #: Rounds of draws over the missing cells before a draw is returned.
_MAX_PAIRS = 1 << 18  #: Maximum number of pairs of rows and trees that are evaluated at a time.
_MAX_DONORS = 8  #: Maximum number of training values that are stored per leaf.
_ROUNDING = 1e-12  #: Impurity of a leaf, relative to the mean square, below which its values count as equal.


class Model(Protocol):
    """Predictor of one column from the others."""

    def predict(self, rows: Any) -> Array:
        """Return one number or code per row."""


class Layout:
    """Columns of a chain of codes (n_rows, n_columns), NaN where missing: their scaling, initial fills and bounds."""

    def __init__(self, values: FloatArray, columns: Sequence[Column], low: FloatArray, high: FloatArray) -> None:
        self.n_categories = [len(c.categories) if c.kind in CATEGORY_KINDS else 0 for c in columns]  # 0 for numbers
        self.nominal = [c.kind == "category" and len(c.categories) > 2 for c in columns]  # unordered categories
        self.predicts = [c.role != "targets_only" for c in columns]  # whether a column is used to fill others
        moments = [_moments(values[:, k], n) for k, n in enumerate(self.n_categories)]
        # (n_columns,) mean, standard deviation and scaled initial fill: the mean or the most frequent category.
        self.centre, self.scale, self.start = np.array(moments, dtype=np.float64).reshape(-1, 3).T
        self.low, self.high = low, high  # (n_columns,) bounds of fills, in the units of the columns

    def sources(self, column: int) -> list[int]:
        """Return the columns from which `column` is predicted."""
        return [k for k, used in enumerate(self.predicts) if used and k != column]

    def scaled(self, values: FloatArray) -> FloatArray:
        """Convert codes to scaled units."""
        return np.asarray((values - self.centre) / self.scale)

    def restored(self, scaled: FloatArray) -> FloatArray:
        """Convert scaled units to codes, clipped to the bounds."""
        return np.clip(scaled * self.scale + self.centre, self.low, self.high)

    def bounded(self, predicted: Array, column: int) -> FloatArray:
        """Clip scaled predictions of one column to its bounds."""
        low, high = ((end[column] - self.centre[column]) / self.scale[column] for end in (self.low, self.high))
        return np.clip(predicted, low, high)


def _moments(column: FloatArray, n_categories: int) -> tuple[float, float, float]:
    """Return the centre, the scale and the scaled initial fill of one column."""
    seen = column[~np.isnan(column)]
    if n_categories:
        return 0.0, 1.0, float(np.bincount(seen.astype(np.int64), minlength=n_categories).argmax())
    if not len(seen):
        return 0.0, 1.0, 0.0
    size = float(np.abs(seen).max()) or 1.0  # avoids overflow and underflow of squares
    spread = float((seen / size).std()) * size
    return float((seen / size).mean() * size), spread if spread > 0.0 else 1.0, 0.0


#: Fit a model of a column: layout, column, rows of the columns `layout.sources(column)`, target (n_rows,) and seed.
Learn: TypeAlias = Callable[[Layout, int, FloatArray, FloatArray, int], Model]


class Constant(NamedTuple):
    """Predict the same value for every row."""

    value: float

    def predict(self, rows: Any) -> Array:
        """Return the value once per row."""
        return np.full(len(rows), self.value)


def differences(new: FloatArray, old: FloatArray, missing: BoolArray, is_category: BoolArray) -> dict[str, float]:
    """Return the change between two successive filled tables (n_rows, n_columns), for numbers and for categories."""
    found = {}
    if missing[:, ~is_category].any():
        change = ((new - old)[:, ~is_category] ** 2).sum()
        found["numbers"] = float(change / max((new[:, ~is_category] ** 2).sum(), np.finfo(np.float64).tiny))
    if missing[:, is_category].any():
        found["categories"] = float((new != old)[:, is_category].sum() / missing[:, is_category].sum())
    return found


def has_converged(now: dict[str, float], before: dict[str, float] | None) -> bool:
    """Tell whether the change has stopped decreasing for both numbers and categories."""
    return before is not None and all(now[name] >= before[name] for name in now)


class Chain:
    """Models of every column given the others, refitted in rounds until the filled table converges.

    New rows pass through all kept rounds. Models that accept missing cells read them in the first round.
    """

    def __init__(self, layout: Layout, *, reads_missing: bool, max_rounds: int, seed: int) -> None:
        self.layout, self.reads_missing, self.max_rounds, self.seed = layout, reads_missing, max_rounds, seed
        self.rounds: list[dict[int, Model]] = []
        self.changes: list[dict[str, float]] = []
        self._order: list[int] = []
        self._looped: list[int] = []

    def fit(self, values: FloatArray, learn: Learn) -> Self:
        """Fit the models of all rounds to codes (n_rows, n_columns), NaN where missing."""
        seen = self.layout.scaled(values)
        missing = np.isnan(seen)
        self._order = np.argsort(missing.sum(axis=0), kind="stable").tolist()  # fewest missing cells first
        self._looped = [c for c in self._order if self.layout.predicts[c] and missing[:, c].any()]
        filled = self._iterate(np.where(missing, self.layout.start, seen), missing, learn)
        self.rounds = self.rounds or [{}]
        for column in [c for c in self._order if c not in self._looped]:
            incomplete = self.layout.predicts[column] and self._reads_missing(len(self.rounds) - 1)
            read = seen if incomplete else filled
            self.rounds[-1][column] = self._fit_column(read, missing, column, len(self.rounds), learn)
        return self

    def _reads_missing(self, number: int) -> bool:
        """Tell whether the models of a round read incomplete rows."""
        return number == 0 and self.reads_missing and bool(self._looped)

    def _iterate(self, filled: FloatArray, missing: BoolArray, learn: Learn) -> FloatArray:
        """Run rounds and keep their models until the table converges; return the table of the last kept round."""
        moving = missing & np.isin(np.arange(missing.shape[1]), self._looped)
        before: dict[str, float] | None = None
        for number in range(self.max_rounds if self._looped else 0):
            models: dict[int, Model] = {}
            new = self._sweep(filled, moving, self._looped, number, models, learn=learn)
            now = differences(new, filled, moving, np.array(self.layout.n_categories) > 0)
            self.changes.append(now)
            if has_converged(now, before):
                break
            self.rounds.append(models)
            filled, before = new, now
        return filled

    def _sweep(
        self,
        filled: FloatArray,
        missing: BoolArray,
        columns: Iterable[int],
        number: int,
        models: dict[int, Model],
        *,
        learn: Learn | None = None,
    ) -> FloatArray:
        """Predict every column of one round in turn, with given models or, with `learn`, with new ones."""
        new = filled.copy()
        read = new
        if self._reads_missing(number):
            # Models can read missing cells only in the columns that were incomplete at fit.
            read = filled.copy()
            read[:, self._looped] = np.where(missing, np.nan, filled)[:, self._looped]
        for column in columns:
            if learn is not None:
                models[column] = self._fit_column(read, missing, column, number, learn)
            rows = missing[:, column]
            if rows.any():
                predicted = models[column].predict(read[rows][:, self.layout.sources(column)])
                new[rows, column] = self.layout.bounded(predicted, column)
        return new

    def _fit_column(self, read: FloatArray, missing: BoolArray, column: int, number: int, learn: Learn) -> Model:
        sources = self.layout.sources(column)
        rows = ~missing[:, column]
        target = read[rows, column]
        if not sources or not len(target) or (target == target[0]).all():
            return Constant(float(target[0]) if len(target) and sources else float(self.layout.start[column]))
        seed = np.random.SeedSequence([self.seed, column, number]).generate_state(1)[0]
        return learn(self.layout, column, read[rows][:, sources], target, int(seed))

    def fill(self, values: FloatArray) -> FloatArray:
        """Fill codes (n_rows, n_columns); the result for a row does not depend on other rows."""
        seen = self.layout.scaled(values)
        missing = np.isnan(seen)
        filled = np.where(missing, self.layout.start, seen)
        used = np.array(self.layout.predicts)
        rows = np.flatnonzero(missing[:, used].any(axis=1))
        for number in range(self.max_rounds):
            kept = min(number, len(self.rounds) - 1)
            models = self.rounds[kept]
            columns = [c for c in self._order if used[c] and c in models]
            new = self._sweep(filled[rows], missing[rows], columns, kept, models)
            changed = (new != filled[rows]).any(axis=1)
            filled[rows] = new
            rows = rows[changed] if kept == len(self.rounds) - 1 else rows
            if not len(rows):
                break
        late = [c for c in self._order if not used[c]]
        filled = self._sweep(filled, missing, late, self.max_rounds, self.rounds[-1])
        return self.layout.restored(filled)


class ChainedTrees(Baseline):
    """Base class of imputers with a chain of tree models."""

    reads_missing: ClassVar[bool]  # whether the models accept missing cells
    max_rounds: int
    chain_: Chain | None

    @abc.abstractmethod
    def _fit_model(self, layout: Layout, column: int, rows: FloatArray, target: FloatArray, seed: int) -> Model:
        """Fit a model of `target` to `rows`, whose columns are `layout.sources(column)`."""

    def _fit_values(self, values: FloatArray, columns: list[Column], low: FloatArray, high: FloatArray) -> None:
        seed = seed_from(self.random_state)
        chain = None
        if columns:
            layout = Layout(values, columns, low, high)
            chain = Chain(layout, reads_missing=self.reads_missing, max_rounds=self.max_rounds, seed=seed)
            chain.fit(values, self._fit_model)
        self.chain_ = chain
        self.n_rounds_, self.changes_ = (len(chain.rounds), chain.changes) if chain else (0, [])

    def _fill_values(self, values: FloatArray) -> FloatArray:
        return values if self.chain_ is None else self.chain_.fill(values)


class Donors(NamedTuple):
    """Training values of the leaves that hold more than one distinct value."""

    leaves: npt.NDArray[np.int32]  # (n_leaves,) nodes in ascending order
    starts: npt.NDArray[np.int64]  # (n_leaves + 1,) offsets of the leaves in `values`
    values: npt.NDArray[np.float32]  # (n_values,) values in the bootstrap sample, a random subset for large leaves

    @classmethod
    def from_forest(cls, forest: Any, rows: npt.NDArray[np.float32], target: Array) -> Donors:
        """Collect the values of a target (n_rows,) in the leaves of a scikit-learn forest fitted to `rows`."""
        trees = [estimator.tree_ for estimator in forest.estimators_]
        spread = [_is_spread(tree) for tree in trees]
        samples = forest.estimators_samples_ if any(leaf.any() for leaf in spread) else [None] * len(trees)
        leaves, values = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.float32)]
        root = 0
        for tree, leaf, sample, estimator in zip(trees, spread, samples, forest.estimators_, strict=True):
            if leaf.any():
                rng = np.random.default_rng(estimator.random_state)
                nodes, members = _subset(*_in_leaves(tree, leaf, sample, rows), rng)
                leaves.append(nodes + root)
                values.append(target[members].astype(np.float32))
            root += tree.node_count
        found, starts = np.unique(np.concatenate(leaves), return_index=True)
        ends = np.append(starts, sum(map(len, values)))
        return cls(found.astype(np.int32), ends.astype(np.int64), np.concatenate(values))

    def pick(self, nodes: npt.NDArray[np.int64], uniforms: FloatArray, single: Array) -> Array:
        """Return a value (n_rows,) of each leaf, selected by a number in [0, 1), or `single` if it has only one."""
        if not len(self.leaves):
            return single
        index = np.minimum(np.searchsorted(self.leaves, nodes), len(self.leaves) - 1)
        first = self.starts[index]
        chosen = first + _below(uniforms, self.starts[index + 1] - first)
        return np.asarray(np.where(self.leaves[index] == nodes, self.values[chosen].astype(np.float64), single))


def _below(uniforms: FloatArray, counts: Any) -> npt.NDArray[np.int64]:
    """Return random integers below `counts`, also when rounding would reach them."""
    return np.asarray(np.minimum((uniforms * counts).astype(np.int64), counts - 1))


def _is_spread(tree: Any) -> npt.NDArray[np.bool_]:
    """Return the mask of the leaves that hold more than one distinct value."""
    size = tree.impurity[0] + tree.value[:, 0, 0] ** 2
    return np.asarray((tree.children_left < 0) & (tree.n_node_samples > 1) & (tree.impurity > _ROUNDING * size))


def _in_leaves(
    tree: Any, wanted: npt.NDArray[np.bool_], sample: Array, rows: npt.NDArray[np.float32]
) -> tuple[Array, Array]:
    """Return the leaf and the index of every row of a bootstrap sample that ends in a wanted leaf."""
    times = np.bincount(sample, minlength=len(rows))
    members = np.flatnonzero(times)
    leaves = tree.apply(np.ascontiguousarray(rows[members]))
    members, leaves = members[wanted[leaves]], leaves[wanted[leaves]]
    return np.repeat(leaves, times[members]), np.repeat(members, times[members])


def _subset(leaves: Array, rows: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Sort by leaf and keep at most `_MAX_DONORS` random rows of each."""
    order = rng.permutation(len(leaves))
    order = order[np.argsort(leaves[order], kind="stable")]
    leaves, rows = leaves[order], rows[order]
    rank = np.arange(len(leaves)) - np.searchsorted(leaves, leaves)
    return leaves[rank < _MAX_DONORS], rows[rank < _MAX_DONORS]


def one_hot(rows: Any, widths: Sequence[int]) -> npt.NDArray[np.float32]:
    """Return contiguous float32 rows in which the columns that have a width are one-hot encoded."""
    if not any(widths):
        return np.ascontiguousarray(rows, dtype=np.float32)
    columns = ((rows[:, [k]], width) for k, width in enumerate(widths))
    places = [cells == np.arange(width) if width else cells.astype(np.float32) for cells, width in columns]
    return np.concatenate(places, axis=1, dtype=np.float32, casting="unsafe")


@dataclass(frozen=True)
class CompactForest:
    """Trees of a fitted scikit-learn forest in flat arrays."""

    feature: npt.NDArray[np.signedinteger[Any]]  # (n_nodes,) column of the split, -1 for a leaf
    cut: npt.NDArray[np.float32]  # (n_nodes,) largest value that goes left; for a leaf, its prediction
    right: npt.NDArray[np.int32]  # (n_nodes,) right child; the left one is the next node
    roots: npt.NDArray[np.int64]  # (n_trees,) first node of each tree
    n_categories: int = 0  # number of categories of the target, 0 for numbers
    donors: Donors | None = None  # training values of leaves, for draws
    widths: Sequence[int] = ()  # widths of the columns for `one_hot`

    @classmethod
    def from_forest(
        cls, forest: Any, n_categories: int = 0, donors: Donors | None = None, widths: Sequence[int] = ()
    ) -> CompactForest:
        """Copy a fitted RandomForestRegressor, or a RandomForestClassifier of codes below `n_categories`."""
        trees = [estimator.tree_ for estimator in forest.estimators_]
        sizes = np.array([tree.node_count for tree in trees])
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        leaf = np.concatenate([tree.children_left for tree in trees]) < 0
        feature = np.concatenate([tree.feature for tree in trees])
        right = np.concatenate([tree.children_right + root for tree, root in zip(trees, roots, strict=True)])
        nodes = np.concatenate([tree.value[:, 0] for tree in trees])  # the mean, or the share of each class
        values = forest.classes_[nodes.argmax(axis=1)] if n_categories else nodes[:, 0]
        cuts = _rounded_down(np.concatenate([tree.threshold for tree in trees]))
        narrow = np.int16 if feature.max() < 2**15 else np.int32
        return cls(
            feature=np.asarray(np.where(leaf, -1, feature), dtype=narrow),
            cut=np.where(leaf, values.astype(np.float32), cuts),
            right=right.astype(np.int32),
            roots=roots.astype(np.int64),
            n_categories=n_categories,
            donors=donors,
            widths=widths,
        )

    def predict(self, rows: Any) -> Array:
        """Return the mean of the trees, or their majority vote with ties in favour of the lower code, (n_rows,)."""
        table = one_hot(rows, self.widths)
        found = np.empty(len(table))
        step = max(1, _MAX_PAIRS // len(self.roots))
        for start in range(0, len(table), step):
            part = table[start : start + step]
            first = np.repeat(np.arange(len(part)) * part.shape[1], len(self.roots))
            leaves = self._descend(part.ravel(), first, np.tile(self.roots, len(part)))
            found[start : start + step] = self._combined(self.cut[leaves].reshape(len(part), -1))
        return found

    def draw(self, rows: Any, uniforms: FloatArray) -> Array:
        """Return a training value (n_rows,) from the leaf of each row in a random tree, by numbers in [0, 1)."""
        table = one_hot(rows, self.widths)
        n_trees = len(self.roots)
        tree = _below(uniforms, n_trees)
        first = np.arange(len(table)) * table.shape[1]
        leaves = self._descend(table.ravel(), first, self.roots[tree])
        single = self.cut[leaves].astype(np.float64)
        # The remainder of the number after the choice of the tree is uniform again.
        return single if self.donors is None else self.donors.pick(leaves, uniforms * n_trees - tree, single)

    def _descend(
        self, cells: npt.NDArray[np.float32], first: npt.NDArray[np.int64], node: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the leaves below `node`, which is overwritten, for the rows whose cells start at `first`."""
        moving = np.arange(len(node))
        while len(moving):
            feature = self.feature[node[moving]]
            inner = feature >= 0
            moving, feature = moving[inner], feature[inner]
            at = node[moving]
            left = cells[first[moving] + feature] <= self.cut[at]
            node[moving] = np.where(left, at + 1, self.right[at])
        return node

    def _combined(self, values: npt.NDArray[np.float32]) -> Array:
        if not self.n_categories:
            return np.asarray(values.mean(axis=1, dtype=np.float64))
        votes = np.arange(len(values))[:, None] * self.n_categories + values.astype(np.int64)
        counts = np.bincount(votes.ravel(), minlength=len(values) * self.n_categories)
        return np.asarray(counts.reshape(len(values), self.n_categories).argmax(axis=1), dtype=np.float64)


def _rounded_down(cuts: Array) -> npt.NDArray[np.float32]:
    """Return float32 thresholds that split float32 values exactly as the float64 ones do."""
    rounded = cuts.astype(np.float32)
    return np.where(rounded > cuts, np.nextafter(rounded, np.float32(-np.inf)), rounded)


def _nearest(known: FloatArray, codes: FloatArray) -> FloatArray:
    """Return the element of the ascending `known` that is nearest to each code."""
    place = np.searchsorted(known, codes)
    below, above = known[np.maximum(place - 1, 0)], known[np.minimum(place, len(known) - 1)]
    return np.where(codes - below <= above - codes, below, above)


@dataclass(kw_only=True, eq=False, repr=False)
class MissForestImputer(DrawsMixin, ChainedTrees):
    """Imputer by chained random forests (MissForest).

    The other parameters are those of `Baseline`.

    Parameters
    ----------
    n_trees : int, default=100
        Number of trees per forest.
    max_rounds : int, default=10
        Maximum number of rounds over the columns.
    min_leaf : int, default=1
        Minimum number of rows in a leaf of a regression tree. Classification trees are fully grown.
    max_features : {"sqrt", "log2", "all"}, default="sqrt"
        Number of columns considered for each split.
    max_rows : int, optional
        Maximum number of rows in the bootstrap sample of a tree; by default all.
    n_jobs : int, optional
        Number of trees grown in parallel. It does not affect the result.

    Attributes
    ----------
    n_rounds_ : int
        Number of rounds whose forests were kept.
    changes_ : list of dict
        Change of the table in each round, for numbers and for categories.

    Notes
    -----
    Missing cells start as the mean or the most frequent category of their column. Columns are visited in the order of
    their number of missing cells, fewest first, and each gets a forest fitted to the rows where it is observed. The
    change of the table in a round is

        Δ(numbers) = Σ (new − old)² / Σ new²,   Δ(categories) = changed cells / missing cells,

    computed on standardised numbers. When neither decreases any more, the round before is the last one kept. Three
    rounds suffice when time is short.

    The original method cannot fill new rows. Here they pass through the forests of all kept rounds, as those of the
    last round alone are less accurate. When fewer than `max_rounds` rounds were kept, the last is repeated until a row
    no longer changes. `transform` treats the rows of the fit in the same way.

    `draw` takes missing cells from leaves: a row is passed down one random tree of the column's last forest, and the
    cell becomes one of the training values in its leaf. Cells start as draws from their column, and each is redrawn ten
    times given the current values of the others, so draws are always observed values. The forests were fitted to rows
    filled with means and are the same for all draws, so the variance of the draws is too small for few rows.

    References
    ----------
    D. J. Stekhoven and P. Bühlmann, "MissForest: non-parametric missing value imputation for mixed-type data",
    Bioinformatics 28(1), 2012.
    L. L. Doove, S. van Buuren and E. Dusseldorp, "Recursive partitioning for missing data imputation in the presence
    of interaction effects", Computational Statistics and Data Analysis 72, 2014.

    Examples
    --------
    >>> from mcflow.baselines import make
    >>> x = np.linspace(0, 1, 200)
    >>> rows = np.column_stack([x, (x - 0.5) ** 2])
    >>> rows[100, 1] = np.nan
    >>> filled = make("missforest", n_trees=20, random_state=0).fit_transform(rows)
    >>> bool(abs(filled[100, 1]) < 0.01)
    True
    """

    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        "n_trees": Interval(int, 1),
        "max_rounds": Interval(int, 1),
        "min_leaf": Interval(int, 1),
        "max_features": Options(("sqrt", "log2", "all")),
        "max_rows": Interval(int, 1, optional=True),
    }
    reads_missing = False
    n_trees: int = 100
    max_rounds: int = 10
    min_leaf: int = 1
    max_features: str = "sqrt"
    max_rows: int | None = None
    n_jobs: int | None = None

    def _fit_model(self, layout: Layout, column: int, rows: FloatArray, target: FloatArray, seed: int) -> Model:
        n_categories = layout.n_categories[column]
        kind = ensemble.RandomForestClassifier if n_categories else ensemble.RandomForestRegressor
        forest = kind(
            self.n_trees,
            max_features=1.0 if self.max_features == "all" else self.max_features,
            max_samples=None if self.max_rows is None else min(self.max_rows, len(target)),
            min_samples_leaf=1 if n_categories else self.min_leaf,
            n_jobs=self.n_jobs,
            random_state=seed,
        )
        widths = [layout.n_categories[k] if layout.nominal[k] else 0 for k in layout.sources(column)]
        widths = [width if width <= MAX_ONE_HOT else 0 for width in widths]
        table = one_hot(rows, widths)
        forest.fit(table, target.astype(np.int64) if n_categories else target)
        return CompactForest.from_forest(forest, n_categories, Donors.from_forest(forest, table, target), widths)

    def _fit_values(self, values: FloatArray, columns: list[Column], low: FloatArray, high: FloatArray) -> None:
        super()._fit_values(values, columns, low, high)
        for models in self.chain_.rounds[:-1] if self.chain_ else ():  # draws need the last round only
            models.update({k: replace(m, donors=None) for k, m in models.items() if isinstance(m, CompactForest)})
        self.marginals_ = Marginals.from_values(values)
        self.seen_ = [np.unique(column[~np.isnan(column)]) for column in values.T]

    def _draw_values(self, values: FloatArray, number: int, seed: int) -> FloatArray:
        """Draw missing cells from the leaves of the last forests; draws depend on the seed and the row only."""
        if self.chain_ is None:
            return values
        missing = [np.flatnonzero(column) for column in np.isnan(values).T]
        layout = self.chain_.layout
        cells = layout.scaled(self.marginals_.fill_rows(values, seed))
        for k in range(DRAW_ROUNDS):
            uniforms = row_uniforms(values, seed + k + 1)
            for column, model in self.chain_.rounds[-1].items():
                rows = missing[column]
                # A cell without a forest keeps its initial fill, which is a draw from its column.
                if len(rows) and isinstance(model, CompactForest):
                    others = cells[rows[:, None], layout.sources(column)]
                    cells[rows, column] = model.draw(others, uniforms[rows, column])
        # Drawn codes are observed ones up to rounding.
        codes = zip(self.seen_, layout.restored(cells).T, strict=True)
        return np.clip(np.column_stack([_nearest(seen, drawn) for seen, drawn in codes]), layout.low, layout.high)


@dataclass(kw_only=True, eq=False, repr=False)
class BoostedImputer(ChainedTrees):
    """Imputer by chained gradient-boosted trees.

    The other parameters are those of `Baseline`.

    Parameters
    ----------
    n_iter : int, default=200
        Number of boosting iterations; fewer for columns of many categories.
    learning_rate : float, default=0.1
        Weight of each tree.
    max_leaf_nodes : int, default=31
        Maximum number of leaves per tree.
    min_leaf : int, default=20
        Minimum number of rows in a leaf.
    max_rounds : int, default=2
        Maximum number of rounds over the columns.

    Attributes
    ----------
    n_rounds_, changes_
        As for `MissForestImputer`.

    Notes
    -----
    The algorithm of `MissForestImputer` with histogram-based gradient boosting in place of forests. These trees learn
    the side of a split for missing cells, so the first round reads the table with its missing cells, and the second the
    table filled by the first. The result is random only above 200,000 rows, where the histogram bins are computed from
    a sample.

    References
    ----------
    J. H. Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29(5), 2001.
    G. Ke et al., "LightGBM: A highly efficient gradient boosting decision tree", NeurIPS 2017.

    Examples
    --------
    >>> from mcflow.baselines import make
    >>> x = np.linspace(0, 1, 400)
    >>> rows = np.column_stack([x, (x - 0.5) ** 2])
    >>> rows[200, 1] = np.nan
    >>> filled = make("boosted", n_iter=50, random_state=0).fit_transform(rows)
    >>> bool(abs(filled[200, 1]) < 0.01)
    True
    """

    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        "n_iter": Interval(int, 1),
        "learning_rate": Interval(float, 0, 1, low_open=True),
        "max_leaf_nodes": Interval(int, 2),
        "min_leaf": Interval(int, 1),
        "max_rounds": Interval(int, 1),
    }
    reads_missing = True
    n_iter: int = 200
    learning_rate: float = 0.1
    max_leaf_nodes: int = 31
    min_leaf: int = 20
    max_rounds: int = 2

    def _fit_model(self, layout: Layout, column: int, rows: FloatArray, target: FloatArray, seed: int) -> Model:
        native = [layout.nominal[k] and layout.n_categories[k] <= MAX_NATIVE_CATEGORIES for k in layout.sources(column)]
        kind, n_iter = ensemble.HistGradientBoostingRegressor, self.n_iter
        if layout.n_categories[column]:
            kind, target = ensemble.HistGradientBoostingClassifier, target.astype(np.int64)
            # Each iteration grows one tree per category, so many categories need fewer iterations.
            n_iter = min(n_iter, max(2 * n_iter // len(np.unique(target)), MIN_ITERATIONS))
        model: Model = kind(
            learning_rate=self.learning_rate,
            max_iter=n_iter,
            max_leaf_nodes=self.max_leaf_nodes,
            min_samples_leaf=self.min_leaf,
            categorical_features=native if any(native) else None,
            early_stopping=False,
            random_state=seed,
        ).fit(rows, target)
        return model

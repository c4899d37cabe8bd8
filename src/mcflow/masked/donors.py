"""Donors of missing cells: observed values in the leaves of trees that are grown on completed rows."""

from __future__ import annotations

__all__ = ["DonorTrees", "Donors", "fit_donors"]

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from mcflow.errors import ModelFileError
from mcflow.fitting.distributed import map_on_threads
from mcflow.masked.config import MaskedConfig
from mcflow.masked.ladder import Inputs, TrackAnswers, hidden_rounds
from mcflow.typing import Array, BoolArray, FloatArray

DONOR_STREAM = 0x646F6E6F  # separates the random numbers of the donors from others of the same seed

ARRAYS = {"features": "i4", "thresholds": "f4", "left": "i4", "right": "i4", "counts": "i4", "donors": "i4"}


@dataclass(frozen=True)
class DonorTrees:
    """Trees of one column; a leaf holds the training cells that are in it.

    `left` is the number of the child for smaller or equal inputs, or -1 in a leaf. `right` is the other child, or the
    place of a leaf's first donor; `counts` is its number of donors, 0 in a split. `donors` are indices of the training
    cells that are in any leaf, whose codes are `values`.
    """

    roots: Array  # (n_trees,)
    features: Array  # (n_nodes,)
    thresholds: Array  # (n_nodes,)
    left: Array  # (n_nodes,)
    right: Array  # (n_nodes,)
    counts: Array  # (n_nodes,)
    donors: Array  # (n_donors,)
    values: FloatArray  # (n_cells,) codes of the training cells

    def draw(self, inputs: Array, uniforms: FloatArray, weights: FloatArray, n_leaves: int) -> FloatArray:
        """Return the code of a random donor of each row, among those in its leaves of some random trees.

        A leaf is chosen by the mean weight of its donors, and a donor by its own. Shapes: `inputs` (n_rows, n_inputs),
        `uniforms` (2, n_rows), `weights` (n_cells,) of the training cells.
        """
        n_trees, rows = len(self.roots), np.arange(len(inputs))
        n_leaves = min(n_leaves, n_trees)
        tree, place = np.divmod(uniforms[0] * n_trees, 1)
        others = np.arange(n_leaves)[:, None] * n_trees // n_leaves
        leaves = self._leaves(inputs, (tree.astype(np.int64) + others) % n_trees)
        first, last = self.right[leaves], self.right[leaves] + self.counts[leaves] - 1
        own = weights[self.donors]
        ends = np.cumsum(own)
        before = ends[first] - own[first]
        mass = ends[last] - before
        shares = np.cumsum(mass / self.counts[leaves], axis=0)
        chosen = np.minimum((place * shares[-1] >= shares).sum(axis=0), n_leaves - 1), rows
        donor = np.searchsorted(ends, before[chosen] + uniforms[1] * mass[chosen], side="right")
        codes: FloatArray = self.values[self.donors[np.clip(donor, first[chosen], last[chosen])]]
        return codes

    def _leaves(self, inputs: Array, trees: Array) -> Array:
        """Return the leaves (n_leaves, n_rows) of rows (n_rows, n_inputs) in some trees (n_leaves, n_rows)."""
        node, rows = self.roots[trees.ravel()], np.tile(np.arange(len(inputs)), len(trees))
        active = np.flatnonzero(self.left[node] >= 0)
        while len(active):
            here = node[active]
            smaller = inputs[rows[active], self.features[here]] <= self.thresholds[here]
            node[active] = np.where(smaller, self.left[here], self.right[here])
            active = active[self.left[node[active]] >= 0]
        return node.reshape(trees.shape)

    def is_sound(self, n_inputs: int, n_categories: int | None) -> bool:
        """Return whether sizes and types fit, children come after their parents, and all indices are in range."""
        types = {"roots": "i4", **ARRAYS, "values": "f8"}
        parts = {name: getattr(self, name) for name in types}
        nodes = {parts[name].shape for name in ARRAYS if name != "donors"}
        if any(part.ndim != 1 or not len(part) or part.dtype.kind != types[k][0] for k, part in parts.items()):
            return False
        if len(nodes) > 1 or not np.isfinite(self.values).all() or not np.isfinite(self.thresholds).all():
            return False
        if n_categories is not None and not np.isin(self.values, np.arange(n_categories)).all():
            return False
        n_nodes, leaf = len(self.left), self.left < 0
        own = np.arange(n_nodes)
        splits = [(side > own) & (side < n_nodes) for side in (self.left, self.right)]
        inside = (self.counts > 0) & (self.right >= 0) & (self.right.astype(np.int64) + self.counts <= len(self.donors))
        return bool(
            np.where(leaf, inside, splits[0] & splits[1] & (self.features >= 0) & (self.features < n_inputs)).all()
            and np.array_equal(self.roots, np.setdiff1d(own, np.concatenate([self.left[~leaf], self.right[~leaf]])))
            and self.counts[leaf].sum(dtype=np.int64) == len(self.donors)
            and np.array_equal(np.unique(self.donors), np.arange(len(self.values)))
        )


class Donors:
    """Donor trees of the columns by index, and the sweeps that redraw missing cells with them."""

    def __init__(self, inputs: Inputs, trees: dict[int, DonorTrees]) -> None:
        self.inputs, self.trees = inputs, trees

    def redraw(
        self,
        codes: FloatArray,
        missing: BoolArray,
        answers: TrackAnswers,
        order: Array,
        *,
        uniforms: Callable[[int], FloatArray],
        weights: dict[int, FloatArray],
        n_leaves: int,
    ) -> None:
        """Redraw the missing cells of completed rows in place, column by column.

        `answers` are H's, `uniforms` returns random numbers (2, n_cells) for the missing cells of a column, and
        `weights` are those of its training cells. Shapes: `codes`, `missing` (n_rows, n_columns), `order` (n_columns,).
        """
        grid = self.inputs.grid
        rows = self.inputs.encode(grid.units(codes).astype(np.float32), np.ones(codes.shape, bool), None)
        columns = answers.wanted.nonzero()[1]
        for k in order:
            here = missing[:, k]
            if k not in self.trees or not here.any():
                continue
            asked = answers.at(columns == k, category=k in self.inputs.categories)
            inputs = self.inputs.of_cells(k, rows[here], asked)
            codes[here, k] = self.trees[k].draw(inputs, uniforms(k), weights[k], n_leaves)
            rows[here, self.inputs.own(k)] = self.inputs.encode_column(k, codes[here, k])

    def bootstrap_weights(self, seed: int, number: int) -> dict[int, FloatArray]:
        """Return random weights of the training cells by column, a Bayesian bootstrap shared by all cells of a draw."""
        rng = np.random.default_rng([seed, DONOR_STREAM, number + 1])  # a trailing 0 would be the stream of the fit
        return {k: rng.exponential(size=len(trees.values)) for k, trees in self.trees.items()}

    def tensors(self) -> dict[str, Array]:
        """Return arrays by name, for a model file."""
        arrays: dict[str, Array] = {"donors.columns": np.array(sorted(self.trees), dtype=np.int32)}
        for k, trees in self.trees.items():
            arrays |= {f"donors.{k}.{name}": getattr(trees, name) for name in ("roots", *ARRAYS, "values")}
        return arrays

    @classmethod
    def from_tensors(cls, arrays: dict[str, Array], inputs: Inputs) -> Donors | None:
        """Undo `tensors`; return None if there are no donors."""
        if "donors.columns" not in arrays:
            return None
        trees, columns, names = {}, arrays["donors.columns"], ("roots", *ARRAYS, "values")
        needed = {f"donors.{k}.{name}" for k in columns.ravel().tolist() for name in names} | {"donors.columns"}
        sound = needed == {name for name in arrays if name.startswith("donors.")}
        sound = sound and columns.ndim == 1 and bool((np.diff(columns) > 0).all())
        for k in columns.tolist() if sound else ():
            trees[k] = DonorTrees(**{name: arrays[f"donors.{k}.{name}"] for name in names})
            sound &= 0 <= k < len(inputs.sizes) and trees[k].is_sound(inputs.width + 1, inputs.categories.get(k))
        if not sound:
            raise ModelFileError("The donors of this file are damaged. Save the model again with `save`.")
        return cls(inputs, trees)


def fit_donors(
    inputs: Inputs,
    values: FloatArray,
    ask: Callable[[FloatArray, BoolArray, BoolArray], TrackAnswers],
    complete: Callable[[FloatArray], FloatArray],
    config: MaskedConfig,
    *,
    patterns: BoolArray | None,
    seed: int,
) -> Donors:
    """Grow donor trees for all columns on rows that are completed by random draws.

    The inputs of a tree are the other cells of the row, and estimates of the cell by H and a Gaussian, made with the
    cell hidden. Shapes: `values` (n_rows, n_columns), `patterns` (n_patterns, n_columns). `ask` returns estimates,
    given rows and the masks of shown and wanted cells, `complete` rows of codes with the missing cells drawn.
    """
    rng = np.random.default_rng([seed, DONOR_STREAM])
    grid = inputs.grid
    if len(values) > config.donor_table_rows:
        values = values[np.sort(rng.choice(len(values), config.donor_table_rows, replace=False))]
    seen = ~np.isnan(values)
    rounds = hidden_rounds(
        *(partial(ask, values), seen, seen, {k: int(grid.n_points[k]) for k in grid.n_categories}),
        n_rounds=config.hidden_rounds if patterns is None else config.pattern_rounds,
        patterns=patterns,
        rng=rng,
    )
    tables = []
    for one in rounds:
        codes = complete(np.where(one.shown, values, np.nan))
        tables.append(inputs.encode(grid.units(codes).astype(np.float32), np.ones(codes.shape, bool), None))
    n_columns = values.shape[1]
    n_trees = int(np.clip(config.donor_cells // max(n_columns, 1), config.min_donor_trees, config.donor_trees))
    seeds = rng.integers(2**31, size=(n_columns, n_trees))

    def column_trees(k: int) -> DonorTrees | None:
        cells, codes = [], []
        for base, one in zip(tables, rounds, strict=True):
            here, asked = one.of(k)
            cells.append(inputs.of_cells(k, base[here], asked))
            codes.append(values[here, k])
        return _grow(np.concatenate(cells), np.concatenate(codes), seeds[k], k in grid.n_categories, config)

    grown = map_on_threads(column_trees, range(n_columns))
    return Donors(inputs, {k: trees for k, trees in enumerate(grown) if trees is not None})


def _grow(cells: Array, codes: FloatArray, seeds: Array, categories: bool, config: MaskedConfig) -> DonorTrees | None:
    """Grow a tree for each seed on a bootstrap sample of the training cells of a column."""
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    if len(codes) < config.donor_leaf:
        return None
    index = np.unique(codes, return_inverse=True)[1] if categories else codes
    parts: dict[str, list[Array]] = {name: [] for name in ARRAYS}
    roots, n_nodes, n_donors = [], 0, 0
    grown = DecisionTreeClassifier if categories else DecisionTreeRegressor
    for seed in seeds:
        sample = np.random.default_rng(seed).integers(len(codes), size=min(len(codes), config.donor_rows))
        tree = grown(min_samples_leaf=config.donor_leaf, max_features=config.donor_inputs, random_state=int(seed))
        tree.fit(cells[sample], index[sample])
        leaf = tree.apply(cells[sample])
        order = np.argsort(leaf, kind="stable")
        nodes, is_leaf = tree.tree_, tree.tree_.children_left < 0
        counts = np.bincount(leaf, minlength=nodes.node_count)
        first = np.cumsum(counts) - counts + n_donors
        parts["features"].append(np.where(is_leaf, 0, nodes.feature))
        parts["thresholds"].append(np.where(is_leaf, 0.0, nodes.threshold))
        parts["left"].append(np.where(is_leaf, -1, nodes.children_left + n_nodes))
        parts["right"].append(np.where(is_leaf, first, nodes.children_right + n_nodes))
        parts["counts"].append(np.where(is_leaf, counts, 0))
        parts["donors"].append(sample[order])
        roots.append(n_nodes)
        n_nodes, n_donors = n_nodes + nodes.node_count, n_donors + len(sample)
    used, donors = np.unique(np.concatenate(parts.pop("donors")), return_inverse=True)
    arrays = {name: np.concatenate(found) for name, found in parts.items()} | {"donors": donors}
    arrays = {name: array.astype(ARRAYS[name]) for name, array in arrays.items()}
    return DonorTrees(np.array(roots, dtype=np.int32), **arrays, values=codes[used])

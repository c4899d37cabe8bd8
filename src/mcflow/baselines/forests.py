"""Compact random forests: scikit-learn's predictions at ten bytes per node, and draws from leaves."""

from __future__ import annotations

__all__ = ["CompactForest", "Donors"]

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mcflow.typing import Array, FloatArray

#: Maximum number of pairs of rows and trees that are evaluated at a time.
_MAX_PAIRS = 1 << 18
#: Maximum number of training values that are stored per leaf.
_MAX_DONORS = 8
#: Impurity of a leaf, relative to the mean square, below which its values count as equal.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Donors:
    """Training values of the leaves that hold more than one distinct value.

    Examples
    --------
    >>> import numpy as np
    >>> donors = Donors(np.array([3]), np.array([0, 2]), np.array([5.0, 7.0], dtype=np.float32))
    >>> donors.pick(np.array([3, 3, 4]), np.array([0.2, 0.9, 0.9]), np.array([6.0, 6.0, 1.0]))
    array([5., 7., 1.])
    """

    leaves: npt.NDArray[np.int32]  # (n_leaves,) nodes in ascending order
    starts: npt.NDArray[np.int64]  # (n_leaves + 1,) offsets of the leaves in `values`
    values: npt.NDArray[np.float32]  # (n_values,) values in the bootstrap sample, a random subset for large leaves

    @classmethod
    def from_forest(cls, forest: Any, rows: npt.NDArray[np.float32], target: Array) -> Donors:
        """Collect the values in the leaves of a fitted scikit-learn forest.

        Shapes: `rows` (n_rows, n_features), `target` (n_rows,).
        """
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
        """Return a value of each leaf, selected by a number in [0, 1), or `single` where a leaf holds one value.

        Shapes: `nodes` (n_rows,), `uniforms` (n_rows,), `single` (n_rows,), returns (n_rows,).
        """
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


@dataclass(frozen=True)
class CompactForest:
    """Trees of a fitted scikit-learn forest in flat arrays."""

    feature: npt.NDArray[np.signedinteger[Any]]  # (n_nodes,) column of the split, -1 for a leaf
    cut: npt.NDArray[np.float32]  # (n_nodes,) largest value that goes left; for a leaf, its prediction
    right: npt.NDArray[np.int32]  # (n_nodes,) right child; the left one is the next node
    roots: npt.NDArray[np.int64]  # (n_trees,) first node of each tree
    n_categories: int = 0  # number of categories of the target, 0 for numbers
    donors: Donors | None = None  # training values of leaves, for draws

    @classmethod
    def from_forest(cls, forest: Any, n_categories: int = 0, donors: Donors | None = None) -> CompactForest:
        """Copy a fitted RandomForestRegressor, or a RandomForestClassifier of codes below `n_categories`."""
        trees = [estimator.tree_ for estimator in forest.estimators_]
        sizes = np.array([tree.node_count for tree in trees])
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        leaf = np.concatenate([tree.children_left for tree in trees]) < 0
        feature = np.concatenate([tree.feature for tree in trees])
        right = np.concatenate([tree.children_right + root for tree, root in zip(trees, roots, strict=True)])
        values = np.concatenate([_leaf_values(tree, forest, n_categories) for tree in trees])
        cuts = _rounded_down(np.concatenate([tree.threshold for tree in trees]))
        narrow = np.int16 if feature.max() < 2**15 else np.int32
        return cls(
            feature=np.asarray(np.where(leaf, -1, feature), dtype=narrow),
            cut=np.where(leaf, values.astype(np.float32), cuts),
            right=right.astype(np.int32),
            roots=roots.astype(np.int64),
            n_categories=n_categories,
            donors=donors,
        )

    def predict(self, rows: Any) -> Array:
        """Return the mean of the trees, or their majority vote with ties in favour of the lower code, (n_rows,)."""
        table = np.ascontiguousarray(rows, dtype=np.float32)
        parts = [self._combined(self.cut[leaves]) for leaves in self._leaves(table)]
        return np.concatenate(parts) if parts else np.empty(0)

    def draw(self, rows: Any, uniforms: FloatArray) -> Array:
        """Return a training value from the leaf of each row in a random tree.

        Shapes: `rows` (n_rows, n_features), `uniforms` (n_rows,), returns (n_rows,).
        """
        table = np.ascontiguousarray(rows, dtype=np.float32)
        n_trees = len(self.roots)
        tree = _below(uniforms, n_trees)
        first = np.arange(len(table)) * table.shape[1]
        leaves = self._descend(table.ravel(), first, self.roots[tree])
        single = self.cut[leaves].astype(np.float64)
        # The remainder of the number after the choice of the tree is uniform again.
        return single if self.donors is None else self.donors.pick(leaves, uniforms * n_trees - tree, single)

    def _leaves(self, table: npt.NDArray[np.float32]) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the leaves of batches of rows, (batch, n_trees)."""
        step = max(1, _MAX_PAIRS // len(self.roots))
        for start in range(0, len(table), step):
            part = table[start : start + step]
            first = np.repeat(np.arange(len(part)) * part.shape[1], len(self.roots))
            yield self._descend(part.ravel(), first, np.tile(self.roots, len(part))).reshape(len(part), -1)

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


def _leaf_values(tree: Any, forest: Any, n_categories: int) -> Array:
    """Return the mean, or the most frequent code, of every node."""
    if not n_categories:
        return np.asarray(tree.value[:, 0, 0])
    return np.asarray(forest.classes_[tree.value[:, 0].argmax(axis=1)])


def _rounded_down(cuts: Array) -> npt.NDArray[np.float32]:
    """Return float32 thresholds that split float32 values exactly as the float64 ones do."""
    rounded = cuts.astype(np.float32)
    return np.where(rounded > cuts, np.nextafter(rounded, np.float32(-np.inf)), rounded)

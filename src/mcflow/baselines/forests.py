"""Random forests in a seventh of the memory: ten bytes a node, the same predictions, and draws from their leaves."""

from __future__ import annotations

__all__ = ["CompactForest", "Donors"]

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mcflow.typing import Array, FloatArray

#: Pairs of a row and a tree that are led down at a time.
_PAIRS = 1 << 18
#: Training values that a leaf keeps, at most; the trees together have many more.
_MOST_DONORS = 8
#: Spread of a leaf, as a share of what could be rounding, above which its values differ.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Donors:
    """The training values of the leaves that hold more than one.

    Parameters
    ----------
    leaves : ndarray of shape (n_leaves,)
        Nodes, in rising order. A leaf that is not listed holds one value, which the forest has.
    starts : ndarray of shape (n_leaves + 1,)
        Where the values of each leaf begin; the last is their number.
    values : ndarray of shape (n_values,)
        Float32. As often as the bootstrap sample has them, a random few of a leaf that has many.

    Examples
    --------
    >>> import numpy as np
    >>> donors = Donors(np.array([3]), np.array([0, 2]), np.array([5.0, 7.0], dtype=np.float32))
    >>> donors.pick(np.array([3, 3, 4]), np.array([0.2, 0.9, 0.9]), np.array([6.0, 6.0, 1.0]))
    array([5., 7., 1.])
    """

    leaves: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    values: npt.NDArray[np.float32]

    @classmethod
    def from_forest(cls, forest: Any, rows: npt.NDArray[np.float32], target: Array) -> Donors:
        """Collect the values of a fitted scikit-learn forest's leaves.

        Parameters
        ----------
        forest : RandomForestRegressor or RandomForestClassifier
            Fitted on `rows` and `target`.
        rows : ndarray of shape (n_rows, n_features)
            Float32.
        target : ndarray of shape (n_rows,)
            Numbers or codes.

        Returns
        -------
        Donors
        """
        trees = [estimator.tree_ for estimator in forest.estimators_]
        spread = [_is_spread(tree) for tree in trees]
        samples = forest.estimators_samples_ if any(leaf.any() for leaf in spread) else [None] * len(trees)
        leaves, values = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.float32)]
        root = 0
        for tree, leaf, sample, estimator in zip(trees, spread, samples, forest.estimators_, strict=True):
            if leaf.any():
                rng = np.random.default_rng(estimator.random_state)
                nodes, places = _few_of_each(*_in_leaves(tree, leaf, sample, rows), rng)
                leaves.append(nodes + root)
                values.append(target[places].astype(np.float32))
            root += tree.node_count
        found, starts = np.unique(np.concatenate(leaves), return_index=True)
        ends = np.append(starts, sum(map(len, values)))
        return cls(found.astype(np.int32), ends.astype(np.int64), np.concatenate(values))

    def pick(self, nodes: npt.NDArray[np.int64], uniforms: FloatArray, alone: Array) -> Array:
        """Return a value of each leaf, chosen by a number in [0, 1); `alone` where a leaf holds one value.

        Parameters
        ----------
        nodes : ndarray of shape (n_rows,)
            Leaves.
        uniforms : ndarray of shape (n_rows,)
            What chooses.
        alone : ndarray of shape (n_rows,)
            The value of a leaf that has one.

        Returns
        -------
        ndarray of shape (n_rows,)
            Float64.
        """
        if not len(self.leaves):
            return alone
        place = np.minimum(np.searchsorted(self.leaves, nodes), len(self.leaves) - 1)
        first = self.starts[place]
        chosen = first + _below(uniforms, self.starts[place + 1] - first)
        return np.asarray(np.where(self.leaves[place] == nodes, self.values[chosen].astype(np.float64), alone))


def _below(uniforms: FloatArray, counts: Any) -> npt.NDArray[np.int64]:
    """Return whole numbers below `counts`, where rounding may not reach."""
    return np.asarray(np.minimum((uniforms * counts).astype(np.int64), counts - 1))


def _is_spread(tree: Any) -> npt.NDArray[np.bool_]:
    """Tell which nodes are leaves of several values; equal ones differ by rounding alone."""
    size = tree.impurity[0] + tree.value[:, 0, 0] ** 2
    return np.asarray((tree.children_left < 0) & (tree.n_node_samples > 1) & (tree.impurity > _ROUNDING * size))


def _in_leaves(
    tree: Any, wanted: npt.NDArray[np.bool_], sample: Array, rows: npt.NDArray[np.float32]
) -> tuple[Array, Array]:
    """Return the leaf and the place of every row of a sample that ends in a wanted leaf, repeated ones repeatedly."""
    times = np.bincount(sample, minlength=len(rows))
    places = np.flatnonzero(times)
    leaves = tree.apply(np.ascontiguousarray(rows[places]))
    places, leaves = places[wanted[leaves]], leaves[wanted[leaves]]
    return np.repeat(leaves, times[places]), np.repeat(places, times[places])


def _few_of_each(leaves: Array, places: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Sort by leaf and leave a random few of each."""
    order = rng.permutation(len(leaves))
    order = order[np.argsort(leaves[order], kind="stable")]
    leaves, places = leaves[order], places[order]
    rank = np.arange(len(leaves)) - np.searchsorted(leaves, leaves)
    return leaves[rank < _MOST_DONORS], places[rank < _MOST_DONORS]


@dataclass(frozen=True)
class CompactForest:
    """The trees of a fitted scikit-learn forest as three flat arrays.

    Parameters
    ----------
    feature : ndarray of shape (n_nodes,)
        The column that a node splits on, -1 for a leaf.
    cut : ndarray of shape (n_nodes,)
        Float32. A row goes left when its value is at most this; for a leaf, its value.
    right : ndarray of shape (n_nodes,)
        The right child; the left one is the next node.
    roots : ndarray of shape (n_trees,)
        The first node of each tree.
    n_levels : int
        Levels of the target, on which the trees vote; 0 for numbers, of which the mean is taken.
    donors : Donors, optional
        The values of leaves that hold more than one, for draws.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> rows = np.arange(20.0)[:, None]
    >>> forest = RandomForestRegressor(5, random_state=0).fit(rows, rows[:, 0] ** 2)
    >>> compact = CompactForest.from_forest(forest)
    >>> bool(np.allclose(compact.predict(rows), forest.predict(rows)))
    True
    """

    feature: npt.NDArray[np.signedinteger[Any]]
    cut: npt.NDArray[np.float32]
    right: npt.NDArray[np.int32]
    roots: npt.NDArray[np.int64]
    n_levels: int = 0
    donors: Donors | None = None

    @classmethod
    def from_forest(cls, forest: Any, n_levels: int = 0, donors: Donors | None = None) -> CompactForest:
        """Copy a fitted RandomForestRegressor, or a RandomForestClassifier of codes below `n_levels`."""
        trees = [estimator.tree_ for estimator in forest.estimators_]
        sizes = np.array([tree.node_count for tree in trees])
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        leaf = np.concatenate([tree.children_left for tree in trees]) < 0
        feature = np.concatenate([tree.feature for tree in trees])
        right = np.concatenate([tree.children_right + root for tree, root in zip(trees, roots, strict=True)])
        values = np.concatenate([_leaf_values(tree, forest, n_levels) for tree in trees])
        cuts = _rounded_down(np.concatenate([tree.threshold for tree in trees]))
        narrow = np.int16 if feature.max() < 2**15 else np.int32
        return cls(
            feature=np.asarray(np.where(leaf, -1, feature), dtype=narrow),
            cut=np.where(leaf, values.astype(np.float32), cuts),
            right=right.astype(np.int32),
            roots=roots.astype(np.int64),
            n_levels=n_levels,
            donors=donors,
        )

    def predict(self, rows: Any) -> Array:
        """Return the mean of the trees, or the level that most of them vote for, the lower code on a tie.

        Parameters
        ----------
        rows : array-like of shape (n_rows, n_features)
            Without a hole.

        Returns
        -------
        ndarray of shape (n_rows,)
            Float64.
        """
        table = np.ascontiguousarray(rows, dtype=np.float32)
        parts = [self._combined(self.cut[leaves]) for leaves in self._leaves(table)]
        return np.concatenate(parts) if parts else np.empty(0)

    def draw(self, rows: Any, uniforms: FloatArray) -> Array:
        """Return a training value from the leaf that each row ends in, in a tree of its own.

        Parameters
        ----------
        rows : array-like of shape (n_rows, n_features)
            Without a hole.
        uniforms : ndarray of shape (n_rows,)
            Numbers in [0, 1), which choose the tree and then the value.

        Returns
        -------
        ndarray of shape (n_rows,)
            Float64, rounded to float32. A leaf of several values gives one of them when there are `donors`, else
            their mean or the commonest.
        """
        table = np.ascontiguousarray(rows, dtype=np.float32)
        n_trees = len(self.roots)
        tree = _below(uniforms, n_trees)
        first = np.arange(len(table)) * table.shape[1]
        leaves = self._led_down(table.ravel(), first, self.roots[tree])
        alone = self.cut[leaves].astype(np.float64)
        # What is left of the number after the choice of the tree is as even as the number was.
        return alone if self.donors is None else self.donors.pick(leaves, uniforms * n_trees - tree, alone)

    def _leaves(self, table: npt.NDArray[np.float32]) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the leaves that rows end in, of shape (rows of the part, n_trees)."""
        step = max(1, _PAIRS // len(self.roots))
        for start in range(0, len(table), step):
            part = table[start : start + step]
            first = np.repeat(np.arange(len(part)) * part.shape[1], len(self.roots))
            yield self._led_down(part.ravel(), first, np.tile(self.roots, len(part))).reshape(len(part), -1)

    def _led_down(
        self, cells: npt.NDArray[np.float32], first: npt.NDArray[np.int64], node: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the leaves below nodes for the rows whose cells begin at `first`; the nodes are written over."""
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
        if not self.n_levels:
            return np.asarray(values.mean(axis=1, dtype=np.float64))
        votes = np.arange(len(values))[:, None] * self.n_levels + values.astype(np.int64)
        counts = np.bincount(votes.ravel(), minlength=len(values) * self.n_levels)
        return np.asarray(counts.reshape(len(values), self.n_levels).argmax(axis=1), dtype=np.float64)


def _leaf_values(tree: Any, forest: Any, n_levels: int) -> Array:
    """Return the number, or the commonest code, of every node."""
    if not n_levels:
        return np.asarray(tree.value[:, 0, 0])
    return np.asarray(forest.classes_[tree.value[:, 0].argmax(axis=1)])


def _rounded_down(cuts: Array) -> npt.NDArray[np.float32]:
    """Return float32 cuts that divide float32 values exactly as the float64 ones do."""
    rounded = cuts.astype(np.float32)
    return np.where(rounded > cuts, np.nextafter(rounded, np.float32(-np.inf)), rounded)

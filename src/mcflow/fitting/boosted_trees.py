"""Boosted trees of one column: grown by LightGBM, stored as plain arrays that are checked when they are read."""

from __future__ import annotations

__all__ = [
    "BoostedTrees",
    "TreeArrays",
    "TreeSettings",
    "check_arrays",
    "from_tensors",
    "load_lightgbm",
    "start_boosting",
    "to_tensors",
]

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mcflow.errors import MissingExtraError, ModelFileError
from mcflow.typing import Array

if TYPE_CHECKING:
    from lightgbm import Booster

MIN_LEAF_ROWS = 20  # minimum number of rows in a leaf, less for small tables
ROWS_PER_LEAF = 40  # rows per leaf of a tree
ROWS_PER_BIN = 25  # rows per bin of an input, of which small tables have fewer
MIN_BINS = 31  # bins that an input keeps however few rows there are
RIDGE = 1.0  # L2 penalty of leaf values
SMOOTHING = 5.0  # strength, in rows, with which the value of a node shrinks towards that of its parent
NAN_DECISION = 8  # decision type of a split whose input may be NaN, in LightGBM's encoding
OPENMP = (  # what to do when LightGBM does not find the system's OpenMP library
    "install the system's OpenMP library: apt-get install libgomp1 (Debian, Ubuntu), dnf install libgomp (Fedora) or "
    "brew install libomp (macOS)"
)
DEFAULT_LEFT = 2  # bit of the decision type that sends NaN to the left


@dataclass(frozen=True)
class TreeSettings:
    """Size of the trees: at most `n_leaves` leaves, each scaled by `learning_rate`, and bins of an input."""

    n_leaves: int
    learning_rate: float
    max_bins: int


class TreeArrays(NamedTuple):
    """Nodes of trees, one tree after the other; a child is the number of a split, or -1 - k for leaf k."""

    n_leaves: Array  # (n_trees,)
    features: Array  # (n_splits,) the input that is compared
    thresholds: Array  # (n_splits,) smaller or equal inputs go to the left
    decisions: Array  # (n_splits,) LightGBM's decision type: 0, or how NaN is treated
    left: Array  # (n_splits,)
    right: Array  # (n_splits,)
    leaves: Array  # (n_leaves in all trees,) values


TYPES = ("i4", "i4", "f8", "i1", "i2", "i2", "f8")  # of the arrays


class BoostedTrees:
    """Boosted trees with one score per row, or one per category; trees of the categories take turns."""

    def __init__(
        self, n_features: int, n_scores: int, *, booster: Booster | None = None, arrays: TreeArrays | None = None
    ) -> None:
        self.n_features, self.n_scores = n_features, n_scores
        self._booster, self._arrays = booster, arrays
        self._lock = threading.Lock()
        self.n_rounds = 0 if arrays is None else len(arrays.n_leaves) // n_scores

    def grow_to(self, n_rounds: int) -> None:
        """Add rounds to a model of `start_boosting` until there are `n_rounds`, or no split lowers the loss."""
        self.booster.reset_parameter({"verbose": -1})  # LightGBM keeps the level of its messages by thread
        while self.n_rounds < n_rounds and not self.booster.update():
            self.n_rounds = self.booster.current_iteration()
        self.n_rounds = self.booster.current_iteration()

    def score(self, inputs: Array, rounds: range | None = None) -> Array:
        """Return the scores (n_rows, n_scores) of inputs (n_rows, n_features), by some consecutive rounds or by all."""
        first, count = (0, self.n_rounds) if rounds is None else (rounds.start, len(rounds))
        booster = self.booster
        with self._lock:  # LightGBM keeps the range of rounds in the booster, where another thread would replace it
            scores = booster.predict(inputs, start_iteration=first, num_iteration=count, raw_score=True, num_threads=1)
        return np.asarray(scores, dtype=np.float32).reshape(len(inputs), self.n_scores)

    def finish(self, n_rounds: int) -> None:
        """Keep only the first rounds, and release the training rows."""
        self.n_rounds = min(n_rounds, self.n_rounds)
        text = self.booster.model_to_string(num_iteration=self.n_rounds, importance_type="gain")
        self._booster, self._arrays = load_lightgbm().Booster(model_str=text), None

    @property
    def booster(self) -> Booster:
        """LightGBM's model, made from the arrays if they were read from a file."""
        if self._booster is None:
            assert self._arrays is not None
            self._booster = load_lightgbm().Booster(model_str=_as_text(self._arrays, self.n_features, self.n_scores))
        return self._booster

    @property
    def arrays(self) -> TreeArrays:
        """The nodes of the trees."""
        if self._arrays is None:
            assert self._booster is not None
            text = self._booster.model_to_string(num_iteration=self.n_rounds, importance_type="gain")
            self._arrays = _from_text(text)
        return self._arrays

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(BoostedTrees, arrays=self.arrays), (self.n_features, self.n_scores)


def start_boosting(
    inputs: Array,
    targets: Array,
    settings: TreeSettings,
    *,
    seed: int,
    n_categories: int = 0,
    start: Array | None = None,
) -> BoostedTrees:
    """Return a model without trees that is to predict a column; `grow_to` adds the trees, `finish` ends the training.

    Shapes: `inputs` (n_rows, n_features), possibly NaN; `targets` (n_rows,), indices of categories if there are any;
    `start` (n_rows,) or (n_rows, n_categories), scores to which the trees are added.
    """
    lightgbm = load_lightgbm()
    n_rows, n_features = inputs.shape
    parameters = {
        "objective": "multiclass" if n_categories else "l2",
        "num_class": n_categories or 1,
        "num_leaves": int(np.clip(n_rows // ROWS_PER_LEAF, 4, settings.n_leaves)),
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": int(np.clip(n_rows // 50, 3, MIN_LEAF_ROWS)),
        "lambda_l2": RIDGE,
        "path_smooth": SMOOTHING,
        "max_bin": int(np.clip(n_rows // ROWS_PER_BIN, min(MIN_BINS, settings.max_bins), settings.max_bins)),
        "min_data_in_bin": 1,
        "feature_pre_filter": False,
        "boost_from_average": start is None,
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": 1,
        "seed": seed % 2**31,
        "verbose": -1,
    }
    scores = None if start is None else np.asarray(start, dtype=np.float64).reshape(n_rows, -1).T.ravel()
    rows = lightgbm.Dataset(inputs, targets, init_score=scores, params=parameters)
    booster = lightgbm.Booster(parameters, rows.construct())
    return BoostedTrees(n_features, n_categories or 1, booster=booster)


def load_lightgbm() -> Any:
    """Import LightGBM, whose wheel for Linux needs the system's OpenMP library."""
    try:
        import lightgbm
    except OSError as error:
        raise MissingExtraError(f"LightGBM cannot be loaded: {error}. To mend it, {OPENMP}.") from error
    return lightgbm


def _from_text(text: str) -> TreeArrays:
    """Read LightGBM's text form of trees."""
    found: dict[str, list[Array]] = {name: [] for name in TreeArrays._fields}
    names = {"split_feature": "features", "threshold": "thresholds", "decision_type": "decisions"}
    names |= {"left_child": "left", "right_child": "right", "leaf_value": "leaves"}
    for line in text.split("\nend of trees", maxsplit=1)[0].split("\n"):
        key, _, numbers = line.partition("=")
        if key == "num_leaves":
            found["n_leaves"].append(np.array([int(numbers)]))
        elif key in names:
            # A split between NaN and all numbers has the threshold infinity.
            found[names[key]].append(np.nan_to_num(np.array(numbers.split(), dtype=np.float64)))
    parts = (np.concatenate(found[name] or [np.zeros(0)]).astype(kind) for name, kind in zip(found, TYPES, strict=True))
    return TreeArrays(*parts)


def _as_text(arrays: TreeArrays, n_features: int, n_scores: int) -> str:
    """Write trees in LightGBM's text form; the arrays have been checked."""
    objective = "regression" if n_scores == 1 else f"multiclass num_class:{n_scores}"
    lines = ["tree", "version=v4", f"num_class={n_scores}", f"num_tree_per_iteration={n_scores}", "label_index=0"]
    lines += [f"max_feature_idx={n_features - 1}", f"objective={objective}"]
    lines += ["feature_names=" + " ".join(f"Column_{k}" for k in range(n_features))]
    lines += ["feature_infos=" + " ".join(["none"] * n_features), ""]
    split_ends, leaf_ends = np.cumsum(arrays.n_leaves - 1), np.cumsum(arrays.n_leaves)
    for k, n_leaves in enumerate(arrays.n_leaves.tolist()):
        splits = slice(split_ends[k] - n_leaves + 1, split_ends[k])
        lines += [f"Tree={k}", f"num_leaves={n_leaves}", "num_cat=0"]
        if n_leaves > 1:
            lines += [
                f"split_feature={_listed(arrays.features[splits])}",
                f"threshold={_listed(arrays.thresholds[splits])}",
            ]
            lines += [f"decision_type={_listed(arrays.decisions[splits])}"]
            lines += [f"left_child={_listed(arrays.left[splits])}", f"right_child={_listed(arrays.right[splits])}"]
        lines += [
            f"leaf_value={_listed(arrays.leaves[leaf_ends[k] - n_leaves : leaf_ends[k]])}",
            "is_linear=0",
            "shrinkage=1",
            "",
        ]
    return "\n".join([*lines, "", "end of trees", ""])


def _listed(numbers: Array) -> str:
    return " ".join(map(repr, numbers.tolist()))


def check_arrays(arrays: TreeArrays, n_features: int) -> None:
    """Raise `ModelFileError` unless the arrays describe trees over `n_features` inputs with finite values.

    A split comes before the splits below it, and every split but the first and every leaf has one parent, so that a
    walk from the first split ends at a leaf.
    """
    n_leaves = arrays.n_leaves.astype(np.int64)
    n_splits = n_leaves - 1
    sizes = {len(part) for part in (arrays.features, arrays.thresholds, arrays.decisions, arrays.left, arrays.right)}
    sound = bool((n_leaves >= 1).all()) and sizes == {int(n_splits.sum())} and len(arrays.leaves) == n_leaves.sum()
    sound = sound and bool(np.isfinite(arrays.thresholds).all() and np.isfinite(arrays.leaves).all())
    sound = sound and bool(((arrays.features >= 0) & (arrays.features < n_features)).all())
    sound = sound and bool(
        np.isin(arrays.decisions, [0, DEFAULT_LEFT, NAN_DECISION, NAN_DECISION | DEFAULT_LEFT]).all()
    )
    if not sound or not _are_trees(arrays, n_splits):
        raise ModelFileError("The trees of this file are damaged. Save the model again with `save`.")


def _are_trees(arrays: TreeArrays, n_splits: Array) -> bool:
    """Return whether children come after their parents and each node but the first of a tree has one parent."""
    tree = np.repeat(np.arange(len(n_splits)), n_splits)
    starts, leaf_starts = np.cumsum(n_splits) - n_splits, np.cumsum(n_splits + 1) - n_splits - 1
    own = np.arange(len(tree)) - starts[tree]
    split_parents, leaf_parents = np.zeros(int(n_splits.sum()), np.int64), np.zeros(len(arrays.leaves), np.int64)
    for side in (arrays.left.astype(np.int64), arrays.right.astype(np.int64)):
        splits, leaf = side >= 0, -1 - side
        if (
            not (((side > own) & (side < n_splits[tree])) | ~splits).all()
            or not ((leaf <= n_splits[tree]) | splits).all()
        ):
            return False
        np.add.at(split_parents, (side + starts[tree])[splits], 1)
        np.add.at(leaf_parents, (leaf + leaf_starts[tree])[~splits], 1)
    first = np.zeros(len(split_parents), bool)
    first[starts[n_splits > 0]] = True
    return bool((split_parents == ~first).all() and (leaf_parents[np.repeat(n_splits, n_splits + 1) > 0] == 1).all())


def to_tensors(prefix: str, trees: list[BoostedTrees | None]) -> dict[str, Array]:
    """Return the arrays of several models one after the other, with the number of trees of each."""
    nothing = TreeArrays(*(np.zeros(0, kind) for kind in TYPES))
    parts = [nothing if model is None else model.arrays for model in trees]
    arrays = {f"{prefix}.n_trees": np.array([len(part.n_leaves) for part in parts], dtype=np.int32)}
    for name, kind in zip(TreeArrays._fields, TYPES, strict=True):
        arrays[f"{prefix}.{name}"] = np.concatenate([getattr(part, name) for part in parts] or [np.zeros(0, kind)])
    return arrays


def from_tensors(prefix: str, arrays: dict[str, Array], sizes: list[tuple[int, int]]) -> list[BoostedTrees | None]:
    """Undo `to_tensors` for models with given numbers of features and scores."""
    every = TreeArrays(*(arrays[f"{prefix}.{name}"] for name in TreeArrays._fields))
    n_trees = arrays[f"{prefix}.n_trees"].astype(np.int64)
    sound = all(part.ndim == 1 and part.dtype.kind == kind[0] for part, kind in zip(every, TYPES, strict=True))
    if not sound or n_trees.shape != (len(sizes),) or (n_trees < 0).any() or n_trees.sum() != len(every.n_leaves):
        raise ModelFileError("The trees of this file are damaged. Save the model again with `save`.")
    check_arrays(every, max((size[0] for size in sizes), default=1))
    ends = np.cumsum(n_trees)
    leaves = np.concatenate([[0], np.cumsum(every.n_leaves)])
    splits = np.concatenate([[0], np.cumsum(every.n_leaves - 1)])
    found: list[BoostedTrees | None] = []
    for end, count, (n_features, n_scores) in zip(ends, n_trees, sizes, strict=True):
        here, of_splits = slice(end - count, end), slice(splits[end - count], splits[end])
        of_leaves = slice(leaves[end - count], leaves[end])
        own = TreeArrays(*[every.n_leaves[here], *(part[of_splits] for part in every[1:-1]), every.leaves[of_leaves]])
        check_arrays(own, n_features)
        if count % n_scores:
            raise ModelFileError("The trees of this file are damaged. Save the model again with `save`.")
        found.append(BoostedTrees(n_features, n_scores, arrays=own) if count else None)
    return found

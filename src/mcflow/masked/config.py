"""Hyper-parameters of the default preset."""

from __future__ import annotations

__all__ = ["MaskedConfig"]

import math
from dataclasses import dataclass, replace
from typing import NamedTuple


class _Size(NamedTuple):
    """Sizes of H for tables up to a number of rows and of columns."""

    rows: float
    columns: float
    width: int
    steps_per_root: float
    learning_rate: float = 2e-3


#: The first line that fits a table is used. Narrow networks take larger learning rates.
_SIZES = (
    _Size(2_000, math.inf, 64, 40.0, 4e-3),
    _Size(10_000, math.inf, 128, 60.0, 4e-3),
    _Size(math.inf, 12, 256, 30.0),
    _Size(math.inf, 20, 256, 40.0),
    _Size(math.inf, 32, 192, 40.0),
    _Size(math.inf, math.inf, 256, 10.0),
)

#: Networks, one for each track, of tables with up to `_FEW_CELLS` cells and of others.
_N_MEMBERS = (4, 2)

#: Cells up to which training four networks takes a few seconds.
_FEW_CELLS = 7_000

#: Multiply-adds per second of one core, from which the time of a training is estimated.
_NOMINAL_SPEED = 5e10

#: Fraction of that time below which a time limit halves the width of H, as the training would hardly begin.
_SHORT_LIMIT = 0.25

#: Maximum number of inputs of the first layer and of outputs of the last one.
_MAX_PLACES = 4096

#: Knots that a column keeps however many columns there are.
_MIN_KNOTS = 4

#: Points that a column keeps however many columns there are.
_MIN_POINTS = 8


@dataclass(frozen=True)
class MaskedConfig:
    """Hyper-parameters of the default preset: network H, its training, trees, the blend, donors, and the flow G."""

    #: Width of H's residual blocks; 0 chooses it by the size of the table, half of it if `max_time` is very short.
    width: int = 0
    #: Networks trained side by side, whose predictions are averaged; 0 chooses four for very small tables, else two, or
    #: one if `max_time` is too short to train them.
    n_members: int = 0
    #: Residual blocks of H.
    n_blocks: int = 2
    #: Maximum number of knots of the piecewise-linear encoding of a number; 0 feeds numbers in directly.
    n_knots: int = 32
    #: Maximum number of points over which H predicts the distribution of a cell.
    n_points: int = 32
    #: Maximum number of epochs; 0 chooses it by the number of rows.
    max_epochs: int = 0
    #: Maximum training time in seconds; 0 for no limit.
    max_time: float = 0.0
    #: Rows per step.
    batch_size: int = 256
    #: Largest learning rate of AdamW; 0 chooses it by the size of the table.
    learning_rate: float = 0.0
    #: Decoupled weight decay of AdamW.
    weight_decay: float = 0.1
    #: Fraction of the training in which the learning rate rises.
    warm_up: float = 0.15
    #: Evaluations on validation cells during the training.
    n_validations: int = 40
    #: Validations without improvement before the learning rate starts its final decay.
    patience: int = 8
    #: Length of that decay, as a fraction of the training so far; training stops at its end (early stopping).
    decay_length: float = 0.5
    #: Fraction of the observed cells hidden at every step, to be predicted; 0 predicts the visible ones.
    hide_share: float = 0.2
    #: Fraction of the observed cells in some rows that is never trained on.
    validation_share: float = 0.1
    #: Where cells are missing together, fraction of the rows masked by the pattern of another row.
    pattern_share: float = 0.5
    #: The same fraction among the validation rows.
    pattern_validation_share: float = 0.75
    #: In such rows, hide probability of single cells relative to `hide_share`.
    pattern_extra_share: float = 0.25
    #: Weight of the squared error of the direct estimate in the loss, beside the cross-entropy.
    direct_weight: float = 0.5
    #: Maximum number of steps per square root of the number of rows, from which `max_epochs` follows; 0 chooses it.
    steps_per_root: float = 0.0
    #: Whether boosted trees join the blend.
    trees: bool = True
    #: Whether trees on the observed cells alone are a rung. Their speed also sizes the other trees under `max_time`.
    observed_trees: bool = True
    #: Boosted trees of a numeric column on each rung and track.
    n_trees: int = 150
    #: Trees of all numeric columns together on each rung and track, which wide tables share out.
    max_trees: int = 3_000
    #: Leaves of the trees on completed rows, and on observed cells alone.
    n_leaves: int = 63
    observed_leaves: int = 31
    #: Trees of a categorical column in all, one per category and round, and their leaves.
    category_trees: int = 120
    category_leaves: int = 15
    #: Learning rate of the trees.
    tree_rate: float = 0.15
    #: Bins of an input of the trees.
    max_bins: int = 127
    #: Maximum number of rows that trees are grown on; more are a random sample.
    tree_rows: int = 100_000
    #: Rounds in which H is asked for its training cells, each hidden in one of them.
    hidden_rounds: int = 10
    #: The same where cells are missing together and are hidden by the patterns of other rows.
    pattern_rounds: int = 4
    #: Validation error of H, relative to that of the trees on observed cells, above which H completes no rows.
    max_network_error: float = 1.25
    #: The same from which trees are also grown on rows completed by the trees on observed cells.
    min_network_error: float = 0.9
    #: Relative reduction of the squared error on validation cells that a pass of trees on completed rows must bring
    #: for a second one.
    min_gain: float = 0.01
    #: Donor trees of a column, and their number in wide tables.
    donor_trees: int = 20
    min_donor_trees: int = 4
    #: Donor trees of all columns from which a column has fewer.
    donor_cells: int = 400
    #: Maximum number of training cells of a donor tree.
    donor_rows: int = 5_000
    #: Maximum number of rows that donors come from; more are a random sample.
    donor_table_rows: int = 20_000
    #: Minimum number of donors in a leaf.
    donor_leaf: int = 3
    #: Fraction of the inputs that are candidates for a split of a donor tree.
    donor_inputs: float = 0.7
    #: Leaves, each of another tree, from which a cell takes a donor. The weights of a draw matter more the more it has.
    donor_leaves: int = 5
    #: Times that a draw redraws every missing cell from donors.
    n_sweeps: int = 2
    #: Fractions of `max_time` for the trees on observed cells, and on completed rows.
    observed_time_share: float = 0.3
    trees_time_share: float = 0.45
    #: Whether a multivariate Gaussian joins the blend of small tables.
    gaussian: bool = True
    #: Rows up to which the Gaussian is a candidate.
    gaussian_max_rows: int = 20_000
    #: Above `small_rows`, relative reduction of the squared error that the Gaussian must bring, as it slows
    #: filling.
    gaussian_min_gain: float = 0.05
    #: Rows up to which the factored density is a candidate, and the Gaussian whatever its gain.
    small_rows: int = 5_000
    #: Whether the factored density is a candidate for draws of small tables.
    factored: bool = True
    #: Affine couplings of G.
    n_couplings: int = 6
    #: Learning rate of G.
    flow_learning_rate: float = 1e-3
    #: Training steps of G as a fraction of H's, clipped to `min_flow_steps` and `max_flow_steps`.
    flow_steps_share: float = 0.1
    #: Bounds of the number of training steps of G.
    min_flow_steps: int = 200
    max_flow_steps: int = 2_000
    #: Fraction of `max_time` reserved for G when it is fitted with H, and its limit when it is fitted later.
    flow_time_share: float = 0.2
    #: Fraction of `max_time` reserved for the calibration when G is not fitted with H.
    calibration_time_share: float = 0.05
    #: Fraction of `max_time` after which the factored density is abandoned.
    factored_time_share: float = 0.5
    #: Epochs and time of a bootstrap copy, as a fraction of those of the first fit.
    refit_share: float = 0.25

    def for_table(self, n_rows: int, n_columns: int) -> MaskedConfig:
        """Return the configuration with every size that is 0 chosen for a table."""
        size = next(size for size in _SIZES if n_rows <= size.rows and n_columns <= size.columns)
        places = _MAX_PLACES // max(n_columns, 1)
        batch_size = max(1, min(self.batch_size, n_rows // 4))
        n_steps = (self.steps_per_root or size.steps_per_root) * math.sqrt(n_rows)
        config = replace(
            self,
            width=self.width or size.width,
            n_members=self.n_members or _N_MEMBERS[n_rows * n_columns > _FEW_CELLS],
            learning_rate=self.learning_rate or size.learning_rate,
            n_knots=min(self.n_knots, max(places // 2, _MIN_KNOTS)),
            n_points=min(self.n_points, max(places, _MIN_POINTS)),
            batch_size=batch_size,
            max_epochs=self.max_epochs or math.ceil(n_steps / math.ceil(n_rows / batch_size)),
        )
        time_share = self.max_time / config._nominal_seconds(n_rows, n_columns) if self.max_time else 1.0
        if not self.width and time_share < _SHORT_LIMIT:
            config = replace(config, width=config.width // 2)
        if not self.n_members and time_share < 1:
            config = replace(config, n_members=1, max_epochs=self.max_epochs or 2 * config.max_epochs)
        return config

    def _nominal_seconds(self, n_rows: int, n_columns: int) -> float:
        """Return the estimated time of the training of H, from its multiply-adds, forwards and backwards."""
        ends = n_columns * (self.n_knots + self.n_points + 4) * self.width
        per_row = 3 * (ends + 2 * self.n_blocks * self.width**2)
        return self.max_epochs * n_rows * per_row * self.n_members / 2 / _NOMINAL_SPEED

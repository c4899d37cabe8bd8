"""Hyper-parameters of the paper's method."""

from __future__ import annotations

__all__ = ["PAPER_IMAGES", "PaperConfig"]

from dataclasses import dataclass, replace

_SPARSE_IMAGES = 0.6  #: Fraction of missing pixels above which the paper uses the larger learning rate.
_SPARSE_LEARNING_RATE = 1e-3  #: Learning rate of the paper for images with more missing pixels.
_ROW_NUMBERS = 16  #: Numbers per row for which `likelihood_weight` is meant.


@dataclass(frozen=True)
class PaperConfig:
    """Hyper-parameters of the paper's method: flow G, network H and Algorithm 1."""

    #: Scaling of numbers: "range" by their observed range, as in the paper; "auto" by rank for columns with heavy
    #: tails, outliers or many equal values.
    scaling: str = "range"
    n_couplings: int = 6  #: Affine couplings of G.
    n_flow_layers: int = 4  #: Linear layers of the networks s and t of each coupling.
    n_latent_layers: int = 5  #: Linear layers of H, each as wide as the table.
    max_epochs: int = 500  #: Maximum number of epochs.
    max_time: float = 0.0  #: Maximum training time in seconds; 0 for no limit.
    batch_size: int = 128  #: Rows per step; 0 chooses the paper's value for MNIST and CIFAR-10.
    #: Learning rate of Adam, for G and for H; 0 chooses the paper's value for the images' share of missing pixels.
    learning_rate: float = 1e-4
    #: λ, the weight of the log-density in H's loss. The paper gives no value. 0 scales it to the size of the images.
    likelihood_weight: float = 1e-3
    #: Training stops when both losses change by at most this fraction of their range between two windows; 0 never.
    tolerance: float = 1e-3
    window: int = 16  #: Epochs per window.
    refills: bool = True  #: Whether missing cells are refilled, and G restarted, at every epoch that is a power of two.
    burn_in: int = 90  #: Moves of a Markov chain before its first draw.
    thinning: int = 9  #: Moves between two draws.
    n_states: int = 99  #: States of a chain from which quantiles are read.
    state_thinning: int = 3  #: Moves between two of these states.
    #: Fraction of the observed cells hidden to fit the category heads and to calibrate quantiles.
    hidden_share: float = 0.2
    head_cells: int = 20_000  #: Hidden cells per column that are enough to fit the category heads.
    calibration_cells: int = 3_000  #: Hidden cells that are enough to calibrate quantiles.
    calibration_rows: int = 1_000  #: Maximum number of rows, or images, used for it.
    calibration_time_share: float = 0.1  #: Fraction of `max_time` reserved for the calibration on images.

    def for_images(self, n_numbers: int, missing_share: float) -> PaperConfig:
        """Return the configuration with every value that is 0 chosen for images of `n_numbers` pixels times channels.

        The squared error is a mean over pixels and the log-density a sum, so λ is divided by the number of pixels to
        keep the two in the proportion that they have in a table.
        """
        table = PaperConfig()
        scale = _ROW_NUMBERS / max(n_numbers, _ROW_NUMBERS)
        sparse = missing_share > _SPARSE_IMAGES
        return replace(
            self,
            batch_size=self.batch_size or table.batch_size,
            learning_rate=self.learning_rate or (_SPARSE_LEARNING_RATE if sparse else table.learning_rate),
            likelihood_weight=self.likelihood_weight or table.likelihood_weight * scale,
        )


#: Configuration for images: sizes that depend on the images are 0, and chains are short, as their moves take longer.
PAPER_IMAGES = PaperConfig(
    batch_size=0,
    learning_rate=0.0,
    likelihood_weight=0.0,
    burn_in=40,
    thinning=5,
    n_states=39,
    state_thinning=1,
    calibration_cells=1_500,
    calibration_rows=400,
)

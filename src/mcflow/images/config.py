"""Hyper-parameters of the default preset for images."""

from __future__ import annotations

__all__ = ["ImageConfig"]

import math
from dataclasses import dataclass, replace

_IMAGES_SEEN = 120_000  #: Images that a fit of automatic length sees.
_MIN_EPOCHS = 2  #: Smallest number of epochs of automatic length.
_MAX_EPOCHS = 60  #: Largest number of epochs of automatic length.
_WIDTH = 32  #: Channels of the first scale of the U-net.
_SMALL_SIDE = 12  #: Side below which images get half as many channels.


@dataclass(frozen=True)
class ImageConfig:
    """Hyper-parameters of the default preset for images: U-net H, its training, and the flow G."""

    width: int = 0  #: Channels of the first scale of H; 0 chooses them by the size of the images.
    n_blocks: int = 1  #: Residual blocks per scale.
    n_components: int = 3  #: Components of the mixture that H predicts for a pixel.
    max_epochs: int = 0  #: Maximum number of epochs; 0 chooses it by the number of images.
    max_time: float = 0.0  #: Maximum training time in seconds; 0 for no limit.
    batch_size: int = 16  #: Images per step.
    learning_rate: float = 2e-3  #: Largest learning rate of AdamW.
    weight_decay: float = 0.01  #: Decoupled weight decay of AdamW.
    warm_up: float = 0.15  #: Fraction of the training in which the learning rate rises.
    n_validations: int = 40  #: Evaluations on validation pixels during the training.
    patience: int = 8  #: Validations without improvement before the learning rate starts its final decay.
    #: Length of that decay, as a fraction of the training so far; training stops at its end (early stopping).
    decay_length: float = 0.5
    validation_share: float = 0.1  #: Fraction of the observed pixels in some images that is never trained on.
    validation_images: int = 1024  #: Maximum number of images with validation pixels.
    validation_images_share: float = 0.25  #: The same as a fraction of all images.
    direct_weight: float = 20.0  #: Weight of the squared error in the loss.
    likelihood_weight: float = 0.2  #: Weight of the log-likelihood in the loss.
    flow_learning_rate: float = 1e-3  #: Learning rate of G.
    flow_steps_share: float = 0.15  #: Training steps of G as a fraction of H's.
    max_flow_steps: int = 2_000  #: Maximum number of training steps of G.
    flow_time_share: float = 0.2  #: Fraction of `max_time` reserved for G.
    calibration_pixels: int = 50_000  #: Maximum number of validation pixels from which quantiles are calibrated.
    few_rounds_share: float = 0.6  #: Fraction of missing pixels up to which scattered pixels are drawn in few rounds.

    def for_images(self, n_images: int, size: tuple[int, int]) -> ImageConfig:
        """Return the configuration with every size that is 0 chosen for images of a height and width."""
        n_epochs = min(max(math.ceil(_IMAGES_SEEN / n_images), _MIN_EPOCHS), _MAX_EPOCHS)
        return replace(
            self,
            width=self.width or (_WIDTH if min(size) >= _SMALL_SIDE else _WIDTH // 2),
            batch_size=max(1, min(self.batch_size, n_images // 4)),
            max_epochs=self.max_epochs or n_epochs,
        )

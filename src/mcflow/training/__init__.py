"""The training layer: how both presets learn, their histories and checkpoints, and the stages of Algorithm 2."""

from __future__ import annotations

from mcflow.training.blend import blend_weights
from mcflow.training.callbacks import Callback, closing_all, tell_phase
from mcflow.training.checkpoint import Checkpointer
from mcflow.training.density import draw, fit_density, log_density
from mcflow.training.hidden import HeldCells, HiddenTrainer
from mcflow.training.history import Epoch, History
from mcflow.training.loop import Trainer
from mcflow.training.progress import ProgressDisplay, progress_listeners
from mcflow.training.sizes import fitting
from mcflow.training.stages import Box, Stage, complete, complete_through

__all__ = [
    "Box",
    "Callback",
    "Checkpointer",
    "Epoch",
    "HeldCells",
    "HiddenTrainer",
    "History",
    "ProgressDisplay",
    "Stage",
    "Trainer",
    "blend_weights",
    "closing_all",
    "complete",
    "complete_through",
    "draw",
    "fit_density",
    "fitting",
    "log_density",
    "progress_listeners",
    "tell_phase",
]

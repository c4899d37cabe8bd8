"""The training layer: Algorithm 1, its schedule, its checkpoints, and the stages of Algorithm 2."""

from __future__ import annotations

from mcflow.training.callbacks import Callback, ProgressDisplay
from mcflow.training.checkpoint import Checkpointer
from mcflow.training.history import Epoch, History
from mcflow.training.loop import Trainer
from mcflow.training.stages import Box, Stage, complete, complete_through

__all__ = [
    "Box",
    "Callback",
    "Checkpointer",
    "Epoch",
    "History",
    "ProgressDisplay",
    "Stage",
    "Trainer",
    "complete",
    "complete_through",
]

"""Engines: the same fitted model on tables that do not fit in memory."""

from mcflow.engines.jobs import FillJob, StreamOutcome, open_job
from mcflow.engines.local import impute_dataset
from mcflow.engines.local_fit import fit_dataset
from mcflow.engines.scorer import Scorer

__all__ = ["FillJob", "Scorer", "StreamOutcome", "fit_dataset", "impute_dataset", "open_job"]

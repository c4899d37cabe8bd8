"""Engines that fit and fill tables larger than memory: local, Ray and Spark."""

from mcflow.engines.jobs import FillJob, StreamOutcome, open_job
from mcflow.engines.local import fit_dataset, impute_dataset
from mcflow.engines.scorer import Scorer

__all__ = ["FillJob", "Scorer", "StreamOutcome", "fit_dataset", "impute_dataset", "open_job"]

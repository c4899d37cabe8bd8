"""Where a table is fitted and filled, on the command line: this machine, a Ray cluster or Spark."""

from __future__ import annotations

__all__ = ["EngineOptions"]

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mcflow.config import Interval, Options, check_parameter
from mcflow.errors import ParameterError

if TYPE_CHECKING:
    from mcflow.engines import Scorer, StreamOutcome
    from mcflow.imputers import MCFlowImputer

#: Engines that fill, those that fit, and how many workers fit together when nothing is said.
FILLING, FITTING, FIT_WORKERS = ("local", "ray", "spark"), ("local", "ray"), 2

Listener = Callable[[int, int], None]


@Parameter(name="*")
@dataclass(frozen=True)
class EngineOptions:
    """Where to compute.

    Parameters
    ----------
    engine
        local, this machine; ray, a Ray cluster; spark, Spark, which fills and does not fit.
    workers
        With ray, how many processes share the work; one for each CPU of the cluster when filling, two when fitting.
    address
        With ray, the cluster: auto, host:port or ray://host:port, or local to start one on this machine. With spark,
        the master, such as spark://host:7077; all cores of this machine when not given.
    """

    engine: str = "local"
    workers: Annotated[int | None, Parameter(show_default=False)] = None
    address: str | None = None

    @property
    def is_cluster(self) -> bool:
        """Tell whether the work is for a cluster."""
        return self.engine != "local"

    def check(self, *, fits: bool) -> None:
        """Raise `ParameterError` when the engine is not known, or has no use for a flag.

        Parameters
        ----------
        fits : bool
            Whether a model is to be fitted rather than a table to be filled.
        """
        if fits and self.engine == "spark":
            raise ParameterError("--engine spark fills tables and fits no models. Fit with --engine local or ray.")
        check_parameter("--engine", self.engine, Options(FITTING if fits else FILLING))
        if self.workers is not None:
            check_parameter("--workers", self.workers, Interval(int, 1))
            if self.engine != "ray":
                more = " Spark has as many as its master says: --address 'local[4]'." if self.is_cluster else ""
                raise ParameterError(f"--workers has no effect with --engine {self.engine}. Leave it out.{more}")
        if self.address is not None and not self.is_cluster:
            raise ParameterError("--address has no effect with --engine local. Add --engine ray or --engine spark.")

    def refuse_in_memory(self, source: Path, output: Path) -> None:
        """Raise `ParameterError` when a cluster is to fill a table in memory.

        Parameters
        ----------
        source, output : Path
            As they were given.
        """
        if self.is_cluster:
            raise ParameterError(
                f"--engine {self.engine} fills files part by part into a folder. Give {source} with -o and the name of "
                f"a folder, not {output}, or leave --engine out to fill the table in memory."
            )

    def fill(
        self, source: Path, output: Path, scorer: Scorer, *, draws: int | None, seed: int, listen: Listener
    ) -> StreamOutcome:
        """Fill files into a folder.

        Parameters
        ----------
        source, output : Path
            A file, folder or pattern, and the folder of the result.
        scorer : Scorer
            The fitted model.
        draws : int or None
            How many completed tables to write instead of one.
        seed : int
            Decides the draws.
        listen : callable
            Called with the rows that are done and all rows.

        Returns
        -------
        StreamOutcome
        """
        if self.engine == "ray":
            from mcflow.engines import ray

            return ray.impute_dataset(
                source,
                output,
                scorer,
                draws=draws,
                seed=seed,
                address=self.address,
                workers=self.workers,
                listen=listen,
            )
        if self.engine == "spark":
            from mcflow.engines import spark

            return spark.impute_dataset(
                source, output, scorer, draws=draws, seed=seed, master=self.address, listen=listen
            )
        from mcflow.engines import impute_dataset

        return impute_dataset(source, output, scorer, draws=draws, seed=seed, listen=listen)

    def fit(self, source: Path, imputer: MCFlowImputer, *, folder: Path | None, listen: Listener) -> MCFlowImputer:
        """Fit on files of any size; with Spark on this machine.

        Parameters
        ----------
        source : Path
            A file, folder or pattern.
        imputer : MCFlowImputer
            To be fitted.
        folder : Path or None
            For the fit's state and, on this machine, for the rows during the fit.
        listen : callable
            Called in the first pass, on this machine, with the rows that are done and all rows.

        Returns
        -------
        MCFlowImputer
        """
        if self.engine == "ray":
            from mcflow.engines import ray_fit

            return ray_fit.fit_dataset(source, imputer, address=self.address, workers=self.workers or FIT_WORKERS)
        from mcflow.engines import fit_dataset

        return fit_dataset(source, imputer, folder=folder, listen=listen)

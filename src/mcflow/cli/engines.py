"""Options of the engine that fits and fills tables: this machine, a Ray cluster or Spark."""

from __future__ import annotations

__all__ = ["EngineOptions"]

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mcflow.cli.groups import ENGINE
from mcflow.config import Interval, Options, check_parameter
from mcflow.errors import ParameterError

if TYPE_CHECKING:
    from mcflow.engines import Scorer, StreamOutcome
    from mcflow.imputers import MCFlowImputer

#: Engines that fill tables.
FILL_ENGINES = ("local", "ray", "spark")

#: Engines that fit models.
FIT_ENGINES = ("local", "ray")

Listener = Callable[[int, int], None]


@Parameter(name="*", group=ENGINE)
@dataclass(frozen=True)
class EngineOptions:
    """Options of the engine.

    Parameters
    ----------
    engine
        local (this machine), ray (a Ray cluster) or spark (Spark, which fills tables but does not fit models).
    workers
        Number of worker processes with ray. By default one per CPU of the cluster to fill, and two to fit.
    address
        With ray, address of the cluster: auto, host:port or ray://host:port, or local to start one on this machine.
        With spark, the master, such as spark://host:7077; by default all cores of this machine.
    """

    engine: str = "local"
    workers: Annotated[int | None, Parameter(show_default=False)] = None
    address: str | None = None

    @property
    def is_cluster(self) -> bool:
        """Whether the engine is Ray or Spark."""
        return self.engine != "local"

    def check(self, *, fits: bool) -> None:
        """Raise `ParameterError` if the engine is unknown, cannot fit, or does not use an option."""
        if fits and self.engine == "spark":
            raise ParameterError("--engine spark fills tables but does not fit models. Fit with --engine local or ray.")
        check_parameter("--engine", self.engine, Options(FIT_ENGINES if fits else FILL_ENGINES))
        if self.workers is not None:
            check_parameter("--workers", self.workers, Interval(int, 1))
            if self.engine != "ray":
                more = " The master of Spark sets their number: --address 'local[4]'." if self.is_cluster else ""
                raise ParameterError(f"--workers has no effect with --engine {self.engine}. Leave it out.{more}")
        if self.address is not None and not self.is_cluster:
            raise ParameterError("--address has no effect with --engine local. Add --engine ray or --engine spark.")

    def refuse_in_memory(self, source: Path, output: Path) -> None:
        """Raise `ParameterError` if the engine is a cluster, which does not fill tables in memory."""
        if self.is_cluster:
            raise ParameterError(
                f"--engine {self.engine} fills files part by part into a folder, but -o is {output}. Name a folder, or "
                f"leave out --engine to fill {source} in memory."
            )

    def fill(
        self, source: Path, output: Path, scorer: Scorer, *, draws: int | None, seed: int, listen: Listener
    ) -> StreamOutcome:
        """Fill files of any size into a folder; see `mcflow.engines.impute_dataset`."""
        given: dict[str, Any] = {"draws": draws, "seed": seed, "listen": listen}
        if self.engine == "ray":
            from mcflow.engines import ray

            return ray.impute_dataset(source, output, scorer, address=self.address, workers=self.workers, **given)
        if self.engine == "spark":
            from mcflow.engines import spark

            return spark.impute_dataset(source, output, scorer, master=self.address, **given)
        from mcflow.engines import impute_dataset

        return impute_dataset(source, output, scorer, **given)

    def fit(self, source: Path, imputer: MCFlowImputer, *, folder: Path | None, listen: Listener) -> MCFlowImputer:
        """Fit on files of any size, with Ray or on this machine; see `mcflow.engines.fit_dataset`."""
        if self.engine == "ray":
            from mcflow.engines import ray_fit

            return ray_fit.fit_dataset(source, imputer, address=self.address, workers=self.workers or 2)
        from mcflow.engines import fit_dataset

        return fit_dataset(source, imputer, folder=folder, listen=listen)

"""A connection to a Ray cluster: one that is there, or one on this machine when asked for."""

from __future__ import annotations

__all__ = ["connected", "hushed", "need_ray"]

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from mcflow.errors import EngineError, MissingExtraError, ParameterError

#: Bytes of shared memory of a cluster that is started here; it holds the model and the names of parts, no rows.
_OBJECT_STORE = 256 * 2**20

#: What a process has to know before it connects: send no statistics, and keep the core's log to itself.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}


@contextlib.contextmanager
def connected(address: str | None = None, *, cpus: int | None = None) -> Iterator[Any]:
    """Hold a connection to a Ray cluster.

    Parameters
    ----------
    address : str, optional
        "auto" for the cluster that this machine belongs to, "host:port", or "ray://host:port"; "local" starts one on
        this machine, which ends with the block. Without it, the cluster of the environment variable RAY_ADDRESS is
        used. A process that is connected already stays so.
    cpus : int, optional
        Workers that a cluster on this machine has to have room for, if more than its cores.

    Yields
    ------
    module
        `ray`.

    Raises
    ------
    ParameterError
        When there is no address and no connection; nothing is started unasked.
    EngineError
        When no cluster answers.
    MissingExtraError
        When Ray is not installed.
    """
    ray = need_ray()
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS")
    if not address:
        raise ParameterError(
            "There is no address of a Ray cluster. Give that of a running one, such as auto or host:6379, or local to "
            "start one on this machine (in Python address=..., on the command line --address)."
        )
    _connect(ray, address, cpus)
    try:
        yield ray
    finally:
        ray.shutdown()


def need_ray() -> Any:
    """Return Ray, or say how to install it.

    Returns
    -------
    module
        `ray`, with `ray.data`.

    Raises
    ------
    MissingExtraError
        When it is not installed.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtraError(
            f"Clusters of Ray need {error.name}, which is missing: pip install 'mcflow[ray]'"
        ) from error
    return ray


def _connect(ray: Any, address: str, cpus: int | None) -> None:
    own: dict[str, Any] = {}
    if address == "local":
        room = max(os.cpu_count() or 1, cpus or 1)
        own = {"num_cpus": room, "object_store_memory": _OBJECT_STORE, "include_dashboard": False}
    try:
        with _environment(_QUIET), _muted():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (OSError, RuntimeError, ValueError) as error:
        if _asks_for_token(error):
            raise EngineError(
                f"The Ray cluster at {address!r} asks for a token, and none or another one was given. Set "
                "RAY_AUTH_MODE=token; Ray then takes the token from ~/.ray/auth_token, where `ray start` wrote it on "
                "the first machine, or from the file that RAY_AUTH_TOKEN_PATH names."
            ) from error
        why = str(error).strip().partition("\n")[0].rstrip(". ")
        raise EngineError(
            f"No Ray cluster answers at {address!r}: {why}. Check the address, or give local to start one on this "
            "machine."
        ) from error


def _asks_for_token(error: BaseException | None) -> bool:
    """Tell whether an error, or one behind it, is that of a token."""
    while error is not None:
        if "AuthenticationError" in f"{type(error).__name__} {error}":
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment that are not set, for the time of a block."""
    added = [name for name in wanted if name not in os.environ]
    os.environ.update({name: wanted[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _muted() -> Iterator[None]:
    """Drop what is written to the process's standard error during a block; Ray's core tells there of its log level."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Keep the progress bars and log lines of Ray Data and Ray Train off the terminal for the time of a block."""
    from ray.data import DataContext

    context, before = DataContext.get_current(), DataContext.get_current().enable_progress_bars
    loggers = [logging.getLogger(name) for name in ("ray.data", "ray.train")]
    levels = [logger.level for logger in loggers]
    context.enable_progress_bars = False
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        context.enable_progress_bars = before
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

"""Connect to a running Ray cluster, or start one on this machine."""

from __future__ import annotations

__all__ = ["connected", "need_ray", "quiet"]

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from mcflow.errors import EngineError, MissingExtraError, ParameterError
from mcflow.installation import install_extra

#: Bytes of the object store of a cluster that is started here. It holds the model and the list of parts, no rows.
_OBJECT_STORE = 256 * 2**20

#: Environment of the connection: no usage statistics, and no log lines of Ray's core on the terminal.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}


@contextlib.contextmanager
def connected(address: str | None = None, *, cpus: int | None = None) -> Iterator[Any]:
    """Use the current connection to Ray, or connect to a cluster for the duration of a block."""
    ray = need_ray()
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS")
    if not address:
        raise ParameterError(
            "No address of a Ray cluster is given. Give that of a running cluster, such as auto or host:6379, or local "
            "to start one on this machine (in Python address=..., on the command line --address)."
        )
    _connect(ray, address, cpus)
    try:
        yield ray
    finally:
        ray.shutdown()


def need_ray() -> Any:
    """Import Ray, or raise `MissingExtraError`."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtraError(
            f"The Ray engine needs {error.name}, which is missing: {install_extra('ray')}"
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
                f"The Ray cluster at {address!r} requires a token, and the token is missing or wrong. Set "
                "RAY_AUTH_MODE=token; Ray then reads the token from ~/.ray/auth_token, where `ray start` wrote it on "
                "the head node, or from the file named in RAY_AUTH_TOKEN_PATH."
            ) from error
        why = str(error).strip().partition("\n")[0].rstrip(". ")
        raise EngineError(
            f"No Ray cluster answers at {address!r}: {why}. Check the address, or give local to start one on this "
            "machine."
        ) from error


def _asks_for_token(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes is an authentication error."""
    while error is not None:
        if "AuthenticationError" in f"{type(error).__name__} {error}":
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that are not set, for the duration of a block."""
    added = [name for name in wanted if name not in os.environ]
    os.environ.update({name: wanted[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _muted() -> Iterator[None]:
    """Discard the standard error of the process during a block; Ray's core writes its log level there."""
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
def quiet() -> Iterator[None]:
    """Disable the progress bars and log lines of Ray Data and Ray Train for the duration of a block."""
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

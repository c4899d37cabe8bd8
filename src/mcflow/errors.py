"""The error tree: every leaf is also the builtin a caller would expect."""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "DataError",
    "EngineError",
    "McflowError",
    "McflowWarning",
    "MissingExtraError",
    "ModelFileError",
    "OutputError",
    "ParameterError",
    "TrainingError",
    "did_you_mean",
    "error_named",
]

import difflib
from collections.abc import Iterable


class McflowError(Exception):
    """Base of every error that mcflow raises on purpose."""


class DataError(McflowError, ValueError):
    """A table that cannot be used as it is."""


class ParameterError(McflowError, ValueError):
    """A setting out of its range or of an unknown name."""


class ModelFileError(McflowError, ValueError):
    """A model file that is not whole, not ours, or from the future."""


class CheckpointError(McflowError, ValueError):
    """A checkpoint that belongs to other data or other settings."""


class TrainingError(McflowError, RuntimeError):
    """A fit that cannot go on."""


class EngineError(McflowError, RuntimeError):
    """A cluster that does not answer, or that fails."""


class OutputError(McflowError, OSError):
    """An output that cannot be written."""


class MissingExtraError(McflowError, ImportError):
    """An optional dependency that is not installed."""


class McflowWarning(UserWarning):
    """Something that works, but perhaps not as the caller means."""


def did_you_mean(given: object, allowed: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` when one allowed word is close, else nothing.

    Parameters
    ----------
    given : object
        What the caller wrote.
    allowed : iterable of str
        The words that would have been right.

    Returns
    -------
    str
        A sentence with a leading space, or the empty string.

    Examples
    --------
    >>> did_you_mean("papr", ["paper"])
    " Did you mean 'paper'?"
    """
    close = difflib.get_close_matches(str(given), list(allowed), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def error_named(name: str, otherwise: type[McflowError] = DataError) -> type[McflowError]:
    """Return the class of an error that another process has told by its name.

    Parameters
    ----------
    name : str
        Of the class.
    otherwise : type
        For errors that are not mcflow's.

    Returns
    -------
    type

    Examples
    --------
    >>> error_named("TrainingError").__name__, error_named("KeyError").__name__, error_named("difflib").__name__
    ('TrainingError', 'DataError', 'DataError')
    """
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, McflowError) else otherwise

"""Exceptions and warnings of mcflow; every error also derives from the matching built-in exception."""

from __future__ import annotations

__all__ = [
    "AdviceWarning",
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
    "warn",
]

import difflib
import warnings
from collections.abc import Iterable


class McflowError(Exception):
    """Base class of all errors raised by mcflow."""


class DataError(McflowError, ValueError):
    """Raised when a table or an array cannot be used as given."""


class ParameterError(McflowError, ValueError):
    """Raised when a parameter is unknown or has an invalid value."""


class ModelFileError(McflowError, ValueError):
    """Raised when a model file is damaged, foreign, or written by a newer version."""


class CheckpointError(McflowError, ValueError):
    """Raised when a checkpoint belongs to other data or other settings."""


class TrainingError(McflowError, RuntimeError):
    """Raised when training cannot continue, or when a fitted model gives no finite values."""


class EngineError(McflowError, RuntimeError):
    """Raised when a cluster does not respond or fails."""


class OutputError(McflowError, OSError):
    """Raised when an output cannot be written."""


class MissingExtraError(McflowError, ImportError):
    """Raised when an optional dependency is not installed."""


class McflowWarning(UserWarning):
    """Issued when a call succeeds but may not do what the caller intended."""


class AdviceWarning(McflowWarning):
    """A warning with advice in the terms of Python, and of the command line in `on_command_line`.

    Examples
    --------
    >>> warning = AdviceWarning("Column 'a' is odd.", "Set kinds=.", "Add --kind.")
    >>> str(warning), warning.on_command_line
    ("Column 'a' is odd. Set kinds=.", "Column 'a' is odd. Add --kind.")
    """

    def __init__(self, message: str, in_python: str, with_flags: str) -> None:
        super().__init__(message, in_python, with_flags)

    def __str__(self) -> str:
        return f"{self.args[0]} {self.args[1]}"

    @property
    def on_command_line(self) -> str:
        """The message with the flags of the command line."""
        return f"{self.args[0]} {self.args[2]}"


def did_you_mean(given: object, allowed: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the allowed word closest to `given`, or an empty string."""
    close = difflib.get_close_matches(str(given), list(allowed), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def error_named(name: str, otherwise: type[McflowError] = DataError) -> type[McflowError]:
    """Return the error class with the given name, as reported by another process."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, McflowError) else otherwise


def warn(message: str, *advice: str) -> None:
    """Warn the caller of the function that warns; advice is in the terms of Python and of the command line."""
    warnings.warn(AdviceWarning(message, *advice) if advice else McflowWarning(message), stacklevel=3)

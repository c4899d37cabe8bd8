"""Names of a package that are imported when they are first asked for."""

from __future__ import annotations

__all__ = ["lazily"]

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package.

    Parameters
    ----------
    package : str
        Its name.
    places : mapping
        By name, the module that has it.

    Returns
    -------
    callable
        Which imports a module when a name of it is asked for: torch alone takes seconds and hundreds of MiB, and
        ``mcflow --help`` or a baseline without networks should not be charged with them.

    Examples
    --------
    >>> lazily("shapes", {"tau": "math"})("tau")
    6.283185307179586
    """

    def find(name: str) -> Any:
        if name in places:
            return getattr(import_module(places[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find

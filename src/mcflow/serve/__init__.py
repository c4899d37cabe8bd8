"""The page and the HTTP interface: `mcflow serve`."""

from __future__ import annotations

__all__ = ["check_serve"]

from mcflow.errors import MissingExtraError


def check_serve() -> None:
    """Make sure that the libraries of the server are there.

    Raises
    ------
    MissingExtraError
        With the line that installs them.
    """
    try:
        import fastapi  # noqa: F401
        import jinja2  # noqa: F401
        import matplotlib.figure  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"The server needs {error.name}: pip install 'mcflow[serve]'") from error

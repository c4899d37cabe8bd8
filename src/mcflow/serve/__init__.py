"""Web page and HTTP API: `mcflow serve`."""

__all__ = ["check_serve"]

from mcflow.errors import MissingExtraError
from mcflow.installation import install_extra


def check_serve() -> None:
    """Raise `MissingExtraError` if a library of the server is not installed."""
    try:
        import fastapi  # noqa: F401
        import jinja2  # noqa: F401
        import matplotlib.figure  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"The server needs {error.name}: {install_extra('serve')}") from error

"""Commands that install an extra or the benchmarks the way mcflow itself was installed."""

from __future__ import annotations

__all__ = ["DISTRIBUTION", "install_bench", "install_extra"]

import json
from importlib import metadata
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

DISTRIBUTION = "mcflow-impute"  #: Name of the distribution; the import name is mcflow.


def install_extra(extra: str) -> str:
    """Return the command that installs an extra, such as "report"."""
    return f"pip install '{_origin() or DISTRIBUTION}[{extra}]'"


def install_bench() -> str:
    """Return the command that installs mcflow-bench."""
    origin = _origin()
    folder = origin is not None and (Path(origin) / "bench" / "pyproject.toml").exists()
    return f"pip install {'./bench' if origin == '.' else f'{origin}/bench'}" if folder else "pip install mcflow-bench"


def _origin() -> str | None:
    """Return the local folder or archive that mcflow was installed from; None if it came from an index."""
    path = _recorded_path()
    if path is None or not path.exists():
        return None
    return "." if path == Path.cwd() else str(path)


def _recorded_path() -> Path | None:
    try:
        record = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # the source tree is on the path without being installed
        folder = Path(__file__).parents[2]
        return folder if (folder / "pyproject.toml").exists() else None
    url = urlparse(json.loads(record)["url"]) if record else None
    return Path(url2pathname(url.path)) if url is not None and url.scheme == "file" else None

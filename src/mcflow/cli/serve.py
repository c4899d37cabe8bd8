"""`mcflow serve`: the page and the HTTP interface."""

from __future__ import annotations

__all__ = ["serve"]

import contextlib
import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

#: The variable that holds the token.
TOKEN_VARIABLE = "MCFLOW_TOKEN"  # noqa: S105


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    data_dir: Path | None = None,
    token: str | None = None,
    max_upload: str = "500MB",
    max_rows: int = 2_000_000,
    max_columns: int = 5_000,
    max_cells: int = 50_000_000,
    max_time: float = 14_400.0,
    max_memory: str | None = None,
    jobs: int = 1,
    max_queue: int = 100,
    keep: float = 24.0,
    open_browser: Annotated[bool, Parameter(name="--open", negative="")] = False,
) -> None:
    """Serve the page and the HTTP interface on this machine, until stopped with Ctrl-C.

    Parameters
    ----------
    host
        Address to listen on. Any other than this machine's own needs a token.
    port
        Port to listen on; 0 takes a free one.
    data_dir
        Folder for files that were sent and what was made of them; by default `serve` in mcflow's cache.
    token
        What clients have to know. Better given as the variable MCFLOW_TOKEN, which no list of processes shows.
    max_upload
        Largest file, also after unpacking: 500MB, 2GB.
    max_rows
        Rows of a table, at most.
    max_columns
        Columns of a table, at most.
    max_cells
        Cells of a table, at most.
    max_time
        Seconds that a job may take before it is ended.
    max_memory
        Memory that a job may hold before it is ended: 8GB. By default three quarters of the machine's.
    jobs
        Jobs that run at once; the others wait.
    max_queue
        Jobs that may wait.
    keep
        Hours after which files that were sent, and all that was made of them, are deleted.
    open_browser
        Open the page in the browser.
    """
    from mcflow.serve import check_serve

    check_serve()
    from mcflow.data.downloads import cache_folder
    from mcflow.serve.app import run_server
    from mcflow.serve.limits import Limits, parse_size

    limits = Limits(
        max_upload=parse_size(max_upload),
        max_rows=max_rows,
        max_columns=max_columns,
        max_cells=max_cells,
        max_time=max_time,
        max_memory=0 if max_memory is None else parse_size(max_memory),
        jobs=jobs,
        max_queue=max_queue,
        keep=keep,
    )
    secret = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
    folder = data_dir or cache_folder() / "serve"
    with contextlib.suppress(KeyboardInterrupt):
        run_server(
            folder,
            host=host,
            port=port,
            limits=limits,
            token=secret,
            on_ready=lambda url: _announce(url, folder, keep, open_browser),
        )


def _announce(url: str, folder: Path, keep: float, open_browser: bool) -> None:
    print(f"mcflow serves {url}", flush=True)
    print(f"Files are kept in {folder} for {keep:g} hours. Stop with Ctrl-C.", flush=True)
    if open_browser:
        import webbrowser

        webbrowser.open(url)

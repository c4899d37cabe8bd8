"""`mcflow serve`: the web page and the HTTP API."""

from __future__ import annotations

__all__ = ["serve"]

import contextlib
import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


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
    max_kept: int = 1_000,
    max_disk: str = "50GB",
    keep: float = 24.0,
    open_browser: Annotated[bool, Parameter(name="--open", negative="")] = False,
) -> None:
    """Serve the web page and the HTTP API on this machine, until stopped with Ctrl-C.

    Parameters
    ----------
    host
        Address to listen on. Addresses that other machines can reach require a token.
    port
        Port to listen on; 0 selects a free port.
    data_dir
        Folder for uploaded files and results; by default the folder `serve` in the cache of mcflow.
    token
        Token that clients must send. Prefer the environment variable MCFLOW_TOKEN, which process lists do not show.
    max_upload
        Maximum size of an uploaded file, also after decompression: 500MB, 2GB.
    max_rows
        Maximum number of rows of a table.
    max_columns
        Maximum number of columns of a table.
    max_cells
        Maximum number of cells of a table.
    max_time
        Time limit of a job in seconds.
    max_memory
        Memory limit of a job: 8GB. By default three quarters of the memory of the machine.
    jobs
        Number of jobs that run at the same time; the others wait in a queue.
    max_queue
        Maximum number of jobs that arrive, are inspected or wait in the queue.
    max_kept
        Maximum number of jobs whose files are kept; more are refused.
    max_disk
        Size of all kept files from which on nothing new is accepted: 50GB.
    keep
        Hours after which uploaded files and their results are deleted.
    open_browser
        Open the page in the browser.
    """
    from mcflow.serve import check_serve

    check_serve()
    from mcflow.files.atomic import cache_folder
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
        max_kept=max_kept,
        max_disk=parse_size(max_disk),
        keep=keep,
    )
    secret = os.environ.get("MCFLOW_TOKEN", "") if token is None else token
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
    print(f"Files are kept in {folder} for {keep:g} hours. Press Ctrl-C to stop.", flush=True)
    if open_browser:
        import webbrowser

        webbrowser.open(url)

"""`mcflow serve`: the web page and the HTTP API."""

from __future__ import annotations

__all__ = ["serve"]

import contextlib
import os
import webbrowser
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mcflow.serve.limits import Limits


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    data_dir: Path | None = None,
    token: str | None = None,
    open_browser: Annotated[bool, Parameter(name="--open", negative="")] = False,
    limits: Limits | None = None,
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
    open_browser
        Open the page in the browser.
    """
    from mcflow.serve import check_serve

    check_serve()
    from mcflow.files.atomic import cache_folder
    from mcflow.serve.app import run_server

    allowed = limits or Limits()
    secret = os.environ.get("MCFLOW_TOKEN", "") if token is None else token
    folder = data_dir or cache_folder() / "serve"

    def announce(url: str) -> None:
        print(f"mcflow serves {url}", flush=True)
        print(f"Files are kept in {folder} for {allowed.keep:g} hours. Press Ctrl-C to stop.", flush=True)
        if open_browser:
            webbrowser.open(url)

    with contextlib.suppress(KeyboardInterrupt):
        run_server(folder, host=host, port=port, limits=allowed, token=secret, on_ready=announce)

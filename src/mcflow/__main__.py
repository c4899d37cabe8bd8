"""`python -m mcflow` is the command line."""

from __future__ import annotations

from mcflow.cli.app import run

if __name__ == "__main__":
    run()

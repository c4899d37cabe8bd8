"""Run the command line of mcflow under spark-submit, which takes a file: spark-submit deploy/submit.py impute ..."""

from __future__ import annotations

from mcflow.cli.app import run

if __name__ == "__main__":
    run()

"""`mcflow completion`: let the shell complete commands and flags."""

from __future__ import annotations

__all__ = ["completion"]

from typing import Annotated, Literal

from cyclopts import Parameter

from mcflow.errors import OutputError


def completion(
    shell: Literal["bash", "zsh", "fish"],
    /,
    *,
    install: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Print the script that completes commands and flags in a shell.

    Parameters
    ----------
    shell
        bash, zsh or fish.
    install
        Write the script where the shell looks for it instead, and for bash and zsh have its start-up file read it.
    """
    from mcflow.cli.app import app

    if not install:
        print(app.generate_completion(shell=shell))
        return
    try:
        path = app.install_completion(shell=shell)
    except OSError as error:
        raise OutputError(
            f"The completion cannot be installed: {error}. Without --install the script is printed, for a place of "
            "your own."
        ) from error
    print(f"Completion for {shell} written to {path}. New shells use it.")

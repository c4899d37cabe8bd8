"""`mcflow completion`: shell completion of commands and flags."""

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
        Install the script in the completion folder of the shell instead of printing it. For bash and zsh, the start-up
        file of the shell is changed to load it.
    """
    from mcflow.cli.app import app

    if not install:
        print(app.generate_completion(shell=shell))
        return
    try:
        path = app.install_completion(shell=shell)
    except OSError as error:
        raise OutputError(
            f"The completion cannot be installed: {error}. Without --install the script is printed; save it yourself."
        ) from error
    print(f"Completion for {shell} written to {path}. Start a new shell to use it.")

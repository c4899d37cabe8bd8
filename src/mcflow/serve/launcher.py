"""Start a command that ends with the server and has a limited address space.

It runs as a script of its own, without mcflow, before the command takes its place: `launcher.py PARENT BYTES COMMAND…`.
"""

from __future__ import annotations

__all__ = ["launch"]

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  #: Option of prctl by which the system kills a process when its parent ends.


def launch(parent: int, address_space: int, command: list[str]) -> None:
    """Replace this process by a command; where the system cannot end it with its parent, watch it instead."""
    if address_space:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    if not sys.platform.startswith("linux"):
        _watch(parent, command)
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the server ended in the meantime
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606


def _watch(parent: int, command: list[str]) -> None:
    """Run a command, and end it when the parent ends."""
    import subprocess

    child = subprocess.Popen(command)  # noqa: S603
    while os.getppid() == parent:
        try:
            sys.exit(child.wait(1))
        except subprocess.TimeoutExpired:
            continue
    child.kill()
    sys.exit(1)


if __name__ == "__main__":
    launch(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])

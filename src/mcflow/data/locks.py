"""A file that one process at a time may hold, and that is free again when its holder dies."""

from __future__ import annotations

__all__ = ["holding"]

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from mcflow.errors import OutputError


@contextlib.contextmanager
def holding(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file for the time of a block.

    Parameters
    ----------
    path : Path
        The lock file. It holds the process id of its holder and is removed at the end.
    what : str
        What is locked, for the message.

    Raises
    ------
    OutputError
        When another process holds it, or when it cannot be made.

    Notes
    -----
    The system frees the lock when the process ends, however it ends, so that a lock file that was left behind by a
    killed process is no hindrance.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, holding(Path(folder) / ".lock", "the folder"):
    ...     (Path(folder) / ".lock").read_text() == str(os.getpid())
    True
    """
    handle = _acquired(path, what)
    try:
        os.truncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(handle)


def _acquired(path: Path, what: str) -> int:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror}. Choose another folder.") from error
        if not _lock(handle):
            holder = os.read(handle, 20).decode(errors="replace") or "?"
            os.close(handle)
            raise OutputError(f"Process {holder} is at work on {what}. Wait until it ends, or choose another folder.")
        # The holder before may have removed the file between our opening and our locking it.
        if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
            return handle
        os.close(handle)


if sys.platform == "win32":

    def _lock(handle: int) -> bool:
        import msvcrt

        os.lseek(handle, 64, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
        return True

else:

    def _lock(handle: int) -> bool:
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

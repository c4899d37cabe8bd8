"""Run a command once, and then again for every point at which it writes, where it kills itself; then restart it.

python kill_driver.py FOLDER COMMAND…: prints a JSON object with the points by name and what was wrong at each.
Points are opens for writing, renames, removals and new folders inside of the folder, which Python announces as audit
events, calls of fsync, and, for files that other languages write, the bytes at which a limit of the file size ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

# Imported before the forks, which would otherwise do so one by one.
import mcflow.cli.impute
import mcflow.engines.local
import mcflow.imputers.persistence  # noqa: F401
from mcflow.cli.app import main
from mcflow.files.atomic import read_tensors

EVENTS = ("open", "os.rename", "os.remove", "os.mkdir")


def plain(path: Any) -> str:
    """Return the name of a file without its random part."""
    name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)
    return re.sub(r"\.[0-9a-f]{8}-\d+-[0-9a-f]{8}\.tmp$", ".*.tmp", Path(name).name)


def watch(folder: Path, die_at: int, log: int | None) -> None:
    """Number the write points from now on; write their names to `log`, or die at one."""
    count, seen = iter(range(10**9)), Counter[str]()

    def reach(name: str) -> None:
        seen[name] += 1
        if log is not None:
            os.write(log, f"{name} #{seen[name]}\n".encode())
        if next(count) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event not in EVENTS or not isinstance(args[0], str | bytes | os.PathLike):
            return
        if not str(Path(os.fsdecode(args[0])).absolute()).startswith(str(folder)):
            return
        if event != "open" or (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            reach(f"{event.removeprefix('os.')} {plain(args[0])}")

    sync = os.fsync

    def fsync(handle: int) -> None:
        reach(f"fsync {plain(Path(f'/proc/self/fd/{handle}').readlink())}")
        sync(handle)

    os.fsync = fsync
    sys.addaudithook(hook)


def run(folder: Path, command: list[str], *, die_at: int = -1, log: int | None = None, most: int = 0) -> int:
    """Run a command in a fork, and return how it ended."""
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        with contextlib.suppress(BaseException):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            if most:
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            else:
                watch(folder, die_at, log)
            os._exit(main(command))
        os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): content(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def content(path: Path) -> bytes:
    """Return the bytes of a file; of a model its tensors, as its header holds the seconds of the fit."""
    if path.suffix != ".mcflow":
        return path.read_bytes()
    return b"".join(name.encode() + array.tobytes() for name, array in sorted(read_tensors(path, "model")[2].items()))


def differences(found: dict[str, bytes], whole: dict[str, bytes], *, complete: bool) -> list[str]:
    """Return what is wrong: files at final names that are not those of the undisturbed run, or are not there."""
    wrong = [name for name in found if name not in whole and (complete or not Path(name).name.startswith("."))]
    for name, data in whole.items():
        timed = name.endswith((".checkpoint", ".json"))  # which differ with the time that they took
        if (name in found and found[name] != data and not timed) or (complete and name not in found):
            wrong.append(name)
    return wrong


def attack(folder: Path, command: list[str]) -> dict[str, Any]:
    start = {path.name: path.read_bytes() for path in folder.iterdir()}
    whole_folder = folder / "work"

    def fresh() -> None:
        shutil.rmtree(whole_folder, ignore_errors=True)
        whole_folder.mkdir()
        for name, data in start.items():
            (whole_folder / name).write_bytes(data)

    fresh()
    read, write = os.pipe()
    os.set_blocking(read, False)
    assert run(whole_folder, command, log=write) == 0
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        every = [(k, point) for k, point in enumerate((stream.read() or b"").decode().splitlines())]
    last = {point.partition(" #")[0]: (k, point) for k, point in every}
    points = sorted({*last.values(), *(one for one in every if one[1].endswith(" #1"))})
    whole = files(whole_folder)
    wrong: dict[str, list[str]] = {}
    models = list(whole_folder.rglob("m.mcflow"))
    largest = models[0].stat().st_size if models else 0
    cuts = {f"byte {int(share * largest)}": int(share * largest) for share in (0.001, 0.1, 0.5, 0.99) if largest}
    for number, name in [*points, *((-1, name) for name in cuts)]:
        fresh()
        code = run(whole_folder, command, die_at=number, most=cuts.get(name, 0))
        found = differences(files(whole_folder), whole, complete=False)
        found += [] if code < 0 else [f"ended with {code}"]
        again = run(whole_folder, command)
        found += [f"restarted with {again}"] if again else differences(files(whole_folder), whole, complete=True)
        if found:
            wrong[name] = found
    return {"points": [*(name for _, name in points), *cuts], "wrong": wrong}


if __name__ == "__main__":
    print(json.dumps(attack(Path(sys.argv[1]).resolve(), sys.argv[2:])))

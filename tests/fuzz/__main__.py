"""Fuzz for a time, from where the last run ended: `python tests/fuzz [--seconds 3600] [--folder build/fuzz]`.

Cases run in a child process, so that a crash or a hang is a finding like any other. The folder keeps the counts, which
a later run continues, and a file for every finding. With `--page`, the counts are written to a page of the docs.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

#: Cases of a child process.
CHUNK = 250
#: Seconds after which a case is a hang.
HANG = 60.0
#: Marks of the counts in a page.
START, END = "<!-- result fuzz -->", "<!-- end -->"


def child(target: str, first: int, number: int, folder: Path) -> None:
    """Run cases, and write after each how far it came and what was found."""
    from fuzz_contract import Finding
    from fuzz_targets import run_case

    outcomes: Counter[str] = Counter()
    progress = folder / "current.json"
    for case in range(first, first + number):
        progress.write_text(json.dumps({"case": case, "outcomes": outcomes}))
        faulthandler.dump_traceback_later(HANG, exit=True)
        try:
            outcomes[run_case(target, case)] += 1
        except Finding as finding:
            outcomes["finding"] += 1
            keep(folder, target, case, "".join(traceback.format_exception(finding)))
        faulthandler.cancel_dump_traceback_later()
    progress.write_text(json.dumps({"case": first + number, "outcomes": outcomes}))


def keep(folder: Path, target: str, case: int, text: str) -> None:
    """Write a finding to a file."""
    (folder / "findings").mkdir(exist_ok=True)
    (folder / "findings" / f"{target.replace(' ', '-')}-{case}.txt").write_text(text)


def run_chunk(target: str, state: dict[str, Any], folder: Path) -> None:
    """Run the next cases of a target in a child process."""
    first = state.setdefault(target, {"cases": 0, "refused": 0, "filled": 0, "finding": 0})["cases"]
    command = [sys.executable, __file__, "--child", target, str(first), "--folder", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    reached = json.loads((folder / "current.json").read_text())
    for outcome, count in reached["outcomes"].items():
        state[target][outcome] += count
    state[target]["cases"] = reached["case"]
    if done.returncode:
        keep(folder, target, reached["case"], f"exit code {done.returncode}\n{done.stderr[-20_000:]}")
        state[target]["finding"] += 1
        state[target]["cases"] += 1


def rows(state: dict[str, Any]) -> str:
    """Return the counts as a table."""
    lines = ["| Target | Cases | Refused | Filled or answered | Findings |", "|---|---|---|---|---|"]
    for target, found in state.items():
        if target != "seconds":
            lines.append(
                f"| {target} | {found['cases']:,} | {found['refused']:,} | {found['filled']:,} | {found['finding']:,} |"
            )
    return "\n".join([*lines, "", f"In {state['seconds'] / 60:,.0f} minutes on one core of {os.uname().machine}."])


def main() -> int:
    """Fuzz until the time is up, the target that is furthest behind first; return 1 if there were findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0, help="time of this run")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="counts and findings")
    parser.add_argument("--page", type=Path, help="page of the docs for the counts")
    parser.add_argument("--child", nargs=2, metavar=("TARGET", "FIRST"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.child:
        child(options.child[0], int(options.child[1]), CHUNK, options.folder)
        return 0
    from fuzz_targets import TARGETS

    path = options.folder / "state.json"
    state = json.loads(path.read_text()) if path.is_file() else {"seconds": 0.0}
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        start = time.monotonic()
        target = min(TARGETS, key=lambda name: state.get(name, {"cases": 0})["cases"] / TARGETS[name][1])
        run_chunk(target, state, options.folder)
        state["seconds"] += time.monotonic() - start
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(state, indent=2))
        temporary.replace(path)
        print(f"{target}: {state[target]}", flush=True)
    print(rows(state))
    if options.page:
        before, _, rest = options.page.read_text().partition(START)
        options.page.write_text(f"{before}{START}\n\n{rows(state)}\n\n{END}{rest.partition(END)[2]}")
    found = sum(state[name]["finding"] for name in TARGETS if name in state)
    print(f"{found} findings" + (f" in {options.folder / 'findings'}" if found else ""))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""List the scripts that measure speed, or run all of them.

python bench/speed          # list
python bench/speed all      # run all in order; those without their data are skipped
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

#: The scripts in the order in which they are run; later ones read results of earlier ones.
SCRIPTS = (
    "start",
    "epoch",
    "matmul",
    "growth",
    "million",
    "draws",
    "images",
    "evaluate",
    "parallel",
    "ray_fill",
    "streams",
    "sizing",
    "serve",
    "load",
)


def first_line(script: Path) -> str:
    """Return the first line of a script's docstring."""
    return (ast.get_docstring(ast.parse(script.read_text())) or "").partition("\n")[0]


def main() -> int:
    if sys.argv[1:] != ["all"]:
        for name in SCRIPTS:
            print(f"python bench/speed/{name}.py".ljust(34) + first_line(HERE / f"{name}.py"))
        return 0
    codes = [subprocess.run([sys.executable, HERE / f"{name}.py"], check=False).returncode for name in SCRIPTS]
    failed = [name for name, code in zip(SCRIPTS, codes, strict=True) if code]
    print(f"failed or skipped: {', '.join(failed)}" if failed else "all done", file=sys.stderr)
    return 1 if failed and os.environ.get("MCFLOW_DATA") else 0


if __name__ == "__main__":
    sys.exit(main())

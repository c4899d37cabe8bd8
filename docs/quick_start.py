"""Run the quick start of README.md and write what it prints below it.

python docs/quick_start.py [--dry]
"""

from __future__ import annotations

__all__ = ["main", "output_of", "quick_start"]

import argparse
import io
import re
from contextlib import redirect_stdout
from pathlib import Path

from mcflow.files.atomic import write_text
from mcflow_bench.report.blocks import with_block

README = Path(__file__).parents[1] / "README.md"


def quick_start() -> str:
    """Return the code of the quick start."""
    section = README.read_text(encoding="utf-8").split("\n## Quick start\n")[1]
    return section.split("```python\n")[1].split("```")[0]


def output_of(code: str) -> str:
    """Run code and return what it prints, without spaces at the ends of lines."""
    said = io.StringIO()
    with redirect_stdout(said):
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    return re.sub(r" +$", "", said.getvalue().rstrip(), flags=re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="print the output only")
    dry = parser.parse_args().dry
    output = output_of(quick_start())
    print(output)  # noqa: T201
    if not dry:
        page = README.read_text(encoding="utf-8")
        write_text(README, with_block(page, "quick-start", f"```text\n{output}\n```"))


if __name__ == "__main__":
    main()

"""Write measured results, and put them into the pages between their marks.

python speed/results.py      # render what is in speed/results/ again
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

from mcflow.benchmarks.blocks import with_block
from mcflow.data.files import replacing
from rendering import RENDER

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "results"
PAGES = ("README.md", "docs/performance.md", "docs/images.md", "docs/evaluate.md", "docs/scale.md", "docs/server.md")


def environment() -> dict[str, Any]:
    """Return what a figure depends on besides the code."""
    return {
        "threads": torch.get_num_threads(),
        "load": [round(x, 2) for x in os.getloadavg()],
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def table_path(name: str) -> Path | None:
    """Return where a real table is, None when MCFLOW_DATA does not name a folder that has it."""
    path = Path(os.environ.get("MCFLOW_DATA") or ".") / f"{name}.parquet"
    return path if path.is_file() else None


def report(result: dict[str, Any]) -> str:
    """Print a result as JSON, and return it."""
    text = json.dumps(result, indent=2) + "\n"
    print(text, end="")
    return text


def write(name: str, result: dict[str, Any]) -> None:
    """Store a result as JSON, print it and render the pages again."""
    FOLDER.mkdir(exist_ok=True)
    with replacing(FOLDER / f"{name}.json") as temporary:
        temporary.write_text(report(result))
    for page in PAGES:
        path = ROOT / page
        with replacing(path) as temporary:
            temporary.write_text(rendered(path.read_text()))


def rendered(page: str) -> str:
    """Return a page with every block between its marks made anew from what is stored."""
    for name, render in RENDER.items():
        stored = FOLDER / f"{name}.json"
        if stored.is_file() and f"<!-- result {name} -->" in page:
            page = with_block(page, name, render(json.loads(stored.read_text())))
    return page


if __name__ == "__main__":
    for page in PAGES:
        (ROOT / page).write_text(rendered((ROOT / page).read_text()))

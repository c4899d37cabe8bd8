"""Write measured results, and put them into README.md and docs/performance.md between their marks.

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

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "results"
PAGES = ("README.md", "docs/performance.md")


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


def write(name: str, result: dict[str, Any]) -> None:
    """Store a result as JSON, print it and render the pages again."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(result, indent=2) + "\n"
    with replacing(FOLDER / f"{name}.json") as temporary:
        temporary.write_text(text)
    print(text, end="")
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


def _epoch(result: dict[str, Any]) -> str:
    return (
        f'One epoch of `preset="paper"` on {result["rows"]:,} × {result["columns"]} cells ({result["data"]}): '
        f"**{result['fast_epoch_s']:.2f} s**, against {result['plain_epoch_s']:.2f} s the plain way, "
        f"**{result['times_faster']:.1f} times faster**. From the same weights the losses of the first 50 steps differ "
        f"by at most {result['largest_loss_difference_50_steps']:g}. ({_under(result)})"
    )


def _letter(result: dict[str, Any]) -> str:
    lines = [f"{result['data']}; RMSE in units of the range ({_under(result)}):", ""]
    lines += ["| method | RMSE | fit | transform |", "|---|---|---|---|"]
    for name, found in result["methods"].items():
        lines.append(f"| {name} | {found['rmse']:.4f} | {found['fit_s']:.1f} s | {found['transform_s']:.2f} s |")
    return "\n".join(lines)


def _adult(result: dict[str, Any]) -> str:
    lines = [f"{result['data']}; share of wrong levels ({_under(result)}):", ""]
    lines += ["| column | mcflow, preset paper | commonest level |", "|---|---|---|"]
    for name, found in result["columns"].items():
        lines.append(f"| {name} | {found['error']:.4f} | {found['commonest_level_error']:.4f} |")
    return "\n".join([*lines, "", f"Mean of the ratios: {result['mean_ratio']:.3f}."])


def _under(result: dict[str, Any]) -> str:
    return f"{result['machine']}, {result['threads']} threads, load {result['load'][0]:.1f}, torch {result['torch']}"


RENDER = {"epoch": _epoch, "letter": _letter, "adult": _adult}


if __name__ == "__main__":
    for page in PAGES:
        (ROOT / page).write_text(rendered((ROOT / page).read_text()))

"""Open the built pages in Chromium at desktop and phone width, light and dark; report clipped pages, save pictures.

python docs/screenshots.py [PAGE ...] [--html FOLDER] [--output FOLDER]

A page is reported if it is wider than the window, or if a picture has no alternative text. Needs Chromium and
playwright.
"""

from __future__ import annotations

__all__ = ["main"]

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

#: Pages that are opened if none is named.
PAGES = (
    *("index", "guides", "coming-from-r-mice", "benchmark", "api/imputer"),
    *("tutorials/index", "tutorials/fill_a_table", "tutorials/draws_and_regression", "tutorials/evaluate"),
    *("tutorials/images", "tutorials/production"),
)
#: Width and height of the windows.
WINDOWS = {"desktop": (1280, 900), "phone": (390, 844)}

WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SILENT = "[...document.querySelectorAll('article img')].filter(image => !image.alt).map(image => image.src)"


def faults_of(page: Any, address: str, picture: Path) -> list[str]:
    """Open a page, save its picture, and return what is wrong with it."""
    page.goto(address)
    picture.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(picture), full_page=True)
    wide, silent = page.evaluate(WIDE), page.evaluate(SILENT)
    return [f"{wide} pixels too wide"] * (wide > 0) + [f"no alternative text: {source[-60:]}" for source in silent]


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", default=PAGES)
    parser.add_argument("--html", type=Path, default=HERE / "_build" / "html")
    parser.add_argument("--output", type=Path, default=HERE / "_build" / "screenshots")
    options = parser.parse_args()
    faults: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for kind, (width, height) in WINDOWS.items():
            for scheme in ("light", "dark"):
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
                page = context.new_page()
                for name in options.pages:
                    place = (options.html / f"{name}.html").resolve()
                    picture = options.output / f"{name.replace('/', '-')}-{kind}-{scheme}.png"
                    faults += [
                        f"{name}, {kind}, {scheme}: {fault}" for fault in faults_of(page, place.as_uri(), picture)
                    ]
                context.close()
        browser.close()
    sys.stdout.write(("\n".join(faults) or f"{len(options.pages)} pages are fine") + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

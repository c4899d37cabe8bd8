"""Draw the pictures of the documentation, for light and for dark pages, into docs/pictures.

python docs/make_pictures.py [NAME ...] [--output FOLDER]

Names are flow, hidden, latent, front and diagnostics; all by default.
"""

from __future__ import annotations

__all__ = ["PICTURES", "main"]

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drawing.theme import DARK, LIGHT, Theme

FOLDER = Path(__file__).parent / "pictures"

#: What draws a picture in the colours of a theme.
Drawing = Callable[[Theme], Any]


def _flow() -> Drawing:
    from drawing.flow import draw_flow

    return draw_flow


def _hidden() -> Drawing:
    from drawing.hidden import draw_hidden

    return draw_hidden


def _latent() -> Drawing:
    from drawing.latent import draw_latent, learn_moons

    moons = learn_moons()
    return lambda theme: draw_latent(theme, moons)


def _front() -> Drawing:
    from drawing.front import draw_front, fill_people

    people = fill_people()
    return lambda theme: draw_front(theme, people)


#: By name: what does the work that both themes share, and returns what draws.
PICTURES: dict[str, Callable[[], Drawing]] = {"flow": _flow, "hidden": _hidden, "latent": _latent, "front": _front}


def _diagnostics(folder: Path) -> None:
    from drawing.diagnostics import diagnostic_figures

    for name, figure in diagnostic_figures().items():
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *PICTURES, "diagnostics"], default=[], help="pictures to draw")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder to write them to")
    return parser.parse_args()


def main() -> None:
    """Write every picture, or those that are named; the same program gives the same bytes."""
    import matplotlib

    options = _parse()
    options.output.mkdir(exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "mcflow", "svg.fonttype": "path"}):
        for name in options.names or [*PICTURES, "diagnostics"]:
            if name == "diagnostics":
                _diagnostics(options.output)
                continue
            draw = PICTURES[name]()
            for theme, ending in ((LIGHT, ""), (DARK, "-dark")):
                draw(theme).savefig(options.output / f"{name}{ending}.svg", metadata={"Date": None}, dpi=200)


if __name__ == "__main__":
    main()

"""Modules of this folder that pytest leaves alone: programs, and what Sphinx reads."""

from __future__ import annotations

collect_ignore_glob = [
    "conf.py",
    "drawing/*.py",
    "make_pictures.py",
    "offline_math.py",
    "quick_start.py",
    "screenshots.py",
]

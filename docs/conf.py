"""Settings of the documentation: furo, markdown by myst-parser, API pages from the docstrings."""

from __future__ import annotations

import sys
from pathlib import Path

import mcflow

sys.path.insert(0, str(Path(__file__).parent))

project = "mcflow"
author = "The mcflow developers"
version = release = mcflow.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "offline_math"]
html_math_renderer = "mathml"
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3

# Names in single backticks are code, as numpydoc's style has it.
default_role = "code"
autodoc_member_order = "bysource"
# Types stand in the docstrings.
autodoc_typehints = "none"
numpydoc_show_class_members = False

html_theme = "furo"
html_title = f"mcflow {release}"
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["pages.css"]

"""Settings of the documentation: furo, markdown by myst-parser, API pages from the docstrings."""

from __future__ import annotations

import mcflow

project = "mcflow"
author = "The mcflow developers"
version = release = mcflow.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
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

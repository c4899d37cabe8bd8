"""Settings of the documentation: furo, tutorials executed by myst-nb, API pages from the docstrings."""

from __future__ import annotations

import sys
from pathlib import Path

import mcflow

sys.path.insert(0, str(Path(__file__).parent))

project = "mcflow"
author = "The mcflow developers"
copyright = author
version = release = mcflow.__version__

extensions = ["myst_nb", "numpydoc", "sphinx.ext.autodoc", "sphinx_design", "offline_math"]
html_math_renderer = "mathml"
exclude_patterns = ["_build"]
source_suffix = {".md": "myst-nb", ".rst": "restructuredtext"}

# Tutorials are executed when they or the settings have changed.
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Names in single backticks are code, as numpydoc's style has it.
default_role = "code"
autodoc_member_order = "bysource"
# scikit-learn adds these methods, whose docstrings refer to its own pages.
autodoc_default_options = {"exclude-members": "set_fit_request, set_transform_request"}
# Types stand in the docstrings.
autodoc_typehints = "none"
numpydoc_show_class_members = False

html_theme = "furo"
html_title = f"mcflow {release}"
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["pages.css"]

"""Sphinx: make docs."""

import kbert

project = "kbert"
author = "the kbert authors"
release = version = kbert.__version__
extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "alabaster"
html_theme_options = {"description": "BERT for pandas, scikit-learn and Keras 3", "page_width": "1000px"}
autodoc_typehints = "none"
autosummary_generate = False
numpydoc_show_class_members = False
nitpicky = False
exclude_patterns = ["_build"]

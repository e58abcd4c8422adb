"""Sphinx: make docs."""

import inspect
import os
import sys
from pathlib import Path

import kbert

sys.path.insert(0, str(Path(__file__).parent))  # results_table

project = "kbert"
author = "the kbert authors"
copyright = "the kbert authors"
release = version = kbert.__version__
extensions = [
    "results_table",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "gallery/backreferences"]
nitpicky = False

# --- Markdown

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# --- API

autodoc_typehints = "none"
autosummary_generate = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
default_role = "py:obj"  # `BertConfig` in a docstring is a link
numpydoc_show_class_members = False
templates_path = ["_templates"]

# --- Gallery: examples/plot_*.py, which are run while the site is built. The other examples are for the command line.

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "parallel": 2,  # processes, of a thread each (make docs)
    "ignore_pattern": r"^(?!plot_)",  # of the name of a file
    "within_subsection_order": "ExampleTitleSortKey",
    "backreferences_dir": "gallery/backreferences",
    "ignore_repr_types": r"kbert\.estimators|sklearn|matplotlib",  # what `fit` and `legend` return
    "doc_module": ("kbert",),
    "write_computation_times": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "download_all_examples": False,
}

# --- Links to other projects. Their lists of pages come over the network. A build that cannot reach them warns, and -W
# makes that an error. So they are read on request only: KBERT_DOCS_INTERSPHINX=1 make docs. Without them a name such as
# sklearn.pipeline.Pipeline is plain text.

intersphinx_mapping = {}
if os.environ.get("KBERT_DOCS_INTERSPHINX") == "1":
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "pandas": ("https://pandas.pydata.org/docs", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
    }

# --- Look

html_theme = "pydata_sphinx_theme"
html_title = "kbert"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["kbert.css"]
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "show_toc_level": 2,
    "show_nav_level": 1,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system
html_sidebars = {"index": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def signature_of_init(app, what, name, obj, options, signature, return_annotation):
    """The parameters of an estimator, which has a ``__new__`` that takes anything (to name a wrong keyword)."""
    if what != "class" or not (signature or "").startswith("(*args"):
        return None
    found = inspect.signature(obj)
    empty = inspect.Parameter.empty
    plain = [
        parameter.replace(annotation=empty) for parameter in found.parameters.values()
    ]
    return str(found.replace(parameters=plain, return_annotation=empty)), None


def setup(app):
    app.connect("autodoc-process-signature", signature_of_init)

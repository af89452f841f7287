"""Sphinx's configuration: what the site consists of, and how its examples run."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import tomllib
from pathlib import Path

from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

from examples import CleanFolders, FileScraper, embedded, prepare  # noqa: E402 - lies in the folder that was just added

# pyproject.toml is the one place that states authors and addresses.
with (HERE.parent / "pyproject.toml").open("rb") as file:
    DISTRIBUTION = tomllib.load(file)["project"]

project = "Collapsium"
author = ", ".join(person["name"] for person in DISTRIBUTION["authors"])
copyright = author  # noqa: A001 - Sphinx's name
release = version = importlib.metadata.version("collapsium")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "math_elements",
    "reference_pages",
]
exclude_patterns = ["_ext", "_templates", "tutorials/*.rst", "gallery/*.rst"]
nitpicky = False
# Flags begin with two hyphens, which are no dash.
smartquotes = False
default_role = "py:obj"

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

templates_path = ["_templates"]
autosummary_generate = True
autosummary_imported_members = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = f"Collapsium {release}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["auto_pages"]
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "Collapsium"},
    "navbar_align": "left",
    "external_links": [{"name": name, "url": url} for name, url in DISTRIBUTION.get("urls", {}).items()],
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "back_to_top_button": True,
}
html_sidebars = {"choosing": []}

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

linkcheck_timeout = 10
linkcheck_retries = 1
linkcheck_anchors = False
linkcheck_ignore = [r"https?://(localhost|127\.0\.0\.1)[:/]"]  # of a cluster of the reader's own

# Examples run in folders below `build`, so that what they write stays out of the sources.
WORK = HERE.parent / "build" / "examples"
SECTIONS = ["tutorials", "gallery"]
PAGES = HERE / "auto_pages"
PAGES.mkdir(exist_ok=True)
os.environ.setdefault("MPLBACKEND", "agg")
Figure._repr_html_ = embedded

sphinx_gallery_conf = {
    "examples_dirs": prepare(HERE, WORK, SECTIONS),
    "gallery_dirs": ["auto_tutorials", "auto_gallery"],
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"(^|[/\\])_",
    "within_subsection_order": "examples.Order",
    "image_scrapers": ("matplotlib", FileScraper(PAGES)),
    "reset_modules": ("matplotlib", CleanFolders(WORK, SECTIONS)),
    "download_all_examples": False,
    "ignore_repr_types": r"list|Manifest|Report|Inference|Prediction",  # results beside the files
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 0,
    "write_computation_times": False,
    "remove_config_comments": True,
    "nested_sections": False,
    "copyfile_regex": "",
}

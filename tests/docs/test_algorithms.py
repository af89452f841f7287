"""The pages on algorithms name functions that exist, and have a section for each family."""

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

from collapsium.pipeline.models.registry import family_names

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
ADDRESS = re.compile(r"`((?:pipeline|workers|storage)(?:\.\w+)+):(\w+(?:\.\w+)*)`")


def addresses():
    """Functions that pages name, as ``module:function``, with the first page that names each."""
    named = {}
    for page in PAGES:
        for module, name in ADDRESS.findall(page.read_text(encoding="utf-8")):
            named.setdefault(f"{module}:{name}", page.relative_to(ROOT).as_posix())
    return named


@pytest.mark.parametrize(("address", "page"), sorted(addresses().items()))
def test_functions_that_pages_name__exist(address, page):
    module, _, names = address.partition(":")
    assert reduce(getattr, names.split("."), importlib.import_module(f"collapsium.{module}")) is not None, page


def test_pages__name_functions():
    assert len(addresses()) > 100


@pytest.mark.parametrize("family", family_names())
def test_families__have_an_anchor_and_a_line_in_the_index(family):
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.parent.name == "algorithms")
    assert f"(family-{family})=\n" in pages
    assert f"| `{family}` |" in (ROOT / "docs/algorithms/index.md").read_text(encoding="utf-8")


PATH = re.compile(r"`((?:pipeline|workers|storage|tests|deploy|docs)/[\w./-]+)`")
EXAMPLES = {"workers/families/unigrams.py"}
"""The module of the recipe by which a family is added."""


@pytest.mark.parametrize(
    "page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/algorithms", "docs/project"]
)
def test_paths_that_pages_name__exist(page):
    top = ROOT / page
    texts = [path.read_text(encoding="utf-8") for path in ([top] if top.is_file() else top.rglob("*.md"))]
    paths = {path for text in texts for path in PATH.findall(text)} - EXAMPLES
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []

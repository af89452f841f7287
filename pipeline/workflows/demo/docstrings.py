"""Real text that every machine with this package has: docstrings of the standard library and of our requirements.

They are read from source files with `ast`; nothing is imported. Each docstring is a document, labelled with its package
and, as category, its module; its sections are its segments.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from packaging.requirements import Requirement

from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.text import Text, TextSource
from collapsium.storage.short_repr import ShortRepr

MIN_LETTERS = 60
"""Shortest docstring, in letters; shorter ones have too few words for a topic."""
_HEADING = re.compile(
    r"^[ \t]*(?:\S.*\n[ \t]*[-=~]{3,}[ \t]*$|(?:Args|Arguments|Returns|Raises|Examples?|Notes?):[ \t]*$)", re.MULTILINE
)
_PRIVATE = {"test", "tests", "testing", "conftest", "idlelib", "lib2to3", "site-packages", "dist-packages"}


@dataclass(frozen=True, repr=False)
class Module(ShortRepr):
    """A source file.

    Attributes
    ----------
    package : str
        Distribution or, for the standard library, ``python``.
    name : str
        Dotted name of the module.
    path : Path
        The file.
    """

    package: str
    name: str
    path: Path


def docstring_source() -> TextSource:
    """Return the docstrings as a source of documents, in the order of their names."""
    # A few megabytes. Parsing all sources again in each pass would take longer than the fit.
    documents = list(texts())
    folder = sysconfig.get_paths()["stdlib"]
    return TextSource([folder], ReadOptions(), lambda path, options: iter(documents), structured=True)  # noqa: ARG005


def texts() -> Iterator[Text]:
    """Read all docstrings of public modules, classes and functions, each text once.

    Yields
    ------
    Text
        With the object's dotted name as its id.
    """
    seen: set[str] = set()
    names: set[str] = set()
    for module in modules():
        for name, docstring in docstrings(module):
            key = " ".join(docstring.split())
            if len(key) < MIN_LETTERS or key in seen or name in names:
                continue
            seen.add(key)
            names.add(name)
            labels = (("package", module.package), ("category", module.name))
            yield Text(name, tuple(sections(docstring)), title=name, labels=labels)


def modules() -> list[Module]:
    """Find the public source files of the standard library and of the packages that Collapsium requires."""
    sources = [*_standard_library()]
    for distribution in sorted(_required()):
        sources += _installed(distribution)
    return sorted(sources, key=lambda module: (module.package, module.name))


def _standard_library() -> Iterator[Module]:
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in root.rglob("*.py"):
        name = module_name(path.relative_to(root))
        if name:
            yield Module("python", name, path)


def _required(root: str = "collapsium") -> set[str]:
    """Follow the requirements of the installed distribution, without extras."""
    names: set[str] = set()
    waiting = [root]
    while waiting:
        try:
            required = importlib.metadata.requires(waiting.pop()) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for text in required:
            requirement = Requirement(text)
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if applies and name not in names:
                names.add(name)
                waiting.append(name)
    return names


def _installed(distribution: str) -> Iterator[Module]:
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.suffix == ".py" and ".." not in file.parts:
            name = module_name(Path(*file.parts))
            if name:
                yield Module(distribution, name, Path(str(file.locate())))


def module_name(path: Path) -> str:
    """Return the dotted name of a public module; nothing for tests and what is private."""
    parts = [*path.parts[:-1], path.stem]
    if parts[-1] == "__init__":
        parts.pop()
    if any(part in _PRIVATE or part.startswith(("_", "test_")) or not part.isidentifier() for part in parts):
        return ""
    return ".".join(parts)


def docstrings(module: Module) -> Iterator[tuple[str, str]]:
    """Read the docstrings of a module and of its public classes and functions.

    Parameters
    ----------
    module : Module
        The source file; one that cannot be parsed has none.

    Yields
    ------
    tuple of str
        Dotted name and docstring.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(module.path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    waiting: list[tuple[str, ast.AST]] = [(module.name, tree)]
    while waiting:
        name, node = waiting.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield name, text.encode("utf-8", "replace").decode()
        if isinstance(node, (ast.Module, ast.ClassDef)):
            waiting += [
                (f"{name}.{inner.name}", inner)
                for inner in node.body
                if isinstance(inner, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and inner.name[0] != "_"
            ]


def sections(docstring: str) -> list[str]:
    """Cut a docstring at its headings, underlined ones and those that end in a colon; empty sections are left out."""
    starts = [0, *(match.start() for match in _HEADING.finditer(docstring)), len(docstring)]
    parts = [docstring[first:last].strip() for first, last in pairwise(starts)]
    return [part for part in parts if part]

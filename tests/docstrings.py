"""Check, as part of `make lint`, the docstrings of the public API against numpydoc: `python -m tests.docstrings`.

The public API is what the pages of `docs/reference` list. The rules are numpydoc's own, chosen in pyproject.toml.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name

from numpydoc.hooks.validate_docstrings import parse_config
from numpydoc.validate import validate

ROOT = Path(__file__).parents[1]
CURRENT_MODULE = re.compile(r"^\.\. currentmodule:: (\S+)")
ENTRY = re.compile(r"^   ([A-Za-z_][\w.]*)$")


def listed() -> Iterator[str]:
    """Yield the full name of each function and class that the reference lists."""
    for page in sorted((ROOT / "docs" / "reference").glob("*.rst")):
        module = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if current := CURRENT_MODULE.match(line):
                module = current[1]
            elif entry := ENTRY.match(line):
                yield entry[1] if entry[1].startswith("collapsium.") else f"{module}.{entry[1]}"


def with_methods(name: str) -> Iterator[str]:
    """Yield a name and, for a class, the names of the public methods and properties that it defines."""
    yield name
    value = resolve_name(name)
    if inspect.isclass(value):
        for member, attribute in vars(value).items():
            documented = inspect.isroutine(attribute) or isinstance(
                attribute, property | cached_property | classmethod | staticmethod
            )
            if documented and not member.startswith("_"):
                yield f"{name}.{member}"


def faults(name: str, config: dict) -> Iterator[str]:
    """Yield the rules of pyproject.toml that a docstring breaks."""
    docstring = inspect.getdoc(resolve_name(name)) or ""
    for code, message in validate(name)["errors"]:
        exempt = config["overrides"].get(code)
        if code in config["checks"] and not (exempt and exempt.search(docstring)):
            yield f"{name}: {code} {message}"


if __name__ == "__main__":
    names = sorted({member for name in listed() for member in with_methods(name)})
    config = parse_config(ROOT)
    found = [fault for name in names for fault in faults(name, config)]
    print("\n".join([*found, f"{len(found)} faults in {len(names)} public docstrings"]))
    sys.exit(1 if found or len(names) < 100 else 0)

"""Count what a reader of the product has to get through: `python -m tests.size [OPTION]`.

OPTION is the Python name of an option, whose files are counted; without it, an option of the loop is.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("pipeline", "workers", "storage")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
LDA = ("collapsium.workers.families.cvb.lda", "collapsium.workers.families.cvb.lda")


@dataclass(frozen=True)
class Source:
    """A module of the product: its name, text and syntax tree."""

    path: Path
    name: str
    text: str = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Source:
        """Read a module below the root."""
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(("collapsium", *(parts[:-1] if parts[-1] == "__init__" else parts)))
        return cls(path, name, path.read_text(encoding="utf-8"))

    @property
    def is_package(self) -> bool:
        """True of the module that a folder itself is."""
        return self.path.name == "__init__.py"

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def docstring_lines(self) -> set[int]:
        """Lines of the docstrings of modules, classes and functions."""
        lines: set[int] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, DOCUMENTED):
                for statement in node.body[:1]:
                    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                        lines.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
        return lines

    @cached_property
    def code_lines(self) -> set[int]:
        """Lines that are neither blank, comment, docstring nor import."""
        with self.path.open("rb") as file:
            tokens = list(tokenize.tokenize(file.readline))
        silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
        silent |= {tokenize.ENCODING, tokenize.ENDMARKER}
        lines = {
            line for token in tokens if token.type not in silent for line in range(token.start[0], token.end[0] + 1)
        }
        imports = {
            line
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        return lines - self.docstring_lines - imports

    def imported(self, names: set[str]) -> set[str]:
        """Modules among `names` that this one imports, by statements or by the name in a text."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
        return (found & names) - {self.name}


def sources() -> dict[str, Source]:
    """Return the modules of the product by name."""
    read = [Source.read(path) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {source.name: source for source in read}


def closure(imports: dict[str, set[str]], names: tuple[str, ...]) -> set[str]:
    """Return all modules that some import, directly or through others, themselves included."""
    reached: set[str] = set()
    ahead = [name for name in names if name in imports]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead.extend(imports[name])
    return reached


def single_importers(modules: dict[str, Source], imports: dict[str, set[str]]) -> list[str]:
    """Return the modules, packages aside, that exactly one other module imports."""
    uses = Counter(name for importer in imports for name in imports[importer])
    return [name for name, source in modules.items() if uses[name] == 1 and not source.is_package]


def mentions(source: Source, option: str) -> bool:
    """Return true if a module names an option: as a field, an argument, an attribute or a text."""
    for node in ast.walk(source.tree):
        named = (
            getattr(node, "id", None),
            getattr(node, "attr", None),
            getattr(node, "arg", None),
            getattr(node, "value", None) if isinstance(node, ast.Constant) else None,
        )
        if option in named:
            return True
    return False


def main(option: str = "most_active") -> None:
    """Print the figures."""
    modules = sources()
    imports = {name: source.imported(set(modules)) for name, source in modules.items()}
    trees = [source.tree for source in modules.values()]
    functions = [
        node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    reached = closure(imports, LDA)
    crossed = [source.name for source in modules.values() if mentions(source, option)]
    for figure, number in {
        "lines": sum(source.text.count("\n") for source in modules.values()),
        "lines of code": sum(len(source.code_lines) for source in modules.values()),
        "lines of docstrings": sum(len(source.docstring_lines) for source in modules.values()),
        "modules": len(modules),
        "functions": len(functions),
        "modules with a single importer": len(single_importers(modules, imports)),
        "import closure of lda, driver": sum(name.startswith("collapsium.pipeline") for name in reached),
        "import closure of lda, workers": sum(name.startswith("collapsium.workers") for name in reached),
        f"files that name the option {option}": len(crossed),
    }.items():
        print(f"{figure:40} {number:8,}")


if __name__ == "__main__":
    main(*sys.argv[1:])

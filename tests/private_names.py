"""Refuse private names of other libraries in product code, as part of `make lint`: `python -m tests.private_names`.

A name `_x` is our own where the same module or one that it imports from Collapsium defines it; `super()._x` needs another
definition than the method that calls it. Names that their libraries document are listed, with exceptions and their reasons.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("pipeline", "workers", "storage")
DOCUMENTED = {"_replace", "_fields", "_asdict", "_make", "os._exit", "sys._current_frames"}
"""Names of named tuples, and functions whose documentation recommends them."""
EXCEPTIONS = {("workers/kernels/jit", "_cache"), ("workers/kernels/target", "_index_key")}
"""numba's cache names code by the target of the process. Where other code has set another target, a process loads code that
was compiled elsewhere, for which the cache has no public interface."""


def is_private(name: object) -> bool:
    """Return True for `_x`, but not for `__x__`."""
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__")


def definitions(tree: ast.AST) -> Iterator[str]:
    """Yield the private names that a module defines: functions, classes, attributes of `self`, variables and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def overridden_in(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield `super()._x` where a method `_x` calls it."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                is_super = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "super()"
                if is_super and node.attr == function.name:
                    yield node


def private_names(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the name and the expression of each private name that is used."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node.lineno, node.attr, ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr", "delattr"):
            name = node.args[1] if len(node.args) > 1 else None
            if isinstance(name, ast.Constant) and is_private(name.value):
                yield node.lineno, str(name.value), ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(("collapsium", "__future__")):
            for name in [*(node.module or "").split("."), *(alias.name for alias in node.names)]:
                if is_private(name):
                    yield node.lineno, name, f"from {node.module} import {name}"


def modules_imported(tree: ast.AST) -> Iterator[str]:
    """Yield the paths of Collapsium's modules that a module imports, without their ending."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("collapsium."):
            place = node.module.removeprefix("collapsium.").replace(".", "/")
            yield place
            yield from (f"{place}/{alias.name}" for alias in node.names)


def faults() -> Iterator[str]:
    """Yield a line for each private name of another library."""
    trees = {
        path.relative_to(ROOT).with_suffix("").as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    defined = {name: set(definitions(tree)) for name, tree in trees.items()}
    for module, tree in trees.items():
        imported = set().union(*(defined.get(name, set()) for name in modules_imported(tree)))
        foreign = {(node.lineno, ast.unparse(node)) for node in overridden_in(tree) if node.attr not in imported}
        for line, name, text in private_names(tree):
            known = name in defined[module] | imported | DOCUMENTED or text in DOCUMENTED
            if (module, name) not in EXCEPTIONS and (not known or (line, text) in foreign):
                yield f"{module}.py:{line}: {text}"


def main() -> None:
    """Print the faults; exit with 1 if there are any."""
    lines = list(faults())
    print("\n".join([*lines, f"{len(lines)} private names of other libraries"]))
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()

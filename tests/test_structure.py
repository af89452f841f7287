"""The limits that keep the code base readable: sizes of modules, folders and signatures, and states that are not dictionaries."""

import ast
import re
from pathlib import Path

import pytest

import collapsium.pipeline
from collapsium.pipeline import estimators

ROOT = Path(__file__).parents[1]
PACKAGES = ("pipeline", "workers", "storage")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MODULE_LINES, FOLDER_MODULES = 400, 14
KERNEL_PARAMETERS, PARAMETERS = 8, 10
ASKED_BY_NAME = re.compile(r'"[a-z_]+" (not )?in (delta|rows|local|globals|state)\b')


def name_of(path):
    return str(path.relative_to(ROOT))


def functions_of(path):
    """Functions of a module with the class that each stands in, if any."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    owners = {id(item): node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for item in node.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, owners.get(id(node))


def parameters_of(function, owner):
    """How many parameters a caller passes."""
    arguments = function.args
    names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len(names) - (
        owner is not None
        and not any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in function.decorator_list)
    )


def test_there_are_modules_to_look_at():
    assert len(MODULES) > 300
    assert sum(len(list(functions_of(path))) for path in MODULES) > 3000


def test_modules__have_at_most_400_lines():
    long = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: lines for name, lines in long.items() if lines > MODULE_LINES} == {}


def test_folders__have_at_most_14_modules():
    folders = {path.parent for path in MODULES}
    sizes = {name_of(one): len([path for path in one.glob("*.py") if path.name != "__init__.py"]) for one in folders}
    assert {name: size for name, size in sizes.items() if size > FOLDER_MODULES} == {}


def test_functions__take_at_most_ten_parameters_but_for_the_public_ones():
    public = {*collapsium.pipeline.__all__, *estimators.__all__}
    found = []
    for path in MODULES:
        kernel = (ROOT / "workers" / "kernels") in path.parents
        for function, owner in functions_of(path):
            if function.name in public or owner in public:
                continue
            if parameters_of(function, owner) > (KERNEL_PARAMETERS if kernel else PARAMETERS):
                found.append(f"{name_of(path)}:{function.lineno} {function.name}")
    assert found == []


@pytest.mark.parametrize("package", ["pipeline", "workers"])
def test_states__are_not_asked_for_arrays_by_name(package):
    """A state's class says what it holds."""
    state_classes = ROOT / "workers" / "arrays" / "state.py"
    found = [
        f"{name_of(path)}:{number}"
        for path in MODULES
        if (ROOT / package) in path.parents and path != state_classes
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if ASKED_BY_NAME.search(line)
    ]
    assert found == []


def test_families__are_not_asked_what_they_can_by_attributes():
    """Capabilities are base classes, or class attributes that every family has."""
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        if "families" in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and (node.func.id == "hasattr" or (node.func.id == "getattr" and isinstance(node.args[1], ast.Constant)))
    ]
    assert found == []

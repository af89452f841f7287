"""The rules that keep the code base readable: parameters, imports and types."""

import ast
import dataclasses
import functools
import importlib
import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import get_type_hints

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import collapsium.pipeline
from collapsium.pipeline import cistopic, estimators
from collapsium.workers.arrays.state import State

ROOT = Path(__file__).parents[1]
PACKAGES = ("pipeline", "workers", "storage")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
KERNEL_PARAMETERS, PARAMETERS = 8, 10
ANY = 1482 // 3
"""Most uses of `Any`: a third of those in the code base before its families were classes."""
ANY_SHAPE = "tuple[typing.Any, ...]"
"""The shape in the type of a NumPy array, which its annotation leaves open."""
SLOW = {
    "IPython",
    "fsspec",
    "narwhals",
    "numba",
    "numcodecs",
    "platformdirs",
    "psutil",
    "rich",
    "scipy",
    "threadpoolctl",
    "zarr",
}
NEED_OPTIONAL = {"distributed.dashboard.scheduler", "dask.dataframe"}
DOORS = {
    "pipeline/analysis/info.py",
    "pipeline/engine/setup/initialisation.py",
    "pipeline/engine/fit.py",
    "pipeline/fitted_model.py",
    "pipeline/executors/open.py",
    "workers/families/generative.py",
    "workers/families/gibbs/states.py",
    "workers/families/hca/hca.py",
    "workers/families/networks/family.py",
    "workers/families/vb/hdsp.py",
    "pipeline/monitoring/console.py",
    "pipeline/monitoring/dask_dashboard/plugin.py",
    "pipeline/workflows/compare_options.py",
    "pipeline/workflows/batch/job.py",
    "pipeline/workflows/batch/journal.py",
    "pipeline/workflows/serve.py",
    "pipeline/workflows/batch/job_file.py",
    "storage/corpus/corpus.py",
    "storage/io/arrays.py",
    "storage/readers/open.py",
    "storage/runs/model.py",
    "storage/runs/run.py",
    "workers/families/word_weights.py",
    "workers/kernels/jit.py",
    "workers/kernels/lanes.py",
    "workers/tasks.py",
}
"""Modules behind which there are slow libraries that not every call needs."""
NAMES_MODULES = {"pipeline/__init__.py", "pipeline/cli/main.py", "pipeline/executors/dask_cluster.py"}
"""Modules that find public names and commands by their modules, and the one that names what workers of Dask load."""
IMPORTS_OTHERS_BY_NAME = {
    "pipeline/monitoring/mlflow_callback.py",
    "workers/kernels/child_processes.py",
    "workers/families/word_weights.py",
    "workers/kernels/jit.py",
    "workers/kernels/target.py",
    "workers/options.py",
}
"""Modules that import what users name, an optional library, or the module of a kernel that a child process compiles."""
ASKED_BY_NAME = re.compile(r'"[a-z_]+" (not )?in (delta|rows|local|globals|state)\b')


class Facts(ast.NodeVisitor):
    """What the rules ask of a module; its syntax tree itself, of hundreds of thousands of nodes, is let go."""

    def __init__(self):
        self.functions = []  # With the class that each stands in, if any
        self.late_imports = []  # Lines and full names of the modules that functions import
        self.attribute_questions = []  # Lines that call hasattr, or getattr with a literal name
        self.texts = []  # Lines and values of string literals
        self._owners, self._depth = [None], 0

    def visit_ClassDef(self, node):
        self._owners.append(node.name)
        self.generic_visit(node)
        self._owners.pop()

    def visit_FunctionDef(self, node):
        self.functions.append((node, self._owners[-1]))
        self._owners.append(None)
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        self._owners.pop()

    def visit_AsyncFunctionDef(self, node):
        self.visit_FunctionDef(node)

    def visit_Import(self, node):
        if self._depth:
            self.late_imports += ((node.lineno, alias.name) for alias in node.names)

    def visit_ImportFrom(self, node):
        if self._depth:
            self.late_imports.append((node.lineno, node.module or "."))

    def visit_Call(self, node):
        asked = node.func.id if isinstance(node.func, ast.Name) else ""
        if asked == "hasattr" or (asked == "getattr" and isinstance(node.args[1], ast.Constant)):
            self.attribute_questions.append(node.lineno)
        self.generic_visit(node)

    def visit_Constant(self, node):
        if isinstance(node.value, str):
            self.texts.append((node.lineno, node.value))


@functools.cache
def facts_of(path):
    facts = Facts()
    facts.visit(ast.parse(path.read_text(encoding="utf-8")))
    for function, _ in facts.functions:
        function.body = []
    return facts


def name_of(path):
    return str(path.relative_to(ROOT))


def parameters_of(function, owner):
    """How many parameters a caller passes."""
    arguments = function.args
    names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len(names) - (
        owner is not None
        and not any(
            isinstance(decorator, ast.Name) and decorator.id == "staticmethod" for decorator in function.decorator_list
        )
    )


def test_modules_to_check__exist():
    assert len(MODULES) > 300
    assert sum(len(facts_of(path).functions) for path in MODULES) > 3000


def test_folders__are_packages_that_are_installed():
    """What the wheel holds is tried by `test_wheel.py`, which takes long."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in MODULES}
    assert {f"collapsium.{folder}" for folder in folders} == {*settings["tool"]["setuptools"]["packages"]}


def test_functions__take_at_most_ten_parameters_but_for_the_public_ones():
    public = {*collapsium.pipeline.__all__, *estimators.__all__, *cistopic.__all__}
    found = []
    for path in MODULES:
        kernel = (ROOT / "workers" / "kernels") in path.parents
        for function, owner in facts_of(path).functions:
            if function.name in public or owner in public:
                continue
            if parameters_of(function, owner) > (KERNEL_PARAMETERS if kernel else PARAMETERS):
                found.append(f"{name_of(path)}:{function.lineno} {function.name}")
    assert found == []


@pytest.mark.parametrize("package", ["pipeline", "workers"])
def test_states__are_not_searched_for_arrays_by_name(package):
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


def test_capabilities_of_families__are_base_classes_instead_of_attributes():
    """Capabilities are base classes, or class attributes that every family has."""
    found = [
        f"{name_of(path)}:{line}"
        for path in MODULES
        if "families" in path.parts
        for line in facts_of(path).attribute_questions
    ]
    assert found == []


def optional_distributions():
    """Return the distributions that only an extra of pyproject.toml requires."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    extras = {
        canonicalize_name(Requirement(line).name)
        for lines in project["optional-dependencies"].values()
        for line in lines
    }
    return extras - required


def test_functions__import_what_is_optional_or_slow_alone():
    """A command that needs none of it starts sooner; our own modules are imported late at the doors to what is slow."""
    optional, distributions = optional_distributions(), packages_distributions()
    assert {"matplotlib", "gensim", "tomotopy"} <= optional
    assert not optional & {"numpy", "scipy"}
    found = []
    for path in MODULES:
        for line, name in facts_of(path).late_imports:
            package = name.partition(".")[0]
            if package == "collapsium":
                allowed = name_of(path) in DOORS or name_of(path).startswith("pipeline/cli/")
            else:
                known = {canonicalize_name(distribution) for distribution in distributions.get(package, [package])}
                # They import Bokeh and pandas, which are optional.
                allowed = package in SLOW or bool(optional & known) or name in NEED_OPTIONAL
            if not allowed:
                found.append(f"{name_of(path)}:{line} {name}")
    assert found == []


def test_our_modules__are_imported_by_statements():
    """Contracts see no import by a module's name in a text; public names and commands alone are found by theirs."""
    modules = {"collapsium." + name_of(path).removesuffix(".py").replace("/", ".") for path in MODULES}
    found = [
        f"{name_of(path)}:{line} {text}"
        for path in MODULES
        if name_of(path) not in NAMES_MODULES
        for line, text in facts_of(path).texts
        if text in modules
    ]
    assert found == []
    importers = {name_of(path) for path in MODULES if "import_module(" in path.read_text(encoding="utf-8")}
    assert importers <= NAMES_MODULES | IMPORTS_OTHERS_BY_NAME


def test_any__is_rare():
    uses = {name_of(path): len(re.findall(r"\bAny\b", path.read_text(encoding="utf-8"))) for path in MODULES}
    assert sum(uses.values()) <= ANY


def test_futures_and_states__have_types():
    untyped = re.compile(r"\bFuture\[[^=\n]*\bAny\b")
    found = [name_of(path) for path in MODULES if untyped.search(path.read_text(encoding="utf-8"))]
    assert found == []
    for path in MODULES:
        if path.is_relative_to(ROOT / "workers" / "families"):
            importlib.import_module(".".join(("collapsium", *path.relative_to(ROOT).with_suffix("").parts)))
    files = {f"collapsium.{name_of(path).removesuffix('.py').replace('/', '.')}" for path in MODULES}
    # Other tests declare states as well.
    states = [state for state in subclasses_of(State) if state.__module__ in files]
    assert len(states) > 100
    for state in filter(dataclasses.is_dataclass, states):
        hints = get_type_hints(state)
        for field in dataclasses.fields(state):
            assert "typing.Any" not in str(hints[field.name]).replace(ANY_SHAPE, ""), f"{state.__name__}.{field.name}"


def subclasses_of(cls):
    for child in cls.__subclasses__():
        yield child
        yield from subclasses_of(child)

"""Write the types of the public functions, which editors and mypy read, from the functions and the models of options.

`python -m tests.stubs` writes `pipeline/__init__.pyi`; a test compares it with the declarations. Options are many, so that
functions declare them as models (`keywords`), which no static tool can see through.
"""

import collections.abc
import inspect
import types
import typing
from pathlib import Path

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic.fields import FieldInfo

from collapsium import pipeline
from collapsium.pipeline.models.registry import family_names, load_family
from collapsium.pipeline.options import python_type

FILE = Path(pipeline.__file__).with_suffix(".pyi")
HEAD = '''"""Types of the public functions with all options. `python -m tests.stubs` writes this file."""

# ruff: noqa: A002, E501, I001, RUF022
# fmt: off
'''
FAMILIES = ("fit", "estimate", "simulate")  # Functions that take the options of any family
# Functions that return what they made if the place of it, this parameter, is not named, and a record of it otherwise
PLACES = {"ingest": "corpus", "simulate": "corpus", "explode": "out", "edit": "out"}


class Writer:
    """Writes types as source text, and remembers the modules that they are imported from."""

    def __init__(self) -> None:
        self.modules: set[str] = {"collections.abc", "os", "typing"}

    def text(self, kind: object) -> str:
        """Return a type as source text."""
        if kind is inspect.Parameter.empty or kind is typing.Any:
            return "typing.Any"
        if kind is None or kind is type(None):
            return "None"
        if kind is ...:
            return "..."
        if isinstance(kind, list):
            return f"[{', '.join(map(self.text, kind))}]"
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated:
            return self.text(arguments[0])
        if origin in (typing.Union, types.UnionType):
            return " | ".join(dict.fromkeys(map(self.text, arguments)))
        if origin is typing.Literal:
            return f"typing.Literal[{', '.join(map(repr, arguments))}]"
        if origin is not None:
            return f"{self.text(origin)}[{', '.join(map(self.text, arguments))}]"
        assert isinstance(kind, type), kind
        if kind.__module__ == "builtins":
            return kind.__qualname__
        self.modules.add(kind.__module__)
        return f"{kind.__module__}.{kind.__qualname__}"

    def hints(self, function: typing.Any) -> dict[str, object]:
        """Return the types of a function's own parameters and of its result."""
        function = inspect.unwrap(function)
        names = {
            "pd": pandas,
            "Figure": Figure,
            "Axes": Axes,
            **vars(typing),
            **vars(collections.abc),
            **function.__globals__,
        }
        return {
            name: eval(kind, names) if isinstance(kind, str) else kind
            for name, kind in function.__annotations__.items()
        }

    def parameters(self, function: typing.Any) -> dict[str, str]:
        """Return the parameters of a function as source text, without the family's options."""
        hints, found = self.hints(function), {}
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            if parameter.kind is parameter.KEYWORD_ONLY:
                found.setdefault("*", "*")
            # An option has the type of its keyword; another parameter has the type of its declaration.
            kind = hints[name] if isinstance(parameter.annotation, str) else parameter.annotation
            default = "" if parameter.default is parameter.empty else " = ..."
            found[name] = f"{name}: {self.text(kind)}{default}"
        return found

    def options(self, fields: typing.Mapping[str, FieldInfo]) -> dict[str, str]:
        """Return options as keywords in source text."""
        return {
            name: f"{name}: {self.text(python_type(field.annotation, field.metadata))}"
            + ("" if field.is_required() else " = ...")
            for name, field in fields.items()
        }

    def function(self, name: str) -> str:
        """Return the declarations of a function, which are several where options or the result depend on an argument."""
        function = getattr(pipeline, name)
        summary = (inspect.getdoc(function) or "").partition("\n")[0]
        result, place = self.hints(function)["return"], PLACES.get(name)

        def declaration(parameters: typing.Mapping[str, str], *, alone: bool = False) -> str:
            if place is None:
                return declared(parameters, result, overload=not alone)
            recorded, result_type = typing.get_args(result)
            named = {**parameters, place: f"{place}: str | os.PathLike[str]"}
            unnamed = {**parameters, place: f"{place}: None = ..."}
            return "\n".join(
                declared(variant, kind, overload=True) for variant, kind in ((named, recorded), (unnamed, result_type))
            )

        def declared(parameters: typing.Mapping[str, str], kind: object, *, overload: bool) -> str:
            before, arguments = "@overload\n" if overload else "", ", ".join(parameters.values())
            return f'{before}def {name}({arguments}) -> {self.text(kind)}:\n    """{summary}"""\n'

        parameters, further = self.parameters(function), {"**": "**options: typing.Any"}
        kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            return declaration(parameters, alone=True)
        if name not in FAMILIES:
            return declaration({**parameters, **further}, alone=True)
        overloads = []
        for family in family_names():
            chosen = {"family": f"family: typing.Literal[{family!r}]"}
            options = self.options(load_family(family).Options.model_fields)
            overloads.append(declaration({**parameters, **chosen, **options}))
        # Editors take the first of the declarations that fits, so the general one stands last.
        return "\n".join([*overloads, declaration({**parameters, **further})])


def stub() -> str:
    """Return the types of all public names."""
    writer, parts = Writer(), []
    for name in sorted(pipeline.__all__):
        member = getattr(pipeline, name)
        if inspect.isfunction(member):
            parts.append(writer.function(name))
        else:
            parts.append(f"from {member.__module__} import {name} as {name}\n")
    imports = "".join(f"import {module}\n" for module in sorted(writer.modules))
    # jedi knows `overload` by its bare name alone.
    return "\n".join(
        [HEAD, f"{imports}from typing import overload\n", *parts, f"__all__ = {sorted(pipeline.__all__)!r}\n"]
    )


if __name__ == "__main__":
    FILE.write_text(stub(), encoding="utf-8")

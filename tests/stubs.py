"""Write the types of the public functions, which editors and mypy read, from the functions and the models of options.

`python -m tests.stubs` writes `pipeline/__init__.pyi`; a test compares it with the declarations. Options are many, so that
functions declare them as models (`keywords`), which no static tool can see through.
"""

import collections.abc
import inspect
import types
import typing
from pathlib import Path

from pydantic.fields import FieldInfo

from collapsium import pipeline
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.models.registry import family_names, load_family
from collapsium.pipeline.options import Location

PATH = typing.get_args(Location)[1].func  # What turns a path into a text
FILE = Path(pipeline.__file__).with_suffix(".pyi")
HEAD = '''"""Types of the public functions with all options. `python -m tests.stubs` writes this file."""

# ruff: noqa: A002, E402, E501, I001, RUF022
# fmt: off
'''
# Functions that take the options of any family, with those of the loop that they take besides
FURTHER = {"fit": (Limits,), "estimate": (), "simulate": ()}


class Writer:
    """Writes types as source text, and remembers the modules that they are imported from."""

    def __init__(self) -> None:
        self.modules: set[str] = {"collections.abc", "os", "typing"}
        self.is_option = False  # Options accept any sequence and any mapping

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
        if self.is_option and origin is tuple and arguments[-1] is ...:
            return f"collections.abc.Sequence[{self.text(arguments[0])}]"
        if self.is_option and origin is dict:
            return f"collections.abc.Mapping[{', '.join(map(self.text, arguments))}]"
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

    def option(self, field: FieldInfo) -> str:
        """Return the type of an option's value as functions accept it: also a path where the option is a location."""
        self.is_option = True
        kind = self.text(field.annotation)
        self.is_option = False
        is_path = any(getattr(note, "func", None) is PATH for note in field.metadata)
        return kind.replace("str", "str | os.PathLike[str]", 1) if is_path else kind

    def hints(self, function: typing.Any) -> dict[str, object]:
        """Return the types of a function's own parameters and of its result."""
        function = inspect.unwrap(function)
        names = {**vars(typing), **vars(collections.abc), **function.__globals__}
        return {
            name: eval(kind, names) if isinstance(kind, str) else kind
            for name, kind in function.__annotations__.items()
        }

    def parameters(self, function: typing.Any, skip: typing.Collection[str] = ()) -> list[str]:
        """Return the parameters of a function as source text, without the family's options."""
        hints, options, found, keyword = self.hints(function), options_of(function), [], False
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD or name in skip:
                continue
            if parameter.kind is parameter.KEYWORD_ONLY and not keyword:
                keyword = True
                found.append("*")
            default = "" if parameter.default is parameter.empty else " = ..."
            kind = self.text(hints[name]) if name in hints else self.option(options[name])
            found.append(f"{name}: {kind}{default}")
        return found

    def table(self, name: str, fields: typing.Mapping[str, FieldInfo]) -> str:
        """Return the class of a table of keywords."""
        body = "".join(f"    {key}: {self.option(field)}\n" for key, field in fields.items())
        return f"class {name}(typing.TypedDict, total=False):\n{body or '    pass'}"

    def function(self, name: str) -> str:
        """Return the declaration of a function: one for each family, if the family's options are keywords of it."""
        function = getattr(pipeline, name)
        summary = (inspect.getdoc(function) or "").partition("\n")[0]
        result = self.text(self.hints(function)["return"])

        def declaration(parameters: list[str], before: str = "") -> str:
            return f'{before}def {name}({", ".join(parameters)}) -> {result}:\n    """{summary}"""\n'

        parameters = self.parameters(function)
        kinds = {one.kind for one in inspect.signature(function).parameters.values()}
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            return declaration(parameters)
        if name not in FURTHER:
            return declaration([*parameters, "**options: typing.Any"])
        further = {key: field for model in FURTHER[name] for key, field in model.model_fields.items()}
        further |= {key: field for key, field in options_of(function).items() if not field.is_required()}
        shared = f"_{name.capitalize()}Options"
        own = self.parameters(function, {*further, "family"})
        own = own if "*" in own else [*own, "*"]
        tables, overloads = [self.table(shared, further)], []
        for family in family_names():
            table = f"_{name.capitalize()}{class_name(family)}"
            tables.append(f"class {table}({shared}, _{class_name(family)}Options, total=False):\n    pass\n")
            chosen = [*own, f"family: typing.Literal[{family!r}]", f"**options: typing.Unpack[{table}]"]
            overloads.append(declaration(chosen, "@typing.overload\n"))
        overloads.append(declaration([*own, "family: str", "**options: typing.Any"], "@typing.overload\n"))
        return "\n".join([*tables, *overloads])


def options_of(function: typing.Any) -> dict[str, FieldInfo]:
    """Return the options that a function declares as models."""
    models = getattr(function, "option_models", ())
    return {name: field for model in models for name, field in model.model_fields.items()}


def class_name(family: str) -> str:
    """Return a family's name in the form of a class's."""
    return "".join(word.capitalize() for word in family.split("-"))


def stub() -> str:
    """Return the types of all public names."""
    writer = Writer()
    tables = {f"_{class_name(family)}Options": load_family(family).Options.model_fields for family in family_names()}
    parts = [writer.table(name, fields) for name, fields in tables.items()]
    for name in sorted(pipeline.__all__):
        member = getattr(pipeline, name)
        if inspect.isfunction(member):
            parts.append(writer.function(name))
        else:
            parts.append(f"from {member.__module__} import {name} as {name}\n")
    imports = "".join(f"import {module}\n" for module in sorted(writer.modules))
    return "\n".join([HEAD, imports, *parts, f"__all__ = {sorted(pipeline.__all__)!r}\n"])


if __name__ == "__main__":
    FILE.write_text(stub(), encoding="utf-8")

"""The reference of commands, families, errors and metrics, written from their declarations.

Pages that are written by hand are compared with the declarations: a field that a page leaves out is a warning.
"""

from __future__ import annotations

import ast
import inspect
import re
from itertools import groupby
from pathlib import Path
from typing import Any

from declared_fields import FIELDS, VERSIONS
from sphinx.application import Sphinx
from sphinx.util import logging

import collapsium.pipeline
from collapsium.pipeline.analysis.metrics.catalogue import METRICS
from collapsium.pipeline.analysis.metrics.measure import EFFORT
from collapsium.pipeline.analysis.metrics.topic_words import WINDOWS
from collapsium.pipeline.cli.main import EPILOG
from collapsium.pipeline.cli.reference import CommandEntry, OptionEntry, commands, families
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.monitoring.prometheus import RunMetrics
from collapsium.storage import errors
from collapsium.workers.families.family import AnyFamily

logger = logging.getLogger(__name__)
ROOT = Path(__file__).parents[2]

KINDS = {"str": "text", "int": "whole number", "float": "number", "tuple": "list", "dict": "table", "bool": "switch"}
LIMITS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_CODE = re.compile(r"(`[^`]*`)")
_FLAG = re.compile(r"(?<![\w`-])(--[a-z][a-z-]*)(?![\w`])(?=[^`]*(?:`[^`]*`[^`]*)*$)")
_MARKED = re.compile(r"([\\*_$<>\[\]{}|#])")


def plain(text: str) -> str:
    """Return a text as Markdown that shows it as it stands; what is in backquotes stays code."""
    parts = _CODE.split(_FLAG.sub(r"`\1`", " ".join(text.split())))
    return "".join(part if part.startswith("`") else _MARKED.sub(r"\\\1", part) for part in parts)


def sentence(text: str) -> str:
    """Return a text that begins with a capital letter and ends with a full stop."""
    text = plain(text)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"


def facts(option: OptionEntry) -> str:
    """Return the type, the default, the limits and the unit of an option."""
    kinds = [KINDS.get(kind, kind) for kind in option.kinds if kind != "Literal"]
    shown = ["one of " * (not kinds) + ", ".join(f"`{choice}`" for choice in option.choices)] if option.choices else []
    parts = [" or ".join([*kinds, *shown]).replace("list or one of", "list of").replace("list or `", "list of `")]
    parts += [f"{LIMITS[name]} {limit:,}" for name, limit in option.limits.items()]
    if option.unit:
        parts.append(f"in {option.unit}")
    if option.required:
        parts.append("required")
    elif option.default not in (None, (), {}, ""):
        parts.append(f"default `{str(option.default).lower() if option.default is False else option.default}`")
    name = "" if option.name == option.flag.lstrip("-").replace("-", "_") else f"; in Python and TOML `{option.name}`"
    return ", ".join(parts) + name


def option_blocks(program: str, options: tuple[OptionEntry, ...], level: str) -> list[str]:
    """Return a description of each option, under the headings of their groups."""
    lines = [f":::{{program}} {program}", ":::", ""]
    for heading, group in groupby(options, key=lambda option: option.heading):
        if heading:
            lines += [f"{level} {heading[0].upper()}{heading[1:]}", ""]
        for option in group:
            value = "" if option.kinds == ("bool",) else f" {option.metavar or option.unit or 'VALUE'}".upper()
            if option.name == "family":
                value = " FAMILY"
            lines += [f":::{{option}} {option.flag}{value}", ""]
            lines += [sentence(option.description), "", f"[{facts(option)}]{{.option-facts}}", ":::", ""]
    return lines


def command_page(entry: CommandEntry) -> str:
    """Return the page of a command."""
    first, _, rest = entry.description.partition("\n\n")
    lines = [
        f"# {entry.name}",
        "",
        sentence(first),
        "",
        "```text",
        f"collapsium {entry.name} {entry.usage}",
        "```",
        "",
    ]
    lines += ["```text", *rest.splitlines(), "```", ""] if "\n    " in rest else [plain(rest), ""] if rest else []
    name = entry.name.replace("-", "_")
    if name in collapsium.pipeline.__all__:
        lines += [f"In Python: {{py:func}}`collapsium.pipeline.{name}`.", ""]
    if entry.arguments:
        lines += ["## Arguments", ""]
        for argument, description in entry.arguments.items():
            lines += [f"`{argument}`", f": {sentence(description)}", ""]
    if entry.options:
        lines += ["## Options", "", *option_blocks(f"collapsium {entry.name}", entry.options, "###")]
    if entry.epilog:
        lines += ["## Further help", "", "```text", *entry.epilog.splitlines(), "```", ""]
    return "\n".join(lines) + "\n"


def family_page(name: str, options: tuple[OptionEntry, ...]) -> str:
    """Return the page of a family's options."""
    family = load_family(name)
    title = str(family.Options.model_config.get("title") or "")
    lines = [f"# {name}", "", sentence(title), "", "| | |", "| --- | --- |"]
    lines += [f"| {subject} | {value} |" for subject, value in traits(family)]
    lines += ["", "```text", f"collapsium fit CORPUS RUN --family {name} [OPTIONS]", "```", ""]
    lines += ["Other options of a fit are described at {doc}`/reference/commands/fit`.", "", "## Options", ""]
    return "\n".join([*lines, *option_blocks(name, options, "###")]) + "\n"


def traits(family: AnyFamily) -> list[tuple[str, str]]:
    """Return what a family takes and can do."""
    bases = {base.__name__ for base in type(family).__mro__}
    return [
        ("takes", family.corpus_kind),
        ("labels", "required" if family.requires_labels else "see the options"),
        ("inference", "Gibbs sampling" if family.is_sampler else "variational"),
        ("schedules", ", ".join(family.schedules)),
        ("`--warm` with all local states", "yes" if "Resumable" in bases else "no"),
        ("`simulate`", "yes" if "Simulates" in bases else "no"),
        ("in the code", f"{{py:class}}`{type(family).__module__}.{type(family).__name__}`"),
    ]


def command_list(entries: list[CommandEntry]) -> str:
    """Return a table of the commands."""
    lines = ["| command | |", "| --- | --- |"]
    lines += [
        f"| {{doc}}`{entry.name} </reference/commands/{entry.name}>` | {plain(entry.summary)} |" for entry in entries
    ]
    return "\n".join(lines) + "\n"


def family_list() -> str:
    """Return a table of the families."""
    lines = ["| family | |", "| --- | --- |"]
    for name in families():
        title = str(load_family(name).Options.model_config.get("title") or "")
        lines.append(f"| {{doc}}`{name} </reference/families/{name}>` | {plain(title)} |")
    return "\n".join(lines) + "\n"


def exit_codes() -> str:
    """Return a table of the exit codes that help lists."""
    lines = ["| code | meaning |", "| ---: | --- |"]
    epilog = EPILOG.partition("exit codes:")[2]
    lines += [f"| {code} | {sentence(text)} |" for code, text in re.findall(r"^  (\d+) +(.+)$", epilog, re.MULTILINE)]
    return "\n".join(lines) + "\n"


def error_list() -> str:
    """Return a table of the errors, with the built-in exceptions that they also are."""
    lines = ["| error | also | raised when |", "| --- | --- | --- |"]
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if kind.__module__ == errors.__name__ and issubclass(kind, Exception):
            bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
            first = inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]
            lines.append(f"| `{name}` | {bases} | {plain(first)} |")
    return "\n".join(lines) + "\n"


def metrics() -> str:
    """Return a table of the metrics for Prometheus."""
    lines = ["| metric | kind | |", "| --- | --- | --- |"]
    for metric in RunMetrics().collect():
        total = "_total" if metric.type == "counter" else ""
        lines.append(f"| `{metric.name}{total}` | {metric.type} | {plain(metric.documentation)} |")
    return "\n".join(lines) + "\n"


def topic_metrics() -> str:
    """Return a table of the metrics of topics with their definitions and sources."""
    lines = ["| metric | definition | source |", "| --- | --- | --- |"]
    placeholders: dict[str, Any] = {"documents": "D", "texts": "D", "labelled": "documents with words and one label"}
    placeholders |= {"classified": "by cross-validation or on unseen documents", "sampled": "a sample of documents"}
    placeholders |= {"completion": "document completion", **EFFORT}
    for metric in METRICS.values():
        definition = re.sub(r"\{(\w+)(:,)?\}", r"{\1}", metric.definition)
        definition = definition.format(words=metric.words, size=WINDOWS.get(metric.name), **placeholders)
        lines.append(f"| `{metric.name}` | {plain(definition)} | {plain(metric.source)} |")
    return "\n".join(lines) + "\n"


def format_versions() -> str:
    """Return a table of the records with the versions that this release writes and reads."""
    lines = ["| file | `format` | written | read |", "| --- | --- | --- | --- |"]
    lines += [f"| `{file}` | `{kind}` | {written} | {read} |" for file, kind, written, read in VERSIONS]
    return "\n".join(lines) + "\n"


def modules() -> str:
    """Return the folders and modules of the product with the first line of each docstring, as nested lists."""
    lines = []
    for package in ("pipeline", "workers", "storage"):
        for path in sorted((ROOT / package).rglob("*.py"), key=lambda path: (path.parent.parts, path.name)):
            purpose = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
            if path.name == "__init__.py":
                lines += ["", f"**`{path.parent.relative_to(ROOT).as_posix()}/`** {plain(purpose)}", ""]
            else:
                lines.append(f"* `{path.name}`: {plain(purpose)}")
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Write a page, unless it has this text already: Sphinx reads pages that have changed."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def generate(app: Sphinx) -> None:
    """Write the pages of commands and families, and the tables that other pages include."""
    folder = Path(app.srcdir) / "reference"
    entries = commands()
    pages = {folder / "commands" / f"{entry.name}.md": command_page(entry) for entry in entries}
    pages |= {folder / "families" / f"{name}.md": family_page(name, options) for name, options in families().items()}
    tables = {
        "commands": command_list(entries),
        "families": family_list(),
        "exit_codes": exit_codes(),
        "errors": error_list(),
        "metrics": metrics(),
        "topic_metrics": topic_metrics(),
        "versions": format_versions(),
        "modules": modules(),
    }
    pages |= {folder / "tables" / f"{name}.txt": text for name, text in tables.items()}
    for path, text in pages.items():
        write(path, text)
    for section in ("commands", "families"):
        for path in (folder / section).glob("*.md"):
            if path not in pages:
                path.unlink()


def require_fields(app: Sphinx, *_: Any) -> None:
    """Warn of each declared field that the page about it does not name."""
    for page, heading, names in FIELDS:
        source = (Path(app.srcdir) / "reference" / page).read_text(encoding="utf-8")
        section = source.partition(f"\n{heading}\n")[2]
        level = heading.partition(" ")[0]
        section = re.split(rf"^#{{1,{len(level)}}} ", section, flags=re.MULTILINE)[0]
        for name in names:
            if f"`{name}`" not in section:
                logger.warning("reference/%s, %r: `%s` is not described", page, heading, name, type="reference")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before Sphinx reads any."""
    app.connect("builder-inited", generate)
    app.connect("env-updated", require_fields)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

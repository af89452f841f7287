"""Names and modules of commands, their arguments, the options that they share, names in messages, and their output.

A command is the function of its name, whose docstring is its help; the constant `NAME_EPILOG` of its module is the
end of the help. A positional argument is described by a `Parameter` of cyclopts; a keyword argument is a model of
options, whose fields are flags.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.help import HelpPanel
from pydantic import Field

from collapsium.pipeline.formatting import counted, plain
from collapsium.pipeline.monitoring.console import LogLines
from collapsium.pipeline.options import Options, Texts, Value
from collapsium.storage.errors import flag_of
from collapsium.storage.printable import json_text

if TYPE_CHECKING:
    from collapsium.pipeline.corpora.new_texts import UnknownWords
    from collapsium.storage.building.ingest_record import Report


# The name of a parameter or function in a message or description of the library
_MENTION = re.compile(r"`([a-z][a-z0-9_]*)`")
# The module of each command, and its summary in the list of commands
COMMANDS = {
    "ingest": ("ingest", "make a corpus from files of texts, word counts or vectors"),
    "append": ("append", "add documents or vectors to a corpus"),
    "split": ("split", "split tokens, documents or labels into a training and a held-out corpus"),
    "explode": ("split", "make a corpus whose documents are the segments of another"),
    "estimate": ("fit", "estimate the memory, disk space and network traffic of a fit"),
    "fit": ("fit", "fit a model family to a corpus"),
    "watch": ("watch", "follow the progress of a run, from any machine"),
    "compare": ("compare", "compare families over numbers of topics and seeds, as a table and plots"),
    "topics": ("topics", "print the topics of a model, or draw their tree"),
    "edit": ("edit", "merge and rename topics, as a new model"),
    "report": ("report", "write an HTML report of a run: topics, examples, labels, course of the fit"),
    "plot": ("report", "draw the course of a fit, topic sizes and a topic map, as PNG, SVG or PDF"),
    "evaluate": ("evaluate", "score a model on held-out data, or compute the coherence of its topics"),
    "infer": ("predict", "write the topic proportions of documents, seen or unseen"),
    "serve": ("serve", "score texts over HTTP, with a run or the published version of a job"),
    "predict": ("predict", "predict a label or rating of documents from their words"),
    "effects": ("effects", "estimate how topics differ by labels, numbers and dates, with intervals"),
    "export": ("report", "export a model to pyLDAvis or AnnData, or as tables (CSV)"),
    "simulate": ("simulate", "draw a corpus from the generative model of a family"),
    "info": ("info", "print what a corpus, run, comparison or model holds"),
    "verify": ("info", "check a corpus, run, comparison or model for damage"),
    "batch": ("batch", "run a job: ingest or append, fit, evaluate, infer and publish"),
    "versions": ("batch", "list the published versions of a batch job"),
    "rollback": ("batch", "make an older version of a batch job the current one"),
    "sample-texts": ("demo", "write sample texts: presidents' addresses, in paragraphs"),
    "demo": ("demo", "try it on presidents' addresses: ingest, fit, topics over time, report"),
    "compile": ("compile", "compile all numerical code now, for an image or before a cluster starts"),
}

# Commands whose name is also an option, which is what messages of the library mean
OPTIONS_TOO = ("report", "topics")


# The command line of this process, without the program's name
COMMAND_LINE: list[str] = []


class UsageError(Exception):
    """A command line is not valid."""

    def __init__(self, message: str, command: str = "") -> None:
        self.command = command
        super().__init__(message)


def argument(metavar: str, text: str) -> Parameter:
    """Describe a positional argument."""
    return Parameter(metavar=metavar, help=text)


def named_options(*models: Options) -> dict[str, Any]:
    """Return the options that the command line names."""
    return {
        name: getattr(model, name)
        for model in models
        for name in type(model).model_fields
        if name in model.model_fields_set
    }


def spelling(name: str) -> str:
    """Return the flag of a parameter, or the command of a function."""
    if name == "resume":
        return "`collapsium fit --resume`"
    return f"`collapsium {name}`" if name in COMMANDS and name not in OPTIONS_TOO else flag_of(name)


def in_flags(text: str) -> str:
    """Return a text of the library with flags in place of parameters."""
    return _MENTION.sub(lambda mention: spelling(mention[1]), text)


TEXTS = (
    "a corpus with the model's vocabulary; or texts (files, folders or globs of any format of `collapsium ingest`), "
    "which are read like the model's documents"
)


def print_notice(line: str) -> None:
    """Print a line to standard error."""
    print(f"collapsium: {in_flags(line)}", file=sys.stderr)


def print_unknown(unknown: UnknownWords | None) -> None:
    """Print how many tokens of texts the vocabulary lacks; nothing for a corpus."""
    if unknown is not None:
        print(f"  {unknown.text()}")


def with_unknown(record: Mapping[str, object], unknown: UnknownWords | None) -> dict[str, object]:
    """Return a record for JSON with the number of tokens of texts that the vocabulary lacks."""
    rest = {name: value for name, value in record.items() if name != "unknown"}
    return rest if unknown is None else {**rest, **unknown.record()}


class CallbackOptions(Options):
    """Functions that receive events."""

    callback: Annotated[Texts, Value("MODULE:NAME", note="may be repeated")] = Field(
        (),
        description="call this function, or an instance of this class, with each event (a dict). An error in it is "
        "reported and does not stop the run. With the extra 'mlflow', "
        "collapsium.pipeline.monitoring.mlflow_callback:MLflow logs to MLflow",
    )


class QuietOptions(Options):
    """Silence progress."""

    quiet: bool = Field(False, description="do not show progress")


class LogOptions(Options):
    """Format of progress and errors."""

    log_format: Literal["text", "json"] | None = Field(
        None,
        description="print lines to standard error: text, each line with its time (ISO 8601); or json, one object per "
        "line with time, level, message and metrics (default: a live view in a terminal, "
        "else text)",
    )


class JsonOptions(Options):
    """Format of a result."""

    as_json: Annotated[bool, Value(flag="--json")] = Field(False, description="print the result as JSON")


class LineJsonOptions(Options):
    """Format of a result of one line."""

    as_json: Annotated[bool, Value(flag="--json")] = Field(False, description="print one line of JSON")


class SharesJsonOptions(Options):
    """Format of shares by period."""

    heading = "time"
    as_json: Annotated[bool, Value(flag="--json")] = Field(False, description="print the shares of all topics as JSON")


# Widths of a help page, in characters
MAX_WIDTH = 110  # In a wide terminal; longer lines are hard to read
MIN_WIDTH = 40  # In a terminal that is narrower still
NAMES_WIDTH = 30  # Of the column of names


class Help:
    """Prints the parts of a help page as the command-line library hands them over."""

    def __init__(self, description: str) -> None:
        self._description = description.strip()
        self._width = max(min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns), MIN_WIDTH)

    def __call__(self, console: object, options: object, panel: HelpPanel) -> None:  # noqa: ARG002
        """Print a group of arguments, options or commands."""
        if not panel.entries:
            return
        lines = [f"{panel.title}:"]
        column = min(NAMES_WIDTH, self._width // 3)
        space = " " * (column + 2)
        for entry in panel.entries:
            names = ", ".join(entry.all_options)
            if entry.positional_label:
                names = entry.metavar or entry.positional_label
            elif entry.metavar:
                names = f"{names} {entry.metavar}"
            # Cyclopts wraps the text into an object.
            text = getattr(entry.description, "plain", None)
            if text is None:
                primary = getattr(entry.description, "primary_renderable", entry.description)
                text = getattr(primary, "plain", primary)
            wrapped = textwrap.wrap(str(text or ""), self._width - len(space), break_on_hyphens=False)
            if len(names) + 4 > len(space):
                lines.append(f"  {names}")
            else:
                lines.append(f"  {names:{column}}{wrapped.pop(0) if wrapped else ''}".rstrip())
            lines += [f"{space}{line}" for line in wrapped]
        print("\n".join(lines), end="\n\n")

    def render_usage(self, console: object, options: object, usage: object) -> None:  # noqa: ARG002
        """Print the usage line."""
        words = str(usage).strip().removeprefix("Usage:").strip()
        print(textwrap.fill(f"usage: {words}", self._width, subsequent_indent="       "), end="\n\n")

    def render_description(self, console: object, options: object, description: object) -> None:  # noqa: ARG002
        """Print the purpose of the command."""
        for paragraph in self._description.split("\n\n"):
            # Indented lines are a table or an example.
            if not any(line.startswith(" ") for line in paragraph.splitlines()):
                paragraph = textwrap.fill(paragraph, self._width, break_on_hyphens=False)
            print(paragraph, end="\n\n" if self._description else "")


def print_error(text: str, form: str | None = None) -> None:
    """Print an error in one line; `form` is as for `collapsium.pipeline.monitoring.console.LogLines`."""
    if form is None:
        print(f"collapsium: error: {plain(text)}", file=sys.stderr)
    else:
        LogLines(form=form).write(text, "error")


def print_json(value: object) -> None:
    """Print JSON with floats in their shortest exact form."""
    print(json_text(value, indent=2))


def print_report(report: Report, unit: str = "document") -> None:
    """Print the numbers of an ingest that are not zero: documents left out, words dropped, and so on."""
    known = "its id is" if report.skipped_documents == 1 else "their ids are"
    remarks = [
        (report.skipped_documents, f"left out, as {known} in the corpus already"),
        (report.missing_text, "without a text, stored empty"),
        (report.replaced_bytes, "with bytes that are not UTF-8, which were replaced"),
        (report.empty_documents, "without any word of the vocabulary, stored empty"),
    ]
    for number, remark in remarks:
        if number:
            print(f"  {counted(number, unit)} {remark}")
    if report.unmatched_rows:
        print(f"  {counted(report.unmatched_rows, 'id')} in side files without a document")
    if report.unspaced_tokens:
        from collapsium.pipeline.corpora import text_ingest as text_sources

        print(f"  {text_sources.unspaced_notice(report, '--tokenizer MODULE:FUNCTION')}")
    if report.attachments:
        print(f"  {counted(report.attachments, 'encoded attachment')} left out")
    if report.phrases:
        print(f"  {counted(report.phrases, 'phrase')} of two words")
    if report.segments:
        print(f"  {counted(report.segments, 'segment')}, {report.segments / max(report.documents, 1):.1f} a document")
    for line in report.remarks:
        print(f"  {in_flags(line)}")
    for rule in report.dropped:
        print(f"  dropped: {counted(rule.words, 'word')} with {counted(rule.tokens, 'token')} ({rule.rule})")

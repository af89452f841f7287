"""Names and modules of commands, their arguments, the options that are named, and names in messages.

A command is the function `execute` of its module, whose docstring is its help. A positional argument is described by a
`Parameter` of cyclopts; a keyword argument is a model of options, whose fields are flags.
"""

from __future__ import annotations

import re
from typing import Any

from cyclopts import Parameter

from collapsium.pipeline.options import Options
from collapsium.storage.errors import flag_of

# The name of a parameter or function in a message or description of the library
_MENTION = re.compile(r"`([a-z][a-z0-9_]*)`")
# The module of each command, and its summary in the list of commands
COMMANDS = {
    "ingest": ("corpora.ingest", "make a corpus from files of texts, word counts or vectors"),
    "append": ("corpora.append", "add documents or vectors to a corpus"),
    "split": ("corpora.split", "split tokens, documents or labels into a training and a held-out corpus"),
    "explode": ("corpora.explode", "make a corpus whose documents are the segments of another"),
    "estimate": ("runs.estimate", "estimate the memory, disk space and network traffic of a fit"),
    "fit": ("runs.fit", "fit a model family to a corpus"),
    "watch": ("runs.watch", "follow the progress of a run, from any machine"),
    "compare": ("runs.compare", "compare families over numbers of topics and seeds, as a table and plots"),
    "topics": ("models.topics", "print the topics of a model, or draw their tree"),
    "edit": ("models.edit", "merge and rename topics, as a new model"),
    "report": ("models.report", "write an HTML report of a run: topics, examples, labels, course of the fit"),
    "plot": ("models.plot", "draw the course of a fit, topic sizes and a topic map, as PNG or SVG"),
    "evaluate": ("models.evaluate", "score a model on held-out data, or compute the coherence of its topics"),
    "infer": ("models.infer", "write the topic proportions of documents, seen or unseen"),
    "serve": ("models.serve", "score texts over HTTP, with a run or the published version of a job"),
    "predict": ("models.predict", "predict a label or rating of documents from their words"),
    "effects": ("models.effects", "estimate how topics differ by labels, numbers and dates, with intervals"),
    "export": ("models.export", "export a model to pyLDAvis, or as tables (CSV)"),
    "simulate": ("corpora.simulate", "draw a corpus from the generative model of a family"),
    "info": ("models.info", "print what a corpus, run, comparison or model holds"),
    "verify": ("models.verify", "check a corpus, run, comparison or model for damage"),
    "batch": ("runs.batch", "run a job: ingest or append, fit, evaluate, infer and publish"),
    "versions": ("runs.versions", "list the published versions of a batch job"),
    "rollback": ("runs.rollback", "make an older version of a batch job the current one"),
    "sample-texts": ("corpora.sample_texts", "write sample texts: presidents' addresses, in paragraphs"),
    "demo": ("runs.demo", "try it on presidents' addresses: ingest, fit, topics over time, report"),
    "compile": ("runs.compile", "compile all numerical code now, for an image or before a cluster starts"),
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

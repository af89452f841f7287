"""Write about a thousand short sample texts to a file.

The texts are docstrings of some packages of Python's standard library, read from
its source files, so no network is needed. Each line of the file is a JSON object with
id, title, text and the labels subject, package and module. The paragraphs of a text
are separated by blank lines.
"""

from __future__ import annotations

from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.formatting import counted

EPILOG = """examples:
  collapsium sample-texts texts.jsonl
  collapsium ingest texts.jsonl corpus --title title --labels subject --segments paragraphs"""


def execute(
    out: Annotated[str, argument("OUT.jsonl", "file to write")],
    /,
    *,
    flags: Flags,  # noqa: ARG001
) -> None:
    """Write the texts, and print how many there are."""
    print(f"{out}: {counted(pipeline.write_sample_texts(out), 'text')}")


COMMAND = Command(execute, epilog=EPILOG)

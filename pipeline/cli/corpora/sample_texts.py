"""Write sample texts to a file: 6,859 paragraphs of presidents' addresses.

The texts are the annual addresses of the presidents of the United States to Congress
(1945 to 2006) and their inaugural addresses (1789 to 2021). They ship with the package, so
no network is needed. Each line of the file is a JSON object with id, title, text, year, and
the labels president, party, address and kind (annual or inaugural).
"""

from __future__ import annotations

from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import argument
from collapsium.pipeline.formatting import counted

EPILOG = """examples:
  collapsium sample-texts texts.jsonl
  collapsium ingest texts.jsonl corpus --title title --date year --labels party,president"""


def execute(
    out: Annotated[str, argument("OUT.jsonl", "file to write")],
    /,
) -> None:
    """Write the texts, and print how many there are."""
    print(f"{out}: {counted(pipeline.write_sample_texts(out), 'text')}")

"""The commands `collapsium demo` and `collapsium sample-texts`."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated

from rich.markup import escape
from rich.table import Table

from collapsium import pipeline
from collapsium.pipeline.cli.command import argument
from collapsium.pipeline.formatting import counted, plain
from collapsium.pipeline.monitoring.console import RunView, console_of

FOLDER = "collapsium-demo"
BARS = "▁▂▃▄▅▆▇█"
WORDS_OF_CURVE = 5


def demo(
    folder: Annotated[str, argument("FOLDER", f"folder of the results (default: {FOLDER})")] = FOLDER,
    /,
) -> None:
    """Try Collapsium on the annual addresses of US presidents, 1945 to 2006.

    The texts ship with the package. Latent Dirichlet allocation with 20 topics is fitted on
    a local Dask cluster. The command prints the topics, and three of them over time, and
    leaves the corpus, the run, a report and, with the extra 'plots', a picture in the
    folder.
    """
    console = console_of(sys.stdout)
    print("reading 65 annual addresses of US presidents, 1945 to 2006", flush=True)
    with contextlib.closing(RunView()) as view:
        from collapsium.pipeline.workflows import sample_texts as demonstration

        results = demonstration.demonstrate(folder, [view])
    table = Table("topic", "share", "most probable words", width=console.width if console.is_terminal else 110)
    for topic in results.topics:
        words = escape(plain(" ".join(word for word, _ in topic.words)))
        table.add_row(str(topic.id), f"{topic.share:.1%}", words)
    console.print(table)
    names = results.shares.names
    print(f"three topics over time, in shares of the words, {names[0]} to {names[-1]}:")
    columns = {int(topic): column for column, topic in enumerate(results.shares.topics)}
    headings = {topic.id: plain(" ".join(topic.names[:WORDS_OF_CURVE])) for topic in results.changing}
    width = max(map(len, headings.values()))
    for topic in results.changing:
        shares = results.shares.shares[:, columns[topic.id]].tolist()
        bars = "".join(BARS[int(share / max(shares) * (len(BARS) - 1) + 0.5)] for share in shares)
        print(f"  {headings[topic.id]:<{width}} {shares[0]:6.1%} {bars} {shares[-1]:.1%}")
    if results.picture is not None:
        print(f"picture: {results.picture}")
    print(f"report:  {results.report}")


SAMPLE_TEXTS_EPILOG = """examples:
  collapsium sample-texts texts.jsonl
  collapsium ingest texts.jsonl corpus --title title --date year --labels party,president"""


def sample_texts(
    out: Annotated[str, argument("OUT.jsonl", "file to write")],
    /,
) -> None:
    """Write sample texts to a file: 6,859 paragraphs of presidents' addresses.

    The texts are the annual addresses of the presidents of the United States to Congress
    (1945 to 2006) and their inaugural addresses (1789 to 2021). They ship with the package, so
    no network is needed. Each line of the file is a JSON object with id, title, text, year, and
    the labels president, party, address and kind (annual or inaugural).
    """
    print(f"{out}: {counted(pipeline.write_sample_texts(out), 'text')}")

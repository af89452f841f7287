"""See it work on real text that is on this machine.

The text is the docstrings of the Python standard library and of the packages
that are installed with Collapsium, read from their source files.

They are ingested with their package as label, their module as category and their
sections as segments; a hierarchical Dirichlet process is fitted on a local Dask cluster;
and its topics are printed with the packages that use them most.
"""

from __future__ import annotations

import sys
from typing import Annotated

from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.monitoring.console import RunView, console_of

FOLDER = "collapsium-demo"


def execute(
    folder: Annotated[str, argument("FOLDER", f"folder to make (default: {FOLDER})")] = FOLDER,
    /,
    *,
    flags: Flags,  # noqa: ARG001
) -> None:
    """Run the demonstration and print its table."""
    from rich.markup import escape
    from rich.table import Table

    from collapsium.pipeline.workflows.demo.demo import demonstrate

    console = console_of(sys.stdout)
    print("reading docstrings of the standard library and of the packages installed here", flush=True)
    view = RunView()
    try:
        found = demonstrate(folder, [view])
    finally:
        view.close()
    width = console.width if console.is_terminal else 150
    table = Table("topic", "share", "top words", "packages that use it most", width=width)
    for use in found:
        if use.topic.share < 0.001:
            continue
        words = escape(plain(" ".join(word for word, _ in use.topic.words)))
        packages = escape(plain(", ".join(f"{name} {share:.0%}" for name, share in use.labels)))
        table.add_row(str(use.topic.id), f"{use.topic.share:.1%}", words, packages)
    console.print(table)
    print(f"all of it lies in {folder}; try `collapsium info {folder}/run`")


COMMAND = Command(execute)

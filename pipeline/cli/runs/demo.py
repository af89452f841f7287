"""Try Collapsium on real text of this machine.

The texts are the docstrings of the Python standard library and of the packages
that are installed with Collapsium, read from their source files. Their package is
the label, their module the category, and their sections are the segments. A
hierarchical Dirichlet process is fitted on a local Dask cluster, and its topics are
printed with the packages that use them most.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape
from rich.table import Table

from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.monitoring.console import RunView, console_of
from collapsium.storage.lazy_module import LazyModule

if TYPE_CHECKING:
    from collapsium.pipeline.workflows.demo import demo as demonstration
else:
    demonstration = LazyModule("collapsium.pipeline.workflows.demo.demo")

FOLDER = "collapsium-demo"


def execute(
    folder: Annotated[str, argument("FOLDER", f"folder of the results (default: {FOLDER})")] = FOLDER,
    /,
    *,
    flags: Flags,  # noqa: ARG001
) -> None:
    """Run the demonstration and print its table."""
    console = console_of(sys.stdout)
    print("reading the docstrings of the standard library and of the installed packages", flush=True)
    view = RunView()
    try:
        uses = demonstration.demonstrate(folder, [view])
    finally:
        view.close()
    width = console.width if console.is_terminal else 150
    table = Table("topic", "share", "top words", "packages that use it most", width=width)
    for use in uses:
        if use.topic.share < 0.001:
            continue
        words = escape(plain(" ".join(word for word, _ in use.topic.words)))
        packages = escape(plain(", ".join(f"{name} {share:.0%}" for name, share in use.labels)))
        table.add_row(str(use.topic.id), f"{use.topic.share:.1%}", words, packages)
    console.print(table)
    print(f"{folder}: the corpus and the run; see `collapsium report {folder}/run report.html`")


COMMAND = Command(execute)

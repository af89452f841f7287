"""The command line, with one module for each command.

`start` is the entry point. No other package imports this one.
"""

import sys
from collections.abc import Sequence


def start(argv: Sequence[str] | None = None) -> int:
    """Run the command; Ctrl-C ends it in one line, too, while its modules are imported, which may take seconds."""
    try:
        from collapsium.pipeline.cli.main import main

        return main(argv)
    except KeyboardInterrupt:
        print("collapsium: interrupted", file=sys.stderr)
        return 130

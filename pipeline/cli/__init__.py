"""The command line, with one module for each command.

`start` is the entry point. No other package imports this one.
"""

import sys


def start() -> int:
    """Run the command; Ctrl-C ends it in one line, too, while its modules are imported, which may take seconds."""
    try:
        from collapsium.pipeline.cli.main import main

        return main()
    except KeyboardInterrupt:
        print("collapsium: interrupted", file=sys.stderr)
        return 130

"""``python -m collapsar.pipeline`` is the command ``collapsar``."""

import sys

from collapsar.pipeline.commands.main import main

if __name__ == "__main__":
    sys.exit(main())

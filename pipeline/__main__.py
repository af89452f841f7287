"""``python -m collapsium.pipeline`` is the command ``collapsium``."""

import sys

from collapsium.pipeline.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

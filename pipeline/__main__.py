"""``python -m collapsium.pipeline`` is the command ``collapsium``."""

import sys

from collapsium.pipeline.cli import start

if __name__ == "__main__":
    sys.exit(start())

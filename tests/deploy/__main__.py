"""Check the files of deploy/ without a cluster: ``python -m tests.deploy [PYTEST OPTION...]``, or ``make
deploy-check``.

Where a tool is absent, what it would check is told as not run.
"""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def main(options):
    """Run all checks, or those that are named; return pytest's exit code."""
    named = any(Path(option.split("::")[0]).exists() for option in options)
    checks = [] if named else [str(path) for path in sorted(HERE.glob("check_*.py"))]
    return int(pytest.main(["-p", "no:cacheprovider", *checks, *options]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

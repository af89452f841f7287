"""Check the pages that people look at, in Chromium: ``python -m tests.pages [PYTEST OPTION...]``, or ``make pages``.

Where there is no Chromium, Debian's is installed if that can be done; else this says that nothing was checked.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages.browser import find_chromium

HERE = Path(__file__).parent


def install_chromium():
    """Install Debian's Chromium if permitted; return whether it is installed then."""
    if not Path("/etc/debian_version").exists() or shutil.which("apt-get") is None or os.geteuid() != 0:
        return False
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    quiet["env"] = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium"]
    if subprocess.run(install, check=False, **quiet).returncode:
        subprocess.run(["apt-get", "update", "--quiet"], check=False, **quiet)
        subprocess.run(install, check=False, **quiet)
    return find_chromium() is not None


def main(options):
    """Run all checks; return pytest's exit code, or 0 where there is no browser."""
    if find_chromium() is None:
        print("pages: installing Chromium", flush=True)
        if not install_chromium():
            print("pages: not run, no Chromium")
            return 0
    checks = [] if any(Path(option.split("::")[0]).exists() for option in options) else sorted(HERE.glob("check_*.py"))
    return int(pytest.main(["-p", "no:xdist", "-p", "no:cacheprovider", *map(str, checks), *options]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

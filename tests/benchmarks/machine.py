"""The machine and the versions on which measurements depend."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def machine(names):
    """Return the processor, cores, memory, and the versions of installed packages."""
    cpu = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.exists():
        lines = (row.partition(":") for row in described.read_text().splitlines())
        cpu = next((value.strip() for name, _, value in lines if name.strip() == "model name"), cpu)
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cpu": cpu, "cores": os.cpu_count(), "gigabytes": gigabytes, "versions": versions}

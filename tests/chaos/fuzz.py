"""Fuzz the readers with atheris, guided by coverage: any bytes must give a clear error or a result, in bounded memory.

``python -m tests.chaos.fuzz READER RUNS`` mutates small valid files of a reader's format. An input that makes a reader
fail is written to the folder ``build/fuzz``, and belongs into ``tests/storage/io/test_hostile.py``.
"""

import contextlib
import importlib
import io
import os
import pkgutil
import resource
import sys
import tempfile
from pathlib import Path

MEMORY = 4 << 30  # address space that a reader may use beyond what is used at the start


def import_kernels():
    """Import all kernels before the modules are instrumented, because numba cannot compile the fuzzer's calls."""
    import collapsium.workers.kernels as kernels

    for module in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):
        importlib.import_module(module.name)


def main(words):
    """Fuzz one reader."""
    import atheris

    name, runs = words[0], int(words[1])
    import_kernels()
    with atheris.instrument_imports(include=["collapsium.storage", "zipfile", "json"]):
        from tests.chaos.readers import READERS, try_reader
        from tests.chaos.seeds import seeds_of
    if name not in READERS:
        sys.exit(f"expected one of {', '.join(READERS)}, found {name}")
    corpus = Path(tempfile.mkdtemp(prefix="collapsium-fuzz-"))
    found = Path("build/fuzz") / name
    found.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds_of(name)):
        (corpus / f"seed{number}").write_bytes(data)
    place = Path(tempfile.mkdtemp(prefix="collapsium-fuzz-place-"))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))

    def run_input(data):
        with contextlib.redirect_stderr(io.StringIO()):
            try_reader(name, data, place)

    options = [f"-runs={runs}", "-max_len=4096", "-timeout=20", "-rss_limit_mb=6000", f"-artifact_prefix={found}/"]
    options += ["-print_final_stats=1", "-verbosity=0", f"-seed={os.environ.get('FUZZ_SEED', '1')}"]
    atheris.Setup(["fuzz", *options, str(corpus)], run_input)
    atheris.Fuzz()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("expected READER RUNS")
    main(sys.argv[1:])

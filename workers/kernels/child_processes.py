"""Compile kernels in child processes, which fill the cache of machine code that a machine's processes share.

Several kernels are compiled side by side, and the process that waits for them can be interrupted at any time: the
compiler itself would continue until a kernel is finished.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any, cast

from collapsium.workers.kernels.compilation_text import progress_text
from collapsium.workers.kernels.jit import AnyKernel, Helper, cache_folder, warm

Report = Callable[[int, int], None]  # Called with the number of kernels compiled so far, and of all that have to be

_log = logging.getLogger("collapsium.compiling")


# As many child processes compile in parallel as there are processors, as far as memory allows.
# Memory of a child at its peak: 240 MB for `hdp` and `ncrp`, 380 MB for the largest kernel (of networks) alone.
# Measured on x86-64. The first two are of fits with two children. A child's memory grows with each kernel: one that
# compiles the six largest of all families takes 680 MB.
CHILD_BYTES = 500 << 20

# New objects after which a child collects garbage. The compiler makes millions that live until a kernel is finished;
# looking through them every 700, as Python does, takes a tenth of the time.
COMPILER_OBJECTS = 200_000


def log_compilation(compiled: int, total: int) -> None:
    """Log how many kernels are compiled, at level INFO of the logger ``collapsium.compiling``."""
    _log.info("%s", progress_text(compiled, total), extra={"compiled": compiled, "total": total})


def missing_kernels(kernels: Sequence[AnyKernel]) -> list[AnyKernel]:
    """Return the kernels that have no machine code on this machine yet."""
    return [kernel for kernel in kernels if not kernel.is_compiled]


def compile_kernels(kernels: Sequence[AnyKernel], report: Report = log_compilation) -> None:
    """Compile the kernels that have no machine code yet, and load all."""
    fill_cache(kernels, report)
    missing = missing_kernels(kernels)  # all, where there is no folder to keep machine code in
    for number, kernel in enumerate(missing):
        report(number, len(missing))
        kernel.compile()
    if missing:
        report(len(missing), len(missing))
    warm(kernels)


def fill_cache(kernels: Sequence[AnyKernel], report: Report = log_compilation) -> None:
    """Compile the kernels that have no machine code on this machine yet, in child processes; load none.

    Nothing is done where no folder for machine code can be written. A kernel whose child process fails stays missing.
    """
    missing = missing_kernels(kernels)
    if not missing or cache_folder() is None or not sys.executable:
        return
    report(0, len(missing))
    waiting = sorted(missing, key=lambda kernel: _code_size(kernel.python))  # the largest is taken first
    children: list[subprocess.Popen[str]] = []
    try:
        while len(children) < _children_at_most(len(missing)):
            children.append(_start_child())
        _share_out(waiting, children, lambda compiled: report(compiled, len(missing)))
    finally:
        for child in children:
            child.kill()
            child.communicate()


def _share_out(
    waiting: list[AnyKernel], children: Sequence[subprocess.Popen[str]], report: Callable[[int], None]
) -> None:
    """Hand each child a kernel, and another whenever it has compiled one."""
    compiled, busy = 0, 0
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(cast(IO[str], child.stdout), selectors.EVENT_READ, child)
            busy += _hand_over(waiting, child)
        while busy:
            for key, _ in selector.select():
                child = key.data
                busy -= 1
                if not child.stdout.readline():  # it has failed
                    selector.unregister(child.stdout)
                    continue
                compiled += 1
                report(compiled)
                busy += _hand_over(waiting, child)


def _hand_over(waiting: list[AnyKernel], child: subprocess.Popen[str]) -> bool:
    """Tell a child to compile the next kernel, if one is left."""
    if not waiting:
        return False
    with contextlib.suppress(BrokenPipeError):  # of a child that has failed, which is noticed where its answer is read
        print(waiting.pop().address, file=child.stdin, flush=True)
    return True


def _start_child() -> subprocess.Popen[str]:
    # The child has a session of its own, since Ctrl-C reaches all processes of the terminal's session; it ends with its
    # standard input.
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def _children_at_most(kernels: int) -> int:
    import psutil

    room = psutil.virtual_memory().available // CHILD_BYTES
    return max(min(len(os.sched_getaffinity(0)), kernels, int(room)), 1)


def _code_size(function: Any) -> int:
    """Return the bytes of a kernel's code and of all that is inlined into it, by which kernels are ordered."""
    size = len(function.__code__.co_code)
    called = (function.__globals__.get(name) for name in function.__code__.co_names)
    return size + sum(_code_size(helper.python) for helper in called if isinstance(helper, Helper))


def serve() -> None:
    """Compile each kernel that a line of standard input names, and answer with a line."""
    gc.set_threshold(COMPILER_OBJECTS, 20, 20)
    for line in sys.stdin:
        module, _, name = line.strip().partition(":")
        getattr(importlib.import_module(module), name).compile()
        print(flush=True)


if __name__ == "__main__":
    serve()

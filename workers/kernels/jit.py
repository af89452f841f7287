"""The one door to the compiler.

Kernels are declared with the types of their arguments (`kernels.argument_types`) and compiled when first called, or all
at once by `warm`.
Inputs are declared read-only, so a kernel that would change one does not compile, and arrays that arrive read-only
from another worker fit. The compiler is imported when the first kernel is compiled or loaded: commands that call none
need not wait for it. Machine code is compiled for one target (`kernels.target`), not for the processor at hand. It is
kept on disk in a folder named by a digest of all kernel sources and the target: numba itself looks only at the file
that a kernel stands in and would go on using machine code whose helpers have changed. A file for each kernel says that
its machine code is there (`Kernel.is_compiled`). A lock for each kernel guards numba's file cache, which is unsafe when
several processes fill it together.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from collapsium.workers.kernels.argument_types import ArgumentType, RecordType, argument_types
from collapsium.workers.kernels.target import compile_for_target, machine_code_cache, target

P = ParamSpec("P")
R = TypeVar("R")

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": {"reassoc", "nsz", "contract", "arcp"},
    "error_model": "numpy",
}
_INLINED: dict[str, Any] = {**_OPTIONS, "forceinline": True}
_INTERPRETED = bool(int(os.environ.get("NUMBA_DISABLE_JIT") or "0"))
_log = logging.getLogger("collapsium.compiling")
_registered: list[Kernel[..., Any]] = []
_compiling = threading.RLock()  # numba's folder is one for all threads


class Kernel(Generic[P, R]):
    """A function that is compiled on its first call.

    Parameters
    ----------
    function : callable
        The kernel as Python; the types of its arguments are those of its annotations.

    Attributes
    ----------
    python : callable
        The function as it was written, for the tests with the compiler off.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self.python = function
        self._records: tuple[tuple[int, RecordType], ...] = ()
        self._compiled: Callable[P, R] | None = None
        _registered.append(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the kernel."""
        compiled: Callable[..., R] = self._compiled or self.compile()
        if not self._records:
            return compiled(*args, **kwargs)
        values: list[Any] = list(args)
        for place, record in self._records:
            values[place] = record.convert(values[place])
        return compiled(*values, **kwargs)

    @property
    def address(self) -> str:
        """Name of the module and of the kernel in it, as ``module:name``."""
        return f"{self.python.__module__}:{self.python.__name__}"

    @property
    def is_compiled(self) -> bool:
        """Whether machine code is loaded, or lies in the cache of this machine."""
        folder = cache_folder()
        return _INTERPRETED or self._compiled is not None or (folder is not None and self._mark(folder).exists())

    def compile(self) -> Callable[P, R]:
        """Compile, or load the machine code of an earlier process.

        Called in the main thread, the compiler runs in a thread of its own: Python calls handlers of signals in the
        main thread, and an interrupt that they raise within one of the compiler's callbacks would be lost.

        Returns
        -------
        callable
            The machine code.
        """
        from concurrent.futures import ThreadPoolExecutor

        if self._compiled is not None:
            return self._compiled
        if threading.current_thread() is not threading.main_thread():
            return self._compile()
        threads = ThreadPoolExecutor(1)
        try:
            return threads.submit(self._compile).result()
        finally:
            threads.shutdown(wait=False)

    def _compile(self) -> Callable[P, R]:
        with _compiling:
            if self._compiled is None:
                self._compiled = self._made()
        return self._compiled

    def _made(self) -> Callable[P, R]:
        import numba
        from filelock import FileLock
        from numba.core import config

        if _INTERPRETED:
            return self.python
        chosen, folder = compile_for_target(), cache_folder()
        arguments = argument_types(self.python)
        self._records = tuple((place, one) for place, one in enumerate(arguments) if isinstance(one, RecordType))
        types = tuple(_compiler_type(one) for one in arguments)
        dispatcher: Any = numba.njit(**_OPTIONS)(self.python)
        if folder is not None and not chosen and not self._mark(folder).exists():
            self._compile_elsewhere()
            folder = folder if self._mark(folder).exists() else None
        if folder is None and not chosen:
            _log.warning(
                "%s is compiled for this processor, not for %s: other bits may come out", self.address, target()
            )
        with ExitStack() as stack:
            if folder is not None:  # processes compile different kernels side by side
                stack.enter_context(FileLock(self._mark(folder).with_suffix(".lock")))
                previous, config.CACHE_DIR = config.CACHE_DIR, str(folder)
                stack.callback(setattr, config, "CACHE_DIR", previous)
                dispatcher._cache = machine_code_cache(self.python)
            dispatcher.compile(types)
            dispatcher.disable_compile()
            if folder is not None:
                self._mark(folder).touch()
        compiled: Callable[P, R] = dispatcher
        return compiled

    def _compile_elsewhere(self) -> None:
        """Compile in a process of its own: in this one other code has set the compiler to another target."""
        import subprocess
        import sys

        module, _, name = self.address.partition(":")
        code = f"import importlib; importlib.import_module({module!r}).{name}.compile()"
        subprocess.run(  # noqa: S603
            [sys.executable, "-P", "-c", code], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )

    def _mark(self, folder: Path) -> Path:
        """Return the file that says that machine code is in the cache."""
        return folder / f"{self.python.__module__.rpartition('.')[2]}.{self.python.__name__}.done"


def _compiler_type(argument: ArgumentType | RecordType) -> Any:
    """Return an argument's type as the compiler has it."""
    from numba import types

    if isinstance(argument, RecordType):
        return types.BaseTuple.from_types([_compiler_type(field) for field in argument.fields], argument.record)
    number = getattr(types, argument.dtype)
    return types.Array(number, argument.ndim, "C", readonly=not argument.written) if argument.ndim else number


def kernel(function: Callable[P, R]) -> Kernel[P, R]:
    """Declare a kernel, by the types that its parameters are annotated with (`argument_types`)."""
    return Kernel(function)


class Helper(Generic[R]):
    """A function that kernels call; the compiler takes it for what `numba.njit` makes of it when it first meets it.

    Parameters
    ----------
    function : callable
        The helper as Python.
    options : dict
        The compiler's options.
    """

    def __init__(self, function: Callable[..., R], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.python, self.options = function, options

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Run the helper by itself."""
        result: R = self._dispatcher(*args, **kwargs)
        return result

    @functools.cached_property
    def _dispatcher(self) -> Any:
        import numba

        compile_for_target()
        return numba.njit(**self.options)(self.python)

    @property
    def _numba_type_(self) -> Any:
        return self._dispatcher._numba_type_


def helper(function: Callable[..., R]) -> Callable[..., R]:
    """Declare a function that kernels call and the compiler inlines; it checks the arguments, starred ones too.

    It is always inlined: one that is left to be called stands twice in a process that compiles its kernel, by itself
    and beside the kernel, optimised apart from each other. That process runs the one, those that load the machine code
    the other, and sums would differ in their last places.

    Parameters
    ----------
    function : callable
        The helper as Python.

    Returns
    -------
    callable
        The same for kernels.
    """
    return function if _INTERPRETED else Helper(function, _INLINED)


def borrower(function: Callable[..., R]) -> Callable[..., R]:
    """Declare a helper that only borrows arrays, out of tuples too, and makes none.

    The compiler counts references to an array whenever one is taken out of a tuple, by atomic additions that took two
    thirds of a sweep's time where helpers are handed their state in tuples. A borrower counts none; whoever calls it
    holds the arrays.

    Parameters
    ----------
    function : callable
        The helper as Python.

    Returns
    -------
    callable
        The same for kernels.
    """
    return function if _INTERPRETED else Helper(function, {**_INLINED, "_nrt": False})


def warm(kernels: Iterable[Kernel[..., Any]] | None = None) -> int:
    """Compile kernels, so that no sweep waits for it; return their number.

    Parameters
    ----------
    kernels : iterable of Kernel, optional
        Which; by default all that have been imported.

    Returns
    -------
    int
        How many there are.
    """
    chosen = list(_registered if kernels is None else kernels)
    for one in chosen:
        one.compile()
    return len(chosen)


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder of this version's machine code; None where none can be written."""
    import hashlib
    import tempfile
    from importlib.metadata import version

    from platformdirs import user_cache_path

    here = Path(__file__).parent  # numba keeps the machine code of each installation by itself
    digest = hashlib.sha256(f"{version('numba')} {version('llvmlite')} {target()} {here}".encode())
    for source in sorted(here.rglob("*.py")):
        digest.update(str(source.relative_to(here)).encode() + source.read_bytes())
    own = os.environ.get("NUMBA_CACHE_DIR")
    for base in (Path(own) if own else user_cache_path("collapsium"), _private_temporary()):
        folder = base / f"kernels-{digest.hexdigest()[:16]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return None


def _private_temporary() -> Path:
    """Return a folder that no other user can write to: machine code is loaded from it."""
    import tempfile

    path = Path(tempfile.gettempdir()) / f"collapsium-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    state = path.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise OSError(f"{path} may be written by others")
    return path

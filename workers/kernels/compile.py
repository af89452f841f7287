"""The one door to the compiler.

Kernels are declared with the types of their arguments and compiled when first called, or all at once by `warm`.
Inputs are declared read-only, so a kernel that would change one does not compile, and arrays that arrive read-only
from another worker fit. Machine code is kept on disk in a folder named by a digest of all kernel sources: numba itself
looks only at the file that a kernel stands in and would go on using machine code whose helpers have changed. A lock for
each kernel guards numba's file cache, which is unsafe when several processes fill it together.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import numba
from filelock import FileLock
from numba.core import config
from platformdirs import user_cache_path

P = ParamSpec("P")
R = TypeVar("R")

f8, i8, u8 = numba.float64, numba.int64, numba.uint64


def given(dtype: Any, ndim: int) -> Any:
    """Return the type of an input array: contiguous and read-only."""
    return numba.types.Array(dtype, ndim, "C", readonly=True)


def made(dtype: Any, ndim: int) -> Any:
    """Return the type of an output array: contiguous and written by the kernel."""
    return numba.types.Array(dtype, ndim, "C")


F4, F4_2 = given(numba.float32, 1), given(numba.float32, 2)
F8, F8_2, F8_3 = given(numba.float64, 1), given(numba.float64, 2), given(numba.float64, 3)
I4, I8 = given(numba.int32, 1), given(numba.int64, 1)
I4_2, I8_2 = given(numba.int32, 2), given(numba.int64, 2)
U1, U2, U8 = given(numba.uint8, 1), given(numba.uint16, 1), given(numba.uint64, 1)
OUT_F4, OUT_F4_2 = made(numba.float32, 1), made(numba.float32, 2)
OUT_I4, OUT_I4_2 = made(numba.int32, 1), made(numba.int32, 2)
OUT_I8, OUT_I8_2 = made(numba.int64, 1), made(numba.int64, 2)
OUT_U1, OUT_U2 = made(numba.uint8, 1), made(numba.uint16, 1)
OUT_F8, OUT_F8_2, OUT_F8_3 = made(numba.float64, 1), made(numba.float64, 2), made(numba.float64, 3)

_INLINED: dict[str, Any] = {
    "nogil": True,
    "forceinline": True,
    "fastmath": {"reassoc", "nsz", "contract", "arcp"},
    "error_model": "numpy",
}
_registered: list[Kernel[..., Any]] = []
_compiling = threading.RLock()  # numba's folder is one for all threads


class Kernel(Generic[P, R]):
    """A function that is compiled on its first call.

    Parameters
    ----------
    function : callable
        The kernel as Python.
    types : tuple
        Numba types of its arguments.

    Attributes
    ----------
    python : callable
        The function as it was written, for the tests with the compiler off.
    """

    def __init__(self, function: Callable[P, R], types: tuple[Any, ...]) -> None:
        functools.update_wrapper(self, function)
        self.python = function
        self._types = types
        self._compiled: Callable[P, R] | None = None
        _registered.append(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the kernel."""
        compiled = self._compiled or self.compile()
        return compiled(*args, **kwargs)

    def compile(self) -> Callable[P, R]:
        """Compile, or load the machine code of an earlier process."""
        with _compiling:
            if self._compiled is None:
                self._compiled = self._made()
        return self._compiled

    def _made(self) -> Callable[P, R]:
        options: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "nsz", "contract", "arcp"}}
        options["error_model"] = "numpy"
        with ExitStack() as stack:
            folder = cache_folder()
            if folder is not None:  # processes compile different kernels side by side
                name = f"{self.python.__module__.rpartition('.')[2]}.{self.python.__name__}"
                stack.enter_context(FileLock(folder / f"{name}.lock"))
                previous, config.CACHE_DIR = config.CACHE_DIR, str(folder)
                stack.callback(setattr, config, "CACHE_DIR", previous)
            found: Callable[P, R] = numba.njit([self._types], cache=folder is not None, **options)(self.python)
        return found


def kernel(*types: Any) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Declare a kernel by the types of its arguments."""
    return lambda function: Kernel(function, types)


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
    compiled: Callable[..., R] = numba.njit(**_INLINED)(function)
    return compiled


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
    compiled: Callable[..., R] = numba.njit(**_INLINED, _nrt=False)(function)
    return compiled


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
    digest = hashlib.sha256(f"{numba.__version__}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + source.read_bytes())
    own = os.environ.get("NUMBA_CACHE_DIR")
    for base in (Path(own) if own else user_cache_path("collapsar"), _private_temporary()):
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
    path = Path(tempfile.gettempdir()) / f"collapsar-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    state = path.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise OSError(f"{path} may be written by others")
    return path

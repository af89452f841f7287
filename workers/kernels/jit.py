"""Compile kernels with numba, and cache their machine code on disk.

Kernels are compiled when first called, or all at once by `warm`. A parameter is annotated with an alias from below,
with ``int``, ``float`` or ``numpy.uint64``, or with a `typing.NamedTuple` whose fields are so annotated. Arrays that
belong together, such as the pairs of a shard's documents, then travel as one argument. `Filled` marks a tuple that the
kernel writes to. Other inputs are read-only: a kernel that would change one does not compile, and arrays that arrive
read-only from another worker fit. The compiler is imported when the first kernel is compiled or loaded, so that
commands without kernels do not wait for it.

Machine code is compiled for one target (`kernels.target`), not for the processor of this machine. Its folder is named
by a digest of all kernel sources and the target: numba compares only the file of the kernel, and would use machine code
whose helpers have changed. An empty file for each kernel marks its machine code as complete (`Kernel.is_compiled`). A
lock for each kernel guards numba's file cache, which several processes cannot fill together.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib
import logging
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    NamedTuple,
    ParamSpec,
    TypeAlias,
    TypeVar,
    get_args,
    get_type_hints,
)

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import numba


@dataclass(frozen=True, slots=True)
class ArgumentType:
    """The type of a number, or of a contiguous array."""

    dtype: str  # Name of the number's type
    ndim: int = 0  # Dimensions of the array; 0 for a number
    written: bool = False  # Whether the kernel writes to the array; other arrays are read-only

    def convert(self, value: Any) -> Any:
        """Return a value in the form that the compiler takes within a tuple, where it converts nothing."""
        if not self.ndim:
            return CONVERTERS[self.dtype](value)
        if self.written or not value.flags.writeable:
            return value
        view = value.view()
        view.flags.writeable = False
        return view


@dataclass(frozen=True, slots=True)
class RecordType:
    """The type of a named tuple of arguments."""

    record: type[tuple[object, ...]]  # The `typing.NamedTuple`
    fields: tuple[ArgumentType | RecordType, ...]  # Types of its fields

    def convert(self, value: Any) -> Any:
        """Return the tuple with its fields in the form that the compiler takes."""
        return self.record(*[field.convert(item) for field, item in zip(self.fields, value, strict=True)])


@dataclass(frozen=True, slots=True)
class Filled:
    """Marks a named tuple of arrays that a kernel fills, all but some."""

    read: tuple[str, ...] = ()  # Names of the arrays that are read


Array: TypeAlias = npt.NDArray[Any]  # An array in a helper, whose type the compiler infers
Number: TypeAlias = Any  # A number in a helper, whose type the compiler infers

CONVERTERS: dict[str, Callable[[Number], Number]] = {"int64": int, "float64": float, "uint64": np.uint64}
NUMBERS = {
    int: ArgumentType("int64"),
    float: ArgumentType("float64"),
    np.uint64: ArgumentType("uint64"),
}

Float32Vector: TypeAlias = Annotated[Array, ArgumentType("float32", 1)]
Float32Matrix: TypeAlias = Annotated[Array, ArgumentType("float32", 2)]
Float64Vector: TypeAlias = Annotated[Array, ArgumentType("float64", 1)]
Float64Matrix: TypeAlias = Annotated[Array, ArgumentType("float64", 2)]
Float64Cube: TypeAlias = Annotated[Array, ArgumentType("float64", 3)]
Int32Vector: TypeAlias = Annotated[Array, ArgumentType("int32", 1)]
Int32Matrix: TypeAlias = Annotated[Array, ArgumentType("int32", 2)]
Int64Vector: TypeAlias = Annotated[Array, ArgumentType("int64", 1)]
Int64Matrix: TypeAlias = Annotated[Array, ArgumentType("int64", 2)]
UInt8Vector: TypeAlias = Annotated[Array, ArgumentType("uint8", 1)]
UInt16Vector: TypeAlias = Annotated[Array, ArgumentType("uint16", 1)]
UInt64Vector: TypeAlias = Annotated[Array, ArgumentType("uint64", 1)]

OutFloat32Vector: TypeAlias = Annotated[Array, ArgumentType("float32", 1, written=True)]
OutFloat32Matrix: TypeAlias = Annotated[Array, ArgumentType("float32", 2, written=True)]
OutFloat64Vector: TypeAlias = Annotated[Array, ArgumentType("float64", 1, written=True)]
OutFloat64Matrix: TypeAlias = Annotated[Array, ArgumentType("float64", 2, written=True)]
OutFloat64Cube: TypeAlias = Annotated[Array, ArgumentType("float64", 3, written=True)]
OutInt32Vector: TypeAlias = Annotated[Array, ArgumentType("int32", 1, written=True)]
OutInt32Matrix: TypeAlias = Annotated[Array, ArgumentType("int32", 2, written=True)]
OutInt64Vector: TypeAlias = Annotated[Array, ArgumentType("int64", 1, written=True)]
OutInt64Matrix: TypeAlias = Annotated[Array, ArgumentType("int64", 2, written=True)]
OutUInt8Vector: TypeAlias = Annotated[Array, ArgumentType("uint8", 1, written=True)]
OutUInt64Vector: TypeAlias = Annotated[Array, ArgumentType("uint64", 1, written=True)]
OutUInt16Vector: TypeAlias = Annotated[Array, ArgumentType("uint16", 1, written=True)]


def argument_types(function: Callable[..., object]) -> tuple[ArgumentType | RecordType, ...]:
    """Return the types of a kernel's arguments, from their annotations."""
    hints = get_type_hints(function, include_extras=True)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return tuple(_argument_type(hints[name], f"{function.__qualname__}({name})") for name in names)


def _argument_type(hint: object, place: str) -> ArgumentType | RecordType:
    if hint in NUMBERS:
        return NUMBERS[hint]
    for extra in get_args(hint):
        if isinstance(extra, ArgumentType):
            return extra
        if isinstance(extra, Filled):
            record = get_args(hint)[0]
            return RecordType(record, tuple(_field_types(record, extra)))
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return RecordType(hint, tuple(_field_types(hint)))
    raise TypeError(f"{place}: expected an array type of `kernels.jit`, a number or a NamedTuple, found {hint}")


def _field_types(record: type, filled: Filled | None = None) -> Iterator[ArgumentType | RecordType]:
    for name, hint in get_type_hints(record, include_extras=True).items():
        kind = _argument_type(hint, f"{record.__qualname__}.{name}")
        if filled and isinstance(kind, ArgumentType) and kind.ndim and name not in filled.read:
            kind = replace(kind, written=True)
        yield kind


P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_OPTIONS: dict[str, object] = {
    "nogil": True,
    "fastmath": {"reassoc", "nsz", "contract", "arcp"},
    "error_model": "numpy",
}
# Wrappers for callers in C, which nobody calls, would be compiled with each function.
_UNWRAPPED: dict[str, object] = {**_OPTIONS, "no_cfunc_wrapper": True}
_INLINED: dict[str, object] = {**_UNWRAPPED, "forceinline": True, "no_cpython_wrapper": True}
INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "").strip() not in ("", "0")  # Whether kernels run as Python

_log = logging.getLogger("collapsium.compiling")
_registered: list[AnyKernel] = []

_compiling = threading.RLock()  # Held while compiling, as numba has one cache folder for all threads


class Kernel(Generic[P, R_co]):
    """A function that is compiled on its first call."""

    def __init__(self, function: Callable[P, R_co]) -> None:
        functools.update_wrapper(self, function)
        self.python = function
        self._records: tuple[tuple[int, RecordType], ...] = ()
        self._compiled: Callable[P, R_co] | None = None
        _registered.append(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the kernel."""
        compiled: Callable[..., R_co] = self._compiled or self.compile()
        if not self._records:
            return compiled(*args, **kwargs)
        values: list[object] = list(args)
        for index, record in self._records:
            values[index] = record.convert(values[index])
        return compiled(*values, **kwargs)

    @property
    def address(self) -> str:
        """Name of the module and of the kernel in it, as ``module:name``."""
        return f"{self.python.__module__}:{self.python.__name__}"

    @property
    def is_compiled(self) -> bool:
        """True if machine code is loaded, or in the cache of this machine."""
        folder = cache_folder()
        return INTERPRETED or self._compiled is not None or (folder is not None and self._mark(folder).exists())

    def compile(self) -> Callable[P, R_co]:
        """Return the machine code, compiled or loaded from the cache.

        Called in the main thread, the compiler runs in another one: Python calls handlers of signals in the main
        thread, and an interrupt that they raise within one of the compiler's callbacks would be lost.
        """
        if self._compiled is not None:
            return self._compiled
        if threading.current_thread() is not threading.main_thread():
            return self._compile()
        threads = ThreadPoolExecutor(1)
        try:
            return threads.submit(self._compile).result()
        finally:
            threads.shutdown(wait=False)

    def _compile(self) -> Callable[P, R_co]:
        with _compiling:
            if self._compiled is None:
                self._compiled = self._new_machine_code()
        return self._compiled

    def _new_machine_code(self) -> Callable[P, R_co]:
        import numba

        from collapsium.workers.kernels import target

        if INTERPRETED:
            return self.python
        for_target, folder = target.compile_for_target(), cache_folder()
        arguments = argument_types(self.python)
        self._records = tuple((index, item) for index, item in enumerate(arguments) if isinstance(item, RecordType))
        types = tuple(_compiler_type(argument) for argument in arguments)
        dispatcher = numba.njit(**_UNWRAPPED)(self.python)
        if folder is not None and not for_target and not self._mark(folder).exists():
            # Compile in another process: in this one, other code has set the compiler to another target.
            module, _, name = self.address.partition(":")
            code = f"import importlib; importlib.import_module({module!r}).{name}.compile()"
            subprocess.run(  # noqa: S603
                [sys.executable, "-P", "-c", code], stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
            folder = folder if self._mark(folder).exists() else None
        if folder is None and not for_target:
            _log.warning(
                "%s is compiled for this processor, not for %s: results may differ in last bits",
                self.address,
                target.target(),
            )
        with ExitStack() as stack:
            if folder is not None:
                # The lock is of one kernel: processes compile different kernels in parallel.
                stack.enter_context(_locked(self._mark(folder).with_suffix(".lock")))
                previous, numba.core.config.CACHE_DIR = numba.core.config.CACHE_DIR, str(folder)
                stack.callback(setattr, numba.core.config, "CACHE_DIR", previous)
                dispatcher._cache = target.machine_code_cache(self.python)
            dispatcher.compile(types)
            dispatcher.disable_compile()
            if folder is not None:
                self._mark(folder).touch()
        compiled: Callable[P, R_co] = dispatcher
        return compiled

    def _mark(self, folder: Path) -> Path:
        """Return the file that marks the machine code in the cache as complete."""
        return folder / f"{self.python.__module__.rpartition('.')[2]}.{self.python.__name__}.done"


AnyKernel: TypeAlias = Kernel[..., object]


def _compiler_type(argument: ArgumentType | RecordType) -> numba.types.Type:
    """Return the compiler's type of an argument."""
    import numba

    if isinstance(argument, RecordType):
        return numba.types.BaseTuple.from_types([_compiler_type(field) for field in argument.fields], argument.record)
    number = getattr(numba.types, argument.dtype)
    return numba.types.Array(number, argument.ndim, "C", readonly=not argument.written) if argument.ndim else number


def kernel(function: Callable[P, R]) -> Kernel[P, R]:
    """Declare a kernel, whose parameters are annotated with their types (`argument_types`).

    Copy arrays in loops. For an array that is assigned to a slice, the compiler adds the message about shapes that
    differ, with all functions of strings that format it: 1.5 s of processor time in each process that compiles.
    """
    return Kernel(function)


class Helper(Generic[R]):
    """A function that kernels call, wrapped by `numba.njit` when the compiler first meets it."""

    def __init__(self, function: Callable[..., R], options: dict[str, object]) -> None:
        functools.update_wrapper(self, function)
        self.python, self.options = function, options

    def __call__(self, *args: object, **kwargs: object) -> R:
        """Run the helper by itself."""
        result: R = self._for_python(*args, **kwargs)
        return result

    @functools.cached_property
    def _for_python(self) -> numba.core.dispatcher.Dispatcher:
        return self._dispatcher({**self.options, "no_cpython_wrapper": False})

    @functools.cached_property
    def _for_kernels(self) -> numba.core.dispatcher.Dispatcher:
        return self._dispatcher(self.options)

    def _dispatcher(self, options: dict[str, object]) -> numba.core.dispatcher.Dispatcher:
        import numba

        from collapsium.workers.kernels import target

        target.compile_for_target()
        return numba.njit(**options)(self.python)

    @property
    def _numba_type_(self) -> numba.types.Type:
        import numba

        return numba.typeof(self._for_kernels)


def helper(function: Callable[..., R]) -> Callable[..., R]:
    """Declare a function that kernels call and the compiler always inlines.

    A function that is not inlined would exist twice in the process that compiles its kernel, by itself and in the
    kernel's machine code, optimised separately. That process would run the one, and processes that load the machine
    code the other, and sums would differ in their last bits.
    """
    return function if INTERPRETED else Helper(function, _INLINED)


def borrower(function: Callable[..., R]) -> Callable[..., R]:
    """Declare a helper that reads arrays out of tuples without counting references, and allocates none.

    The compiler counts references to an array whenever it is taken out of a tuple, by atomic additions that took two
    thirds of a sweep's time where helpers take their state in tuples. A borrower counts none, because its caller has
    the arrays.
    """
    return function if INTERPRETED else Helper(function, {**_INLINED, "_nrt": False})


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock of the operating system on a file, which ends with the process at the latest."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def all_kernels() -> list[AnyKernel]:
    """Import every module of kernels, and return all kernels."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.walk_packages([str(Path(__file__).parent)], f"{package}."):
        importlib.import_module(module.name)
    return list(_registered)


def warm(kernels: Iterable[AnyKernel] | None = None) -> int:
    """Compile kernels, so that no sweep waits for them, and return their number."""
    compiled = list(_registered if kernels is None else kernels)
    for kernel_ in compiled:
        kernel_.compile()
    return len(compiled)


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder of this version's machine code; None where none can be written."""
    # numba separates the machine code of installations too.
    import platformdirs

    from collapsium.workers.kernels import target

    package = Path(__file__).parent
    digest = hashlib.sha256(f"{version('numba')} {version('llvmlite')} {target.target()} {package}".encode())
    for source in sorted(package.rglob("*.py")):
        digest.update(str(source.relative_to(package)).encode() + source.read_bytes())
    configured = os.environ.get("NUMBA_CACHE_DIR")
    # Machine code is loaded from this folder, so no other user may write to it.
    path = Path(tempfile.gettempdir()) / f"collapsium-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    state = path.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise OSError(f"{path} is writable by other users")
    for base in (Path(configured) if configured else platformdirs.user_cache_path("collapsium"), path):
        folder = base / f"kernels-{digest.hexdigest()[:16]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return None


UNWEIGHTED = np.zeros(0, dtype=np.float32)  # Weights of pairs whose tokens all weigh one

LANES = 8  # Numbers of a vector: a register of AVX2
ONE_BITS = 0x3F800000  # The bits of 1.0 in float32, read as an integer


class DocumentPairs(NamedTuple):
    """Documents as pairs of a word and its count."""

    offsets: Int64Vector  # Index of each document's first pair; the last is the number of pairs; (documents + 1,)
    position: Int32Vector  # Row of each pair's word, in arrays with one row per word; (pairs,)
    counts: Int32Vector  # Tokens of each pair; (pairs,)
    # Weight of each token of a pair; empty where all weigh one. Expected counts are sums of weights.; (pairs,)
    weights: Float32Vector = UNWEIGHTED


@helper
def token_weight(weights: Array, pair: int) -> Number:
    """Return the weight of each token of a pair."""
    return float(weights[pair]) if weights.size else 1.0

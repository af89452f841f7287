"""Errors that Collapsium raises on purpose.

Each is a `CollapsiumError` and also the built-in exception that a caller would expect. The message has the value that
is wrong, the expectation and, where possible, a remedy, in one line.
"""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from collapsium.storage.printable import printable

MAX_NAMES = 10  # Largest number of names that a message lists

# Folders of Collapsium's modules, which a notebook's traceback omits
PACKAGES = tuple(Path(__file__).parents[1] / name for name in ("pipeline", "workers", "storage"))
SHELLS = {"IPython", "ipykernel"}  # Packages that run a notebook's code

# An option in a message, as a flag or as a parameter in backquotes.
_MENTION = re.compile(r"--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)|`([a-z][a-z0-9_]*)`")


class CollapsiumError(Exception):
    """Base of every error that is raised on purpose.

    A message may quote untrusted files and words, so control characters in it are replaced. It names
    parameters and functions in backquotes; the command line translates these to flags and commands.
    """

    def __str__(self) -> str:
        return printable(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows: the code of the caller, and the error in one line."""
        lines = []
        for frame in traceback.extract_tb(self.__traceback__):
            path = Path(frame.filename)
            if any(path.is_relative_to(folder) for folder in PACKAGES) or SHELLS & {*path.parts} or not frame.line:
                continue
            function = "" if frame.name == "<module>" else f"{frame.name}, "
            lines.append(f"{function}line {frame.lineno}: {frame.line}")
        return [*lines, f"{type(self).__name__}: {self}"]

    def spelled(self, spell: Callable[[str], str]) -> str:
        """Return the message with parameters and functions in the caller's spelling."""
        return _MENTION.sub(lambda mention: spell(_parameter(mention)), str(self))


class InputError(CollapsiumError, ValueError):
    """An input file does not conform to its format."""

    def __init__(self, path: str, expected: str, where: str = "") -> None:
        self.path, self.expected, self.where = path, expected, where
        super().__init__(f"{path}: {where + ': ' if where else ''}{expected}")

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str]]:
        """Pickle the three parts, so that the error can be raised in another process."""
        return type(self), (self.path, self.expected, self.where)


class DamagedError(InputError):
    """A file of a corpus, run or model does not match its digest or its format."""


class NotFiniteError(DamagedError):
    """A metric of a fit is not finite, because the arrays that it continued from are not the state of any fit."""


class NoVocabularyError(InputError):
    """Counts of numbered words have no vocabulary."""


class AbsentError(CollapsiumError, FileNotFoundError):
    """A file or folder does not exist."""


class OccupiedError(CollapsiumError, FileExistsError):
    """The output exists already."""


class OptionError(CollapsiumError, ValueError):
    """An option has an unknown name or an invalid value."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        self.message, self.parameter = message, parameter
        super().__init__(message if parameter is None else f"{parameter}: {message}")

    def __reduce__(self) -> tuple[type[CollapsiumError], tuple[str | None, ...]]:
        """Pickle the parts, so that the error can be raised in another process."""
        return type(self), (self.message, self.parameter)

    @property
    def subject(self) -> str | None:
        """The parameter with the fault, which may begin the message as a flag; None if unknown."""
        first = _MENTION.match(self.message)
        return self.parameter or (None if first is None else _parameter(first))

    def spelled(self, spell: Callable[[str], str], spell_parameter: Callable[[str], str] | None = None) -> str:
        """Return the message with parameters and functions in the caller's spelling."""
        text = _MENTION.sub(lambda mention: spell(_parameter(mention)), self.message)
        return text if self.parameter is None else f"{(spell_parameter or spell)(self.parameter)}: {text}"


def _parameter(mention: re.Match[str]) -> str:
    return str(mention[1] or mention[2]).replace("-", "_")


def flag_of(parameter: str) -> str:
    """Return the flag that sets a parameter on the command line."""
    return f"--{parameter.replace('_', '-')}"


class SettingError(InputError, OptionError):
    """A configuration file has an unknown option or an invalid value."""


class MissingError(CollapsiumError, ImportError):
    """A package of an optional extra is not installed."""


def reason_of(error: BaseException) -> str:
    """Return the first line of an error, or its type if it has no text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


@contextmanager
def optional(package: str, message: str) -> Iterator[None]:
    """Raise `MissingError` with a message if an import in the block finds that an optional package is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingError(message) from None


class MismatchError(CollapsiumError, ValueError):
    """Two inputs do not belong together."""


class ClusterError(CollapsiumError, ConnectionError):
    """The scheduler or its workers cannot be reached, or were lost."""


class ClusterGoneError(ClusterError):
    """The cluster was lost for good."""


class StoreError(CollapsiumError, OSError):
    """A store cannot be read or written: it is full, permission is missing, or retries have failed."""


class LockedError(CollapsiumError, BlockingIOError):
    """Another process works on the run, or has taken it over."""


class TakenOverError(LockedError):
    """Another process has taken over the work of this process, which has written nothing since."""


class ClosedError(CollapsiumError, ValueError):
    """The object was closed, and its files are removed."""


class CapacityError(CollapsiumError, MemoryError):
    """The work needs more memory or disk than there is."""


class NumericalError(CollapsiumError, ArithmeticError):
    """A model's numbers exceed the range of floating point."""


def near(name: str, known: Iterable[str], limit: int = 1) -> str:
    """Return the known names nearest to an unknown one, as ``" (did you mean 'x'?)"``, or an empty text."""
    lower = {spelling.lower(): spelling for spelling in sorted(set(known))}
    matches = [lower[match] for match in difflib.get_close_matches(name.lower(), lower, n=limit, cutoff=0.6)]
    if not matches:
        matches = [
            spelling
            for spelling in lower.values()
            if name.startswith(f"{spelling}_") or spelling.startswith(f"{name}_")
        ][:limit]
    return f" (did you mean {' or '.join(map(repr, matches))}?)" if matches else ""


def suggestion(name: str, known: Iterable[str], limit: int = 1) -> str:
    """Return the known names nearest to an unknown one, or some of all names if none is near."""
    names = sorted(set(known))
    if len(names) <= MAX_NAMES:
        return near(name, names, limit) or f" (known: {', '.join(names)})"
    alike = {known: difflib.SequenceMatcher(None, name.lower(), known.lower()).ratio() for known in names}
    nearest = sorted(sorted(names, key=lambda spelling: -alike[spelling])[:MAX_NAMES])
    return near(name, names, limit) or f" (nearest: {', '.join(nearest)} and {len(names) - MAX_NAMES} more)"


def interrupt_behind(error: BaseException) -> BaseException:
    """Return the interrupt during whose handling an error of the system or a library was raised, or else the error.

    For example, `shutil.rmtree` closes a folder for a second time if an interrupt comes right after the first.
    """
    behind = error
    while behind.__context__ is not None and not isinstance(behind, (KeyboardInterrupt, CollapsiumError, MemoryError)):
        behind = behind.__context__
    return behind if isinstance(behind, KeyboardInterrupt) else error

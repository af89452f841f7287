"""The errors that Collapsium raises on purpose.

Each is a `CollapsiumError` and also the builtin that a caller would expect. The text says what was given, what was
expected and, where there is something to do, what to do; the commands print it as one line.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable

from collapsium.storage.printable import printable

NAMED = 40  # names that an error lists
_MENTION = re.compile(r"--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)|`([a-z][a-z0-9_]*)`")  # of an option in an error's text


class CollapsiumError(Exception):
    """Base of every error that is raised on purpose.

    Its text names files, fields and words that may be anybody's; what would steer a terminal is replaced in it.
    Parameters and functions stand in it by name, in backquotes; the command line makes flags and commands of them.
    """

    def __str__(self) -> str:
        return printable(super().__str__())

    def spelled(self, spell: Callable[[str], str]) -> str:
        """Return the text with the names of options as whoever has set them knows them.

        Parameters
        ----------
        spell : callable
            From the name of a parameter or a function, ``score_every``, to what it is called, such as
            ``--score-every``.

        Returns
        -------
        str
            The text.
        """
        return _MENTION.sub(lambda found: spell(_parameter(found)), str(self))


class InputError(CollapsiumError, ValueError):
    """A file that is given does not hold what its format asks for.

    Parameters
    ----------
    path : str
        The file as it was given.
    expected : str
        What is wrong and what was expected.
    where : str, optional
        The line or field, such as ``line 7`` or ``field 'text'``.
    """

    def __init__(self, path: str, expected: str, where: str = "") -> None:
        self.path, self.expected, self.where = path, expected, where
        super().__init__(f"{path}: {where + ': ' if where else ''}{expected}")

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str]]:
        """Pickle by the three parts, so that the error crosses processes."""
        return type(self), (self.path, self.expected, self.where)


class DamagedError(InputError):
    """A file of ours is not what its digest or its format version says."""


class NoVocabularyError(InputError):
    """Counts of numbered words come without the words."""


class AbsentError(CollapsiumError, FileNotFoundError):
    """A file or folder that is given does not exist."""


class OccupiedError(CollapsiumError, FileExistsError):
    """The place for an output is taken."""


class OptionError(CollapsiumError, ValueError):
    """An option has no such name, or a value that it cannot take.

    Parameters
    ----------
    message : str
        What is wrong and what was expected. Other options, and functions, stand in it by their names in backquotes.
    parameter : str, optional
        The parameter that it is about, which then goes before the message.
    """

    def __init__(self, message: str, parameter: str | None = None) -> None:
        self.message, self.parameter = message, parameter
        super().__init__(message if parameter is None else f"{parameter}: {message}")

    def __reduce__(self) -> tuple[type[CollapsiumError], tuple[str | None, ...]]:
        """Pickle by its parts, so that the error crosses processes."""
        return type(self), (self.message, self.parameter)

    @property
    def subject(self) -> str | None:
        """The parameter that it is about, also where the message begins with its flag; None where that is not known."""
        first = _MENTION.match(self.message)
        return self.parameter or (None if first is None else _parameter(first))

    def spelled(self, spell: Callable[[str], str]) -> str:
        """Return the text with the names of options as whoever has set them knows them."""
        text = _MENTION.sub(lambda found: spell(_parameter(found)), self.message)
        return text if self.parameter is None else f"{spell(self.parameter)}: {text}"


def _parameter(found: re.Match[str]) -> str:
    return str(found[1] or found[2]).replace("-", "_")


def flag_of(parameter: str) -> str:
    """Return the flag that sets a parameter on the command line."""
    return f"--{parameter.replace('_', '-')}"


class SettingError(InputError, OptionError):
    """A configuration file holds an unknown option, or a value that it cannot take."""


class MissingError(CollapsiumError, ImportError):
    """A package that is asked for by an extra is not installed."""


class MismatchError(CollapsiumError, ValueError):
    """Two inputs that must belong together do not."""


class ClusterError(CollapsiumError, ConnectionError):
    """The scheduler or its workers cannot be reached, or were lost."""


class ClusterGoneError(ClusterError):
    """There is nothing left of the cluster to go on with."""


class StoreError(CollapsiumError, OSError):
    """A store cannot be read or written: it is full, it is not allowed, or it fails again and again."""


class LockedError(CollapsiumError, BlockingIOError):
    """Another process works on the run, or has taken it over."""


class TakenOverError(LockedError):
    """Another process has taken over what this one worked on; this one has written nothing since."""


class ClosedError(CollapsiumError, ValueError):
    """What is asked for was closed, and is removed."""


class CapacityError(CollapsiumError, MemoryError):
    """What was asked for needs more memory or disk than there is."""


class NumericalError(CollapsiumError, ArithmeticError):
    """A model's numbers have left what floating point can hold."""


def near(name: str, known: Iterable[str], most: int = 1) -> str:
    """Return the known names that are nearest to an unknown one: ``" (did you mean 'x'?)"``, or nothing."""
    lower = {one.lower(): one for one in sorted(set(known))}
    found = [lower[one] for one in difflib.get_close_matches(name.lower(), lower, n=most, cutoff=0.6)]
    found = found or [one for one in lower.values() if name.startswith(f"{one}_") or one.startswith(f"{name}_")][:most]
    return f" (did you mean {' or '.join(repr(one) for one in found)}?)" if found else ""


def suggestion(name: str, known: Iterable[str], most: int = 1) -> str:
    """Say which known names are nearest to an unknown one.

    Parameters
    ----------
    name : str
        The name that was given.
    known : iterable of str
        The names that there are.
    most : int, optional
        How many to name.

    Returns
    -------
    str
        ``" (did you mean 'x'?)"``, or the names that there are, some of them if they are many, where none is near.
    """
    names = sorted(set(known))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return near(name, names, most) or f" (known: {', '.join(names[:NAMED])}{more})"

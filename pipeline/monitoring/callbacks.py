"""Callbacks: functions of anybody's that are told the events of a fit."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from collapsium.pipeline.monitoring.events import Sink
from collapsium.storage.errors import OptionError


def load_callback(name: str) -> Callable[..., Any]:
    """Import a callback.

    Parameters
    ----------
    name : str
        ``module:function``, or ``module:Class`` for what a class without arguments makes; modules in the current
        folder are found too, after those that are installed.

    Returns
    -------
    callable
        Takes an event.

    Raises
    ------
    OptionError
        There is no such module, function or class, or it cannot be called.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise OptionError(f"expected module:function or module:Class, found {name!r}", "callback")
    here = os.getcwd()  # noqa: PTH109 - an entry of sys.path
    sys.path.append(here)
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        callback: Any = found() if inspect.isclass(found) else found
    except OptionError:
        raise
    except Exception as error:  # whatever a module of anybody's does when it is imported
        raise OptionError(f"`callback` {name}: {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(here)
    if not callable(callback):
        raise OptionError(f"`callback` {name}: expected something to call, found {type(callback).__name__}")
    return callback  # type: ignore[no-any-return]


class Guarded:
    """A callback whose errors do not end the run: they are told, and it is not called again.

    Parameters
    ----------
    callback : callable
        Takes an event, a dict that is its own.
    name : str
        How it is named in what is told.
    notice : callable
        Told in a line what it raised.
    """

    def __init__(self, callback: Callable[[dict[str, Any]], Any], name: str, notice: Callable[[str], None]) -> None:
        self._callback: Callable[[dict[str, Any]], Any] | None = callback
        self._name, self._notice = name, notice

    def __call__(self, event: dict[str, Any]) -> None:
        """Tell an event, unless there was an error before."""
        if self._callback is None:
            return
        try:
            self._callback(dict(event))
        except Exception as error:  # whatever it is: what is told of a run is not worth the run
            self._callback = None
            said = str(error).splitlines()[0] if str(error) else "no reason given"
            self._notice(f"callback {self._name}: {type(error).__name__}: {said}; it is not called again")


def guarded(names: Sequence[str], notice: Callable[[str], None]) -> list[Sink]:
    """Import callbacks, and guard the run against them.

    Parameters
    ----------
    names : sequence of str
        As `load_callback` takes them.
    notice : callable
        Told in a line what one raised.

    Returns
    -------
    list of callable
        Sinks for `fit`.

    Raises
    ------
    OptionError
        One cannot be imported.
    """
    return [Guarded(load_callback(name), name, notice) for name in names]

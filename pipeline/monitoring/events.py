"""Events of a run: dicts of plain values that sinks receive, and that `events.jsonl` records."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from collapsium.storage.errors import OptionError

Event = dict[str, Any]  # An event; its key ``event`` has the kind, and the other keys depend on the kind
Sink = Callable[[Event], None]  # Receives events


def initial_event(name: str, **fields: Any) -> Event:
    """Return an event before the first iteration."""
    return {"event": name, "iteration": 0, "elapsed": 0.0, **fields}


def emit(sinks: Sequence[Sink], event: Event) -> None:
    """Send an event to all sinks."""
    for sink in sinks:
        sink(event)


def load_function(name: str, option: str) -> Callable[..., object]:
    """Import a function of the user, which the command line or a caller has named."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise OptionError(f"expected module:function or module:Class, found {name!r}", option)
    folder = os.getcwd()  # noqa: PTH109 - an entry of sys.path
    sys.path.append(folder)
    try:
        target: Any = importlib.import_module(module)
        for part in attribute.split("."):
            target = getattr(target, part)
        function: Any = target() if inspect.isclass(target) else target
    except OptionError:
        raise
    # Importing a module of the user may raise anything.
    except Exception as error:
        raise OptionError(f"`{option}` {name}: {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(folder)
    if not callable(function):
        raise OptionError(f"`{option}` {name}: expected a callable, found {type(function).__name__}")
    return cast("Callable[..., object]", function)


class Guarded:
    """A callback whose errors do not end the run: the first one is reported, and it is not called again."""

    def __init__(self, callback: Callable[[Event], object], name: str, notice: Callable[[str], None]) -> None:
        self._callback: Callable[[Event], object] | None = callback
        self._name, self._notice = name, notice

    def __call__(self, event: Event) -> None:
        """Pass on an event, unless there was an error before."""
        if self._callback is None:
            return
        try:
            self._callback(dict(event))
        # An error of a callback must not end the run.
        except Exception as error:
            self._callback = None
            reason = str(error).splitlines()[0] if str(error) else "no reason given"
            self._notice(f"callback {self._name}: {type(error).__name__}: {reason}; it is not called again")


def guarded(names: Sequence[str], notice: Callable[[str], None]) -> list[Sink]:
    """Import callbacks, and guard the run against their errors."""
    return [Guarded(load_function(name, "callback"), name, notice) for name in names]

"""Namers: functions and commands of the user that name a topic from its words and example documents."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collapsium.pipeline.monitoring.callbacks import load_function
from collapsium.storage.errors import OptionError

COMMAND = "command:"
"""Prefix of namers that are commands."""

Namer = Callable[[list[str], list[str]], object]
"""A function from a topic's words and the texts of its example documents to its name."""


@dataclass(frozen=True)
class CommandLimits:
    """Limits of a command that names a topic."""

    seconds: float = 120.0
    """Timeout of a call, as language models may answer slowly."""
    output_bytes: int = 1 << 16
    """Bytes of the command's output that are read."""
    error_letters: int = 200
    """Letters of its last line on standard error that a warning quotes."""


LIMITS = CommandLimits()


class CommandNamer:
    """A namer that calls a command for each topic.

    The command gets ``{"words": [...], "documents": [...]}`` as JSON on its standard input. The first line of its
    output that is not blank is the name.

    Parameters
    ----------
    words : sequence of str
        The command and its arguments; no shell is involved.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)

    def __call__(self, words: list[str], documents: list[str]) -> str:
        """Return the name of a topic.

        Raises
        ------
        RuntimeError
            The command cannot be run, fails, takes too long, or prints nothing.
        """
        data = json.dumps({"words": words, "documents": documents}, ensure_ascii=False).encode(errors="replace")
        try:
            # The command is the user's own, and a list, so that no shell is involved.
            done = subprocess.run(self._words, input=data, timeout=LIMITS.seconds, check=False, capture_output=True)  # noqa: S603
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self._words[0]} took more than {LIMITS.seconds:.0f} s") from None
        except OSError as error:
            raise RuntimeError(f"{self._words[0]} could not be run ({error.strerror or error})") from None
        if done.returncode:
            lines = done.stderr.decode(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")[: LIMITS.error_letters]
            raise RuntimeError(f"{self._words[0]} exited with code {done.returncode}{last and f' ({last})'}")
        lines = done.stdout[: LIMITS.output_bytes].decode(errors="replace").splitlines()
        name = next((line.strip() for line in lines if line.strip()), "")
        if not name:
            raise RuntimeError(f"{self._words[0]} printed nothing")
        return name


def load_namer(text: str) -> Namer:
    """Return the namer that a text describes.

    Parameters
    ----------
    text : str
        ``module:function``, or ``command:`` with a command and its arguments.

    Returns
    -------
    callable
        Takes a topic's words and the texts of its example documents.

    Raises
    ------
    OptionError
        The function cannot be imported, or there is no command.
    """
    if not text.startswith(COMMAND):
        return load_function(text, "name")
    try:
        words = shlex.split(text.removeprefix(COMMAND))
    except ValueError as error:
        raise OptionError(f"{text}: {error}", "name") from None
    if not words:
        raise OptionError(f"expected module:function, or command: and a command, found {text!r}", "name")
    return CommandNamer(words)

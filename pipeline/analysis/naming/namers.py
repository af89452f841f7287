"""Namers: functions and commands of the user that name a topic from its words and example documents."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collapsium.pipeline.monitoring.callbacks import load_function
from collapsium.storage.errors import OptionError

COMMAND = "command:"  # Prefix of namers that are commands

# A function from a topic's words and the texts of its example documents to its name
Namer = Callable[[list[str], list[str]], object]


@dataclass(frozen=True)
class CommandLimits:
    """Limits of a command that names a topic."""

    seconds: float = 120.0  # Timeout of a call, as language models may answer slowly
    # Largest output of the command, which is ended if it prints more, and bytes of its last errors that are kept
    output_bytes: int = 1 << 16
    error_letters: int = 200  # Letters of its last line on standard error that a warning quotes


LIMITS = CommandLimits()


class CommandNamer:
    """A namer that calls a command for each topic.

    The command gets ``{"words": [...], "documents": [...]}`` as JSON on its standard input. The first line of its
    output that is not blank is the name.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)

    def __call__(self, words: list[str], documents: list[str]) -> str:
        """Return the name of a topic."""
        data = json.dumps({"words": words, "documents": documents}, ensure_ascii=False).encode(errors="replace")
        try:
            code, output, errors = _answer(self._words, data)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self._words[0]} took more than {LIMITS.seconds:.0f} s") from None
        except OSError as error:
            raise RuntimeError(f"{self._words[0]} could not be run ({error.strerror or error})") from None
        if code:
            lines = errors.decode(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")[: LIMITS.error_letters]
            raise RuntimeError(f"{self._words[0]} exited with code {code}{last and f' ({last})'}")
        lines = output.decode(errors="replace").splitlines()
        name = next((line.strip() for line in lines if line.strip()), "")
        if not name:
            raise RuntimeError(f"{self._words[0]} printed nothing")
        return name


def _answer(words: Sequence[str], data: bytes) -> tuple[int, bytes, bytes]:
    """Run a command with some input, and end it and what it has started; return exit code, output and errors."""
    deadline = time.monotonic() + LIMITS.seconds
    with tempfile.TemporaryFile() as given:
        given.write(data)
        given.seek(0)
        pipe = subprocess.PIPE
        # The command is the user's own, and a list, so that no shell is involved.
        with subprocess.Popen(words, stdin=given, stdout=pipe, stderr=pipe, start_new_session=True) as process:  # noqa: S603
            try:
                output, errors = _read_to_the_end(process, words[0], deadline)
                code = process.wait(max(deadline - time.monotonic(), 0.0))
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    return code, output, errors


def _read_to_the_end(process: subprocess.Popen[bytes], name: str, deadline: float) -> tuple[bytes, bytes]:
    """Return what a process prints, in bounded memory and time."""
    output, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for stream, text in ((process.stdout, output), (process.stderr, errors)):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, text)
        while selector.get_map():
            ready = selector.select(max(deadline - time.monotonic(), 0.0))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, LIMITS.seconds)
            for key, _ in ready:
                piece = os.read(key.fd, LIMITS.output_bytes)
                key.data.extend(piece)
                if not piece:
                    selector.unregister(key.fileobj)
            if len(output) > LIMITS.output_bytes:
                raise RuntimeError(f"{name} printed more than {LIMITS.output_bytes:,} bytes")
            # The last line of the errors is quoted.
            del errors[: -LIMITS.output_bytes]
    return bytes(output), bytes(errors)


def load_namer(text: str) -> Namer:
    """Return the namer that a text describes."""
    if not text.startswith(COMMAND):
        return load_function(text, "name")
    try:
        words = shlex.split(text.removeprefix(COMMAND))
    except ValueError as error:
        raise OptionError(f"{text}: {error}", "name") from None
    if not words:
        raise OptionError(f"expected module:function, or command: and a command, found {text!r}", "name")
    return CommandNamer(words)

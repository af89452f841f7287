"""The parser of all commands: help that keeps its lines, and errors that suggest the nearest option."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from collapsium.pipeline.cli.family_options import requested_family
from collapsium.pipeline.families.registry import family_names
from collapsium.storage.errors import suggestion


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keep the lines of descriptions; name a default once."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=110)


class _Parser(argparse.ArgumentParser):
    """A parser that says an error in one line and suggests the nearest option."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"formatter_class": _Help, "allow_abbrev": False, **kwargs})
        self._line: list[str] = []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            command = isinstance(action, argparse._SubParsersAction)
            near = suggestion(str(value), map(str, action.choices))
            text = f"unknown {'command' if command else 'value'} {value!r}{near}"
            raise argparse.ArgumentError(None if command else action, text)

    def error(self, message: str) -> Any:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            message = self._unrecognised(unknown.split())
        chosen = " ".join([self.prog, *self._command()])
        print(f"collapsium: error: {message}; see `{chosen} --help`", file=sys.stderr)
        raise SystemExit(2)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._line = list(sys.argv[1:] if args is None else args)
        return super().parse_args(args, namespace)

    def _unrecognised(self, words: Sequence[str]) -> str:
        """Return what is wrong with words that no option takes: the family, whose options they may be, or the first."""
        flag = words[0].partition("=")[0]
        actions = self._every_action()
        family = requested_family(self._line) if any(action.dest == "family" for action in actions) else None
        if family is not None and family not in family_names():
            return f"argument --family: unknown family {family!r}{suggestion(family, family_names())}"
        known = [option for action in actions for option in action.option_strings]
        if not flag.startswith("-"):
            return f"unexpected argument {flag!r}"
        needs = any(action.dest == "family" for action in actions) and family is None
        hint = "; options of a family need --family" if needs else ""
        return f"unknown option {flag}{suggestion(flag, known)}{hint}"

    def _command(self) -> list[str]:
        """Return the name of the command, if the first word that is no option is one."""
        first = [word for word in self._line if not word.startswith("-")][:1]
        return [word for word in first if word in self._commands()]

    def _commands(self) -> dict[str, argparse.ArgumentParser]:
        subparsers = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        return {name: sub for action in subparsers for name, sub in action.choices.items()}

    def _every_action(self) -> list[argparse.Action]:
        chosen = [sub for name, sub in self._commands().items() if name in self._command()]
        return [*self._actions, *(action for sub in chosen for action in sub._actions)]


def command_parser(**kwargs: Any) -> argparse.ArgumentParser:
    """Make a parser in the project's style."""
    return _Parser(**kwargs)

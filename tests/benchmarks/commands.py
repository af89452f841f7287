"""Command lines of experiments: one command each, with its paths, and options with defaults."""

import argparse
from pathlib import Path


def run_command(description, commands, arguments=None):
    """Run the experiment that the command line names.

    `commands` has a function, its paths, and its options with their defaults, by name; ``field`` is no path.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_subparsers(dest="which", required=True)
    for name, (function, paths, options) in commands.items():
        command = which.add_parser(name, description=function.__doc__)
        for path in paths:
            command.add_argument(path, type=str if path == "field" else Path)
        for option, value in options.items():
            several = isinstance(value, tuple)
            kind = type(value[0]) if several else type(value)
            many = {"nargs": "+"} if several else {}
            command.add_argument(f"--{option}", type=kind, default=value, help="default: %(default)s", **many)
    parsed = vars(parser.parse_args(arguments))
    if "out" in parsed:
        parsed["out"].mkdir(parents=True, exist_ok=True)
    commands[parsed.pop("which")][0](**parsed)

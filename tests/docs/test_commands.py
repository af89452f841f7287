"""Commands that pages on algorithms and benchmarks print without running them exist, and so do their options."""

import argparse
import importlib
import re
import shlex
from itertools import chain

import pytest

from collapsium.pipeline.cli.reference import commands, families
from tests.docs.pages import ROOT

PAGES = sorted(chain((ROOT / "docs" / "algorithms").glob("*.md"), (ROOT / "docs" / "benchmarks").glob("*.md")))
LINE = re.compile(r"^    ((?:collapsium|python -m tests\.\S+|make) (?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)


def printed(program):
    """The commands of a program, in words, each with its page."""
    found = []
    for page in PAGES:
        for line in LINE.findall(page.read_text(encoding="utf-8")):
            words = shlex.split(line.replace("\\\n", " "), comments=True)
            if line.startswith(program):
                found.append(pytest.param(words, id=f"{page.stem}: {' '.join(words)[:60]}"))
    return found


def further_words(words):
    """The words that the comparison with other methods does not know."""
    from tests.benchmarks.comparison.__main__ import parser_of

    return parser_of().parse_known_args(words[3:])[1]


class ParsedError(Exception):
    """The words of a command were understood."""


@pytest.mark.parametrize("words", printed("collapsium "))
def test_options__match_the_command(words):
    entries = {entry.name: entry for entry in commands()}
    known = {option.flag for option in entries[words[1]].options}
    if words[1] in ("fit", "simulate", "estimate"):
        known |= {option.flag for options in families().values() for option in options}
    flags = [word for word in words if word.startswith("--")]
    assert [flag for flag in flags if flag not in known and flag.replace("--no-", "--") not in known] == []


@pytest.mark.parametrize("words", printed("python -m "))
def test_benchmarks__understand_their_words(words, monkeypatch):
    parse = argparse.ArgumentParser.parse_args

    def parse_alone(parser, *arguments):
        parse(parser, *arguments)
        raise ParsedError

    if words[2] == "tests.benchmarks.comparison":  # which hands other options on to `collapsium compare`
        options = next(entry for entry in commands() if entry.name == "compare").options
        handed = [word for word in further_words(words) if word.startswith("--")]
        assert set(handed) <= {option.flag for option in options}
        return
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_alone)
    monkeypatch.setattr("sys.argv", words[2:])
    try:
        module = importlib.import_module(f"{words[2]}.__main__")
    except ModuleNotFoundError:
        module = importlib.import_module(words[2])
    with pytest.raises(ParsedError):
        module.main()


@pytest.mark.parametrize("words", printed("make "))
def test_targets__are_in_the_makefile(words):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in words[1:]:
        name = word.partition("=")[0]
        rule = rf"\$\({name}\)|,{name},|\(call option,{name}," if "=" in word else rf"^[^\n:=]*\b{name}\b[^\n:=]*:"
        assert re.search(rule, makefile, re.MULTILINE), word


def test_pages__print_commands_of_each_kind():
    assert len(printed("collapsium ")) > 30
    assert len(printed("python -m ")) > 15
    assert len(printed("make ")) > 5

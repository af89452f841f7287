"""All commands with their options as data, from which the reference pages are generated."""

import json
import re
from typing import Annotated

import pytest
from pydantic import Field

from collapsium import pipeline
from collapsium.pipeline.cli.command import COMMANDS
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.cli.reference import commands, families
from collapsium.pipeline.models.registry import family_names
from collapsium.pipeline.options import Location, Names, Options, Value, keywords
from collapsium.storage.errors import OptionError


def test_reference__has_every_command_with_every_option_described():
    found = commands()
    assert [entry.name for entry in found] == list(COMMANDS)
    for command in found:
        assert command.summary
        assert command.description
        assert all(command.arguments.values())
        names = [option.name for option in command.options]
        assert len(names) == len(set(names)), command.name
        for option in command.options:
            assert option.description, (command.name, option.name)
            assert option.flag.startswith("--")
            assert option.kinds


def test_reference__lists_the_values_of_options():
    options = {option.name: option for command in commands() if command.name == "fit" for option in command.options}
    assert options["schedule"].choices == ("batch", "stochastic")
    assert options["schedule"].default == "batch"
    assert options["schedule"].heading == "schedule"
    assert options["iterations"].limits["ge"] == 1
    assert options["cluster_timeout"].unit == "seconds"
    assert options["workers"].default is None
    assert options["tolerance"].kinds[0] == "float"
    required = {
        option.name
        for command in commands()
        if command.name == "export"
        for option in command.options
        if option.required
    }
    assert required == {"to"}


def test_reference__has_the_options_of_all_families():
    found = families()
    assert list(found) == list(family_names())
    assert all(option.description for options in found.values() for option in options)


def test_reference__can_be_encoded_as_json():
    for command in commands():
        rows = [[option.name, option.default, option.limits, option.choices] for option in command.options]
        assert [row[0] for row in json.loads(json.dumps(rows))] == [option.name for option in command.options]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("width", ["40", "60", "200"])
def test_help__is_as_narrow_as_the_terminal(name, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    with pytest.raises(SystemExit):
        main([name, "--help"])
    lines = capsys.readouterr().out.splitlines()
    options = lines[lines.index("options:") + 1 :]
    longest = [line for line in options[: options.index("") if "" in options else None] if line.startswith("      ")]
    assert all(len(line) <= max(min(int(width), 110), max(map(len, line.split())) + 32) for line in longest)
    assert not any("\x1b" in line for line in lines)


class Sizes(Options):
    """Sizes of something."""

    count: Annotated[int, Value("N", unit="pieces")] = Field(3, ge=1, description="how many")
    names: Names = Field((), description="what they are called")
    place: Location | None = Field(None, description="where they lie")


@keywords(sizes=Sizes)
def example_function(what, *, sizes: Sizes, loud=False):
    """Make something.

    Parameters
    ----------
    what : str
        What.
    sizes : Sizes
        Sizes of something.
    loud : bool
        Whether it is said.
    """
    return what, sizes, loud


def test_keywords__take_the_options_of_models(tmp_path):
    what, sizes, loud = example_function("boxes", count=4, names="a,b", place=tmp_path, loud=True)
    assert (what, sizes.count, sizes.names, sizes.place, loud) == ("boxes", 4, ("a", "b"), str(tmp_path), True)
    assert "how many" in example_function.__doc__
    assert "sizes" not in example_function.__doc__


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count: expected a whole number of 1 or more, found 0"),
        ({"count": True}, "count: expected a whole number of 1 or more, found True"),
        ({"count": "3"}, "count: expected a whole number of 1 or more, found '3'"),
        ({"names": 2.5}, "names: expected a list of strings, found 2.5"),
        ({"coumt": 3}, "example_function: unknown option 'coumt' (did you mean 'count'?)"),
    ],
)
def test_keywords__are_checked_by_their_model(options, message):
    with pytest.raises(OptionError) as caught:
        example_function("boxes", **options)
    assert str(caught.value) == message


def test_options_of_public_functions__stand_in_their_docstrings():
    for function in (pipeline.fit, pipeline.ingest, pipeline.infer):
        assert "scheduler : str, path-like, or Dask client or cluster, optional" in function.__doc__
        assert "SchedulerOptions" not in function.__doc__
    assert 'stop_on : {"counts", "objective", "score"}, optional' in pipeline.fit.__doc__


@pytest.mark.parametrize(
    ("function", "entry"),
    [
        (pipeline.ingest, "labels : str or sequence of str, optional"),
        (pipeline.ingest, "max_decompressed : int or str, optional"),
        (pipeline.measure, "coherence : path, sequence of paths or str, column or frame, optional"),
        (pipeline.compare, "settings : mapping of str to mapping, optional"),
        (pipeline.compare, "heldout : str or path-like, optional"),
        (pipeline.plot, "names : mapping of int to str, optional"),
        (pipeline.plot, "size : (float, float), optional"),
        (pipeline.edit, "merge : sequence of sequence of int, optional"),
        (pipeline.fit, "verbose : bool, optional"),
    ],
)
def test_docstrings__have_the_types_that_functions_accept(function, entry):
    assert entry in function.__doc__.splitlines()


def test_remarks_about_flags__are_in_help_and_not_in_docstrings():
    found = {command.name: {option.name: option for option in command.options} for command in commands()}
    assert found["ingest"]["format"].description.startswith("format of the sources (default: ")
    assert found["ingest"]["format"].description.endswith("; see the list below")
    assert found["edit"]["rename"].description == "names of topics by id; may be repeated"
    for name in pipeline.__all__:
        text = " ".join((getattr(pipeline, name).__doc__ or "").split())
        assert not re.search("may be repeated|see below|list below|separate flag|separated by commas", text), name

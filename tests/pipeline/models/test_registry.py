"""Options of families: users' options may name files, but options in records may not."""

import json
from pathlib import Path

import pytest

from collapsium.pipeline import fit
from collapsium.pipeline.models.registry import family_names, load_family, make_options, recorded_options
from collapsium.storage.errors import OptionError
from collapsium.storage.io.records import dump
from tests.pipeline.cli.commands import command, one_line

FILES = {
    "weights": ("weights.csv", "w0,0.5\nw1,2\n"),
    "seeds": ("seeds.toml", 'first = ["w0"]\n'),
    "network": ("network.toml", '[document]\nover = "document"\n'),
}
TAKEN = [
    (family, option)
    for family in family_names()
    for option in FILES
    if option in load_family(family).Options.model_fields
]


def options_with(family, option, value):
    """Return the required options of a family with another one added."""
    fields = load_family(family).Options.model_fields
    least = {name: value for name, value in (("topics", 2), ("seeds", {"first": ["w0"]})) if name in fields}
    return {**least, option: value}


@pytest.mark.parametrize(("family", "option"), TAKEN)
def test_options_in_records__may_not_name_files(tmp_path, monkeypatch, family, option):
    name, text = FILES[option]
    (tmp_path / name).write_text(text)
    options = options_with(family, option, str(tmp_path / name))
    recorded = make_options(family, options).model_dump(mode="json")
    assert recorded_options(family, recorded) == make_options(family, options)

    def refuse(self, **_):
        raise AssertionError(f"{self} was looked at")

    with monkeypatch.context() as patch, pytest.raises(OptionError, match="a record names no file") as raised:
        patch.setattr(Path, "stat", refuse)
        recorded_options(family, options)
    assert raised.value.parameter == option


@pytest.mark.parametrize("file", ["run.json", "model/model.json"])
def test_an_untrusted_run__reads_no_file_that_its_options_name(small, tmp_path, capsys, file):
    fit(small[0], tmp_path / "run", family="lda", topics=2, iterations=2, scheduler="serial")
    (tmp_path / "secret.toml").write_text('first = ["w0"]\n')
    record = json.loads((tmp_path / "run" / file).read_text())
    del record["sha256"]
    record["options"]["seeds"] = str(tmp_path / "secret.toml")
    (tmp_path / "run" / file).write_bytes(dump(record))
    words = (
        ("topics", tmp_path / "run") if "model" in file else ("fit", "--resume", tmp_path / "run", "--iterations", "4")
    )
    code, _, err = command(capsys, *words)
    assert code == 1
    assert "a record names no file" in one_line(err)

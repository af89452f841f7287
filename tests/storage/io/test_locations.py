"""Local paths are used literally, whatever characters they contain; URLs are opened by fsspec."""

import inspect
import os

import fsspec
import pytest

from collapsium.pipeline import (
    Corpus,
    Model,
    append,
    coherence,
    edit,
    examples,
    explode,
    export,
    info,
    plot,
    report,
    rollback,
    shares_over,
    topics,
    verify,
    versions,
)
from collapsium.storage.errors import AbsentError, InputError, MissingError, OptionError
from collapsium.storage.io.file import File, locate
from collapsium.storage.io.folder import Folder, recorded_url
from collapsium.storage.readers.base import open_input
from collapsium.storage.readers.texts.blocks import find_files, require_once

NAMES = ["std::map.txt", "data:2020.txt", "zip::x.txt", "file:x.txt", "a#b.txt", "a%20b.txt", "a?b.txt", "a*b.txt",
         "a[1].txt", "~x.txt", "a b.txt"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_local_name__refers_to_the_file_of_that_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(b"x")
    (tmp_path / "a1.txt").write_bytes(b"another")
    for path in (name, f"./{name}", str(tmp_path / name)):
        with open_input(path) as handle:
            assert handle.read() == b"x"
        assert [file.name for file in find_files([path], None, str)] == [name]
    assert Folder(name).path == str(tmp_path / name)
    assert name in [file.name for file in find_files([str(tmp_path)], None, str)]


def test_globs__use_existing_parts_literally(tmp_path):
    for folder in ("b[1]", "b1"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_bytes(folder.encode())
    found = find_files([f"{tmp_path}/b[1]/*.txt"], None, str)
    assert [(file.path, file.name) for file in found] == [(f"{tmp_path}/b[1]/x.txt", "x.txt")]
    assert [file.name for file in find_files([f"{tmp_path}/b[12]/*.txt"], None, str)] == ["b1/x.txt"]


def test_urls__are_opened_by_fsspec_even_if_object_names_contain_colons():
    files = fsspec.filesystem("memory")
    files.pipe_file("/bucket/std::map.txt", b"x")
    with open_input("memory://bucket/std::map.txt") as handle:
        assert handle.read() == b"x"
    assert [file.path for file in find_files(["memory://bucket"], None, str)] == ["memory://bucket/std::map.txt"]
    files.rm("/bucket", recursive=True)


def test_chained_protocols__remain_chained(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a.txt", "x")
    fs, path = locate(f"zip://a.txt::{tmp_path}/x.zip")
    assert fs.cat_file(path) == b"x"


def test_records__may_name_local_folders_with_colons_but_no_chain(tmp_path):
    folder = Folder(tmp_path)
    assert recorded_url(folder, "/data/std::map") == "/data/std::map"
    with pytest.raises(AbsentError):
        recorded_url(folder, "simplecache::s3://bucket/x")


def test_a_file_named_by_several_paths__is_listed_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a.csv").write_bytes(b"x")
    (tmp_path / "d/b.csv").write_bytes(b"x")
    (tmp_path / "s.csv").symlink_to("d/a.csv")
    os.link(tmp_path / "d/a.csv", tmp_path / "h.csv")
    (tmp_path / "e").symlink_to("d")
    for alias in ("d/a.csv", "./d/a.csv", str(tmp_path / "d/a.csv"), "s.csv", "h.csv", "d", "d/", "e", "d/*.csv"):
        with pytest.raises(InputError, match="the same file is given twice"):
            find_files(["d/a.csv", alias], "csv", lambda name: name.rpartition(".")[2])
    require_once(["d/a.csv", "d/b.csv"])
    require_once(["d/a.csv", "h.csv"], linked=True)
    with pytest.raises(InputError, match="twice"):
        require_once(["d/a.csv", "s.csv"], linked=True)


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("", AbsentError, "found an empty text"),
        ("foo://bucket/corpus", AbsentError, "no store can be opened at this URL"),
        ("missing://bucket/corpus", MissingError, "its store needs another package"),
    ],
)
def test_stores_that_cannot_be_opened__raise_one_collapsium_error(url, error, message):
    fsspec.register_implementation("missing", "absent_package.Store", clobber=True, errtxt="Install it")
    for open_at in (Corpus, Model, File, verify):
        with pytest.raises(error, match=message):
            open_at(url)


ON_PATHS = [
    Corpus, Model, append, coherence, edit, examples, explode, export, info, plot, report, rollback,
    shares_over, topics, verify, versions,
]  # fmt: skip


@pytest.mark.parametrize("function", ON_PATHS)
@pytest.mark.parametrize("wrong", [None, 3, b"run", ["run", 1], object()])
def test_values_that_are_no_path__are_refused_in_one_line(function, wrong):
    required = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is parameter.empty
    ]
    options = {edit: {"merge": [0, 1]}, export: {"to": "csv"}}.get(function, {})
    with pytest.raises(OptionError, match=f"expected .*found {type(wrong).__name__}"):
        function(wrong, *["nowhere.jsonl"] * (len(required) - 1), **options)


@pytest.mark.parametrize("wrong", [3, b"page.html"])
def test_files_that_are_no_path__are_refused_in_one_line(wrong):
    with pytest.raises(OptionError, match=f"expected a path, found {type(wrong).__name__}"):
        File(wrong)


@pytest.mark.parametrize("wrong", [None, 3, ["a.jsonl", 3], {"text": ["a"]}])
def test_sources_that_are_no_paths__are_refused_in_one_line(small, wrong):
    with pytest.raises(OptionError, match="expected paths, found"):
        append(small[0], wrong)

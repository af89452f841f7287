"""Untrusted folders: links are not followed, records cannot name another store, and foreign files are not touched."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Model, fit, resume, verify
from collapsium.pipeline.cli.main import main
from collapsium.storage.errors import AbsentError, CollapsiumError, DamagedError
from collapsium.storage.io.file import File
from collapsium.storage.io.folder import Folder, recorded_url
from collapsium.storage.io.records import dump
from collapsium.storage.runs.checkpoint import Checkpoints
from collapsium.storage.runs.run import Run

OPTIONS = {"family": "lda", "topics": 2, "iterations": 2, "checkpoint_every": 1}


@pytest.fixture
def run(small, tmp_path):
    """A finished run."""
    fit(small[0], tmp_path / "run", **OPTIONS)
    return tmp_path / "run"


@pytest.mark.parametrize("operation", ["read", "write", "append", "create", "truncate", "open", "exists", "read_from"])
@pytest.mark.parametrize("name", ["linked", "behind/file"])
def test_links_inside__are_not_followed(tmp_path, operation, name):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "file").write_bytes(b"mine")
    (inside / "linked").symlink_to(outside / "file")
    (inside / "behind").symlink_to(outside)
    more = {"write": (b"",), "append": (b"x",), "create": (b"x",), "truncate": (0,), "read_from": (0,)}.get(
        operation, ()
    )
    with pytest.raises(DamagedError, match="is a symbolic link"):
        getattr(Folder(inside), operation)(name, *more)
    with pytest.raises(DamagedError, match="is a symbolic link"):
        Folder(inside) / name
    assert (outside / "file").read_bytes() == b"mine"


def test_a_link_that_the_user_names__is_followed_but_deleted_without_its_target(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    assert Folder(tmp_path / "link").read("file") == b"mine"
    (tmp_path / "outside" / "other").symlink_to(tmp_path / "outside" / "file")
    Folder(tmp_path / "link").delete("other")
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["events.jsonl", "run.json"])
def test_resume__does_not_overwrite_the_target_of_a_link(run, tmp_path, name):
    (tmp_path / "thesis.tex").write_text("ten years of work")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(tmp_path / "thesis.tex")
    with pytest.raises(CollapsiumError, match="symbolic link"):
        resume(run, iterations=4)
    assert (tmp_path / "thesis.tex").read_text() == "ten years of work"


def test_resume__does_not_append_to_the_target_of_a_link(run, tmp_path):
    (tmp_path / "thesis.tex").write_text("ten years of work")
    (run / "journal.jsonl").unlink(missing_ok=True)
    (run / "journal.jsonl").symlink_to(tmp_path / "thesis.tex")
    resume(run, iterations=4)  # without the journal, which does not belong to the result
    assert (tmp_path / "thesis.tex").read_text() == "ten years of work"


def test_resume__does_not_delete_the_target_of_a_link(run, tmp_path):
    home = tmp_path / "home"
    (run / "checkpoints").rename(home)
    (home / "20231105").mkdir()
    (home / "20231105" / "photo").write_text("dear")
    (run / "checkpoints").symlink_to(home)
    with pytest.raises(CollapsiumError, match="symbolic link"):
        resume(run, iterations=4)
    assert (home / "20231105" / "photo").read_text() == "dear"


def test_checkpoints_with_foreign_folders__are_kept(run):
    (run / "checkpoints" / "00000000").mkdir()
    (run / "checkpoints" / "00000000" / "photo").write_text("dear")
    resume(run, iterations=5)
    assert (run / "checkpoints" / "00000000" / "photo").read_text() == "dear"
    assert Checkpoints(Folder(run) / "checkpoints").latest() == 5


def test_an_unfinished_checkpoint_of_a_killed_run__is_removed(run):
    place = run / "checkpoints" / "00000000"
    (place / "rows").mkdir(parents=True)
    (place / ".events.jsonl.0123abcd.part").write_bytes(b"{")
    resume(run, iterations=5)
    assert not place.exists()


HOSTILE = [
    "reference::memory://corpus",
    "ftp://127.0.0.1:1/corpus",
    "http://127.0.0.1:1/corpus",
    "simplecache::s3://b/c",
    "s3://b/c",
]


@pytest.mark.parametrize("url", HOSTILE)
def test_records__connect_to_no_store_that_the_user_has_not_named(run, small, tmp_path, url, monkeypatch, capsys):
    record = json.loads((run / "run.json").read_text())
    record["corpus"]["url"] = url
    Folder(run).write("run.json", dump({name: value for name, value in record.items() if name != "sha256"}))
    monkeypatch.setattr("socket.socket.connect", lambda *args: pytest.fail("a connection was tried"))
    with pytest.raises(AbsentError, match="opened only if you name it yourself"):
        Run(run).place_of("corpus")
    with pytest.raises(AbsentError, match="opened only if you name it yourself"):
        Model(run).documents()
    with pytest.raises(AbsentError, match="say where with CORPUS"):
        resume(run, iterations=4)
    assert not verify(run).broken
    assert main(["report", str(run), str(tmp_path / "report.html")]) == 0
    assert main(["export", str(run), str(tmp_path / "csv"), "--to", "csv"]) == 0
    assert main(["topics", str(run)]) == 0
    resume(run, corpus=small[0], iterations=4)
    assert Model(run).record.iterations == 4
    capsys.readouterr()


@given(st.sampled_from(["s3", "gs", "http", "ftp", "memory", "file", "ssh"]), st.sampled_from(["a", "b"]))
def test_recorded__stays_within_the_store_of_the_record(protocol, host):
    local = Folder("folder")
    assert recorded_url(local, "corpora/kos") == "corpora/kos"
    place, url = Folder("memory://a/run"), f"{protocol}://{host}/corpus"
    if protocol in ("memory", "file"):
        assert recorded_url(place, url) == url
    else:
        with pytest.raises(AbsentError):
            recorded_url(place, url)
    with pytest.raises(AbsentError):
        recorded_url(place, f"zip://x::{url}")


def test_a_recorded_name_with_two_colons__is_a_local_folder(run, monkeypatch):
    record = json.loads((run / "run.json").read_text())
    record["corpus"]["url"] = "reference::{}"
    Folder(run).write("run.json", dump({name: value for name, value in record.items() if name != "sha256"}))
    monkeypatch.setattr("socket.socket.connect", lambda *args: pytest.fail("a connection was tried"))
    with pytest.raises(AbsentError, match="reference::"):
        resume(run, iterations=4)


def test_an_interrupt_while_a_file_is_looked_for__is_not_lost(tmp_path, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.lstat", interrupted)
    monkeypatch.setattr("os.stat", interrupted)
    for place in (Folder(tmp_path), File(tmp_path / "file")):
        with pytest.raises(KeyboardInterrupt):
            place.exists()

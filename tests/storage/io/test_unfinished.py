import subprocess
import sys

import pytest

from collapsium.pipeline.cli.main import main
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import OccupiedError, StoreError
from collapsium.storage.io.atomic import abandoned
from collapsium.storage.io.folder import Folder, created, replaced
from tests.conftest import write_corpus

MAKE_AND_DIE = """
import os, sys
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.folder import created
with created(Folder(sys.argv[1])) as place:
    place.write("half", b"")
    os._exit(1)
"""


def hidden(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_created__removes_remnants_of_dead_processes_and_nothing_else(tmp_path):
    subprocess.run([sys.executable, "-c", MAKE_AND_DIE, str(tmp_path / "c")], check=False)
    assert len(hidden(tmp_path)) == 1
    for name in (".c.12345678.part", ".d.12345678.part", ".c.1234.part", ".c.12345678", "c.12345678.part"):
        (tmp_path / name).mkdir()
    (tmp_path / ".c.00000000.part").symlink_to(tmp_path / ".d.12345678.part")
    (tmp_path / ".c.00000001.part").write_text("a file")
    with created(Folder(tmp_path / "c")) as place:
        place.write("whole", b"")
    assert (tmp_path / "c/whole").exists()
    assert hidden(tmp_path) == [
        ".c.00000000.part", ".c.00000001.part", ".c.1234.part", ".c.12345678", ".d.12345678.part",
    ]  # fmt: skip


def test_created__keeps_unfinished_folders_of_running_processes(tmp_path):
    with pytest.raises(OccupiedError), created(Folder(tmp_path / "c")) as first:
        first.write("first", b"")
        with abandoned(tmp_path / "c") as found:
            assert found == []
        with created(Folder(tmp_path / "c")) as second:
            second.write("second", b"")
        assert first.exists("first")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["second"]
    assert hidden(tmp_path) == []


def test_a_failed_replacement__keeps_the_old_file(tmp_path, monkeypatch):
    with created(Folder(tmp_path / "c")) as place:
        place.write("old", b"")
    rename = Folder.rename

    def fail(folder, target):
        if target.path == str(tmp_path / "c") and Folder(folder.path).exists("new"):
            raise StoreError("full")
        rename(folder, target)

    monkeypatch.setattr(Folder, "rename", fail)
    with pytest.raises(StoreError), replaced(Folder(tmp_path / "c")) as place:
        place.write("new", b"")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["old"]
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("seed", [0, 1])
def test_split__completes_an_interrupted_split_and_refuses_another(tmp_path, seed, capsys):
    write_corpus(tmp_path / "c", [{0: 9, 1: 8}, {1: 7, 2: 9}], 3)
    words = ["split", str(tmp_path / "c"), str(tmp_path / "train"), str(tmp_path / "held"), "--fraction", "0.5"]
    assert main(words) == 0
    digest = Corpus(tmp_path / "held").manifest.digest
    (tmp_path / "held").rename(tmp_path / ".held.0123abcd.part")
    assert main([*words, "--seed", str(seed)]) == seed
    assert Corpus(tmp_path / "held").manifest.digest == digest
    assert hidden(tmp_path) == []
    assert main(words) == 1
    assert "exists already" in capsys.readouterr().err


def test_split__never_mixes_parts_of_two_splits(tmp_path):
    write_corpus(tmp_path / "c", [{0: 9, 1: 8}, {1: 7, 2: 9}], 3)
    for name, seed in (("a", "1"), ("b", "2")):
        assert (
            main(["split", str(tmp_path / "c"), str(tmp_path / name), str(tmp_path / f"{name}-held"), "--seed", seed])
            == 0
        )
    (tmp_path / "b-held").rename(tmp_path / ".a-held.0123abcd.part")
    (tmp_path / "a-held").rename(tmp_path / "elsewhere")
    assert main(["split", str(tmp_path / "c"), str(tmp_path / "a"), str(tmp_path / "a-held"), "--seed", "1"]) == 1
    assert not (tmp_path / "a-held").exists()

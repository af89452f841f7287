"""Files and folders are synced before a record that refers to them is written, so that a power cut leaves complete
outputs or none."""

import json
import os
from pathlib import Path

import pytest

from collapsium.pipeline import append, edit, explode, fit, infer, ingest, name_topics, resume, split
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.published import Versions, copy_run
from collapsium.storage.runs.run import Run

RECORDS = {
    "manifest.json",
    "model.json",
    "checkpoint.json",
    "latest.json",
    "version.json",
    "current.json",
    "digests.json",
}
LOOSE = {"events.jsonl", "journal.jsonl", "gate"}
"""Files that no record relies on as they are: lines are checked one by one, and a checkpoint has the digest of its events."""


def is_loose(path):
    """Return whether no record relies on a path: locks, logs, and temporary files and folders of unfinished writes."""
    return path.name in LOOSE or "lock" in path.parts or (path.name.startswith(".") and path.name.endswith(".part"))


class Disk:
    """Records which file contents and folder entries were synced, and so would survive a power cut."""

    def __init__(self, place, patch):
        self.place, self.faults, self.records = Path(place), [], 0
        self._time, self._synced, self._changed = 0, {}, {}
        for name in ("rename", "replace", "link"):
            patch.setattr(os, name, self._naming(getattr(os, name)))
        patch.setattr(os, "mkdir", self._making(os.mkdir))
        patch.setattr(os, "fsync", self._sync)

    def _now(self):
        self._time += 1
        return self._time

    def _sync(self, handle):
        self._synced[os.fstat(handle).st_ino] = self._now()

    def _making(self, mkdir):
        def make(path, *arguments, **options):
            mkdir(path, *arguments, **options)
            if options.get("dir_fd") is None:
                self._changed[Path(path).absolute().parent.stat().st_ino] = self._now()

        return make

    def _naming(self, name_it):
        def name(source, target, **options):
            if Path(target).name in RECORDS and Path(target).absolute().is_relative_to(self.place):
                self.records += 1
                self.require(Path(target).absolute().parent, Path(source), f"before {target}")
            if self._is_complete(Path(source), Path(target)):
                self.records += 1
                self.require(Path(source), None, f"before {target}")
                number = Path(source).stat().st_ino
                if self._changed.get(number, 0) > self._synced.get(number, 0):
                    self.faults.append(f"names in {source} before {target}")
            name_it(source, target, **options)
            # An entry with a hidden temporary name does no harm; it is cleaned up later.
            if not is_loose(Path(target)):
                self._changed[Path(target).absolute().parent.stat().st_ino] = self._now()

        return name

    def _is_complete(self, source, target):
        """Return whether a folder gets its final name, to which records refer."""
        inside = target.absolute().is_relative_to(self.place)
        return inside and source.is_dir() and is_loose(Path(source.name)) and not is_loose(Path(target.name))

    def require(self, folder, but, when):
        """Add a fault for everything in a folder, `but` aside, that would not survive a power cut."""
        for path in (folder, *folder.rglob("*")):
            if is_loose(path.relative_to(self.place)) or path == but or path.is_symlink():
                continue
            number = path.stat().st_ino
            # The record's folder itself is synced after the record got its name.
            if path.is_dir() and path != folder and self._changed.get(number, 0) > self._synced.get(number, 0):
                self.faults.append(f"names in {path} {when}")
            if path.is_file() and number not in self._synced:
                self.faults.append(f"contents of {path} {when}")

    def require_all(self):
        """Add a fault for every output that would not survive a power cut now."""
        self.require(self.place, None, "at the end")
        number = self.place.stat().st_ino
        if self._changed.get(number, 0) > self._synced.get(number, 0):
            self.faults.append("names of the outputs")


@pytest.fixture
def disk(tmp_path, monkeypatch):
    rows = [{"id": f"d{n}", "text": "aa bb cc. dd ee aa", "tag": f"t{n % 2}"} for n in range(6)]
    more = [{"id": f"m{n}", "text": "bb dd ff", "tag": "t1"} for n in range(3)]
    for name, texts in (("old", rows), ("new", more)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    (tmp_path / "out").mkdir()
    return Disk(tmp_path / "out", monkeypatch)


OPTIONS = {"family": "lda", "topics": 2, "scheduler": "serial", "iterations": 2, "checkpoint_every": 1}


def test_files_that_records_rely_on__are_synced_before_the_records(disk):
    place, texts = disk.place, disk.place.parent
    ingest(
        texts / "old.jsonl", place / "corpus", labels=["tag"], segments="sentences", normalise="stem:english",
        phrases="count", phrase_count=2, shard_tokens=12, scheduler="serial",
    )  # fmt: skip
    append(place / "corpus", texts / "new.jsonl", grow=True, scheduler="serial")
    split(place / "corpus", place / "train", place / "heldout", fraction=0.4)
    explode(place / "corpus", place / "sentences")
    fit(place / "train", place / "run", **OPTIONS, heldout=place / "heldout")
    resume(place / "run", iterations=3, checkpoint_every=1, scheduler="serial")
    name_topics(place / "run", lambda words, documents: words[0])
    edit(place / "run", place / "edited", merge=[[0, 1]], rename={0: "both"})
    fit(place / "train", place / "joined", **OPTIONS, restarts=2, combine="consensus")
    infer(place / "run", place / "train", place / "theta.parquet", scheduler="serial")
    assert disk.records > 20
    disk.require_all()
    assert disk.faults == []


def test_published_versions__are_synced_before_they_become_current(disk):
    place, texts = disk.place, disk.place.parent
    ingest(texts / "old.jsonl", place / "corpus", scheduler="serial")
    fit(place / "corpus", place / "run", **OPTIONS)
    versions = Versions(Folder(place / "published"))
    with versions.made(1) as folder:
        copy_run(Run(place / "run"), folder)
        folder.write("version.json", b"{}")
    disk.require_all()
    assert disk.faults == []


def test_the_disk__detects_what_is_not_synced(disk):
    folder = Folder(disk.place / "folder")
    folder.make()
    (disk.place / "folder/careless").write_text("x")
    folder.write("manifest.json", b"{}")
    assert any("contents of" in fault and "careless" in fault for fault in disk.faults)
    hidden = disk.place / ".group.0.part"
    hidden.mkdir()
    (hidden / "careless").write_text("x")
    disk.faults.clear()
    hidden.rename(disk.place / "group")
    assert any("contents of" in fault and "careless" in fault for fault in disk.faults)
    (disk.place / "folder/inner").mkdir()
    (disk.place / "folder/inner/deep").mkdir()
    disk.faults.clear()
    folder.write("manifest.json", b"{}")
    assert any("names in" in fault and "inner" in fault for fault in disk.faults)

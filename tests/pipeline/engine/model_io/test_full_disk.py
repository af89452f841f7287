"""A full disk at every step gives a clear error, and earlier outputs still pass `verify`."""

import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from collapsium.pipeline import Model, fit, simulate, verify
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.engine import fit as fitting
from collapsium.storage.errors import StoreError
from collapsium.storage.runs.run import Run
from tests.conftest import mark_rest_long
from tests.fits import bits, resumed

OPTIONS = {"family": "lda", "topics": 12, "iterations": 8}


@pytest.fixture
def disk(tmp_path):
    """A file system of three megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"may not mount a file system ({mounted.stderr.strip()})")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    place = tmp_path_factory.mktemp("full") / "corpus"
    simulate(place, family="lda", documents=400, words=300, tokens=60, topics=5, shard_tokens=6000)
    return place


@pytest.fixture(scope="module")
def calm(corpus, tmp_path_factory):
    """A run on a disk with enough space."""
    run = tmp_path_factory.mktemp("calm") / "run"
    fit(corpus, run, **OPTIONS)
    return run


def fill(disk, left):
    """Fill the disk up to the given number of free bytes."""
    (disk / "filler").unlink(missing_ok=True)
    with (disk / "filler").open("wb") as file:
        file.write(b"x" * (shutil.disk_usage(disk).free - left))


def require_clear(capsys, *words):
    """Run a command, which must report clearly that the disk is full."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    err = capsys.readouterr().err
    assert code == 1, err
    assert "no space is left on the disk" in err.splitlines()[-1], err
    assert "Traceback" not in err


@pytest.mark.parametrize("left", mark_rest_long([20_000, 0, 60_000]))
def test_ingest_on_a_full_disk__leaves_nothing(disk, tmp_path, left, capsys):
    lines = [f'{{"id": {n}, "text": "{" ".join(f"word{(n * k) % 997}" for k in range(60))}"}}' for n in range(2000)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines).replace("word", "w"))
    fill(disk, left)
    options = ["--stop-words", "none", "--shard-tokens", 9000]
    require_clear(capsys, "ingest", tmp_path / "texts.jsonl", disk / "corpus", *options)
    assert [path.name for path in disk.iterdir()] == ["filler"]


@pytest.mark.parametrize(("iteration", "left"), [(0, 2000), (2, 0), (2, 30_000), (4, 3000), (8, 0)])
def test_fit_on_a_full_disk__keeps_existing_files_and_can_be_resumed(disk, corpus, calm, iteration, left):
    """The disk becomes full before the first checkpoint, while one is written, or at the end."""

    def sink(event):
        if event["event"] in ("iteration", "started") and event["iteration"] == iteration:
            fill(disk, left)

    with pytest.raises(StoreError, match="no space is left on the disk"):
        fit(corpus, disk / "run", sinks=[sink], checkpoint_every=2, **OPTIONS)
    assert verify(disk / "run").broken == []
    assert (Run(disk / "run").checkpoints.latest() or 0) >= min(iteration, 2)
    (disk / "filler").unlink()
    resumed(disk / "run")
    assert bits(Model(disk / "run"), 4) == bits(Model(calm), 4)
    assert verify(disk / "run").broken == []


def test_fit_on_a_full_disk__says_how_to_continue(disk, tmp_path, corpus, capsys, monkeypatch):
    run = Run.append_event

    def telling(self, event):
        run(self, event)
        if event["event"] == "iteration" and event["iteration"] == 3:
            fill(disk, 0)

    monkeypatch.setattr(Run, "append_event", telling)
    words = ["fit", corpus, disk / "run", "--family", "lda", "--topics", 5, "--checkpoint-every", 2]
    assert main([str(word) for word in words]) == 1
    err = capsys.readouterr().err
    assert "no space is left on the disk" in err.splitlines()[-1]
    assert f"iteration 2 is saved; continue with `collapsium fit --resume {disk / 'run'}`" in err


def test_local_states_on_a_full_scratch_disk__are_a_clear_error(disk, tmp_path, corpus, monkeypatch):
    fill(disk, 10_000)
    found = fitting.plan
    monkeypatch.setattr(fitting, "plan", lambda *arguments: replace(found(*arguments), shards=1, spilled=1))
    with pytest.raises(StoreError, match="no space is left"):
        fit(corpus, tmp_path / "run", scratch=str(disk), **OPTIONS)
    assert sorted(path.name for path in disk.iterdir()) == ["filler"]


def test_infer_on_a_full_disk__leaves_nothing(disk, tmp_path, corpus, calm, capsys, monkeypatch):
    fill(disk, 4096)
    require_clear(capsys, "infer", calm, corpus, disk / "proportions.parquet")
    assert [path.name for path in disk.iterdir()] == ["filler"]
    fill(disk, 12_000)
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    require_clear(capsys, "infer", calm, corpus, tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
    assert verify(calm).broken == []
    assert verify(corpus).broken == []
    assert [path.name for path in Path(disk).iterdir()] == ["filler"]

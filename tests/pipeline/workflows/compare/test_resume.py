"""Comparisons that are stopped and continued, run with other options or corpora, damaged, and verified."""

import re
import shutil

import pytest

from collapsium.pipeline import compare, fit, info, split, verify
from collapsium.pipeline.executors import dask_cluster
from collapsium.storage.errors import (
    CollapsiumError,
    DamagedError,
    InputError,
    LockedError,
    MismatchError,
    OccupiedError,
    OptionError,
)
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.io.run_lock import RunLock
from collapsium.storage.runs.comparison import CELL_KIND, KIND, record_of, row_of
from tests.conftest import simulated_rows, write_corpus
from tests.pipeline.workflows.compare.conftest import GRID, WITH_BETA, stopping, without_times

pytestmark = pytest.mark.xdist_group("comparing")  # compared models are fitted once


@pytest.mark.long
@pytest.mark.parametrize(("cell", "iteration"), [("lda-2", 1), ("lda-3", 2), ("gibbs-lda-3", 4)])
def test_a_stopped_comparison__continues_to_the_same_table(small, compared, tmp_path, cell, iteration):
    options = {"heldout": small[1], "samples": 2, "sample_every": 1, "settings": WITH_BETA, **GRID}
    with pytest.raises(KeyboardInterrupt):
        compare(small[0], tmp_path / "out", sinks=[stopping(cell, iteration)], **options)
    assert not (tmp_path / "out/lock").exists()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/cells").glob("*.json")}
    begun = []
    found = compare(small[0], tmp_path / "out", sinks=[begun.append], **options)
    assert without_times(found.rows) == without_times(compared.rows)
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    fitted = {event["cell"] for event in begun if event["event"] == "cell_begins"}
    names = [row["cell"] for row in compared.rows]
    assert fitted == set(names[names.index(cell) :])
    again = []
    assert compare(small[0], tmp_path / "out", sinks=[again.append], **options).rows == found.rows
    assert not any(event["event"] == "iteration" for event in again)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"topics": (2,)}, "--topics: the comparison in .* was begun with 2,3, found 2;"),
        ({"families": ("lda",), "settings": {}}, "--families: .* was begun with lda,gibbs-lda, found lda"),
        ({"restarts": 3}, "--restarts: .* was begun with 2, found 3"),
        ({"iterations": 5}, "--iterations: .* was begun with 4, found 5"),
        ({"seed": 4}, "--seed: .* was begun with 3, found 4"),
        ({"samples": 3}, "--samples: .* was begun with 2, found 3"),
        ({"local_sweeps": 2}, "--local-sweeps: .* was begun with 1, found 2"),
        ({"vary": {"lda": {"alpha": [0.1]}}}, "--vary: .* was begun with none, found lda.alpha"),
        (
            {"settings": {"lda": {"beta": 4.0}}},
            "--set: .* was begun with gibbs-lda.beta=3.0 lda.beta=3.0, found lda.beta=4",
        ),
        ({"heldout": None}, "--fraction: .* was begun with none, found 0.1"),
    ],
    ids=str,
)
def test_other_options__are_refused_by_name(small, compared, changed, message):
    options = {"heldout": small[1], "samples": 2, "sample_every": 1, "settings": WITH_BETA, **GRID, **changed}
    with pytest.raises(OptionError, match=message):
        compare(small[0], compared.folder, **options)


def test_other_corpora_and_folders__are_refused(small, compared, tmp_path):
    options = {"samples": 2, "sample_every": 1, "settings": WITH_BETA, **GRID}
    with pytest.raises(OptionError, match=r"^CORPUS: the comparison in"):
        compare(small[1], compared.folder, heldout=small[0], **options)
    split(small[1], tmp_path / "one", tmp_path / "other")
    with pytest.raises(OptionError, match=r"^--heldout: the comparison in"):
        compare(small[0], compared.folder, heldout=tmp_path / "one", **options)
    shutil.rmtree(tmp_path / "other")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    with pytest.raises(OccupiedError, match="is not a comparison"):
        compare(small[0], tmp_path / "mine", heldout=small[1], **options)
    unrelated = write_corpus(tmp_path / "other", simulated_rows(5, documents=7), 30)
    with pytest.raises(MismatchError, match="expected the 60 documents"):
        compare(small[0], tmp_path / "out", heldout=unrelated, **options)
    assert not (tmp_path / "out").exists()


def test_damaged_records__are_named_and_not_overwritten(small, compared, tmp_path):
    options = {"heldout": small[1], "samples": 2, "sample_every": 1, "settings": WITH_BETA, **GRID}
    for name in ("compare.json", "cells/lda-3.json"):
        shutil.copytree(compared.folder, tmp_path / "out")
        path = tmp_path / "out" / name
        path.write_bytes(path.read_bytes().replace(b"3", b"4", 1))
        before = path.read_bytes()
        with pytest.raises(DamagedError, match=re.escape(str(path))):
            compare(small[0], tmp_path / "out", **options)
        assert path.read_bytes() == before
        shutil.rmtree(tmp_path / "out")


@pytest.mark.long
def test_a_comparison__is_summarised_and_verified_with_all_its_runs(small, compared, tmp_path):
    found = info(compared.folder)
    assert found["kind"] == "comparison"
    assert found["families"] == ["lda", "gibbs-lda"]
    assert found["cells"] == {row["cell"]: row["score"] for row in compared.rows}
    assert verify(compared.folder).broken == []
    shutil.copytree(compared.folder, tmp_path / "out")
    (tmp_path / "out/table.parquet").write_bytes((tmp_path / "out/table.parquet").read_bytes()[:100])
    broken = verify(tmp_path / "out").broken
    assert [text.split(":")[0].rsplit("/", 1)[1] for text in broken] == ["table.parquet"]
    shutil.copytree(compared.folder, tmp_path / "out", dirs_exist_ok=True)
    for path in (tmp_path / "out/cells/lda-3.json", tmp_path / "out/runs/lda-2/members/001/run.json"):
        path.write_bytes(path.read_bytes()[:-9])
    broken = verify(tmp_path / "out").broken
    assert [text.split(":")[0].removeprefix(f"{tmp_path}/out/") for text in broken] == [
        "cells/lda-3.json",
        "runs/lda-2/members/001/run.json",
    ]


def test_verify__includes_the_corpora_that_a_comparison_has_split(small, tmp_path):
    options = {"families": ("lda",), "topics": (2,), "restarts": 1, "iterations": 2}
    out = compare(small[0], tmp_path / "out", **options).folder
    whole = verify(out)
    assert (whole.kind, whole.broken) == ("comparison", [])
    shutil.copytree(out, tmp_path / "damaged")
    shard = next((tmp_path / "damaged/heldout").rglob("*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-9])
    damaged = next((tmp_path / "damaged/runs/lda-2/members/000").rglob("events.jsonl"))
    damaged.write_bytes(b"{")
    found = verify(tmp_path / "damaged").broken
    assert any(str(shard) in text for text in found)
    assert any(str(damaged) in text for text in found)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"scheduler": "bogus"}, "scheduler: "),
        ({"workers": 0}, "workers: "),
        ({"memory": "10XB"}, "10XB"),
        ({"memory": "10MB"}, "memory"),
        ({"scheduler": "tcp://127.0.0.1:1"}, "127.0.0.1:1"),
    ],
    ids=str,
)
def test_a_comparison_without_possible_fits__leaves_nothing(small, tmp_path, monkeypatch, where, message):
    monkeypatch.setitem(dask_cluster.SETTINGS, "distributed.comm.timeouts.connect", "1s")
    with pytest.raises(CollapsiumError, match=re.escape(message)):
        compare(small[0], tmp_path / "out", families=("lda",), topics=(2,), restarts=1, iterations=2, **where)
    assert not (tmp_path / "out").exists()


def test_the_training_corpus__is_refused_as_held_out_part(small, tmp_path):
    with pytest.raises(MismatchError, match="is the training corpus"):
        compare(small[0], tmp_path / "out", heldout=small[0], families=("lda",))
    with pytest.raises(MismatchError, match="is the training corpus"):
        fit(small[0], tmp_path / "run", heldout=small[0], family="lda", topics=2, iterations=1)
    assert not (tmp_path / "run").exists()


def test_a_split_without_held_out_tokens__leaves_nothing(tmp_path):
    corpus = write_corpus(tmp_path / "few", [{0: 1}, {1: 1}], 3)
    with pytest.raises(InputError):
        compare(corpus, tmp_path / "out", families=("lda",), topics=(2,), fraction=1e-9)
    assert not (tmp_path / "out").exists()


def test_two_processes__cannot_work_on_one_comparison(small, compared):
    with RunLock(Folder(compared.folder) / "lock"), pytest.raises(LockedError, match="works on it"):
        compare(small[0], compared.folder, heldout=small[1], samples=2, sample_every=1, settings=WITH_BETA, **GRID)


def test_folders_of_older_formats__are_refused_with_advice(tmp_path):
    folder = Folder(str(tmp_path))
    folder.write("compare.json", dump({"format": KIND, "version": 2}))
    folder.write("cells/lda-3.json", dump({"format": CELL_KIND, "version": 2, "row": {}}))
    with pytest.raises(
        DamagedError, match="2 is unknown; this release reads version 3; compare again, into a new folder"
    ):
        record_of(folder)
    with pytest.raises(
        DamagedError, match="this release reads version 3; remove the file, and the cell is measured again"
    ):
        row_of(folder, "lda-3")


def test_a_comparison_of_release_0_1__can_be_continued(small, compared, tmp_path):
    """Its record has options that no longer exist, and its folder has rows of other libraries."""
    options = {"heldout": small[1], "samples": 2, "sample_every": 1, "settings": WITH_BETA, **GRID}
    out = Folder(shutil.copytree(compared.folder, tmp_path / "out"))
    former = {"peers": ["gensim"], "labels": [], "without": [], "classifiers": [], "lda_topics": [200]}
    former |= {"start_from": None, "unseen": None, "field": None}
    gone = ("digest", "schedule", "passes", "grow", "tolerance")
    record = {name: value for name, value in record_of(out).items() if name not in gone}
    out.write("compare.json", dump({**record, **former}))
    gensim = {"cell": "gensim-2", "baseline": "gensim", "topics": 2, "start": "random", "score": -7.0, "seconds": 1.0}
    out.write("cells/gensim-2.json", dump({"format": CELL_KIND, "version": 3, "row": gensim}))
    events = []
    assert compare(small[0], out.url, sinks=[events.append], **options).rows == compared.rows
    assert not any(event["event"] == "cell_begins" for event in events)
    assert info(out.url)["cells"]["gensim-2"] == -7.0
    assert verify(out.url).broken == []
    out.write("compare.json", dump({**record, **former, "without": ["kind"]}))
    with pytest.raises(OptionError, match="--without: .* was begun with kind, found none"):
        compare(small[0], out.url, **options)
    out.write("compare.json", dump({**record, **former, "unseen": "0" * 64}))
    with pytest.raises(OptionError, match="--unseen: .* was begun with 0{40}, found none"):
        compare(small[0], out.url, **options)

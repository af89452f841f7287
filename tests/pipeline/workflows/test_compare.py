"""Comparisons: their cells and options, what they measure, stopped and gone on with, and beside other libraries."""

import importlib.util
import io
import json
import math
import re
import shutil
import statistics
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import compare, evaluate, fit, info, split, topics, verify
from collapsium.pipeline.analysis.coherence import coherence
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.workflows.compare.progress import GridView, lasting
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
from collapsium.storage.io.locks.run_lock import RunLock
from collapsium.storage.runs.members import member_seed
from collapsium.storage.runs.run import Run
from tests.conftest import planted_rows, write_corpus

pytestmark = pytest.mark.xdist_group("comparing")  # what it compares is fitted once

GRID = {"families": ("lda", "gibbs-lda"), "topics": (2, 3), "restarts": 2, "iterations": 4, "seed": 3}
WITH_BETA = {"lda": {"beta": 3.0}, "gibbs-lda": {"beta": 3.0}}
TIMES = ("seconds", "cell_seconds")


@pytest.fixture(scope="module")
def compared(small, tmp_path_factory):
    """Two families, two numbers of topics, two restarts; samples of the sampler."""
    out = tmp_path_factory.mktemp("compared") / "out"
    return compare(small[0], out, heldout=small[1], samples=2, sample_every=1, settings=WITH_BETA, **GRID)


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Plots take longer than the fits here; only the comparisons that are made once for all tests draw them."""
    monkeypatch.setattr("collapsium.pipeline.workflows.compare.plots.can_draw", lambda: False)


def without_times(rows):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


# What is measured -------------------------------------------------------------------------------------------------------


def test_the_table__has_what_evaluate_and_the_events_say(small, compared):
    assert [row["cell"] for row in compared.rows] == ["lda-2", "lda-3", "gibbs-lda-2", "gibbs-lda-3"]
    for row in compared.rows:
        place = Path(compared.folder) / "runs" / row["cell"]
        members = [place / "members/000", place / "members/001"]
        scores = [evaluate(member, heldout=small[1]).score for member in members]
        if row["family"] == "lda":
            told = [[one for one in Run(member).events() if one["event"] == "iteration"][-1] for member in members]
            assert row["scores"] == [one["score"] for one in told]
            assert (row["samples"], row["objective"]) == (0, None)
        else:
            assert len(list((members[0] / "members").iterdir())) == row["samples"] == 2
            told = [[one for one in Run(member).events() if one["event"] == "iteration"][-1] for member in members]
            assert row["objective"] == statistics.fmean(one["objective"] for one in told)
            assert row["objective_error"] == pytest.approx(np.std([one["objective"] for one in told]))
        np.testing.assert_allclose(row["scores"], scores, rtol=1e-6)
        assert row["score"] == pytest.approx(np.mean(scores), rel=1e-6)
        assert row["score_error"] == pytest.approx(abs(scores[0] - scores[1]) / 2, rel=1e-3)
        assert row["ensemble_score"] == pytest.approx(evaluate(place, heldout=small[1]).score, rel=1e-12)
        assert row["ensemble_score"] > row["score"]
        assert row["perplexity"] == math.exp(-row["score"])
        assert row["npmi"] == np.mean([coherence(member, small[0]).npmi for member in members])
        assert row["diversity"] == np.mean([coherence(member, small[0]).diversity for member in members])
        shares = [sorted((topic.share for topic in topics(member)), reverse=True) for member in members]
        held = [1 + sum(part < 0.99 for part in np.cumsum(each) / sum(each)) for each in shares]
        assert row["topics_99"] == np.mean(held)
        assert 0 < row["seconds"] <= row["cell_seconds"] * 8


@pytest.mark.long
def test_fits__are_those_of_fit(small, compared, tmp_path):
    options = {"topics": 3, "beta": 3.0, "iterations": 4, "seed": member_seed(3, 1)}
    fit(small[0], tmp_path / "one", family="lda", heldout=small[1], **options)
    last = Run(tmp_path / "one").events()[-2]
    assert compared.rows[1]["scores"][1] == last["score"]


def test_files__hold_the_same_rows(compared):
    place = Path(compared.folder)
    kept = pq.read_table(place / "table.parquet").to_pylist()
    assert kept == list(compared.rows)
    text = (place / "table.md").read_text()
    for row in kept:
        assert f"{row['score']:.4f} ± {row['score_error']:.4f}" in text
    for word in ("**Score**: document completion", "**Ensemble**", "**Perplexity**", "standard error", "**Seconds**"):
        assert word in text
    series = pq.read_table(place / "series.parquet").to_pylist()
    assert len(series) == 4 * 2 * 4
    for row in series:
        assert row["steps"] == row["iteration"] * row["topics"]
        events = Run(place / f"runs/{row['cell']}/members/{row['restart']:03d}").events()
        event = next(one for one in events if (one["event"], one["iteration"]) == ("iteration", row["iteration"]))
        assert (row["score"], row["objective"]) == (event["score"], event.get("objective"))
    own = [row["seconds"] for row in series if (row["cell"], row["restart"]) == ("lda-2", 1)]
    assert own == sorted(own)
    assert not (place / "lock").exists()


def test_a_corpus__is_split_where_no_tokens_are_given(small, tmp_path):
    found = compare(small[0], tmp_path / "out", fraction=0.2, families=("lda",), topics=(2,), restarts=1, iterations=2)
    parts = [json.loads((tmp_path / "out" / name / "manifest.json").read_text()) for name in ("train", "heldout")]
    whole = json.loads((Path(small[0]) / "manifest.json").read_text())
    assert sum(part["tokens"] for part in parts) == whole["tokens"]
    assert 0.1 < parts[1]["tokens"] / whole["tokens"] < 0.3
    assert found.rows[0]["score_error"] is None
    assert found.rows[0]["ensemble_score"] == pytest.approx(found.rows[0]["score"], rel=1e-6)


def test_families_that_find_their_topics__are_told_with_them(small, tmp_path):
    options = {"families": ("gibbs-hdp",), "start_topics": (1, 6), "restarts": 1, "iterations": 5}
    found = compare(small[0], tmp_path / "out", heldout=small[1], **options)
    assert [(row["start"], row["topics"]) for row in found.rows] == [("from 1 topic", None), ("from 6 topics", None)]
    series = pq.read_table(tmp_path / "out/series.parquet").to_pylist()
    events = Run(tmp_path / "out/runs/gibbs-hdp-from-6/members/000").events()
    made = np.cumsum([one["topics"] for one in events if one["event"] == "iteration"])
    assert [row["steps"] for row in series if row["cell"] == "gibbs-hdp-from-6"] == made.tolist()
    assert all(1 <= row["topics_99"] <= 20 for row in series)


# Stopped, and gone on with ----------------------------------------------------------------------------------------------


def stopping(cell, iteration):
    """A sink that stops a comparison in the middle of a cell."""

    def sink(event):
        if (event.get("cell"), event["event"], event.get("iteration")) == (cell, "iteration", iteration):
            raise KeyboardInterrupt

    return sink


@pytest.mark.long
@pytest.mark.parametrize(("cell", "iteration"), [("lda-2", 1), ("lda-3", 2), ("gibbs-lda-3", 4)])
def test_a_stopped_comparison__goes_on_to_the_same_table(small, compared, tmp_path, cell, iteration):
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
    ("changed", "said"),
    [
        ({"topics": (2,)}, "--topics: the comparison in .* was begun with 2,3, found 2;"),
        ({"families": ("lda",), "settings": {}}, "--families: .* was begun with lda,gibbs-lda, found lda"),
        ({"restarts": 3}, "--restarts: .* was begun with 2, found 3"),
        ({"iterations": 5}, "--iterations: .* was begun with 4, found 5"),
        ({"seed": 4}, "--seed: .* was begun with 3, found 4"),
        ({"samples": 3}, "--samples: .* was begun with 2, found 3"),
        ({"start_from": "hdp"}, "--start-from: .* was begun with none, found hdp"),
        ({"peers": ("topica",)}, "--peers: .* was begun with none, found topica"),
        (
            {"settings": {"lda": {"beta": 4.0}}},
            "--set: .* was begun with gibbs-lda.beta=3.0 lda.beta=3.0, found lda.beta=4",
        ),
        ({"heldout": None}, "--fraction: .* was begun with none, found 0.1"),
    ],
    ids=str,
)
def test_other_options__are_refused_by_name(small, compared, changed, said):
    given = {"heldout": small[1], "samples": 2, "sample_every": 1, "settings": WITH_BETA, **GRID, **changed}
    with pytest.raises(OptionError, match=said):
        compare(small[0], compared.folder, **given)


def test_other_corpora_and_folders__are_refused(small, compared, tmp_path):
    given = {"samples": 2, "sample_every": 1, "settings": WITH_BETA, **GRID}
    with pytest.raises(OptionError, match=r"^CORPUS: the comparison in"):
        compare(small[1], compared.folder, heldout=small[0], **given)
    split(small[1], tmp_path / "one", tmp_path / "other")
    with pytest.raises(OptionError, match=r"^--heldout: the comparison in"):
        compare(small[0], compared.folder, heldout=tmp_path / "one", **given)
    shutil.rmtree(tmp_path / "other")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    with pytest.raises(OccupiedError, match="is no comparison"):
        compare(small[0], tmp_path / "mine", heldout=small[1], **given)
    other = write_corpus(tmp_path / "other", planted_rows(5, documents=7), 30)
    with pytest.raises(MismatchError, match="expected the 60 documents"):
        compare(small[0], tmp_path / "out", heldout=other, **given)
    assert not (tmp_path / "out").exists()


def test_damaged_records__are_named_and_nothing_is_overwritten(small, compared, tmp_path):
    given = {"heldout": small[1], "samples": 2, "sample_every": 1, "settings": WITH_BETA, **GRID}
    for name in ("compare.json", "cells/lda-3.json"):
        shutil.copytree(compared.folder, tmp_path / "out")
        path = tmp_path / "out" / name
        path.write_bytes(path.read_bytes().replace(b"3", b"4", 1))
        before = path.read_bytes()
        with pytest.raises(DamagedError, match=re.escape(str(path))):
            compare(small[0], tmp_path / "out", **given)
        assert path.read_bytes() == before
        shutil.rmtree(tmp_path / "out")


@pytest.mark.long
def test_a_comparison__is_told_and_checked_with_all_its_runs(small, compared, tmp_path):
    found = info(compared.folder)
    assert found["kind"] == "comparison"
    assert found["families"] == ["lda", "gibbs-lda"]
    assert found["cells"] == {row["cell"]: row["score"] for row in compared.rows}
    assert verify(compared.folder).broken == []
    shutil.copytree(compared.folder, tmp_path / "out")
    for name in ("table.parquet", "series.parquet"):
        (tmp_path / "out" / name).write_bytes((tmp_path / "out" / name).read_bytes()[:100])
    broken = verify(tmp_path / "out").broken
    assert [one.split(":")[0].rsplit("/", 1)[1] for one in broken] == ["table.parquet", "series.parquet"]
    shutil.copytree(compared.folder, tmp_path / "out", dirs_exist_ok=True)
    for path in (tmp_path / "out/cells/lda-3.json", tmp_path / "out/runs/lda-2/members/001/run.json"):
        path.write_bytes(path.read_bytes()[:-9])
    broken = verify(tmp_path / "out").broken
    assert [one.split(":")[0].removeprefix(f"{tmp_path}/out/") for one in broken] == [
        "cells/lda-3.json",
        "runs/lda-2/members/001/run.json",
    ]


def test_a_comparison__checks_what_it_has_split_off(small, tmp_path):
    given = {"families": ("lda",), "topics": (2,), "restarts": 1, "iterations": 2, "start_from": "gibbs-lda"}
    out = compare(small[0], tmp_path / "out", **given).folder
    whole = verify(out)
    assert (whole.kind, whole.broken) == ("comparison", [])
    shutil.copytree(out, tmp_path / "damaged")
    shard = next((tmp_path / "damaged/heldout").rglob("*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-9])
    damaged = next((tmp_path / "damaged/runs/lda-2-from-gibbs-lda/000").rglob("events.jsonl"))
    damaged.write_bytes(b"{")
    found = verify(tmp_path / "damaged").broken
    assert any(str(shard) in one for one in found)
    assert any(str(damaged) in one for one in found)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"scheduler": "bogus"}, "--scheduler"),
        ({"workers": 0}, "--workers"),
        ({"memory": "10XB"}, "10XB"),
        ({"memory": "10MB"}, "memory"),
        ({"scheduler": "tcp://127.0.0.1:1"}, "127.0.0.1:1"),
    ],
    ids=str,
)
def test_where_nothing_can_be_fitted__nothing_is_left(small, tmp_path, where, said):
    with pytest.raises(CollapsiumError, match=re.escape(said)):
        compare(small[0], tmp_path / "out", families=("lda",), topics=(2,), restarts=1, iterations=2, **where)
    assert not (tmp_path / "out").exists()


def test_the_corpus_itself__is_no_held_out_part(small, tmp_path):
    with pytest.raises(MismatchError, match="is the training corpus"):
        compare(small[0], tmp_path / "out", heldout=small[0], families=("lda",))
    with pytest.raises(MismatchError, match="is the training corpus"):
        fit(small[0], tmp_path / "run", heldout=small[0], family="lda", topics=2, iterations=1)
    assert not (tmp_path / "run").exists()


def test_the_texts__say_what_was_compared(small, compared):
    text = (Path(compared.folder) / "table.md").read_text()
    assert f"Corpus: {small[0]}, 60 documents, 30 words; fitted to" in text
    assert f"tokens of {small[1]}. Seed 3." in text
    assert "Options: lda.beta=3.0 gibbs-lda.beta=3.0; all else by default." in text


def test_a_split_that_holds_nothing_out__leaves_nothing(tmp_path):
    few = write_corpus(tmp_path / "few", [{0: 1}, {1: 1}], 3)
    with pytest.raises(InputError):
        compare(few, tmp_path / "out", families=("lda",), topics=(2,), fraction=1e-9)
    assert not (tmp_path / "out").exists()


def test_two_processes__cannot_work_on_one(small, compared):
    with RunLock(Folder(compared.folder) / "lock"), pytest.raises(LockedError, match="works on it"):
        compare(small[0], compared.folder, heldout=small[1], samples=2, sample_every=1, settings=WITH_BETA, **GRID)


# From another family's fits ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def started(small, tmp_path_factory):
    """A comparison that starts from a sampler's fits, whose topics are more than the fewest of the grid."""
    out = tmp_path_factory.mktemp("started") / "out"
    options = {"topics": (1, 24), "start_topics": (1, 6), "restarts": 2, "iterations": 4, "seed": 1}
    return compare(small[0], out, heldout=small[1], families=("lda",), start_from="gibbs-hdp", **options)


@pytest.mark.long
def test_start_from__fits_from_random_starts_and_from_each_fit(small, started):
    assert [row["cell"] for row in started.rows] == [
        "gibbs-hdp-from-6",
        *("lda-1", "lda-24", "lda-1-from-gibbs-hdp", "lda-24-from-gibbs-hdp"),
    ]
    assert [row["start"] for row in started.rows][1:] == ["random", "random", "from gibbs-hdp", "from gibbs-hdp"]
    place = Path(started.folder) / "runs"
    for number in range(2):
        record = Run(place / f"lda-24-from-gibbs-hdp/00{number}").record()
        assert record["warm"]["url"].endswith(f"gibbs-hdp-from-6/members/00{number}/model")
    row = started.rows[-1]
    runs = [place / f"lda-24-from-gibbs-hdp/00{number}" for number in range(2)]
    np.testing.assert_allclose(row["scores"], [evaluate(run, heldout=small[1]).score for run in runs], rtol=1e-6)
    assert row["scores"][0] != row["scores"][1]
    assert row["ensemble_score"] > row["score"]


@pytest.mark.long
def test_start_from__goes_on_where_it_was_stopped(small, started, tmp_path):
    options = {"topics": (1, 24), "start_topics": (1, 6), "restarts": 2, "iterations": 4, "seed": 1}
    options.update(heldout=small[1], families=("lda",), start_from="gibbs-hdp")
    with pytest.raises(KeyboardInterrupt):
        compare(small[0], tmp_path / "out", sinks=[stopping("lda-24-from-gibbs-hdp", 3)], **options)
    found = compare(small[0], tmp_path / "out", **options)
    assert without_times(found.rows) == without_times(started.rows)


# Plots ------------------------------------------------------------------------------------------------------------------


def test_plots__are_there_where_matplotlib_is(compared, started):
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed")
    whole = {"score-by-topics", "score-by-steps", "score-by-seconds", "objective-by-topics", "objective-by-iterations"}
    assert set(compared.plots) == whole  # neither family sheds topics
    assert set(started.plots) == whole - {"objective-by-topics"} | {"topics-by-iterations"}
    for found in (compared, started):
        place = Path(found.folder) / "plots"
        assert {path.name for path in place.iterdir()} == {
            f"{n}.{kind}" for n in found.plots for kind in ("png", "svg")
        }
        assert all((place / f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in found.plots)
        assert all("<svg" in (place / f"{name}.svg").read_text() for name in found.plots)


def test_without_matplotlib__all_but_the_plots_is_there(small, compared):
    events = []
    options = {"heldout": small[1], "samples": 2, "sample_every": 1, "settings": WITH_BETA, **GRID}
    found = compare(small[0], compared.folder, sinks=[events.append], **options)
    assert (found.plots, found.rows) == ((), compared.rows)
    (notice,) = [event["text"] for event in events if event["event"] == "notice"]
    assert notice == "no plots: matplotlib is not installed (pip install 'collapsium[plots]')"


# For people -------------------------------------------------------------------------------------------------------------


def test_the_command__prints_the_table_and_says_how_to_go_on(small, tmp_path, capsys, monkeypatch):
    words = ["compare", small[0], str(tmp_path / "out dir"), "--heldout", small[1], "--families", "lda"]
    words += [
        "--topics",
        "2,3",
        "--restarts",
        "2",
        "--iterations",
        "3",
        "--set",
        "lda.alpha=0.2/K",
        "--set",
        "lda.beta=3",
    ]

    def stopped(*given, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("collapsium.pipeline.workflows.compare.heldout.measure", stopped)
        assert main(words) == 130
    err = capsys.readouterr().err
    assert "lda-2 (1 of 2): 2 fits of 3 iterations" in err
    assert "what is fitted so far is kept; go on with `collapsium compare " in err
    assert f"'{tmp_path}/out dir' --heldout" in err
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "| lda | random | 2 | 2 | 3 |" in out
    assert "lda-3: " in err
    assert "(2 of 2 done)" in err
    assert main([*words, "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)["cells"]
    assert err == ""
    assert [json.loads(row["options"])["alpha"] for row in rows] == [0.1, 0.2 / 3]
    assert main([*words, "--seed", "1"]) == 2
    assert "error: --seed: the comparison in" in capsys.readouterr().err
    assert main(["compare", small[0], str(tmp_path / "x"), "--topics", "2;3"]) == 2
    assert "--topics: expected whole numbers with commas between, found '2;3'" in capsys.readouterr().err
    assert main(["compare", small[0], str(tmp_path / "x"), "--set", "alpha=3"]) == 2
    assert "--set: expected FAMILY.OPTION=VALUE, found 'alpha=3'" in capsys.readouterr().err


def test_the_view__counts_cells_and_says_what_is_left(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("collapsium.pipeline.workflows.compare.progress.time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    view = GridView(stream)
    view({"event": "grid", "cells": 3, "done": 1, "work": 300.0, "work_done": 100.0})
    view({"event": "cell_begins", "cell": "lda-40", "fits": 2, "iterations": 10, "work": 100.0})
    for iteration in (1, 2, 3, 4, 5):
        clock[0] += 10.0
        for member in (0, 1):
            view({"event": "iteration", "iteration": iteration, "member": member, "cell": "lda-40"})
    view({"event": "cell_done", "cell": "lda-40", "work": 100.0, "elapsed": 50.0, "score": -7.25, "score_error": 0.01})
    view({"event": "compared", "rows": 3, "plots": 0})
    lines = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]  # behind the time
    assert lines[:2] == ["3 cells, 1 done before", "lda-40 (2 of 3): 2 fits of 10 iterations"]
    assert lines[-2] == "lda-40 (2 of 3): 9 of 20 iterations; 48% of all, about 3 min left"
    assert lines[-1] == "lda-40: 50 s  score -7.2500 ± 0.0100  (2 of 3 done, about 50 s left)"
    assert [lasting(seconds) for seconds in (3.4, 300, 7500)] == ["3 s", "5 min", "2 h 05 min"]

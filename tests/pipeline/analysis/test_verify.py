"""`verify` names every damaged file, and no others."""

import json
import shutil

import numpy as np
import pytest

from collapsium.pipeline import fit, simulate, verify
from collapsium.pipeline.cli.main import main
from collapsium.storage.errors import AbsentError
from collapsium.storage.io.arrays import read_arrays, write_arrays
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from tests.conftest import simulated_rows, write_corpus

FITS = (
    {"family": "lda", "topics": 3},
    {"family": "hdp", "topics": 4},
    {"family": "hdp", "topics": 3, "responsibilities": "dense"},
    {"family": "gibbs-lda", "topics": 3},
    {"family": "gibbs-hdp", "init_topics": 2},
    {"family": "gibbs-ncrp"},
    {"family": "ncrp", "initial_tree": "gradual"},
    {"family": "lda", "topics": 140},
    {"family": "vb-lda", "topics": 4},
    {"family": "lda", "topics": 3, "schedule": "stochastic", "batch_shards": 2},
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify")
    corpus = write_corpus(folder / "corpus", simulated_rows(1, documents=12), 30, shard_tokens=150)
    for number, options in enumerate(FITS):
        fit(corpus, folder / f"run{number}", iterations=3, checkpoint_every=1, **options)
    return folder


@pytest.mark.parametrize("number", range(len(FITS)))
def test_the_results_of_a_fit__are_valid(place, number):
    run = place / f"run{number}"
    for path in (run, run / "model", *(run / "checkpoints").glob("0*")):
        found = verify(path)
        assert found.broken == []
        assert found.notes == []
        assert found.parts >= 3


def test_corpora__are_valid(place, tmp_path):
    assert verify(place / "corpus").broken == []
    simulate(tmp_path / "drawn", family="hdp", documents=30, words=20, tokens=20, topics=3)
    assert verify(tmp_path / "drawn").broken == []
    with pytest.raises(AbsentError, match="expected a corpus, run, comparison or model"):
        verify(tmp_path)
    with pytest.raises(AbsentError, match="no such folder"):
        verify(tmp_path / "none")


@pytest.mark.parametrize(
    ("what", "ways", "least"),
    [("corpus", 3, 15), ("run1", 1, 20), pytest.param("run1", 3, 60, marks=pytest.mark.long)],
)
def test_every_damaged_file__is_named(place, tmp_path, what, ways, least):
    """Each file is damaged in all three ways, or in one of them in turn."""
    shutil.copytree(place / what, tmp_path / "whole")
    tried = 0
    paths = [path for path in sorted((tmp_path / "whole").rglob("*")) if path.is_file()]
    for number, path in enumerate(paths):
        arrays = path.name in ("digests.json", "zarr.json") or path.name.startswith("c.")
        if path.name in ("journal.jsonl", "latest.json") or (arrays and number % 11):
            continue
        data = path.read_bytes()
        flipped = data[:-2] + bytes([data[-2] ^ 1]) + data[-1:] if len(data) > 1 else bytes([data[0] ^ 1])
        broken_data = (None, data[: len(data) // 2], flipped)
        for broken in broken_data if ways == 3 else broken_data[number % 3 : number % 3 + 1]:
            path.unlink() if broken is None else path.write_bytes(broken)
            finding = findings_of(tmp_path / "whole")
            # the white space of a record may differ
            assert path.name in finding or (broken and path.suffix == ".json"), path
            tried += 1
        path.write_bytes(data)
    assert tried >= least


def findings_of(path):
    try:
        found = verify(path)
        return " ".join([*found.broken, *found.notes])
    except AbsentError as error:
        return str(error)


def rewritten(run, part, change):
    """Change an array of a finished model, and correct all digests."""
    model = run / "model"
    folder = Folder(model / part)
    arrays = {name: np.array(values) for name, values in read_arrays(folder).items()}
    change(arrays)
    record = json.loads((model / "model.json").read_text())
    del record["sha256"]
    record["parts"][part] = write_arrays(folder, arrays)
    (model / "model.json").write_bytes(dump(record))


def double(name):
    def change(arrays):
        arrays[name] = arrays[name] * 2

    return change


@pytest.mark.parametrize(
    ("number", "part", "change", "text"),
    [
        (0, "rows/00000", double("word_topic"), "expected counts are not conserved: word"),
        (0, "rows/00000", lambda arrays: arrays["word_topic"].__setitem__((2, 1), np.nan), "expected finite numbers"),
        (2, "documents/00001", double("document_topic"), "expected counts are not conserved: document"),
        (1, "documents/00000", double("document_counts"), "expected counts are not conserved: document"),
        (3, "rows/00000", double("word_topic"), "expected counts are not conserved: word"),
        (3, "global_state", double("topic"), "the words' probabilities to sum to one"),
        (4, "documents/00001", double("document_counts"), "expected counts are not conserved: document"),
        (4, "global_state", double("pi"), "expected proportions that sum to one at most"),
        (0, "global_state", double("topic_moments"), "the words' probabilities to sum to one"),
        (0, "documents/00000", lambda arrays: arrays.pop("document_lists"), "the array is missing"),
    ],
)  # fmt: skip
def test_impossible_arrays__are_found_although_all_digests_are_correct(place, tmp_path, number, part, change, text):
    run = tmp_path / "run"
    shutil.copytree(place / f"run{number}", run)
    rewritten(run, part, change)
    assert any(text in fault for fault in verify(run).broken), verify(run).broken


def test_the_command__reports_damaged_files(place, tmp_path, capsys):
    shutil.copytree(place / "corpus", tmp_path / "c")
    assert main(["verify", str(tmp_path / "c")]) == 0
    assert "a corpus, no faults (" in capsys.readouterr().out
    (tmp_path / "c/documents/part-00001.parquet").write_bytes(b"x")
    assert main(["verify", str(tmp_path / "c")]) == 1
    err = capsys.readouterr().err
    assert "part-00001.parquet: the bytes do not have the digest of the manifest" in err
    assert main(["verify", str(tmp_path / "c"), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["broken"]) == 1


def test_a_run_whose_corpus_has_changed__has_no_faults(tmp_path):
    corpus = write_corpus(tmp_path / "corpus", simulated_rows(1, documents=12), 30)
    fit(corpus, tmp_path / "run", family="lda", topics=3, iterations=2)
    shutil.rmtree(corpus)
    write_corpus(corpus, simulated_rows(2, documents=12), 30)
    found = verify(tmp_path / "run")
    assert found.broken == []
    assert any("it is not the corpus that the run was fitted to; only digests were checked" in it for it in found.notes)
    damaged = next((tmp_path / "run/checkpoints").glob("*/rows/00000/*/c.0.0"))
    damaged.write_bytes(b"other")
    assert len(verify(tmp_path / "run").broken) == 1

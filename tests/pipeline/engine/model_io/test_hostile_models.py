"""Untrusted runs: changed arrays with correct digests are refused with a one-line error."""

import json
import shutil

import numpy as np
import pytest

from collapsium.pipeline import evaluate, fit, infer, resume, verify
from collapsium.pipeline.models.model import Model
from collapsium.storage.errors import DamagedError, NumericalError
from collapsium.storage.io.arrays import read_arrays
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.run import Run
from tests.chaos.hostile_models import (
    MUTATIONS,
    check,
    corpora,
    corpora_of,
    fit_run,
    groups,
    is_refused,
    mutate,
    rewrite,
    shards_of,
)

FAMILIES = {
    "lda": {"topics": 3},
    "gibbs-lda": {"topics": 3},
    "author-topic": {"topics": 3},
    "gibbs-ncrp": {},
    "hdsp": {"topics": 3},
    "segmented-lda": {"topics": 3},
}
OPTIONAL = ("count_bits",)  # missing in runs of 0.1; a fit compares its rows with it
SIZES_OF_THEIR_OWN = ("label_table",)  # no other array has this size, so any is valid as long as the contents are
# any such array contradicts the family's declarations
WRONG = ("missing", "empty", "halved", "doubled", "flat", "other type")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    corpora(folder)
    for family, options in FAMILIES.items():
        fit_run(family, options, folder, folder / family)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_arrays_of_other_types_or_shapes__are_refused(place, family):
    generator, shards, tried = np.random.default_rng(1), shards_of(family, place), 0
    for folder, name, part in groups(place / family):
        arrays = read_arrays(Folder(folder / part))
        check(folder, name, part, arrays, shards)
        for array in (
            sorted(set(arrays) - set(SIZES_OF_THEIR_OWN))
            if part in ("global_state", "rows/00000", "documents/00000", "local_states/00000")
            else ()
        ):
            for kind in WRONG:
                changed = mutate(arrays, array, kind, generator)
                if array in changed and changed[array].shape == arrays[array].shape and kind != "other type":
                    continue
                if kind == "missing" and array in OPTIONAL:
                    continue
                assert is_refused(folder, name, part, changed, shards), f"{part}/{array} {kind}"
                tried += 1
    assert tried > 80


def entry(name, at, value):
    """Change one entry of an array."""

    def change(arrays):
        values = np.array(arrays[name])
        values[at] = value
        return {**arrays, name: values}

    return change


def zeros(name):
    """Set all entries of an array to zero."""
    return lambda arrays: {**arrays, name: np.zeros_like(arrays[name])}


@pytest.mark.parametrize(
    ("family", "part", "change", "text"),
    [
        ("lda", "documents/00000", entry("document_lists", 1, 1 << 40), "document_lists: expected offsets that never fall"),
        ("lda", "documents/00000", entry("document_topics", 0, 65535), "document_topics: expected numbers from 0 to 2, found 65535"),
        ("gibbs-ncrp", "documents/00000", entry("document_path", (0, 1), 10**6), "document_path: expected numbers from -1"),
        ("hdsp", "documents/00000", entry("document_label", 0, 99), "document_label: expected numbers from 0 to"),
        ("segmented-lda", "documents/00000", entry("edge_parent", 0, 7), "expected parents"),
        ("author-topic", "documents/00000", entry("document_labels", -1, 0), "document_labels: expected offsets that never fall"),
        ("gibbs-ncrp", "global_state", entry("node_parent", 0, 0), "expected the root in the first column of 'node_parent'"),
        ("hdsp", "global_state", entry("label_table", 0, 0), "expected a table of labels in 'label_table'"),
        ("lda", "global_state", entry("alpha", 0, np.nan), "alpha: expected finite numbers"),
    ],
)  # fmt: skip
def test_a_model_with_arrays_that_point_out_of_range__is_refused(place, tmp_path, family, part, change, text):
    run = tmp_path / "run"
    shutil.copytree(place / family, run)
    rewrite(run / "model", "model.json", part, change)
    assert any(text in fault for fault in verify(run / "model").broken)
    with pytest.raises(DamagedError, match=text.replace("(", r"\(")):
        infer(run / "model", corpora_of(family, place)[0], tmp_path / "out.parquet", scheduler="serial")
    if part == "global_state":
        with pytest.raises(DamagedError, match=text):
            evaluate(run / "model", unseen=place / "new", scheduler="serial")


@pytest.mark.parametrize(
    ("family", "part", "change", "text"),
    [
        ("lda", "local_states/00000", entry("pair_shares", 0, 65535), "pair_shares: expected numbers from 0 to 32768, found 65535"),
        ("lda", "local_states/00000", lambda arrays: {**arrays, "pair_shares": arrays["pair_shares"][:-1]}, "numbers in 'pair_shares'"),
        ("gibbs-lda", "local_states/00000", entry("token_topic", 0, 65535), "token_topic: expected numbers from 0 to 2, found 65535"),
        ("gibbs-lda", "rows/00000", lambda arrays: {"word_topic": np.zeros_like(arrays["word_topic"])}, "tokens that the rows"),
        ("gibbs-lda", "local_states/00001", zeros("token_topic"), "local_states/00001: expected tokens that the rows"),
        ("author-topic", "local_states/00000", zeros("token_topic"), "local_states/00000: expected tokens that the rows"),
        ("author-topic", "local_states/00000", entry("token_author", 0, 60000), "expected authors of the document"),
        ("gibbs-ncrp", "local_states/00001", zeros("token_level"), "local_states/00001: expected tokens that the rows"),
        ("gibbs-ncrp", "global_state", lambda arrays: {**arrays, "node_documents": arrays["node_documents"] * 0}, "'node_documents'"),
        ("segmented-lda", "local_states/00000", entry("levels", (), 1), "expected 2 in 'levels', found 1"),
    ],
)  # fmt: skip
def test_a_checkpoint_whose_arrays_do_not_fit__is_not_resumed(place, tmp_path, family, part, change, text):
    run = tmp_path / "run"
    shutil.copytree(place / family, run)
    shutil.rmtree(run / "model")
    for folder in sorted((run / "checkpoints").glob("0*")):
        rewrite(folder, "checkpoint.json", part, change)
    with pytest.raises(DamagedError, match=text):
        resume(run, iterations=4, scheduler="serial")
    assert not (run / "model").exists()


def test_counts_of_more_tokens_than_exist__are_resumed(place, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(place / "gibbs-lda", run)
    shutil.rmtree(run / "model")
    last = max((run / "checkpoints").glob("0*"))
    rewrite(last, "checkpoint.json", "rows/00000", lambda arrays: {"word_topic": arrays["word_topic"] + 1})
    assert resume(run, iterations=4, scheduler="serial").record.iterations == 4


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_checkpoint_with_negative_counts__is_refused_before_anything_is_saved(place, tmp_path):
    run = fit_run("keyword-lda", {"topics": 3, "seeds": {"first": ["w0", "w1"]}}, place, tmp_path / "run")
    shutil.rmtree(run / "model")
    last = max((run / "checkpoints").glob("0*"))
    rewrite(last, "checkpoint.json", "rows/00000", lambda arrays: {**arrays, "block_active": -arrays["block_active"]})
    with pytest.raises(NumericalError, match="topic_moments is -.* at least"):
        resume(run, iterations=5, scheduler="serial")
    assert Run(run).checkpoints.latest() == 3
    assert not (run / "model").exists()
    assert [event["iteration"] for event in Run(run).events() if event["event"] == "iteration"] == [1, 2, 3]


def test_a_local_state_of_another_shard__is_refused_as_a_warm_start(place, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(place / "gibbs-lda", run)
    last = max((run / "checkpoints").glob("0*"))
    rewrite(last, "checkpoint.json", "local_states/00000", entry("token_topic", 0, 3))
    with pytest.raises(DamagedError, match="token_topic: expected numbers from 0 to 2, found 3"):
        fit(
            place / "train", tmp_path / "warm", family="gibbs-lda", topics=3, iterations=1, warm=run, scheduler="serial"
        )


def test_a_model_whose_sizes_contradict_its_record__is_refused(place, tmp_path):
    shutil.copytree(place / "lda/model", tmp_path / "model")
    record = json.loads((tmp_path / "model/model.json").read_text())
    assert record["options"]["topics"] == 3
    rewrite(tmp_path / "model", "model.json", "global_state", lambda arrays: {**arrays, "vocabulary": np.array(13.0)})
    with pytest.raises(DamagedError, match="vocabulary: expected 12 words, found 13"):
        Model(tmp_path / "model").global_state  # noqa: B018


def test_every_mutation__leaves_the_original_unchanged():
    values = np.arange(6).reshape(2, 3)
    for kind in MUTATIONS:
        mutate({"a": values}, "a", kind, np.random.default_rng(1))
    assert np.array_equal(values, np.arange(6).reshape(2, 3))

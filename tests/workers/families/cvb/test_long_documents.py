"""Documents with more tokens than single precision can count exactly: their counts, checkpoints and models."""

import shutil

import numpy as np
import pytest

from collapsium.pipeline import Corpus, fit, infer, report, resume, verify
from collapsium.storage.io.records import dump
from collapsium.storage.runs.checkpoint import RECORD
from collapsium.storage.runs.run import Run
from collapsium.workers.arrays.state import LocalState
from tests.conftest import write_corpus
from tests.fits import bits

LENGTHS = (1, 500, 513, 5_000, 100_000, 100_000)
WORDS, TOPICS, ITERATIONS = 60, 8, 9
UNIT = 2**15


def rows_of(lengths, seed=0):
    """Return documents of these lengths, in which some words have thousands of tokens."""
    generator = np.random.default_rng(seed)
    phi = generator.dirichlet(np.full(WORDS, 0.1), TOPICS)
    rows = []
    for length in lengths:
        counts = generator.multinomial(length, generator.dirichlet(np.full(TOPICS, 0.3)) @ phi)
        rows.append({int(word): int(counts[word]) for word in np.flatnonzero(counts)})
    return rows


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("long") / "corpus", rows_of(LENGTHS), WORDS, shard_tokens=110_000)


def locals_of(run, corpus):
    """Return the shards and local states of the last checkpoint."""
    checkpoints = Run(run).checkpoints
    checkpoint = checkpoints.at(checkpoints.latest())
    record = checkpoint.record()
    for number, reference in enumerate(Corpus(corpus).references):
        part = f"local_states/{number:05d}"
        yield reference.load(), checkpoint.read(part, record.parts[part])


def require_exact(run, corpus):
    """Require that counts equal the sums of the 16-bit responsibilities, are not negative, and sum to the document's
    tokens."""
    for shard, local in locals_of(run, corpus):
        lists, at = local["document_lists"], 0
        for document in range(shard.documents):
            counts = shard.counts[shard.offsets[document] : shard.offsets[document + 1]].astype(np.int64)
            entries = slice(lists[document], lists[document + 1])
            size = counts.size * (entries.stop - entries.start)
            shares = (
                local["pair_shares"][at : at + size].reshape(counts.size, entries.stop - entries.start).astype(np.int64)
            )
            at += size
            np.testing.assert_array_equal(local["document_counts"][entries] * UNIT, counts @ shares)
            assert local["document_counts"][entries].sum() + local["document_rest"][document] == counts.sum()
        assert local["document_counts"].min(initial=0.0) >= 0.0
        assert local["document_rest"].min(initial=0.0) >= 0.0


def losing_its_model(run):
    shutil.rmtree(run / "model")
    return resume(run, scheduler="serial")


FITS = {
    "lda": {"family": "lda"},
    "few": {"family": "lda", "most_active": 3, "momentum": 0.0},
    "many": {"family": "lda", "topics": 140},
    "local sweeps": {"family": "lda", "local_sweeps": 2},
    "start": {"family": "lda", "init": "documents", "init_strength": 1e6},
    "hdp": {"family": "hdp"},
    "keywords": {"family": "keyword-lda", "seeds": {"first": ["w0", "w1"]}},
}


@pytest.mark.parametrize("name", FITS)
def test_counts__are_exact_in_documents_of_any_length(corpus, tmp_path, name):
    options = {"topics": TOPICS, "iterations": ITERATIONS, "checkpoint_every": 1, "seed": 2, **FITS[name]}
    model = fit(corpus, tmp_path / "run", scheduler="threads", workers=2, **options)
    require_exact(tmp_path / "run", corpus)
    assert verify(tmp_path / "run").broken == []
    for number, reference in enumerate(Corpus(corpus).references):
        found = model.family.document_lengths(model.local_state(number))
        np.testing.assert_allclose(found, reference.load().lengths, rtol=1e-6)
    assert bits(losing_its_model(tmp_path / "run"), 1) == bits(model, 1)


@pytest.mark.parametrize("where", [("threads", 2), pytest.param(("local", 1), marks=pytest.mark.long)], ids=str)
def test_a_fit__ends_and_resumes_with_a_model_that_other_commands_accept(corpus, tmp_path, where):
    options = {
        "family": "lda",
        "topics": TOPICS,
        "inverse_temperature": 1.0,
        "checkpoint_every": 1,
        "workers": where[1],
    }
    fit(corpus, tmp_path / "run", iterations=5, scheduler=where[0], **options)
    model = resume(tmp_path / "run", iterations=ITERATIONS, scheduler="threads", workers=2)
    whole = fit(corpus, tmp_path / "whole", iterations=ITERATIONS, scheduler="serial", **options)
    require_exact(tmp_path / "run", corpus)
    assert bits(model, 1) == bits(whole, 1)
    assert infer(tmp_path / "run", corpus, tmp_path / "out.csv").rows == len(LENGTHS)
    report(tmp_path / "run", tmp_path / "report.html")


@pytest.mark.long
@pytest.mark.parametrize("family", ["lda", "hdp"])
def test_a_long_fit_of_long_documents__stays_exact(tmp_path, family):
    corpus = write_corpus(tmp_path / "corpus", rows_of((1_000_000, 100_000, 513), 1), WORDS, shard_tokens=200_000)
    fit(
        corpus, tmp_path / "run", family=family, topics=50, iterations=300, checkpoint_every=100, scheduler="local",
        workers=2,
    )  # fmt: skip
    require_exact(tmp_path / "run", corpus)
    assert verify(tmp_path / "run").broken == []


def rewrite(run, change):
    """Rewrite the local states of a run's last checkpoint as an older release would have written them."""
    checkpoints = Run(run).checkpoints
    checkpoint = checkpoints.at(checkpoints.latest())
    record, parts = checkpoint.record(), {}
    for part in [part for part in record.parts if part.startswith("local_states")]:
        arrays = checkpoint.read(part, record.parts[part])
        shutil.rmtree(run / "checkpoints" / f"{record.iteration:08d}" / part)
        parts[part] = checkpoint.write(part, change(arrays))
    changed = record.model_copy(update={"parts": {**record.parts, **parts}})
    checkpoint.folder.write(RECORD, dump(changed.model_dump(mode="json")))


def of_release_0_1(arrays):
    """Return counts in single precision that have drifted and include the pseudo-counts of an initialisation, as in
    release 0.1."""
    before, lists = dict(arrays), arrays["document_lists"]
    owner = np.repeat(np.arange(lists.size - 1), np.diff(lists))
    counts = before.pop("document_counts").astype(np.float64)
    tokens = np.bincount(owner, counts, lists.size - 1) + before["document_rest"]
    drift = np.where(tokens[owner] > 512, 1e-6 * tokens[owner], 0.0)
    # one topic has lost all its tokens, and its count is a rounding error
    for document in np.flatnonzero(tokens > 512):
        left = lists[document] + counts[lists[document] : lists[document + 1]].argmin()
        counts[left], drift[left] = 0.0, -drift[left]
    if "start_counts" in before:
        start = before.pop("start_counts")
        counts, before["document_pseudo"] = counts + start, np.bincount(owner, start, lists.size - 1).astype(np.float32)
    before["document_counts"] = (counts + drift).astype(np.float32)
    before["document_rest"] = before["document_rest"].astype(np.float32)
    return before


@pytest.mark.parametrize("name", ["lda", "few", "start", "hdp"])
def test_checkpoints_of_an_older_release__continue_with_exact_counts(corpus, tmp_path, name):
    """Drifted counts, even negative ones, are recomputed from the responsibilities."""
    options = {"topics": TOPICS, "iterations": 4, "checkpoint_every": 1, "scheduler": "serial", **FITS[name]}
    options = (
        options if name != "start" else {**options, "init_strength": 64.0}
    )  # which single precision has room beside
    fit(corpus, tmp_path / "run", **options)
    shutil.copytree(tmp_path / "run", tmp_path / "same")
    rewrite(tmp_path / "run", of_release_0_1)
    assert min(local["document_counts"].min() for _, local in locals_of(tmp_path / "run", corpus)) < -1e-3
    model, same = (resume(tmp_path / place, iterations=ITERATIONS, scheduler="serial") for place in ("run", "same"))
    require_exact(tmp_path / "run", corpus)
    if name != "start":  # pseudo-counts were rounded beside counts
        assert bits(model, 1) == bits(same, 1)


def test_documents_of_an_older_release__have_no_proportions_below_zero(corpus, tmp_path):
    model = fit(corpus, tmp_path / "run", family="lda", topics=TOPICS, iterations=3, scheduler="serial", alpha=1e-4)
    documents: LocalState = model.local_state(0)
    arrays = of_release_0_1({name: np.array(values) for name, values in documents.to_arrays().items()})
    assert arrays["document_counts"].min() < -1e-3
    theta = model.family.infer(type(documents).from_arrays(arrays), model.global_state)["document_topic"]
    assert theta.min() >= 0.0
    np.testing.assert_allclose(theta.sum(axis=1), 1.0)

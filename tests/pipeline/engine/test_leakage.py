"""Scoring tokens or documents that a model was fitted to is refused, and nothing else is."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import compare, evaluate, explode, fit, split
from collapsium.pipeline.engine.leakage import shared_documents, shared_tokens
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import LINEAGE, Lineage, Step, lineage_of
from collapsium.storage.errors import DamagedError, MismatchError
from tests.conftest import simulated_labels, simulated_rows, write_corpus

SMALL = {"family": "lda", "topics": 2, "iterations": 1, "scheduler": "serial"}
OTHER = "0" * 64


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A corpus, splits of it of several kinds, and a fit to the training tokens of one."""
    place = tmp_path_factory.mktemp("leakage")
    write_corpus(place / "whole", simulated_rows(1), 30, shard_tokens=900)
    split(place / "whole", place / "train", place / "held", fraction=0.2)
    split(place / "whole", place / "train-1", place / "held-1", fraction=0.2, seed=1)
    split(place / "whole", place / "known", place / "new", documents=True, fraction=0.3)
    fit(place / "train", place / "run", **SMALL)
    fit(place / "known", place / "known-run", **SMALL)
    return place


def copied(corpus, out, *, bare=False):
    shutil.copytree(corpus, out)
    if bare:
        (Path(out) / LINEAGE).unlink()
    return out


@pytest.mark.parametrize("corpus", ["train", "whole", "held-1", "train-1"])
def test_tokens_that_were_fitted__are_not_scored_as_held_out(place, tmp_path, corpus):
    heldout = copied(place / corpus, tmp_path / "copy")
    with pytest.raises(MismatchError, match="`split` holds tokens out"):
        evaluate(place / "run", heldout=heldout)
    with pytest.raises(MismatchError, match="tokens that were fitted"):
        fit(place / "train", tmp_path / "run", heldout=heldout, **SMALL)
    with pytest.raises(MismatchError, match="tokens that were fitted"):
        compare(place / "train", tmp_path / "out", heldout=heldout, families=("lda",))
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "out").exists()


def test_held_out_tokens__are_still_scored_after_folders_are_moved_or_exploded(place, tmp_path):
    moved = {name: copied(place / name, tmp_path / name) for name in ("run", "held")}
    assert evaluate(moved["run"], heldout=moved["held"]) == evaluate(place / "run", heldout=place / "held")


def test_the_complete_corpus__is_refused_as_training_corpus_of_its_held_out_part(place, tmp_path):
    with pytest.raises(MismatchError, match="was split from the training corpus"):
        fit(place / "whole", tmp_path / "run", heldout=place / "held", **SMALL)
    fit(place / "train-1", tmp_path / "other", **SMALL)
    with pytest.raises(MismatchError, match="different seeds"):
        fit(place / "train", tmp_path / "run", heldout=place / "held", warm=tmp_path / "other", **SMALL)


def test_documents_that_were_fitted__are_not_unseen(place, tmp_path):
    for corpus in ("train", "whole", "train-1", "held"):
        with pytest.raises(MismatchError, match="documents that were fitted"):
            evaluate(place / "run", unseen=place / corpus)
    with pytest.raises(MismatchError, match="scored with `heldout`"):
        evaluate(place / "run", unseen=place / "held")
    split(place / "new", tmp_path / "observed", tmp_path / "scored", fraction=0.5)
    split(place / "new", tmp_path / "observed-1", tmp_path / "scored-1", fraction=0.5, seed=1)
    for unseen, heldout in (("observed", "observed"), ("observed", "scored-1")):
        with pytest.raises(MismatchError, match="tokens that were fitted"):
            evaluate(place / "known-run", unseen=tmp_path / unseen, heldout=tmp_path / heldout)
    found = evaluate(place / "known-run", unseen=tmp_path / "observed", heldout=tmp_path / "scored")
    assert found.tokens == Corpus(tmp_path / "scored").manifest.tokens
    assert evaluate(place / "known-run", unseen=place / "new").documents == Corpus(place / "new").manifest.documents


def test_documents_that_were_fitted__are_recognised_by_ids_and_words_without_a_lineage(place, tmp_path):
    write_corpus(tmp_path / "again", simulated_rows(1), 30, shard_tokens=300)
    write_corpus(tmp_path / "others", simulated_rows(4), 30)
    split(tmp_path / "again", tmp_path / "known", tmp_path / "new", documents=True, fraction=0.3)
    for name in ("again", "known"):
        with pytest.raises(MismatchError, match="with the same ids and words"):
            evaluate(place / "known-run", unseen=tmp_path / name)
    for name in ("new", "others"):
        assert np.isfinite(evaluate(place / "known-run", unseen=tmp_path / name).score)
    shutil.move(place / "known", tmp_path / "moved")
    try:
        assert np.isfinite(evaluate(place / "known-run", unseen=tmp_path / "known").score)
    finally:
        shutil.move(tmp_path / "moved", place / "known")


def test_documents_with_other_labels__are_unseen_for_families_that_use_labels(tmp_path):
    rows, labels = simulated_rows(2), simulated_labels(np.random.default_rng(0).dirichlet(np.ones(3), 60))
    write_corpus(tmp_path / "train", rows, 30, labels=labels)
    write_corpus(tmp_path / "same", rows, 30, labels=labels, shard_tokens=300)
    write_corpus(tmp_path / "other", rows, 30, labels=[*labels[1:], labels[0]], shard_tokens=300)
    fit(tmp_path / "train", tmp_path / "run", family="labeled-lda", iterations=2, scheduler="serial")
    assert evaluate(tmp_path / "run", unseen=tmp_path / "other", field=["kind"]).fields
    with pytest.raises(MismatchError, match="with the same ids and words"):
        evaluate(tmp_path / "run", unseen=tmp_path / "same", field=["kind"])


def test_only_folds_with_the_same_seed__are_unseen_by_one_another(place, tmp_path):
    parts = {}
    for fold in range(3):
        names = [tmp_path / f"{part}{fold}" for part in ("train", "test")]
        split(place / "whole", *names, folds=3, fold=fold)
        parts[fold] = [lineage_of(Corpus(name)) for name in names]
    for first in range(3):
        for second in range(3):
            assert shared_documents(parts[first][0], parts[second][1], "it").disjoint == (first == second)
            assert shared_documents(parts[first][1], parts[second][1], "it").disjoint == (first != second)


def test_held_out_labels__may_be_predicted_for_known_documents_with_a_notice(tmp_path):
    rows, labels = simulated_rows(2), simulated_labels(np.random.default_rng(0).dirichlet(np.ones(3), 60))
    write_corpus(tmp_path / "whole", rows, 30, labels=labels)
    split(tmp_path / "whole", tmp_path / "some", tmp_path / "others", drop_labels=0.3)
    fit(tmp_path / "some", tmp_path / "run", family="labeled-lda", iterations=2, scheduler="serial")
    found = evaluate(tmp_path / "run", unseen=tmp_path / "others", field=["kind"])
    assert "with other labels" in found.definition
    with pytest.raises(MismatchError, match="documents that were fitted"):
        evaluate(tmp_path / "run", unseen=tmp_path / "whole")


def test_segments_of_two_parts__are_as_separate_as_the_parts(tmp_path):
    rows = [[row, dict(row)] for row in simulated_rows(3)]
    write_corpus(tmp_path / "whole", rows, 30, segmented=True)
    split(tmp_path / "whole", tmp_path / "train", tmp_path / "held", fraction=0.3)
    for name in ("whole", "train", "held"):
        explode(tmp_path / name, tmp_path / f"{name}-flat")
    fit(tmp_path / "train-flat", tmp_path / "run", heldout=tmp_path / "held-flat", **SMALL)
    with pytest.raises(MismatchError, match="tokens that were fitted"):
        evaluate(tmp_path / "run", heldout=tmp_path / "whole-flat")


def test_a_damaged_lineage__is_an_error(place, tmp_path):
    copy = copied(place / "held", tmp_path / "copy")
    (copy / LINEAGE).write_bytes((copy / LINEAGE).read_bytes().replace(b'"tokens"', b'"labels"'))
    with pytest.raises(DamagedError, match=LINEAGE):
        evaluate(place / "run", heldout=copy)


@given(st.integers(0, 3), st.integers(0, 3), st.floats(0.1, 0.4), st.floats(0.1, 0.4))
def test_splits_of_one_seed_with_two_fractions__are_separate_if_the_intervals_are(first_seed, other_seed, low, high):
    def part(seed, fraction, heldout):
        step = Step(corpus=OTHER, kind="tokens", seed=seed, high=fraction, heldout=heldout)
        return Lineage(corpus=f"{seed}{heldout:d}".rjust(64, "1"), steps=(step,))

    held_in_both = first_seed == other_seed and high <= low
    assert shared_tokens(part(first_seed, low, False), part(other_seed, high, True), "it").disjoint == held_in_both
    assert shared_tokens(part(first_seed, low, True), part(other_seed, high, True), "it").shared is not None

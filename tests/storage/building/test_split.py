import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.building import split
from collapsium.storage.building.split import Held, document_draws, held_out_counts, split_corpus, split_documents
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import InputError, OccupiedError, OptionError
from tests.conftest import simulated_rows, write_corpus
from tests.storage.readers.test_readers import rows_of
from tests.strategies import bags, documents_of


@given(bags(max_documents=8), st.floats(0.05, 0.95), st.integers(-3, 99), st.integers(1, 7))
def test_split__divides_all_tokens_independently_of_the_chunks(drawn, fraction, seed, cut):
    documents = documents_of(drawn[0])
    whole = held_out_counts(documents, 0, fraction, seed)
    assert (whole >= 0).all()
    assert (whole <= documents.counts).all()
    cut = min(cut, len(documents))
    parts = [
        held_out_counts(documents.slice(0, cut), 0, fraction, seed),
        held_out_counts(documents.slice(cut, len(documents)), cut, fraction, seed),
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    kept, held = split_documents(documents, 0, fraction, seed)
    assert kept.counts.sum() + held.counts.sum() == documents.counts.sum()
    assert kept.ids.equals(held.ids)


def test_split__holds_out_each_token_with_the_given_probability():
    documents = documents_of([dict.fromkeys(range(50), 3) for _ in range(400)])
    for seed in (0, 1):
        held = held_out_counts(documents, 0, 0.1, seed)
        assert abs(held.sum() / 60_000 - 0.1) < 4 * np.sqrt(0.09 / 60_000)
        shares = np.bincount(held, minlength=4) / held.size
        np.testing.assert_allclose(shares, [0.729, 0.243, 0.027, 0.001], atol=0.012)
    assert (held_out_counts(documents, 0, 0.1, 0) != held_out_counts(documents, 0, 0.1, 1)).any()


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_split__draws_the_same_tokens_in_parts_of_any_size(size, monkeypatch):
    documents = documents_of([{0: 40, 1: 1}, {}, {2: 3, 5: 8, 6: 21}, {1: 1}])
    held = held_out_counts(documents, 3, 0.3, 5)
    assert held.tolist() == [10, 1, 3, 5, 7, 0]
    monkeypatch.setattr(split, "MAX_DRAWS", size)
    np.testing.assert_array_equal(held_out_counts(documents, 3, 0.3, 5), held)


def test_split__needs_no_memory_for_each_token_of_a_long_document():
    documents = documents_of([{0: 6_000_000, 1: 2}])
    tracemalloc.start()
    held = held_out_counts(documents, 0, 0.25, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert abs(held[0] / 6_000_000 - 0.25) < 0.001
    assert peak < 100_000_000


@given(st.integers(0, 60), st.integers(-3, 99), st.integers(0, 60), st.integers(2, 7))
def test_documents__are_held_out_depending_on_their_number_only(documents, seed, cut, folds):
    draws = document_draws(0, documents, seed)
    cut = min(cut, documents)
    parts = [document_draws(0, cut, seed), document_draws(cut, documents - cut, seed)]
    np.testing.assert_array_equal(np.concatenate(parts), draws)
    assert ((draws >= 0) & (draws < 1)).all()
    held = [Held.fold(folds, fold).among(draws) for fold in range(folds)]
    assert (np.sum(held, axis=0) == 1).all() if documents else True
    np.testing.assert_array_equal(Held.share(1 / folds).among(draws), held[0])


def test_documents__are_held_out_with_the_given_probability_independently_of_their_tokens():
    draws = document_draws(0, 60_000, 4)
    for fraction in (0.1, 0.5):
        assert abs(Held.share(fraction).among(draws).mean() - fraction) < 4 * np.sqrt(
            fraction * (1 - fraction) / 60_000
        )
    assert abs(np.corrcoef(draws, document_draws(0, 60_000, 5))[0, 1]) < 4 / np.sqrt(60_000)
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 4 / np.sqrt(60_000)
    documents = documents_of([{0: 1} for _ in range(60_000)])
    tokens = held_out_counts(documents, 0, 0.5, 4)
    assert abs(np.corrcoef(draws, tokens)[0, 1]) < 4 / np.sqrt(60_000)


def test_take__keeps_documents_with_their_pairs_and_columns():
    extras = {"title": pa.array(["p", "q", "r"]), "segments": pa.array([[1], [], [1, 1]], pa.list_(pa.int32()))}
    found = replace(documents_of([{0: 1}, {}, {1: 2, 2: 1}]), extras=extras).take(np.array([False, True, True]))
    assert found.ids.to_pylist() == documents_of([{}] * 3).ids.to_pylist()[1:]
    assert found.offsets.tolist() == [0, 0, 2]
    assert (found.words.tolist(), found.counts.tolist()) == ([1, 2], [2, 1])
    assert found.extras["title"].to_pylist() == ["q", "r"]
    assert found.extras["segments"].to_pylist() == [[], [1, 1]]


def test_split_corpus__keeps_ids_words_and_shards(tmp_path):
    rows = simulated_rows(3)
    corpus = Corpus(write_corpus(tmp_path / "c", rows, 30, shard_tokens=600))
    split_corpus(corpus, tmp_path / "train", tmp_path / "held", fraction=0.3, seed=2)
    train, held = Corpus(tmp_path / "train"), Corpus(tmp_path / "held")
    together = [
        {word: a.get(word, 0) + b.get(word, 0) for word in {*a, *b}}
        for a, b in zip(rows_of(train), rows_of(held), strict=True)
    ]
    assert together == rows
    for part, heldout, both in zip(train.manifest.shards, held.manifest.shards, corpus.manifest.shards, strict=True):
        assert part.ids_sha256 == heldout.ids_sha256 == both.ids_sha256
    assert train.manifest.vocabulary.words_sha256 == held.manifest.vocabulary.words_sha256
    with pytest.raises(OccupiedError):
        split_corpus(corpus, tmp_path / "train", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, float("nan")])
def test_split_corpus__refuses_a_fraction_out_of_range(tmp_path, fraction):
    corpus = Corpus(write_corpus(tmp_path / "c", [{0: 5}], 1))
    with pytest.raises(OptionError, match="fraction"):
        split_corpus(corpus, tmp_path / "a", tmp_path / "b", fraction=fraction)


def test_split_corpus__leaves_nothing_if_a_part_has_no_tokens(tmp_path):
    corpus = Corpus(write_corpus(tmp_path / "c", [{0: 1}], 1))
    with pytest.raises(InputError, match="empty"):
        split_corpus(corpus, tmp_path / "a", tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]
    with pytest.raises(OptionError, match="two folders"):
        split_corpus(corpus, tmp_path / "a", tmp_path / "a")


@pytest.mark.parametrize(("train", "heldout"), [("a", "a"), ("a", "a/b"), ("a/b", "a")])
def test_parts_inside_each_other__are_refused_before_anything_is_made(tmp_path, train, heldout):
    corpus = Corpus(write_corpus(tmp_path / "corpus", simulated_rows(1, documents=12), 30))
    with pytest.raises(OptionError, match="need two folders, side by side"):
        split_corpus(corpus, tmp_path / train, tmp_path / heldout)
    assert not (tmp_path / "a").exists()

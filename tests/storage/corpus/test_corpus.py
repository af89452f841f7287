import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline.analysis.verify import corpus_faults
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.corpus.shard import Documents, Shard, merge_segments
from collapsium.storage.corpus.vocabulary import named_unknown, read_words
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.errors import AbsentError, DamagedError, InputError, MismatchError, OccupiedError
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.io.records import dump
from tests.conftest import write_corpus
from tests.storage.readers.test_readers import rows_of
from tests.strategies import bags, documents_of


def test_vocabularies__have_one_word_per_line_or_are_features_of_10x():
    assert read_words("v", b"ship\r\nmast rope\r\n") == ["ship", "mast rope"]
    three = b"G1\tACTB\tGene Expression\nG2\tTBCE\tGene Expression\nG3\tTBCE\tGene Expression\n"
    assert read_words("features.tsv", three) == ["ACTB", "G2", "G3"]
    assert read_words("genes.tsv", b"G1\tACTB\nG2\tTBCE\n") == ["ACTB", "TBCE"]
    for lines, where in (
        (b"ship\t3\nsail\t4\n", 1),
        (b"ship\nsail\tx\n", 2),
        (b"G1\tACTB\nG2\n", 1),
        (b"G1\tA\nG2\t \n", 2),
    ):
        with pytest.raises(InputError, match=rf"v: line {where}: expected one word, or id, name and type of a feature"):
            read_words("v", lines)


def test_unknown_words__are_named_with_the_nearest_regardless_of_case():
    assert named_unknown(["Ship", "BREAD"], ["ship", "bread", "Shop"]) == (
        "'Ship' (did you mean 'ship' or 'Shop'?), 'BREAD' (did you mean 'bread'?)"
    )


@given(bags(max_documents=12), st.integers(1, 20), st.integers(1, 5))
def test_shards__are_cut_by_tokens_for_any_division_of_the_documents(tmp_path_factory, drawn, shard_tokens, portion):
    rows, vocabulary = drawn
    place = tmp_path_factory.mktemp("cut")
    manifests = []
    for name, size in (("one", portion), ("other", len(rows))):
        with created(Folder(place / name)) as folder:
            writer = CorpusWriter(folder, vocabulary, shard_tokens)
            ids = [str(n) for n in range(len(rows))]
            for first in range(0, len(rows), size):
                writer.add(documents_of(rows[first : first + size], ids[first : first + size]))
            manifests.append(writer.finish([f"w{n}" for n in range(vocabulary)]))
    assert manifests[0].digest == manifests[1].digest
    assert rows_of(Corpus(place / "one")) == rows
    tokens = sum(sum(row.values()) for row in rows)
    assert len(manifests[0].shards) <= -(-tokens // shard_tokens)
    assert all(shard.tokens > 0 for shard in manifests[0].shards)


def test_default_shards__have_equal_sizes(tmp_path):
    corpus = Corpus(write_corpus(tmp_path / "c", [{0: 1000}] * 450, 1))
    assert [shard.tokens for shard in corpus.manifest.shards] == [113_000, 112_000, 113_000, 112_000]


def test_empty_documents_at_the_end__make_no_separate_shard(tmp_path):
    corpus = Corpus(write_corpus(tmp_path / "c", [{0: 5}, {0: 5}, {}, {}], 1, shard_tokens=5))
    assert [shard.documents for shard in corpus.manifest.shards] == [1, 3]


def test_segments_labels_and_titles__are_stored_and_segments_merged_for_sweeps(tmp_path):
    documents = Documents(
        ids=pa.array(["x", "y"]),
        offsets=np.array([0, 4, 5]),
        words=np.array([0, 2, 0, 1, 1], dtype=np.int32),
        counts=np.array([1, 2, 3, 4, 5], dtype=np.int32),
        extras={
            "title": pa.array(["X", "Y"]),
            "labels": pa.array([[{"field": "kind", "value": "a"}], []], LABELS),
            "segments": pa.array([[2, 2], [1]], pa.list_(pa.int32())),
        },
    )
    with created(Folder(tmp_path / "c")) as folder:
        writer = CorpusWriter(folder, 3)
        writer.add(documents)
        writer.finish(["p", "q", "r"])
    reference = Corpus(tmp_path / "c").references[0]
    again = reference.documents()
    assert {name: column.to_pylist() for name, column in again.extras.items()} == {
        name: column.to_pylist() for name, column in documents.extras.items()
    }
    merged = merge_segments(again)
    assert merged.words.tolist() == [0, 1, 2, 1]
    assert merged.counts.tolist() == [4, 4, 2, 5]
    assert merged.offsets.tolist() == [0, 3, 4]
    shard = reference.load()
    assert shard.words.tolist() == [0, 1, 2]
    assert shard.tokens == 15
    assert Corpus(tmp_path / "c").vocabulary.documents.tolist() == [1, 2, 1]
    halved = again.with_counts(np.array([1, 0, 3, 0, 0], dtype=np.int32))
    assert halved.extras["segments"].to_pylist() == [[1, 1], [0]]
    assert halved.words.tolist() == [0, 0]


SEGMENTS = pa.list_(pa.int32())


@given(st.lists(st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=4) | st.none(), max_size=5), st.integers(0))
def test_segments__keep_their_pairs_for_any_counts_and_may_be_empty(lists, seed):
    drawn = [[] if segments is None else segments for segments in lists]
    flat = [count for document in drawn for segment in document for count in segment]
    lengths = [None if segments is None else list(map(len, segments)) for segments in lists]
    documents = Documents(
        ids=pa.array(list(map(str, range(len(lists)))), pa.string()),
        offsets=np.cumsum([0, *(sum(map(len, document)) for document in drawn)]).astype(np.int64),
        words=np.array(
            [word for document in drawn for segment in document for word in range(len(segment))], dtype=np.int32
        ),
        counts=np.full(len(flat), 2, dtype=np.int32),
        extras={"segments": pa.array(lengths, SEGMENTS)},
    )
    found = documents.with_counts(np.array(flat, dtype=np.int32))
    left = [[sum(count > 0 for count in segment) for segment in document] for document in drawn]
    assert found.extras["segments"].to_pylist() == left
    assert np.diff(found.offsets).tolist() == list(map(sum, left))
    first = seed % (len(lists) + 1)
    part = documents.slice(first, len(lists)).with_counts(np.array(flat, dtype=np.int32)[documents.offsets[first] :])
    assert part.extras["segments"].to_pylist() == left[first:]


@pytest.mark.parametrize(
    ("words", "lengths", "message"),
    [
        ([0, 1, 0], [[1, 1], [0]], "expected segments with as many pairs as their document"),
        ([0, 1, 0], [[2], None], "expected segments with as many pairs as their document"),
        ([1, 0, 0], [[2], [1]], "expected each word once in a segment, in ascending order"),
        ([1, 1, 0], [[2], [1]], "expected each word once in a segment, in ascending order"),
        ([1, 0, 0], [[1, 0, 1], [0, 1]], ""),
    ],
)
def test_segments_that_do_not_match_the_pairs__are_refused(tmp_path, words, lengths, message):
    numbers = np.array(words, dtype=np.int32)
    extras = {"segments": pa.array(lengths, SEGMENTS)}
    with created(Folder(tmp_path / "c")) as folder:
        writer = CorpusWriter(folder, 2)
        ids, ones = pa.array(["x", "y"]), np.ones(3, dtype=np.int32)
        writer.add(Documents(ids, np.array([0, 2, 3]), numbers, ones, extras))
        writer.finish(["p", "q"])
    faults = [fault for fault in corpus_faults(Folder(tmp_path / "c")) if fault]
    assert message in "".join(faults)
    assert bool(faults) == bool(message)


@given(bags())
def test_shard__numbers_the_words_that_occur(drawn):
    rows, _ = drawn
    shard = Shard.of(3, documents_of(rows))
    assert shard.words.tolist() == sorted(set().union(*rows))
    found = [{} for _ in rows]
    for document, (first, last) in enumerate(zip(shard.offsets, shard.offsets[1:], strict=False)):
        for pair in range(first, last):
            found[document][int(shard.words[shard.position[pair]])] = int(shard.counts[pair])
    assert found == rows
    assert shard.lengths.tolist() == [sum(row.values()) for row in rows]


def damaged(path, **changes):
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.update(changes)
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "c", [{0: 1, 1: 2}, {1: 1}], 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 5}, "field 'version': 5 is unknown; this release reads versions 1 to 4"),
        ({"fields": {"title": "string"}}, "do not match the digest in the file"),
        ({"format": "other"}, "field 'format': expected 'collapsium-corpus'"),
        ({"tokens": 5}, "the shards' tokens do not add up"),
        ({"tokens": "many"}, "field 'tokens'"),
        ({"surprise": 1}, "field 'surprise'"),
    ],
)
def test_manifest__is_validated(corpus, changes, message):
    damaged(corpus, **changes)
    with pytest.raises(DamagedError, match="manifest.json") as raised:
        Corpus(corpus)
    assert message in str(raised.value)


def test_a_manifest_that_is_not_json__is_refused(corpus):
    (corpus / "manifest.json").write_text("{")
    with pytest.raises(DamagedError, match="expected JSON"):
        Corpus(corpus)


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "documents/../../x", "a\\b", ""])
def test_manifest__cannot_name_files_outside_of_its_folder(corpus, name):
    manifest = json.loads((corpus / "manifest.json").read_text())
    manifest["shards"][0]["file"] = name
    (corpus / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DamagedError, match="would leave the folder"):
        Corpus(corpus)


def test_a_flipped_bit__is_detected(corpus):
    for name, read in (
        ("documents/part-00000.parquet", lambda c: c.references[0].load()),
        ("vocabulary.parquet", lambda c: c.vocabulary),
    ):
        data = bytearray((corpus / name).read_bytes())
        data[len(data) // 2] ^= 4
        (corpus / name).write_bytes(data)
        with pytest.raises(DamagedError, match=name):
            read(Corpus(corpus))


def test_word_ids_outside_the_vocabulary__are_refused_even_with_correct_digests(tmp_path):
    path = write_corpus(tmp_path / "c", [{0: 1, 5: 2}], 6)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["vocabulary"]["words"] = 5
    del manifest["sha256"]
    (path / "manifest.json").write_bytes(dump(manifest))
    with pytest.raises(DamagedError, match="expected word ids from 0 to 4"):
        Corpus(path).references[0].load()


def test_absent_corpora__are_clear_errors(tmp_path):
    with pytest.raises(AbsentError, match="no such corpus"):
        Corpus(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(AbsentError, match="not a corpus"):
        Corpus(tmp_path / "empty")
    with pytest.raises(FileNotFoundError):  # also the built-in error that a caller expects
        Corpus(tmp_path / "none")


def test_another_vocabulary__is_a_mismatch(corpus, tmp_path):
    smaller = Corpus(write_corpus(tmp_path / "other", [{0: 1}], 3))
    with pytest.raises(MismatchError, match="differs from"):
        smaller.require_vocabulary_of(Corpus(corpus).manifest.vocabulary.words_sha256, "c")


def test_created__leaves_nothing_on_failure_and_refuses_existing_folders(tmp_path):
    with pytest.raises(RuntimeError, match="on purpose"), created(Folder(tmp_path / "c")) as folder:
        folder.write("a/b", b"x")
        raise RuntimeError("on purpose")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "c").mkdir()
    with pytest.raises(OccupiedError, match="exists already"), created(Folder(tmp_path / "c")):
        pytest.fail("not reached")


def test_memory_file_system__can_store_a_corpus():
    rows = [{0: 1}, {}, {1: 2}]
    write_corpus("memory://there/corpus", rows, 2)
    assert rows_of(Corpus("memory://there/corpus")) == rows
    with pytest.raises(OccupiedError):
        write_corpus("memory://there/corpus", rows, 2)
    Folder("memory://there").remove()
    assert not Folder("memory://there/corpus").exists()

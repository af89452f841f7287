import gzip
import json
import os

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given

from collapsium.pipeline import ingest as ingest_source
from collapsium.storage.building.ingest import ingest
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import AbsentError, CollapsiumError, InputError, OptionError
from collapsium.storage.readers.open import ReadOptions, guess_format, open_source
from tests.strategies import bags

VOCABULARY = "a\nb\nc\n"


def put(folder, name, text):
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def rows_of(corpus):
    """Return a corpus on disk as a list of {word: count}."""
    found = []
    for reference in corpus.references:
        documents = reference.documents()
        for first, last in zip(documents.offsets, documents.offsets[1:], strict=False):
            words, counts = documents.words[first:last].tolist(), documents.counts[first:last].tolist()
            assert words == sorted(words)
            found.append(dict(zip(words, counts, strict=True)))
    return found


def write(kind, folder, rows, vocabulary):
    """Write rows in a format; return the path."""
    put(folder, "vocab.txt", "".join(f"w{n}\n" for n in range(vocabulary)))
    if kind in ("uci", "uci.gz"):
        pairs = [(d + 1, w + 1, row[w]) for d, row in enumerate(rows) for w in sorted(row)]
        text = f"{len(rows)}\n{vocabulary}\n{len(pairs)}\n" + "".join(f"{d} {w} {c}\n" for d, w, c in pairs)
        if kind == "uci":
            return put(folder, "docword.x.txt", text)
        return put(folder, "docword.x.txt.gz", gzip.compress(text.encode()))
    if kind == "ldac":
        lines = [" ".join([str(len(row)), *(f"{w}:{row[w]}" for w in sorted(row))]) for row in rows]
        return put(folder, "x.ldac", "\n".join(lines) + "\n")
    matrix = scipy.sparse.lil_matrix((len(rows), vocabulary), dtype=np.int64)
    for d, row in enumerate(rows):
        for w, count in row.items():
            matrix[d, w] = count
    path = str(folder / f"x.{kind}")
    if kind == "npz":
        scipy.sparse.save_npz(path, matrix.tocsc())
    else:
        scipy.io.mmwrite(path, matrix.tocsc())
    return path


@pytest.mark.parametrize("kind", ["uci", "uci.gz", "ldac", "mtx", "npz"])
@given(bags())
def test_counted_formats__preserve_all_documents_words_and_counts(tmp_path_factory, kind, drawn):
    rows, vocabulary = drawn
    folder = tmp_path_factory.mktemp("formats")
    path = write(kind, folder, rows, vocabulary)
    source = open_source([path], kind.removesuffix(".gz"), ReadOptions(vocabulary=str(folder / "vocab.txt")))
    manifest = ingest(source, folder / "corpus")
    corpus = Corpus(folder / "corpus")
    assert rows_of(corpus) == rows
    assert corpus.vocabulary.words == [f"w{n}" for n in range(vocabulary)]
    assert manifest.documents == len(rows)
    assert manifest.tokens == sum(sum(row.values()) for row in rows)
    frequency = [sum(w in row for row in rows) for w in range(vocabulary)]
    assert corpus.vocabulary.documents.tolist() == frequency
    assert corpus.vocabulary.tokens.tolist() == [sum(row.get(w, 0) for row in rows) for w in range(vocabulary)]


BAD_UCI = {
    "a wrong header": ("two\n3\n1\n1 1 1\n", "line 1: expected the number of documents, found 'two'"),
    "no header": ("", "line 1: expected the number of documents, found the end of the file"),
    "a document out of range": ("2\n3\n1\n3 1 1\n", "line 4: expected a document from 1 to 2, found '3 1 1'"),
    "a document of zero": ("2\n3\n1\n0 1 1\n", "line 4: expected a document from 1 to 2"),
    "a word out of range": ("2\n3\n2\n1 1 1\n1 4 1\n", "line 5: expected a word from 1 to 3, found '1 4 1'"),
    "a negative count": ("2\n3\n1\n1 1 -2\n", "line 4: expected a count of 1 or more, found '1 1 -2'"),
    "a zero count": ("2\n3\n1\n1 1 0\n", "line 4: expected a count of 1 or more"),
    "a fractional count": ("2\n3\n1\n1 1 1.5\n", "line 4: expected three whole numbers, found '1 1 1.5'"),
    "a huge count": (
        "2\n3\n1\n1 1 99999999999\n",
        "line 4: expected a count of at most 2,147,483,647, found '1 1 99999999999'",
    ),
    "a word that is text": ("2\n3\n1\n1 b 1\n", "line 4: expected three whole numbers"),
    "two fields": ("2\n3\n1\n1 1\n", "line 4: expected three whole numbers"),
    "an empty line": ("2\n3\n2\n1 1 1\n\n2 1 1\n", "line 5: expected three whole numbers, found an empty line"),
    "documents out of order": ("2\n3\n2\n2 1 1\n1 1 1\n", "line 5: out of order"),
    "words out of order": ("2\n3\n2\n1 2 1\n1 1 1\n", "line 5: out of order"),
    "a pair twice": ("2\n3\n2\n1 2 1\n1 2 1\n", "line 5: out of order"),
    "too few pairs": ("2\n3\n3\n1 1 1\n1 2 1\n", "expected 3 pairs as line 3 says, found 2"),
    "too many pairs": ("2\n3\n1\n1 1 1\n1 2 1\n", "expected 1 pairs as line 3 says, found 2"),
    "no token": ("2\n3\n0\n", "the corpus is empty"),
    "another vocabulary": ("2\n4\n1\n1 1 1\n", "the header names 4 words, the vocabulary has 3"),
}
BAD_LDAC = {
    "a missing count": ("2 0:1 1\n", "line 1: expected WORD:COUNT in whole numbers, found '1'"),
    "fewer pairs": ("1 0:1\n3 0:1 1:1\n", "line 2: expected 3 pairs as its first number says, found 2"),
    "a word out of range": ("1 3:1\n", "line 1: expected a word from 0 to 2, found '3:1'"),
    "a negative word": ("1 -1:1\n", "line 1: expected a word from 0 to 2"),
    "a fractional count": ("1 0:1.5\n", "line 1: expected WORD:COUNT in whole numbers"),
    "a negative count": ("1 0:-1\n", "line 1: expected a count of 1 or more"),
    "a huge count": ("1 0:2147483648\n", "line 1: expected a count of at most 2,147,483,647, found '0:2147483648'"),
    "a word twice": ("2 0:1 0:2\n", "line 1: expected each word once, found '0'"),
    "an empty line": ("1 0:1\n\n", "line 2: expected a document's number of pairs first"),
    "no token": ("0\n", "the corpus is empty"),
}


def ingest_counts(path, corpus, **options):
    ingest(open_source([path], None, ReadOptions(**options)), corpus)


def check_refused(folder, path, message, read=ingest_counts, **options):
    with pytest.raises(InputError) as raised:
        read(path, folder / "corpus", **options)
    assert message in str(raised.value)
    assert path in str(raised.value)
    assert not [p.name for p in folder.iterdir() if "corpus" in p.name]


@pytest.mark.parametrize("name", BAD_UCI)
@pytest.mark.parametrize("packed", [False, True])
def test_invalid_uci_files__are_reported_and_leave_nothing(tmp_path, name, packed):
    text, message = BAD_UCI[name]
    put(tmp_path, "vocab.x.txt", VOCABULARY)
    data = gzip.compress(text.encode()) if packed else text
    check_refused(tmp_path, put(tmp_path, "docword.x.txt" + ".gz" * packed, data), message)


@pytest.mark.parametrize("name", BAD_LDAC)
def test_invalid_ldac_files__are_reported_and_leave_nothing(tmp_path, name):
    text, message = BAD_LDAC[name]
    put(tmp_path, "vocab.txt", VOCABULARY)
    check_refused(tmp_path, put(tmp_path, "x.ldac", text), message)


def test_a_fault_in_a_later_block_of_a_uci_file__is_reported_with_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr("collapsium.storage.readers.counts.BLOCK", 16)
    put(tmp_path, "vocab.x.txt", VOCABULARY)
    good = [f"{d} {w} 1" for d in range(1, 31) for w in (1, 3)]
    path = put(tmp_path, "docword.x.txt", f"31\n3\n{len(good)}\n" + "\n".join(good) + "\n")
    ingest(open_source([path]), tmp_path / "whole")
    assert rows_of(Corpus(tmp_path / "whole")) == [{0: 1, 2: 1}] * 30 + [{}]
    good[41] = "21 3 x"
    check_refused(
        tmp_path, put(tmp_path, "docword.x.txt", f"31\n3\n{len(good)}\n" + "\n".join(good) + "\n"), "line 45:"
    )


def test_empty_lines_at_the_end_of_a_uci_file__are_accepted(tmp_path):
    put(tmp_path, "vocab.x.txt", VOCABULARY)
    ingest(open_source([put(tmp_path, "docword.x.txt", "2\n3\n1\n1 1 1\n\n \n")]), tmp_path / "corpus")
    assert rows_of(Corpus(tmp_path / "corpus")) == [{0: 1}, {}]


def test_a_truncated_gzip_file__is_named(tmp_path):
    put(tmp_path, "vocab.x.txt", VOCABULARY)
    whole = gzip.compress(b"2\n3\n2\n1 1 1\n2 1 1\n")
    check_refused(tmp_path, put(tmp_path, "docword.x.txt.gz", whole[:-9]), "cut short or damaged")
    check_refused(
        tmp_path, put(tmp_path, "docword.x.txt.gz", b"not gzip at all"), "its name says gzip, but its bytes are not"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%%MatrixMarket matrix coordinate real general\n2 3 1\n1 1 1.5\n", "row 1, column 1: expected a whole count"),
        (
            "%%MatrixMarket matrix coordinate integer general\n2 3 1\n1 2 -1\n",
            "row 1, column 2: expected a whole count",
        ),
        ("%%MatrixMarket matrix coordinate integer general\n2 3 1\n3 1 1\n", "expected a sparse matrix"),
        ("%%MatrixMarket matrix coordinate integer general\n2 4 1\n1 1 1\n", "documents x 3 words"),
        ("%%MatrixMarket matrix array integer general\n1 3\n1\n1\n1\n", "found a dense one"),
        ("not a matrix\n", "expected a sparse matrix"),
        ("", "the file is empty"),
    ],
)
def test_invalid_mtx_files__are_reported_and_leave_nothing(tmp_path, text, message):
    put(tmp_path, "vocab.txt", VOCABULARY)
    check_refused(tmp_path, put(tmp_path, "x.mtx", text), message)


def test_invalid_npz_files__are_reported_and_never_unpickled(tmp_path):
    put(tmp_path, "vocab.txt", VOCABULARY)
    check_refused(tmp_path, put(tmp_path, "x.npz", b"PK\x03\x04 cut short"), "expected a sparse matrix")
    np.savez(tmp_path / "y.npz", data=np.array([object()], dtype=object), format=np.array("csr"))
    check_refused(tmp_path, str(tmp_path / "y.npz"), "expected a sparse matrix")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "1", "text": "cat"}\n{"id": "2"\n', "line 2: expected a JSON object"),
        ("[1]\n", "line 1: expected JSON lines, an object a line, found an array"),
        ('{"text": "cat"}\n', "line 1: no field 'id' (`id`); there are text"),
        ('{"id": "1", "text": 3}\n', "line 1: expected a string in field 'text'"),
        ('{"id": "1", "text": "cat"}\n{"id": "1", "text": "dog"}\n', "the document id '1' occurs twice"),
        ('{"id": "1", "text": "..."}\n', "the corpus is empty"),
        ("", "the corpus is empty"),
    ],
)
def test_invalid_jsonl_files__are_reported_and_leave_nothing(tmp_path, text, message):
    check_refused(tmp_path, put(tmp_path, "x.jsonl", text), message, read=ingest_source)


def test_jsonl__supports_other_fields_and_stop_words(tmp_path):
    lines = [{"key": 7, "body": "The cats and THE dogs; cats o’clock"}, {"key": 8, "body": "Überraschung x 42 a1"}]
    path = put(tmp_path, "x.jsonl", "\n".join(map(json.dumps, lines)) + "\n")
    ingest_source(path, tmp_path / "corpus", id="key", text="body")
    corpus = Corpus(tmp_path / "corpus")
    assert corpus.vocabulary.words == ["a1", "cats", "dogs", "o'clock", "überraschung"]
    assert corpus.references[0].documents().ids.to_pylist() == ["7", "8"]
    assert rows_of(corpus) == [{1: 2, 2: 1, 3: 1}, {0: 1, 4: 1}]
    ingest_source(path, tmp_path / "all", id="key", text="body", stop_words="none")
    assert "the" in Corpus(tmp_path / "all").vocabulary.words


def test_a_folder_of_texts__has_one_document_per_file(tmp_path):
    put(tmp_path, "texts/b.txt", "dog dog")
    put(tmp_path, "texts/a/one.txt", "cat")
    put(tmp_path, "texts/.hidden", "secret")
    put(tmp_path, "texts/empty.txt", "")
    ingest_source(tmp_path / "texts", tmp_path / "corpus")
    corpus = Corpus(tmp_path / "corpus")
    assert corpus.references[0].documents().ids.to_pylist() == ["a/one.txt", "b.txt", "empty.txt"]
    assert rows_of(corpus) == [{0: 1}, {1: 2}, {}]
    bad = put(tmp_path, "texts/bad.txt", b"a \xe9 b")
    check_refused(tmp_path / "texts", bad, "expected UTF-8 text", read=ingest_source)


def test_limits_of_document_frequency__drop_words_but_no_documents(tmp_path):
    rows = ["cat dog", "cat dog", "cat rare", "rare2"]
    path = put(tmp_path, "x.jsonl", "\n".join(json.dumps({"id": n, "text": text}) for n, text in enumerate(rows)))
    ingest_source(path, tmp_path / "corpus", min_documents=2, max_document_share=0.6)
    corpus = Corpus(tmp_path / "corpus")
    assert corpus.vocabulary.words == ["dog"]
    assert rows_of(corpus) == [{0: 1}, {0: 1}, {}, {}]
    with pytest.raises(InputError, match="no word is left of 4 after pruning"):
        ingest_source(path, tmp_path / "none", min_documents=9)
    assert not (tmp_path / "none").exists()


def test_several_sources__make_one_corpus_with_distinct_ids(tmp_path):
    put(tmp_path, "vocab.txt", VOCABULARY)
    paths = [put(tmp_path, name, "1 0:1\n1 2:3\n") for name in ("x.ldac", "y.ldac")]
    ingest(open_source(paths), tmp_path / "corpus")
    documents = Corpus(tmp_path / "corpus").references[0].documents()
    assert documents.ids.to_pylist() == ["x.ldac/1", "x.ldac/2", "y.ldac/1", "y.ldac/2"]
    assert rows_of(Corpus(tmp_path / "corpus")) == [{0: 1}, {2: 3}] * 2


def test_several_sources_with_the_same_name__have_distinct_ids_and_no_duplicates(tmp_path):
    vocabulary = put(tmp_path, "v.txt", VOCABULARY)
    paths = [put(tmp_path / place, "x.ldac", "1 0:1\n") for place in ("a", "b")]
    options = ReadOptions(vocabulary=vocabulary)
    ingest(open_source(paths, None, options), tmp_path / "corpus")
    assert Corpus(tmp_path / "corpus").references[0].documents().ids.to_pylist() == ["a/x.ldac/1", "b/x.ldac/1"]
    with pytest.raises(InputError, match="the same file is given twice"):
        open_source([paths[0], paths[0]], None, options)


def test_absent_files_and_unknown_formats__are_clear_errors(tmp_path):
    for name in ("docword.none.txt", "none.ldac", "none.mtx", "none.npz", "none.jsonl", "none.txt"):
        with pytest.raises(AbsentError, match="no such file"):
            ingest_source(tmp_path / name, tmp_path / "corpus")
    with pytest.raises(OptionError, match="its format does not follow from its name"):
        guess_format([put(tmp_path, "data.bin", "x")])
    with pytest.raises(OptionError, match="did you mean 'ldac'"):
        open_source(["x"], "lda-c")
    with pytest.raises(InputError, match="name one with `vocabulary`"):
        open_source([put(tmp_path, "x.ldac", "1 0:1\n")])
    put(tmp_path, "vocab.txt", "a\na\n")
    with pytest.raises(InputError, match="line 2: 'a' is already on line 1"):
        open_source([str(tmp_path / "x.ldac")])
    with pytest.raises(CollapsiumError, match="found a folder"):
        open_source([str(tmp_path)], "uci")


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.csv", "x.csv.zst", "x.txt", "x.mallet", "x.parquet", "docword.x.txt",
                                  "x.ldac", "x.mtx", "x.npz", "x.npy", "x.svmlight", "texts"])  # fmt: skip
def test_pipes_and_devices__do_not_block(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    if name == "texts":
        put(tmp_path, "texts/a.txt", "one two")
        os.mkfifo("texts/b.txt")
    else:
        os.mkfifo(name)
    with pytest.raises(InputError, match="expected a file, found a pipe or a device"):
        ingest_source(name, "corpus", scheduler="serial")
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("count", ["2147483648", "3e9"])
def test_svmlight__names_the_largest_count(tmp_path, count):
    message = f"line 2: expected a count of at most 2,147,483,647, found '2:{count}'"
    path = put(tmp_path, "x.svmlight", f"0 1:1\n1 2:{count}\n")
    check_refused(tmp_path, path, message, vocabulary=put(tmp_path, "words.txt", VOCABULARY))


@pytest.mark.parametrize("option", ["stop_words", "vocabulary"])
@pytest.mark.parametrize("place", ["./words.txt", "/dev/zero"])
def test_lists_of_words__must_be_files(tmp_path, monkeypatch, option, place):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("words.txt")
    put(tmp_path, "x.jsonl", '{"id": "a", "text": "one two"}\n')
    with pytest.raises(InputError, match="expected a file, found a pipe or a device"):
        ingest_source("x.jsonl", "corpus", scheduler="serial", **{option: place})

import bz2
import csv
import gzip
import io
import json
import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gensim.corpora import BleiCorpus, Dictionary
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.feature_extraction.text import CountVectorizer

from collapsium.pipeline import append, ingest
from collapsium.pipeline.cli.main import main
from collapsium.storage.building.ingest import ingest as ingest_in_turn
from collapsium.storage.building.ingest_record import Cuts, read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.word_rule import RULE, word_pattern
from collapsium.storage.errors import AbsentError, InputError, OccupiedError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.open import guess_format
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts import blocks, tables
from collapsium.storage.readers.texts.segment import Span
from tests.naive.texts import TextsInTurn

ROWS = [
    {
        "id": "a",
        "text": "the apple, and bread",
        "head": "First",
        "when": "1987-02-26",
        "topics": ["x", "y"],
        "stars": 4,
    },
    {"id": "b", "text": "", "head": None, "when": None, "topics": [], "stars": None},
    {
        "id": "c",
        "text": 'cheese\nbread\u00e9 "quoted"',
        "head": "Th,ird",
        "when": "1987",
        "topics": ["z"],
        "stars": 2.5,
    },
]
ASKED = {"title": "head", "date": "when", "labels": ["topic=topics"], "covariates": ["stars"]}


def put_lines(path, rows=ROWS):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def bags_of(corpus):
    corpus = Corpus(corpus)
    words, found = corpus.vocabulary.words, {}
    for reference in corpus.references:
        part = reference.documents()
        for name, a, b in zip(part.ids.to_pylist(), part.offsets, part.offsets[1:], strict=False):
            found[name] = {words[w]: int(c) for w, c in zip(part.words[a:b], part.counts[a:b], strict=True)}
    return found


def columns_of(corpus):
    parts = [reference.documents() for reference in Corpus(corpus).references]
    return {name: [value for part in parts for value in part.extras[name].to_pylist()] for name in parts[0].extras}


def test_texts__give_the_same_corpus_for_any_division_of_the_files(tmp_path_factory, monkeypatch):
    @settings(max_examples=12)
    @given(
        st.lists(st.lists(st.sampled_from(["aa", "bb", "cc", "the", "9"]), max_size=9), min_size=1, max_size=9),
        st.sampled_from([1, 40, 200]),
        st.sampled_from([1, 30]),
        st.integers(1, 9),
        st.integers(0, 2),
    )
    def same(texts, block, portion, shard_tokens, least):
        place = tmp_path_factory.mktemp("same")
        rows = [{"id": f"d{n}", "text": " ".join(words)} for n, words in enumerate(texts)]
        path = put_lines(place / "x.jsonl", rows)
        cuts = {"min_documents": least, "max_document_share": 0.9}
        try:
            options = {"cuts": Cuts(**cuts), "shard_tokens": shard_tokens}
            expected = ingest_in_turn(TextsInTurn(path), place / "in-turn", **options)
        except InputError as error:
            with pytest.raises(InputError, match=error.expected):
                ingest(path, place / "c", shard_tokens=shard_tokens, **cuts)
            return
        found = []
        for module, name, value in (
            (blocks, "BLOCK", block),
            (blocks, "CHUNK_BYTES", portion),
            (tables, "PIECE", portion),
        ):
            monkeypatch.setattr(module, name, value)
        monkeypatch.setattr(blocks.cut_blocks, "__defaults__", (block,))
        for scheduler, workers in (("serial", None), ("threads", 3)):
            folder = place / scheduler
            found.append(ingest(path, folder, shard_tokens=shard_tokens, scheduler=scheduler, workers=workers, **cuts))
            assert sorted(path.name for path in folder.iterdir()) == [
                "documents", "ingest.json", "manifest.json", "vocabulary.parquet"
            ]  # fmt: skip
        assert found == [expected, expected]
        assert (place / "serial/ingest.json").read_bytes() == (place / "threads/ingest.json").read_bytes()

    same()


CELLS = st.sampled_from(["aa", 'say "bb"', "cc\ndd", "ee\r\nff", "gg, hh", '5" ii', "", '"', "\n", "jj"])


def csv_bytes(table, quoting, line_end, bom):
    """Return comma-separated values of an id and a text; values with inner quotes are quoted only if `quoting` asks
    for it."""
    text = io.StringIO(newline="")
    csv.writer(text, quoting=quoting, lineterminator=line_end).writerows([("id", "text"), *table])
    return (b"\xef\xbb\xbf" if bom else b"") + text.getvalue().encode()


@given(
    st.lists(CELLS, max_size=30), st.integers(1, 60), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_rows__stay_complete_wherever_a_table_is_cut(tmp_path_factory, texts, block, quoting, line_end, bom, stray):
    path = tmp_path_factory.mktemp("cut") / "x.csv"
    # otherwise the writer would not quote values with other line ends
    quoting = csv.QUOTE_ALL if line_end == "\r" else quoting
    data = csv_bytes(enumerate(texts), quoting, line_end, bom)
    data += f'{len(texts)},a 5" disk{line_end}'.encode() * stray  # a quote within an unquoted value
    path.write_bytes(data)
    whole = Span(str(path), "x.csv", len(data))
    expected, found = [], []
    rows = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))

    class RecordingSink:
        side_file, guesses = False, {}

        def requested(self, path, names):
            return names

        def add(self, path, record, where):
            found.append((record["text"], where()))

    list(tables.gather_table(whole, ReadOptions(), RecordingSink()))
    expected, found = found, []
    assert [text for text, _ in expected] == [row["text"] for row in rows]
    spans = list(tables.row_spans(whole, block, ReadOptions()))
    for span in spans:
        list(tables.gather_table(span, ReadOptions(), RecordingSink()))
    if line_end == "\r":
        expected, found = [[text for text, _ in phrases] for phrases in (expected, found)]
    assert found == expected
    if spans != [whole]:
        assert [span.first for span in spans[1:]] == [span.last for span in spans[:-1]]
        assert max([span.last - span.first for span in spans], default=0) <= block + 40


def test_a_quote_that_is_not_closed__is_reported_and_the_rest_is_not_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "LONGEST", 100)
    monkeypatch.setattr(blocks.cut_blocks, "__defaults__", (20,))
    (tmp_path / "x.csv").write_text("id,text\n" + "1,aa\n" * 5 + '7,"bb\n' + "1,aa\n" * 99)
    assert len(list(blocks.cut_blocks([Span(str(tmp_path / "x.csv"), "x.csv", 541)], "csv", ReadOptions()))) == 3
    with pytest.raises(InputError, match="line 106: expected comma-separated values"):
        ingest(tmp_path / "x.csv", tmp_path / "c", scheduler="serial")


@pytest.mark.long
def test_texts__give_the_same_corpus_with_worker_processes(tmp_path, clusters, monkeypatch):
    paths = [put_lines(tmp_path / f"{n}.jsonl", [{**row, "id": f"{n}{row['id']}"} for row in ROWS]) for n in range(4)]
    monkeypatch.chdir(tmp_path)
    options = {"shard_tokens": 3, "phrases": "count", "phrase_count": 1, "phrase_threshold": 0.1, **ASKED}
    monkeypatch.setattr(blocks.cut_blocks, "__defaults__", (1,))
    serial = ingest(paths, tmp_path / "one", scheduler="serial", **options)
    names = [f"{n}.jsonl" for n in range(4)]
    parallel = ingest(names, tmp_path / "other", scheduler=clusters(2), **options)
    assert serial == parallel
    assert len(serial.shards) > 2


def write_parquet(path, rows, **options):
    labelled = [{**row, "stars": None if row["stars"] is None else float(row["stars"])} for row in rows]
    pq.write_table(pa.Table.from_pylist(labelled), path, **options)


@pytest.mark.parametrize(
    "kind", ["jsonl", "jsonl.gz", "jsonl.bz2", "jsonl.xz", "jsonl.zst", "csv", "csv.gz", "tsv", "parquet"]
)
def test_formats__give_the_same_documents(tmp_path, kind):
    path = tmp_path / f"x.{kind}"
    single_label = [{**row, "topics": (row["topics"] or [None])[0]} for row in ROWS]
    if kind == "parquet":
        write_parquet(path, ROWS, row_group_size=1)
    elif kind.startswith("jsonl"):
        data = Path(put_lines(tmp_path / "plain")).read_bytes()
        packers = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
        packers["zst"] = lambda data: pa.compress(data, "zstd", asbytes=True)
        path.write_bytes(packers.get(kind[6:], bytes)(data))
    else:
        with (gzip.open if kind.endswith("gz") else open)(path, "wt", newline="") as handle:
            writer = csv.DictWriter(handle, list(ROWS[0]), delimiter="\t" if kind == "tsv" else ",")
            writer.writeheader()
            writer.writerows(single_label)
    ingest(path, tmp_path / "c", stop_words="none", **ASKED)
    assert bags_of(tmp_path / "c") == {
        "a": {"the": 1, "apple": 1, "and": 1, "bread": 1},
        "b": {},
        "c": {"cheese": 1, "bread\u00e9": 1, "quoted": 1},
    }
    columns = columns_of(tmp_path / "c")
    several = kind == "parquet" or kind.startswith("jsonl")
    labels = [["x", "y"] if several else ["x"], [], ["z"]]
    assert columns["labels"] == [[{"field": "topic", "value": value} for value in label] for label in labels]
    assert columns["stars"] == [4.0, None, 2.5]
    assert columns["title"] == ["First", None if several else "", "Th,ird"]
    assert columns["date"][0] == "1987-02-26"
    assert Corpus(tmp_path / "c").manifest.fields["stars"] == "double"
    assert main(["verify", str(tmp_path / "c")]) == 0


def test_folders_and_globs__are_read_in_the_order_of_names(tmp_path):
    for year in (1988, 1987):
        (tmp_path / f"in/year={year}").mkdir(parents=True)
        rows = [{"id": f"{year}{row['id']}", "text": row["text"], "stars": 1.0} for row in ROWS]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"in/year={year}/x.parquet")
    (tmp_path / "in/.hidden").write_text("x")
    for number, source in enumerate((tmp_path / "in", f"{tmp_path}/in/*/*.parquet")):
        ingest(source, tmp_path / f"c{number}", labels=["year"])
        assert list(bags_of(tmp_path / f"c{number}")) == [
            f"{year}{letter}" for year in (1987, 1988) for letter in "abc"
        ]
        assert columns_of(tmp_path / f"c{number}")["labels"][0] == [{"field": "year", "value": "1987"}]
    assert guess_format([str(tmp_path / "in")]) == "parquet"
    with pytest.raises(AbsentError, match=r"the pattern matches no file"):
        ingest(f"{tmp_path}/in/*.csv", tmp_path / "none", format="csv")


def test_tables_without_ids__number_their_documents(tmp_path):
    for name, texts in (("a", ["one two", "three"]), ("b", ["four"])):
        (tmp_path / f"{name}.csv").write_text("text\n" + "\n".join(texts) + "\n")
    ingest(tmp_path / "a.csv", tmp_path / "one", stop_words="none")
    assert list(bags_of(tmp_path / "one")) == ["1", "2"]
    ingest([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "two", stop_words="none", shard_tokens=1)
    assert list(bags_of(tmp_path / "two")) == ["a.csv/1", "a.csv/2", "b.csv/1"]


def test_mallet_files__have_a_name_a_label_and_a_text_per_line(tmp_path):
    (tmp_path / "x.mallet").write_text("d1 sport the ball, a ball\nd2\tarts\ta  play\n\n")
    ingest(tmp_path / "x.mallet", tmp_path / "c")
    assert bags_of(tmp_path / "c") == {"d1": {"ball": 2}, "d2": {"play": 1}}
    assert columns_of(tmp_path / "c")["labels"] == [[{"field": "label", "value": value}] for value in ("sport", "arts")]


def test_vocabulary__equals_count_vectorizers(tmp_path):
    generator = np.random.default_rng(0)
    texts = [" ".join(f"w{chr(97 + n)}" for n in generator.integers(0, 20, 12) ** 2 // 20) for _ in range(30)]
    path = put_lines(tmp_path / "x.jsonl", [{"id": n, "text": text} for n, text in enumerate(texts)])
    ingest(path, tmp_path / "c", min_documents=4, max_document_share=0.6, stop_words="none")
    vectorizer = CountVectorizer(token_pattern=word_pattern(RULE).pattern, min_df=4, max_df=0.6)
    matrix = vectorizer.fit_transform(texts)
    assert Corpus(tmp_path / "c").vocabulary.words == vectorizer.get_feature_names_out().tolist()
    names = vectorizer.get_feature_names_out()
    expected = [{names[w]: int(row[w]) for w in np.flatnonzero(row)} for row in matrix.toarray()]
    assert list(bags_of(tmp_path / "c").values()) == expected


@pytest.mark.parametrize(
    ("share", "documents", "most"), [(0.7, 90, 63), (0.29, 100, 29), (0.1, 30, 3), (0.35, 180, 63)]
)
def test_words_in_exactly_the_largest_share_of_the_documents__are_kept(tmp_path, share, documents, most):
    rows = [{"id": n, "text": "sea " * (n < most) + "ship " * (n <= most) + "bread"} for n in range(documents)]
    ingest(put_lines(tmp_path / "x.jsonl", rows), tmp_path / "c", max_document_share=share)
    assert Corpus(tmp_path / "c").vocabulary.words == ["sea"]


def test_max_words__keeps_the_words_in_most_documents(tmp_path):
    rows = [{"id": n, "text": text} for n, text in enumerate(["aa bb cc", "bb cc cc", "dd ee", "the aa"])]
    ingest(put_lines(tmp_path / "x.jsonl", rows), tmp_path / "c", max_words=3)
    assert Corpus(tmp_path / "c").vocabulary.words == ["aa", "bb", "cc"]
    ingest(tmp_path / "x.jsonl", tmp_path / "d", max_words=1)
    assert Corpus(tmp_path / "d").vocabulary.words == ["cc"]
    dropped = read_history(Folder(tmp_path / "d")).report.dropped
    assert [(rule.rule, rule.words, rule.tokens) for rule in dropped] == [
        ("stop words", 1, 1),
        ("beyond 1 words", 4, 6),
    ]


def test_corpora_of_gensim__are_read_back(tmp_path):
    texts = [["cc", "aa", "aa"], [], ["bb", "aa"]]
    dictionary = Dictionary(texts)
    BleiCorpus.serialize(str(tmp_path / "x.ldac"), [dictionary.doc2bow(text) for text in texts], id2word=dictionary)
    ingest(tmp_path / "x.ldac", tmp_path / "c", vocabulary=str(tmp_path / "x.ldac.vocab"))
    assert list(bags_of(tmp_path / "c").values()) == [dict(Counter(text)) for text in texts]
    ingest(
        put_lines(tmp_path / "y.jsonl", [{"id": n, "text": " ".join(t)} for n, t in enumerate(texts)]), tmp_path / "d"
    )
    assert list(bags_of(tmp_path / "d").values()) == [dict(Counter(text)) for text in texts]


@pytest.mark.parametrize("zero_based", [True, False])
def test_svmlight__is_read_as_scikit_learn_reads_it(tmp_path, zero_based):
    matrix = np.array([[2, 0, 1], [0, 3, 0], [0, 0, 0]])
    dump_svmlight_file(matrix, [1, 2, 1], str(tmp_path / "x.svmlight"), zero_based=zero_based, comment="a comment")
    (tmp_path / "vocab.txt").write_text("aa\nbb\ncc\n")
    ingest(tmp_path / "x.svmlight", tmp_path / "c")
    read, labels = load_svmlight_file(str(tmp_path / "x.svmlight"), n_features=3, zero_based=zero_based)
    expected = [{"abc"[w] * 2: int(row[w]) for w in np.flatnonzero(row)} for row in read.toarray()]
    assert list(bags_of(tmp_path / "c").values()) == expected
    assert [label[0]["value"] for label in columns_of(tmp_path / "c")["labels"]] == [f"{label:g}" for label in labels]


def test_svmlight__uses_one_index_base_for_all_files_and_additions(tmp_path):
    """A file that lacks the first word does not show whether its indices begin at 0 or 1."""
    for name, text in (("a", "1 1:2\n"), ("b", "1 0:1\n"), ("later", "1 2:1\n"), ("from-one", "1 1:1\n")):
        (tmp_path / f"{name}.svmlight").write_text(text)
    (tmp_path / "vocab.txt").write_text("aa\nbb\ncc\n")
    ingest([tmp_path / "a.svmlight", tmp_path / "b.svmlight"], tmp_path / "c")
    assert list(bags_of(tmp_path / "c").values()) == [{"bb": 2}, {"aa": 1}]
    assert read_history(Folder(tmp_path / "c")).options.index_base == 0
    append(tmp_path / "c", tmp_path / "later.svmlight")
    assert list(bags_of(tmp_path / "c").values())[-1] == {"cc": 1}
    words = ["ingest", str(tmp_path / "from-one.svmlight"), str(tmp_path / "d")]
    assert main([*words, "--index-base", "0"]) == 0
    assert list(bags_of(tmp_path / "d").values()) == [{"bb": 1}]
    ingest(tmp_path / "from-one.svmlight", tmp_path / "e")
    with pytest.raises(InputError, match="expected an index from 1 to 3, found '0:1'"):
        append(tmp_path / "e", tmp_path / "b.svmlight")


def test_report__counts_what_was_dropped_and_contains_no_paths(tmp_path, capsys):
    (tmp_path / "x.jsonl").write_bytes(
        b'{"id": 1, "text": "the apple \xff apple"}\n{"id": 2, "text": null}\n{"id": 3, "text": "bread und apple"}\n'
    )
    words = ["ingest", str(tmp_path / "x.jsonl"), str(tmp_path / "c"), "--min-documents", "2", "--json"]
    assert main([*words, "--stop-words", "english,de", "--bad-bytes", "replace"]) == 0
    output = json.loads(capsys.readouterr().out)["ingest"]
    assert (output["documents"], output["empty_documents"], output["missing_text"], output["replaced_bytes"]) == (
        3,
        1,
        1,
        1,
    )
    assert output["dropped"] == [
        {"rule": "stop words", "words": 2, "tokens": 2},
        {"rule": "in fewer than 2 documents", "words": 1, "tokens": 1},
    ]
    assert str(tmp_path) not in (tmp_path / "c/ingest.json").read_text()


BAD = {
    "x.jsonl": (b'{"id": 1, "text": "a"}\n{"id": 2, "body": ""}\n', {}, "line 2: no field 'text' (`text`); there are id, body"),
    "y.jsonl": (b'{"id": 1, "text": "a"}\n\n{"id": \n', {}, "line 3: expected a JSON object"),
    "z.jsonl": (b'{"id": 1, "text": "aa"}\n{"id": 1, "text": "bb"}\n', {}, "the document id '1' occurs twice"),
    "u.jsonl": (b'{"id": 1, "text": "a\xff"}\n', {}, "line 1: expected UTF-8 text"),
    "n.jsonl": (b'{"id": 1, "text": "aa", "n": "x"}\n', {"covariates": ["n"]}, "a number or nothing, found 'x', in field 'n'"),
    "l.jsonl": (b'{"id": 1, "text": "aa"}\n', {"labels": ["topcs"]}, "no document has a field 'topcs' (`labels`)"),
    "x.csv": (b"id,text\n1,aa\n2,bb,cc\n", {}, "line 3: expected 2 values as in the header, found 3"),
    "y.csv": (b"id,body\n1,aa\n", {}, "no column 'text' (`text`); there are id, body"),
    "z.csv": (b'id,text\n1,"aa\n', {}, "line 2: expected comma-separated values"),
    "u.csv": (b"id,text\n1,\xff\xfe\n", {}, "expected UTF-8 text"),
    "e.csv": (b"", {}, "no column 'text' (`text`); there are none"),
    "x.parquet": (b"PAR1 and no more", {}, "expected a Parquet file"),
    "x.jsonl.gz": (gzip.compress(b'{"id": 1, "text": "a"}\n' * 99)[:-9], {}, "the compressed file is cut short or damaged"),
    "x.jsonl.zst": (b"\x28\xb5\x2f\xfd no", {}, "cut short or damaged"),
    "x.svmlight": (b"1 1:2 9:1\n", {"vocabulary": "vocab"}, "line 1: expected an index from 1 to 1, found '9:1'"),
    "x.txt": (b"a\xff", {}, "expected UTF-8 text"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_invalid_files__are_reported_with_their_line_and_leave_nothing(tmp_path, name):
    data, options, message = BAD[name]
    (tmp_path / name).write_bytes(data)
    if "vocabulary" in options:
        (tmp_path / "vocab").write_text("aa\n")
        options = {"vocabulary": str(tmp_path / "vocab")}
    with pytest.raises(InputError) as raised:
        ingest(tmp_path / name, tmp_path / "c", **options)
    assert message in str(raised.value)
    assert name in str(raised.value)
    assert not [path for path in tmp_path.iterdir() if "c" in path.name.split(".")]


def test_line_numbers__are_correct_in_later_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks.cut_blocks, "__defaults__", (50,))
    good = [json.dumps({"id": n, "text": "aa bb"}) for n in range(30)]
    for bad in (0, 13, 29):
        (tmp_path / "x.jsonl").write_text("\n".join([*good[:bad], "{", *good[bad + 1 :]]))
        with pytest.raises(InputError, match=f"line {bad + 1}: "):
            ingest(tmp_path / "x.jsonl", tmp_path / "c", scheduler="serial")
        rows = [f"{n},aa bb" for n in range(30)]
        (tmp_path / "x.csv").write_text("\n".join(["id,text", *rows[:bad], "1,2,3", *rows[bad + 1 :]]))
        with pytest.raises(InputError, match=f"line {bad + 2}: "):
            ingest(tmp_path / "x.csv", tmp_path / "c", scheduler="serial")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("jsonl", {"phrases": "pmi"}, "phrases: expected npmi or count, found 'pmi'"),
        ("jsonl", {"phrase_count": 3}, "require `phrases`"),
        ("jsonl", {"stop_words": "klingon"}, "`stop_words` klingon: no such language"),
        ("jsonl", {"max_words": 0}, "max_words: expected 1 or more, found 0"),
        ("jsonl", {"tokenizer": str.split}, "tokenizer: expected module:function, the name of a function"),
        ("jsonl", {"covariates": ["title"]}, "`covariates` title: is a reserved name"),
        ("jsonl", {"labels": ["a=x", "a=y"]}, "`labels` a: is given twice"),
        ("jsonl", {"index_base": 0}, "index_base: applies only to svmlight, found the format jsonl"),
        ("svmlight", {"index_base": 2}, "index_base: expected 0 or 1, found 2"),
        ("jsonl", {"scheduler": "thread"}, "scheduler: expected threads"),
        ("text", {"id": "key"}, "id: documents of the format text have no fields to name"),
        ("jsonl", {"values": "x"}, "values: applies only to vectors"),
        (
            "ldac",
            {"id": "key"},
            "id: applies only to texts, vectors, AnnData, matrices and side files; the format ldac has word counts",
        ),
        ("mtx", {"text": "body"}, "text: applies only to texts; the format mtx has word counts"),
        ("jsonl", {"normalise": "Stem:english"}, "found 'Stem:english' (did you mean 'stem'?)"),
        ("jsonl", {"segments": "Lines"}, "(did you mean 'lines'?)"),
        ("ldac", {"covariates": ["x"]}, "covariates: applies only to texts, vectors and AnnData"),
    ],
)
def test_options_without_meaning__are_refused(tmp_path, kind, options, message):
    path = put_lines(tmp_path / "x")
    with pytest.raises(OptionError) as raised:
        ingest(path, tmp_path / "c", format=kind, **options)
    assert message in str(raised.value)
    assert not (tmp_path / "c").exists()


def test_a_field_that_no_document_has__is_reported_with_the_nearest_name(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"id": 1, "text": "ship", "kind": "sea"}\n')
    with pytest.raises(InputError, match=r"no document has a field 'KIND' \(`labels`\) \(did you mean 'kind'\?\)"):
        ingest(tmp_path / "x.jsonl", tmp_path / "c", labels="KIND", scheduler="serial")


def test_an_existing_folder__is_refused_before_anything_is_read(tmp_path):
    (tmp_path / "c").mkdir()
    with pytest.raises(OccupiedError):
        ingest(put_lines(tmp_path / "x.jsonl"), tmp_path / "c")

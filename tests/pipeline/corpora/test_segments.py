"""Corpora whose documents have segments: ingest, append, split and explode."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapsium.pipeline import append, explode, info, ingest, split
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.workflows.batch.job_file import read_job
from collapsium.storage.building.ingest_record import read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import encode, merge_segments
from collapsium.storage.errors import DamagedError, InputError, MismatchError, OccupiedError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.readers.texts import blocks, tables
from collapsium.storage.readers.texts.segment import cutter_of
from tests.conftest import write_corpus
from tests.naive.texts import analyzer
from tests.pipeline.corpora.test_text_ingest import bags_of, columns_of, put_lines

ROWS = [
    {"id": "a", "text": "Apple bread. Cheese apple apple.\n\nThe end. Bread apple.", "tag": "x", "stars": 3},
    {"id": "b", "text": " \n", "tag": "y", "stars": None},
    {"id": "c", "text": "Cheese. And the. Bread cheese", "tag": None, "stars": 1.5},
    {"id": "d", "text": None, "tag": None, "stars": None},
]
ALL = {"stop_words": "none", "scheduler": "serial"}


def segments_of(corpus):
    """Return the bags of words of each segment of each document, by id."""
    corpus = Corpus(corpus)
    words, found = corpus.vocabulary.words, {}
    for reference in corpus.references:
        part = reference.documents()
        for name, first, lengths in zip(
            part.ids.to_pylist(), part.offsets, part.extras["segments"].to_pylist(), strict=False
        ):
            bags = []
            for length in lengths or ():
                mine = slice(first, first + length)
                bags.append({words[w]: int(c) for w, c in zip(part.words[mine], part.counts[mine], strict=True)})
                assert part.words[mine].tolist() == sorted(part.words[mine])
                first += length
            found[name] = bags
    return found


@pytest.fixture(scope="module")
def segmented(tmp_path_factory):
    place = tmp_path_factory.mktemp("made")
    ingest(put_lines(place / "x.jsonl", ROWS), place / "c", segments="sentences", labels=["tag"], covariates=["stars"])
    return place


def test_segments__remain_even_if_all_their_words_are_dropped(segmented, capsys):
    assert segments_of(segmented / "c") == {
        "a": [{"apple": 1, "bread": 1}, {"apple": 2, "cheese": 1}, {"end": 1}, {"apple": 1, "bread": 1}],
        "b": [],
        "c": [{"cheese": 1}, {}, {"bread": 1, "cheese": 1}],
        "d": [],
    }
    corpus = Corpus(segmented / "c")
    assert corpus.manifest.fields["segments"] == "list<item: int32>"
    assert dict(zip(corpus.vocabulary.words, corpus.vocabulary.documents.tolist(), strict=True)) == {
        "apple": 1, "bread": 2, "cheese": 2, "end": 1
    }  # fmt: skip
    assert read_history(corpus.folder).report.segments == 7
    assert info(segmented / "c")["segments"] == {"count": 7, "empty": 1, "mean": 1.75, "most": 4}
    assert main(["info", str(segmented / "c")]) == 0
    assert "segments    7, 1.8 a document, 4 at most; 1 empty" in capsys.readouterr().out
    assert main(["verify", str(segmented / "c")]) == 0


def test_a_corpus_without_segments__is_unchanged(tmp_path):
    ingest(put_lines(tmp_path / "x.jsonl", ROWS), tmp_path / "c", **ALL)
    record = json.loads((tmp_path / "c/ingest.json").read_text())
    assert record["version"] == 7
    assert "segments" not in {**record["reading"], **record["report"]}
    assert "segments" not in info(tmp_path / "c")


TEXTS = st.lists(st.sampled_from(["aa", "Bb", "CC", "the", "9", ".", "!", ".\n\n", "\n", "\u03a3\u03c3"]), max_size=14)


@pytest.mark.parametrize("how", ["sentences", "paragraphs", "lines", "headings:(?i)cc"])
def test_segments__are_the_same_for_any_division_of_the_texts(how, tmp_path_factory, monkeypatch):
    """The reference tokenizes one segment at a time; merged, the segments give the corpus without segments."""

    @settings(max_examples=6)
    @given(st.lists(TEXTS, min_size=1, max_size=6), st.sampled_from([1, 40]), st.integers(1, 9), st.integers(0, 2))
    def same(texts, block, shard_tokens, least):
        place = tmp_path_factory.mktemp("same")
        rows = [{"id": f"d{n}", "text": " ".join(words)} for n, words in enumerate(texts)]
        path, analyze, cut = put_lines(place / "x.jsonl", rows), analyzer(), cutter_of(how)
        bags = {row["id"]: [Counter(analyze(part)) for part in cut(row["text"])] for row in rows}
        frequency = Counter(word for parts in bags.values() for word in set().union(*parts))
        kept = {word for word, count in frequency.items() if count >= least}
        expected = {
            name: [{word: count for word, count in part.items() if word in kept} for part in parts]
            for name, parts in bags.items()
        }
        options = {"min_documents": least, "shard_tokens": shard_tokens}
        if not kept:
            with pytest.raises(InputError):
                ingest(path, place / "c", segments=how, **options)
            return
        plain = ingest(path, place / "plain", scheduler="serial", **options)
        monkeypatch.setattr(blocks, "CHUNK_BYTES", block)
        monkeypatch.setattr(tables, "PIECE", block)
        monkeypatch.setattr(blocks.cut_blocks, "__defaults__", (block,))
        serial = ingest(path, place / "one", segments=how, scheduler="serial", **options)
        monkeypatch.undo()
        parallel = ingest(path, place / "other", segments=how, scheduler="threads", workers=3, **options)
        assert serial == parallel
        assert (place / "one/ingest.json").read_bytes() == (place / "other/ingest.json").read_bytes()
        assert segments_of(place / "one") == expected
        assert serial.vocabulary.sha256 == plain.vocabulary.sha256
        for with_, without in zip(Corpus(place / "one").references, Corpus(place / "plain").references, strict=True):
            assert encode(merge_segments(with_.documents())) == encode(without.documents())

    same()


def test_phrases__do_not_cross_the_ends_of_segments(tmp_path, monkeypatch):
    rows = [{"id": n, "text": f"New york a{n} new. York b{n} new york"} for n in range(6)]
    path, how = put_lines(tmp_path / "x.jsonl", rows), {"phrases": "count", "phrase_count": 2, "phrase_threshold": 0.1}
    ingest(path, tmp_path / "plain", **how, **ALL)
    assert bags_of(tmp_path / "plain")["0"]["new_york"] == 3
    monkeypatch.setattr(blocks.cut_blocks, "__defaults__", (60,))
    manifest = ingest(path, tmp_path / "one", segments="sentences", **how, **ALL)
    found = [sum(part.get("new_york", 0) for part in parts) for parts in segments_of(tmp_path / "one").values()]
    assert found == [2] * 6
    monkeypatch.undo()
    assert manifest == ingest(path, tmp_path / "two", segments="sentences", stop_words="none", **how)
    put_lines(tmp_path / "more.jsonl", [{"id": "n", "text": "New. York new york."}])
    append(tmp_path / "one", tmp_path / "more.jsonl")
    assert [part.get("new_york", 0) for part in segments_of(tmp_path / "one")["n"]] == [0, 1]


LISTS = [
    {"id": "a", "text": ["One two", "", None, "two  three. Four"], "tag": "x"},
    {"id": "b", "text": [], "tag": "y"},
    {"id": "c", "text": "one. two", "tag": "z"},
    {"id": "d", "text": None, "tag": "z"},
    {"id": "e", "text": ["", " "], "tag": "z"},
]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_column_of_lists__gives_a_segment_per_entry_including_empty_ones(tmp_path, kind):
    if kind == "jsonl":
        path = put_lines(tmp_path / "x.jsonl", LISTS)
    else:
        path = tmp_path / "x.parquet"
        listed = [{**row, "text": [row["text"]] if isinstance(row["text"], str) else row["text"]} for row in LISTS]
        pq.write_table(pa.Table.from_pylist(listed), path)
    manifest = ingest(path, tmp_path / "c", segments="column", labels=["tag"], **ALL)
    assert segments_of(tmp_path / "c") == {
        "a": [{"one": 1, "two": 1}, {}, {}, {"two": 1, "three": 1, "four": 1}],
        "b": [],
        "c": [{"one": 1, "two": 1}],
        "d": [],
        "e": [{}, {}],
    }
    assert manifest.documents == 5
    assert read_history(Folder(tmp_path / "c")).report.missing_text == 1


def test_files_and_tables__support_segments_too(tmp_path):
    for name in ("one", "two"):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / f"in/{name}.txt").write_text(f"Preface {name}\nCHAPTER I\nbread\n  CHAPTER no\nCHAPTER II. apple")
    ingest(tmp_path / "in", tmp_path / "files", segments="headings:CHAPTER [IVX]+", **ALL)
    for name, parts in segments_of(tmp_path / "files").items():
        assert [sorted(part) for part in parts] == [
            sorted(["preface", name.removesuffix(".txt")]), ["bread", "chapter", "no"], ["apple", "chapter", "ii"]
        ]  # fmt: skip
    (tmp_path / "x.csv").write_text('text\n"One two.\n\nThree"\n""\nFour\n')
    ingest(tmp_path / "x.csv", tmp_path / "table", segments="paragraphs", **ALL)
    assert segments_of(tmp_path / "table") == {"1": [{"one": 1, "two": 1}, {"three": 1}], "2": [], "3": [{"four": 1}]}
    (tmp_path / "x.mallet").write_text("d1 sport The ball. A ball\n")
    ingest(tmp_path / "x.mallet", tmp_path / "mallet", segments="sentences", **ALL)
    assert segments_of(tmp_path / "mallet") == {"d1": [{"the": 1, "ball": 1}, {"ball": 1}]}


def test_many_segments_and_a_huge_one__are_one_document_each(tmp_path):
    rows = [{"id": "many", "text": "Apple bread. " * 100_000}, {"id": "huge", "text": "apple cheese " * 100_000}]
    ingest(put_lines(tmp_path / "x.jsonl", rows), tmp_path / "c", segments="sentences", scheduler="serial")
    found = segments_of(tmp_path / "c")
    assert found["many"] == [{"apple": 1, "bread": 1}] * 100_000
    assert found["huge"] == [{"apple": 100_000, "cheese": 100_000}]
    explode(tmp_path / "c", tmp_path / "flat")
    flat = Corpus(tmp_path / "flat")
    assert flat.manifest.documents == 100_001
    assert flat.references[0].documents().ids[99_999].as_py() == "many#100000"
    assert flat.vocabulary.documents.tolist() == [100_001, 100_000, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"segments": "sentense"}, r"did you mean 'sentences'"),
        ({"segments": "headings:["}, r"expected a regular expression"),
        ({"segments": "column", "format": "text"}, r"`segments` column: documents of the format text have no fields"),
        ({"segments": "lines", "format": "uci"}, r"segments: applies only to texts; the format uci has word counts"),
        ({"segments": "lines", "format": "vectors"}, r"segments: applies only to documents; vectors have no words"),
    ],
)
def test_invalid_options__are_refused_before_anything_is_written(tmp_path, options, message):
    put_lines(tmp_path / "x.jsonl")
    with pytest.raises(OptionError, match=message):
        ingest(tmp_path / "x.jsonl", tmp_path / "c", **options)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("text", "segments", "message"),
    [
        (["a"], None, r"line 1: expected a string in field 'text' \(`text`\), found a list; `segments` column makes"),
        (["a"], "lines", "`segments` column makes"),
        (["a", 1], "column", r"line 1: expected a list of strings in field 'text' \(`text`\), found int in it"),
        ({"a": 1}, "column", r"expected a string in field 'text'"),
    ],
)
def test_texts_of_another_type__are_reported_with_their_line(tmp_path, text, segments, message):
    path = put_lines(tmp_path / "x.jsonl", [{"id": 1, "text": text}])
    with pytest.raises(InputError, match=message):
        ingest(path, tmp_path / "c", segments=segments)
    assert not (tmp_path / "c").exists()


def test_append__cuts_segments_as_the_corpus_was_cut(tmp_path):
    rows = [{**row, "text": f"{row['text'] or ''} Bread. Apple"} for row in ROWS]
    put_lines(tmp_path / "old.jsonl", rows[:2])
    put_lines(tmp_path / "new.jsonl", rows[1:])
    whole = ingest(put_lines(tmp_path / "all.jsonl", rows), tmp_path / "all", segments="sentences")
    ingest(tmp_path / "old.jsonl", tmp_path / "c", segments="sentences")
    append(tmp_path / "c", tmp_path / "new.jsonl", skip_existing=True, grow=True)
    assert segments_of(tmp_path / "c") == segments_of(tmp_path / "all")
    assert whole.tokens == Corpus(tmp_path / "c").manifest.tokens
    history = read_history(Folder(tmp_path / "c"))
    assert (history.options.segments, history.report.segments) == ("sentences", 8)
    assert [record.segments for record in history.appended] == [6]
    (tmp_path / "x.ldac").write_text("1 0:1\n")
    (tmp_path / "vocab.txt").write_text("bread\n")
    with pytest.raises(MismatchError, match="expected documents with the further fields .*segments.* found none"):
        append(tmp_path / "c", tmp_path / "x.ldac", format="ldac")
    assert main(["verify", str(tmp_path / "c")]) == 0


def test_an_untrusted_record__must_name_a_known_way_to_cut_segments(segmented, tmp_path):
    record = read_history(Folder(segmented / "c")).record()
    assert (record["version"], record["reading"]["segments"]) == (7, "sentences")
    record["reading"]["segments"] = 3
    (tmp_path / "ingest.json").write_bytes(dump(record))
    with pytest.raises(DamagedError, match="expected the record of an ingest .segments"):
        read_history(Folder(tmp_path))


def test_a_batch__supports_segments(tmp_path):
    text = '[batch]\nfolder = "b"\n[ingest]\nsources = "x.jsonl"\nsegments = {}\n[fit]\nfamily = "lda"\ntopics = 2\n'
    (tmp_path / "job.toml").write_text(text.format('"sentences"'))
    assert read_job(tmp_path / "job.toml").reading == {"segments": "sentences"}
    (tmp_path / "job.toml").write_text(text.format("3"))
    with pytest.raises(InputError, match="'segments'"):
        read_job(tmp_path / "job.toml")


@given(st.integers(0, 99), st.floats(0.05, 0.95))
@settings(max_examples=10)
def test_split_of_tokens__keeps_every_segment_in_both_parts(segmented, tmp_path_factory, seed, fraction):
    place = tmp_path_factory.mktemp("split")
    whole = segments_of(segmented / "c")
    try:
        split(segmented / "c", place / "train", place / "held", fraction=fraction, seed=seed)
    except InputError:  # one part may have no tokens
        assert not any(place.iterdir())
        return
    parts = [segments_of(place / name) for name in ("train", "held")]
    for name, segments in whole.items():
        together = [
            Counter(first) + Counter(second) for first, second in zip(*(part[name] for part in parts), strict=True)
        ]
        assert together == segments
    for name in ("train", "held"):
        explode(place / name, place / f"{name}-flat")
    flat = [Corpus(place / f"{name}-flat").manifest for name in ("train", "held")]
    assert [row.ids_sha256 for row in flat[0].shards] == [row.ids_sha256 for row in flat[1].shards]


def test_split_of_documents_and_labels__keeps_segments(segmented, tmp_path):
    whole = segments_of(segmented / "c")
    split(segmented / "c", tmp_path / "train", tmp_path / "held", folds=2, fold=0, seed=1)
    parts = [segments_of(tmp_path / name) for name in ("train", "held")]
    assert {**parts[0], **parts[1]} == whole
    assert all(parts)
    split(segmented / "c", tmp_path / "left", tmp_path / "dropped", drop_labels=0.5)
    assert segments_of(tmp_path / "left") == segments_of(tmp_path / "dropped") == whole
    for name in ("train", "held", "left", "dropped"):
        assert main(["verify", str(tmp_path / name)]) == 0


def test_explode__makes_documents_of_segments(segmented, tmp_path, capsys):
    assert main(["explode", str(segmented / "c"), str(tmp_path / "flat")]) == 0
    assert capsys.readouterr().out.endswith("flat: 7 documents, 11 tokens in 10 pairs, 1 shard\n")
    whole, flat = segments_of(segmented / "c"), Corpus(tmp_path / "flat")
    expected = {f"{name}#{n}": part for name, parts in whole.items() for n, part in enumerate(parts, start=1)}
    assert bags_of(tmp_path / "flat") == expected
    columns = columns_of(tmp_path / "flat")
    assert columns["stars"] == [3.0] * 4 + [1.5] * 3
    assert [[label["value"] for label in labels] for labels in columns["labels"]] == [["x"]] * 4 + [[]] * 3
    assert "segments" not in flat.manifest.fields
    assert flat.vocabulary.words == Corpus(segmented / "c").vocabulary.words
    assert flat.vocabulary.documents.tolist() == [3, 3, 3, 1]
    assert main(["verify", str(tmp_path / "flat")]) == 0
    with pytest.raises(OccupiedError):
        explode(segmented / "c", tmp_path / "flat")
    capsys.readouterr()
    assert main(["explode", str(segmented / "c"), str(tmp_path / "told"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 7


def test_explode_of_a_damaged_corpus_or_one_without_segments__leaves_nothing(segmented, tmp_path):
    write_corpus(tmp_path / "plain", [{0: 1}], 1)
    with pytest.raises(MismatchError, match=r"its documents have no segments; `ingest` with `segments`"):
        explode(tmp_path / "plain", tmp_path / "flat")
    np.save(tmp_path / "x.npy", np.eye(3))
    ingest(tmp_path / "x.npy", tmp_path / "vectors")
    with pytest.raises(MismatchError, match="a corpus of vectors; explode takes a corpus of documents"):
        explode(tmp_path / "vectors", tmp_path / "flat")
    ingest(segmented / "x.jsonl", tmp_path / "c", segments="lines", shard_tokens=2)
    last = tmp_path / "c" / Corpus(tmp_path / "c").manifest.shards[-1].file
    last.write_bytes(last.read_bytes()[:-9])
    with pytest.raises(DamagedError):
        explode(tmp_path / "c", tmp_path / "flat")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "plain", "vectors", "x.npy"]

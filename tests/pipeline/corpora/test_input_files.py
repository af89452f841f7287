"""Real-world files: other encodings and separators, folders of several formats, and the guesses about them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import append, ingest
from collapsium.pipeline.corpora.append import Addition, append_with_report
from collapsium.pipeline.workflows.batch.journal import find_sources
from collapsium.storage.building.ingest_record import read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.open import guess_format
from collapsium.storage.readers.read_options import Guess, ReadOptions, with_guesses
from collapsium.storage.readers.texts import blocks
from tests.pipeline.corpora.test_text_ingest import bags_of, columns_of

ROWS = [("1", "ship sail café"), ("2", "bread oven café"), ("3", "ship ship mast")]
BAGS = {"1": {"ship": 1, "sail": 1, "café": 1}, "2": {"bread": 1, "oven": 1, "café": 1}, "3": {"ship": 2, "mast": 1}}
TABLE = "id,text\n" + "".join(f"{name},{text}\n" for name, text in ROWS)
LINES = "".join(json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n" for name, text in ROWS)
MALLET = "".join(f"{name} x {text}\n" for name, text in ROWS)
MARKED = ("utf-16", "utf-32", "utf-8-sig")


def put(place, content, encoding="utf-8"):
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return str(place)


def ingested_bags(tmp_path, sources, **options):
    ingest(sources, tmp_path / "c", scheduler="serial", **options)
    return bags_of(tmp_path / "c")


def guesses_of(corpus):
    history = read_history(Folder(corpus))
    return {(guess.what, guess.value, guess.option) for guess in history.report.guesses}


@pytest.mark.parametrize("encoding", [*MARKED, "utf-16-be with mark"])
@pytest.mark.parametrize(("name", "content"), [("x.csv", TABLE), ("x.jsonl", LINES), ("x.mallet", MALLET)])
def test_a_byte_order_mark__determines_the_encoding(tmp_path, name, content, encoding):
    data = ("\ufeff" + content).encode("utf-16-be") if "with" in encoding else content.encode(encoding)
    assert ingested_bags(tmp_path, put(tmp_path / name, data)) == BAGS
    found = {guess for guess in guesses_of(tmp_path / "c") if guess[0] == "encoding"}
    expected = {("encoding", encoding[:6], "encoding")} if encoding != "utf-8-sig" else set()
    assert found == expected


@pytest.mark.parametrize(("name", "content"), [("x.csv", TABLE), ("x.jsonl", LINES), ("x.mallet", MALLET)])
def test_an_encoding__is_suggested_recorded_and_used(tmp_path, name, content):
    path = put(tmp_path / name, content, "cp1252")
    with pytest.raises(InputError, match=r"`encoding`, such as cp1252.*`bad_bytes` replace"):
        ingested_bags(tmp_path, path)
    assert ingested_bags(tmp_path, path, encoding="windows-1252") == BAGS
    assert read_history(Folder(tmp_path / "c")).options.encoding == "cp1252"
    more = put(tmp_path / f"more-{name}", content.replace("1", "11").replace("2", "12").replace("3", "13"), "cp1252")
    append(tmp_path / "c", more, scheduler="serial")
    assert bags_of(tmp_path / "c")["11"] == BAGS["1"]
    again = put(tmp_path / f"utf-{name}", content.replace("café", "café né à où ça"))
    with pytest.raises(InputError, match="expected text in cp1252"):
        append(tmp_path / "c", again, scheduler="serial")


def test_invalid_bytes_of_an_encoding__are_an_error_with_the_line_or_replaced(tmp_path):
    path = put(tmp_path / "x.jsonl", b'{"id": 1, "text": "ship"}\n{"id": 2, "text": "sail \x81 caf\xe9"}\n')
    with pytest.raises(InputError, match="line 2: expected text in cp1252"):
        ingested_bags(tmp_path, path, encoding="cp1252")
    assert ingested_bags(tmp_path, path, encoding="cp1252", bad_bytes="replace") == {
        "1": {"ship": 1},
        "2": {"sail": 1, "café": 1},
    }
    assert read_history(Folder(tmp_path / "c")).report.replaced_bytes == 1


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_utf16_without_a_byte_order_mark__is_refused(tmp_path, encoding):
    path = put(tmp_path / "x.csv", TABLE, encoding)
    with pytest.raises(InputError, match=f"without a byte order mark; name it .`encoding` {encoding}"):
        ingested_bags(tmp_path, path)
    assert ingested_bags(tmp_path, path, encoding=encoding) == BAGS


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "docword.x.txt", "x.ldac", "x.svmlight"])
@pytest.mark.parametrize("data", [b"\0", b"\0\0", b"a\0", b"\0\0\0", b"\0\0\0\0"])
def test_a_short_file_with_zero_bytes__is_refused_in_one_line(tmp_path, name, data):
    with pytest.raises(InputError):
        ingest(put(tmp_path / name, data), tmp_path / "c", scheduler="serial")


@pytest.mark.parametrize("encoding", ["nothing", "hex", "rot13", ""])
def test_an_unknown_encoding__is_refused(tmp_path, encoding):
    with pytest.raises(OptionError, match="encoding: expected an encoding of text"):
        ingested_bags(tmp_path, put(tmp_path / "x.csv", TABLE), encoding=encoding)


def test_vocabularies_stop_words_and_side_files__use_the_encoding_too(tmp_path):
    path = put(tmp_path / "x.csv", TABLE, "cp1252")
    words = put(tmp_path / "words.txt", "café\nship\n", "cp1252")
    stops = put(tmp_path / "stops.txt", "ship\ncafé\n", "cp1252")
    side = put(tmp_path / "side.csv", "id;where\n1;Orléans\n2;Nîmes\n", "cp1252")
    assert ingested_bags(tmp_path, path, encoding="cp1252", vocabulary=words)["1"] == {"café": 1, "ship": 1}
    ingest(path, tmp_path / "d", encoding="cp1252", stop_words=stops, label_files=side, scheduler="serial")
    assert bags_of(tmp_path / "d")["1"] == {"sail": 1}
    assert columns_of(tmp_path / "d")["labels"][0] == [{"field": "where", "value": "Orléans"}]
    plain = put(tmp_path / "plain.csv", TABLE)
    for option, value in (("vocabulary", words), ("stop_words", stops), ("label_files", side)):
        with pytest.raises(InputError, match=r"name its encoding \(`encoding`"):
            ingest(plain, tmp_path / "e", scheduler="serial", **{option: value})


COUNTS = {
    "ldac": ("x.ldac", "2 0:2 1:1\n1 2:1\n"),
    "svmlight": ("x.svmlight", "a 1:2 2:1\nb 3:1\n"),
    "uci": ("docword.x.txt", "2\n3\n3\n1 1 2\n1 2 1\n2 3 1\n"),
    "mtx": ("x.mtx", "%%MatrixMarket matrix coordinate integer general\n2 3 3\n1 1 2\n1 2 1\n2 3 1\n"),
}


@pytest.mark.parametrize("encoding", MARKED)
@pytest.mark.parametrize("kind", COUNTS)
def test_word_counts__are_decoded_by_their_byte_order_mark(tmp_path, kind, encoding):
    name, content = COUNTS[kind]
    words = put(tmp_path / "vocab.txt", "ship\ncafé\noven\n", encoding)
    found = ingested_bags(tmp_path, put(tmp_path / name, content, encoding), vocabulary=words)
    assert found == {"1": {"ship": 2, "café": 1}, "2": {"oven": 1}}
    labels = columns_of(tmp_path / "c")["labels"] if kind == "svmlight" else []
    assert [label["value"] for row in labels for label in row] == (["a", "b"] if kind == "svmlight" else [])
    assert (("encoding", encoding, "encoding") in guesses_of(tmp_path / "c")) == (encoding != "utf-8-sig")


@given(
    st.sampled_from([",", ";", "|", "\t"]), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans(),
    st.sampled_from([1 << 24, 12]),
)  # fmt: skip
def test_separators__are_detected_and_reported(tmp_path_factory, separator, line_end, message, bom, block):
    place = tmp_path_factory.mktemp("separators")
    rows = [("id", "other", "text"), *((name, "a,b" if separator != "," else "a;b", text) for name, text in ROWS)]
    lines = [separator.join(row) for row in rows]
    content = line_end.join([*([f"sep={separator}"] if message else []), *lines, ""])
    path = put(place / "x.csv", content, "utf-8-sig" if bom else "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks.cut_blocks, "__defaults__", (block,))
        assert ingested_bags(place, path) == BAGS
    assert ("separator", "tab" if separator == "\t" else separator, "separator") in guesses_of(place / "c")


def test_a_given_separator__is_used_and_others_are_refused_with_advice(tmp_path):
    path = put(tmp_path / "x.csv", TABLE.replace(",", "^"))
    assert ingested_bags(tmp_path, path, separator="^") == BAGS
    assert ("separator", "^", "separator") not in guesses_of(tmp_path / "c")
    with pytest.raises(InputError, match="expected ; between columns, found ,"):
        ingest(put(tmp_path / "y.csv", TABLE), tmp_path / "d", separator=";", scheduler="serial")
    with pytest.raises(OptionError, match="separator: expected a character such as ; or |, or tab"):
        ingest(path, tmp_path / "d", separator="and", scheduler="serial")


def test_errors__count_the_separator_line_of_excel(tmp_path):
    path = put(tmp_path / "x.csv", "sep=;\nid;text\n1;ship\n2;sail;mast;x\n")
    with pytest.raises(InputError, match="line 4: expected 2 values as in the header, found 4"):
        ingested_bags(tmp_path, path)


def test_unused_columns__may_be_unnamed_or_duplicate(tmp_path):
    rows = [",id,text,note,note,,", "0,1,ship sail,a,b,,", "1,2,oven,a,b", "2,3,mast,a,b,,,"]
    path = put(tmp_path / "x.csv", "\n".join(rows))
    assert ingested_bags(tmp_path, path) == {"1": {"ship": 1, "sail": 1}, "2": {"oven": 1}, "3": {"mast": 1}}
    with pytest.raises(InputError, match="the column 'note' occurs twice"):
        ingest(path, tmp_path / "d", labels="note", scheduler="serial")
    names = ["id", "text", "note", "note"]
    pq.write_table(pa.Table.from_arrays([pa.array(["1"]), *[pa.array(["ship"])] * 3], names), tmp_path / "x.parquet")
    assert ingested_bags(tmp_path / "parquet", tmp_path / "x.parquet") == {"1": {"ship": 1}}
    with pytest.raises(InputError, match="x.parquet: the column 'note' occurs twice"):
        ingest(tmp_path / "x.parquet", tmp_path / "d", labels="note", scheduler="serial")
    with pytest.raises(InputError, match="expected 7 values as in the header, found 8"):
        ingest(put(tmp_path / "y.csv", f"{rows[0]}\n{rows[1]},more\n"), tmp_path / "d", scheduler="serial")


def test_columns_of_side_files__may_be_unnamed_or_duplicate_if_others_are_named(tmp_path):
    path = put(tmp_path / "x.csv", TABLE)
    side = put(tmp_path / "side.csv", ",id,kind,note,note\n0,1,a,x,y\n1,2,b,x,y\n")
    ingest(path, tmp_path / "c", label_files=side, labels="kind", scheduler="serial")
    assert columns_of(tmp_path / "c")["labels"] == [[{"field": "kind", "value": value}] for value in "ab"] + [[]]
    with pytest.raises(InputError, match="the column 'note' occurs twice"):
        ingest(path, tmp_path / "d", label_files=side, scheduler="serial")


def test_a_folder_of_several_formats__is_refused_or_reports_what_is_left_out(tmp_path):
    folder = tmp_path / "in"
    put(folder / "README.txt", "Some tables.\n")
    put(folder / "a.csv", TABLE)
    put(folder / "b.csv", TABLE.replace("1,", "4,").replace("2,", "5,").replace("3,", "6,"))
    put(folder / "_SUCCESS", "")
    put(folder / ".hidden.csv", "x")
    for source in (folder, folder / "*", f"{folder}/*.*"):
        with pytest.raises(
            OptionError, match=r"several formats: .*of text \(such as README.txt\).*choose one with `format`"
        ):
            ingested_bags(tmp_path, str(source))
    assert len(ingested_bags(tmp_path, folder, format="csv")) == 6
    report = read_history(Folder(tmp_path / "c")).report
    assert [(entry.why, entry.files, entry.names) for entry in report.left_out] == [
        ("by name not of the format csv", 1, ("README.txt",)),
        ("as hidden by an underscore", 1, ("_SUCCESS",)),
    ]
    assert "1 file left out, by name not of the format csv: README.txt" in report.remarks
    append(tmp_path / "c", _copied(folder, tmp_path / "more"), scheduler="serial")
    assert Corpus(tmp_path / "c").manifest.documents == 12


def _copied(folder, place):
    """Copy a folder with other document ids."""
    for file in folder.iterdir():
        put(place / file.name, file.read_text().replace("\n1,", "\n11,").replace("\n2,", "\n12,").replace("\n3,", "\n13,")
            .replace("\n4,", "\n14,").replace("\n5,", "\n15,").replace("\n6,", "\n16,"))  # fmt: skip
    return str(place)


def test_files_without_a_known_suffix__are_left_out_if_others_have_a_format(tmp_path):
    put(tmp_path / "in/a.csv", TABLE)
    put(tmp_path / "in/notes", "not a table")
    assert ingested_bags(tmp_path, tmp_path / "in") == BAGS
    assert read_history(Folder(tmp_path / "c")).report.left_out[0].names == ("notes",)
    put(tmp_path / "plain/1", "ship")
    put(tmp_path / "plain/2", "sail")
    assert guess_format([str(tmp_path / "plain")]) == "text"
    put(tmp_path / "counts/x.mtx", "x")
    with pytest.raises(OptionError, match="holds files of the format mtx; name the files themselves"):
        guess_format([str(tmp_path / "counts")])
    with pytest.raises(OptionError, match="its format is jsonl, but .*a.csv has the format csv"):
        guess_format([str(tmp_path / "in/a.csv"), put(tmp_path / "b.jsonl", LINES)])


def test_a_glob__may_match_names_with_an_underscore(tmp_path):
    put(tmp_path / "_x.csv", TABLE)
    assert ingested_bags(tmp_path, f"{tmp_path}/_*.csv") == BAGS


def test_the_null_of_hive__is_a_missing_value(tmp_path):
    for folder, name in (("kind=x%20y", "a"), ("kind=__HIVE_DEFAULT_PARTITION__", "b")):
        place = tmp_path / "in" / folder
        place.mkdir(parents=True)
        pq.write_table(pa.table({"id": [name], "text": ["ship sail"]}), place / "part-0.parquet")
    ingested_bags(tmp_path, tmp_path / "in", labels="kind")
    ids = [name for part in Corpus(tmp_path / "c").references for name in part.documents().ids.to_pylist()]
    labels = dict(zip(ids, columns_of(tmp_path / "c")["labels"], strict=True))
    assert labels == {"a": [{"field": "kind", "value": "x y"}], "b": []}


def test_a_binary_file__is_never_suggested_to_be_read_as_text(tmp_path):
    pq.write_table(pa.table({"id": ["a"], "text": ["ship"]}), tmp_path / "x.parquet")
    data = (tmp_path / "x.parquet").read_bytes()
    for name in ("x.txt", "x.csv", "x.jsonl", "x.mallet", "part-0"):
        with pytest.raises((InputError, OptionError)) as raised:
            ingested_bags(tmp_path, put(tmp_path / name, data))
        assert "a Parquet file (`format` parquet)" in str(raised.value)
        assert "bad_bytes" not in str(raised.value)


def test_vectors__support_separators_encodings_and_repeated_headers(tmp_path):
    content = "height;width;kind\n1;2;a\n3;4.5;b\n"
    path = put(tmp_path / "x.csv", content, "utf-16")
    ingest(path, tmp_path / "c", format="vectors", labels="kind=-1", header="yes")
    assert Corpus(tmp_path / "c").vocabulary.words == ["height", "width"]
    assert guesses_of(tmp_path / "c") == {("encoding", "utf-16", "encoding"), ("separator", ";", "separator")}
    ingest(put(tmp_path / "y.csv", "sep=|\n1|2\n3|4\n"), tmp_path / "d", format="vectors")
    assert guesses_of(tmp_path / "d") == {("separator", "|", "separator"), ("header", "no", "header")}
    append(tmp_path / "d", put(tmp_path / "z.csv", "5|6\n"))
    values = np.concatenate([part.vectors().values for part in Corpus(tmp_path / "d").references])
    assert values.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_labels_in_later_lines__are_split_like_the_first(tmp_path):
    path = put(tmp_path / "x.csv", TABLE)
    ingest(path, tmp_path / "c", label_files=f"k={put(tmp_path / 's.txt', 'deep learning;nlp' + chr(10) * 2 + 'a b')}")
    assert ("label_separator", "tab and ;", "label_separator") in guesses_of(tmp_path / "c")
    more = put(tmp_path / "y.csv", TABLE.replace("1,", "4,").replace("2,", "5,").replace("3,", "6,"))
    append(tmp_path / "c", more, label_files=f"k={put(tmp_path / 't.txt', 'machine learning' + chr(10) * 3)}")
    values = [[label["value"] for label in row] for row in columns_of(tmp_path / "c")["labels"]]
    assert values == [["deep learning", "nlp"], [], ["a b"], ["machine learning"], [], []]
    ingest(path, tmp_path / "d", label_files=f"k={tmp_path / 's.txt'}", label_separator="space")
    assert [label["value"] for label in columns_of(tmp_path / "d")["labels"][0]] == ["deep", "learning;nlp"]


def test_guesses__are_reused_by_append_and_like(tmp_path):
    ingest(put(tmp_path / "x.csv", TABLE.replace(",", ";")), tmp_path / "c", scheduler="serial")
    more = TABLE.replace("1,", "4,").replace("2,", "5,").replace("3,", "6,")
    commas = put(tmp_path / "y.csv", more)
    with pytest.raises(InputError, match="expected ; between columns, found ,"):
        append(tmp_path / "c", commas, scheduler="serial")
    with pytest.raises(InputError, match="expected ; between columns, found ,"):
        ingest(commas, tmp_path / "d", like=tmp_path / "c", scheduler="serial")
    added = append_with_report(tmp_path / "c", commas, Addition(scheduler="serial", separator=","))
    assert [guess.what for guess in added.report.guesses] == ["format"]
    append(tmp_path / "c", put(tmp_path / "z.tsv", TABLE.replace(",", "\t").replace("1\t", "7\t").replace("2\t", "8\t")
           .replace("3\t", "9\t")), scheduler="serial")  # fmt: skip
    assert Corpus(tmp_path / "c").manifest.documents == 9


def test_the_index_base__is_reported_and_recorded(tmp_path):
    words = put(tmp_path / "vocab.txt", "a1\nship\nsail\n")
    ingested_bags(tmp_path, put(tmp_path / "x.svmlight", "1 1:3 2:1\n"), vocabulary=words)
    assert ("first index", "1", "index_base") in guesses_of(tmp_path / "c")
    assert read_history(Folder(tmp_path / "c")).options.index_base == 1


def test_conflicting_guesses__set_no_option():
    tabs, commas = (Guess("separator", value, "separator") for value in ("tab", ","))
    assert with_guesses(ReadOptions(), [commas]).separator == ","
    assert with_guesses(ReadOptions(separator=";"), [commas]).separator == ";"
    assert with_guesses(ReadOptions(), [commas, tabs]).separator is None
    assert with_guesses(ReadOptions(), [Guess("separator of side files", "tab", "separator")]).separator is None


def test_corpora_of_release_0_1__are_read_without_guesses(tmp_path):
    ingested_bags(tmp_path, put(tmp_path / "x.csv", TABLE))
    history = read_history(Folder(tmp_path / "c"))
    record = history.record() | {"version": 6}
    del record["report"]["guesses"]
    from collapsium.storage.io.records import dump

    (tmp_path / "c/ingest.json").write_bytes(dump(record))
    assert read_history(Folder(tmp_path / "c")).report.guesses == ()
    append(tmp_path / "c", put(tmp_path / "y.csv", "id;text\n9;ship\n"), scheduler="serial")


def test_sources_of_a_batch_job__omit_hidden_files_and_other_formats(tmp_path):
    for name in ("a.csv", "b.csv", "README.txt", "_SUCCESS", "_tmp/x.csv", ".c.csv", "std::d.csv"):
        put(tmp_path / "in" / name, name)
    others = []
    found = find_sources([str(tmp_path / "in")], {}, "csv", others)
    assert [entry["below"] for entry in found.values()] == ["a.csv", "b.csv", "std::d.csv"]
    assert others == [str(tmp_path / "in/README.txt")]
    assert len(find_sources([str(tmp_path / "in")], {})) == 4


def test_options_about_files__are_refused_if_no_file_has_such_a_layout(tmp_path):
    pq.write_table(pa.table({"id": ["a"], "text": ["ship"]}), tmp_path / "x.parquet")
    lines = put(tmp_path / "x.jsonl", LINES)
    for path, option, value, kind in (
        (tmp_path / "x.parquet", "encoding", "cp1252", "parquet"),
        (lines, "separator", ";", "jsonl"),
        (lines, "label_separator", ";", "side files"),
    ):
        with pytest.raises(OptionError, match=f"{option}: applies only to .*{kind}"):
            ingested_bags(tmp_path, path, **{option: value})

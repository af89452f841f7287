"""New texts for a model: `ingest --like`, texts in place of a corpus, and vocabularies of corpora and runs."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapsium.pipeline import append, evaluate, explode, fit, ingest, split
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.corpora.new_texts import documents_for
from collapsium.pipeline.corpora.recorded_reading import recorded_reading
from collapsium.storage.building.ingest_record import read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import AbsentError, InputError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from tests.pipeline.corpora.test_text_ingest import bags_of, columns_of, put_lines

TEXTS = [
    "New York pizza was good",
    "the pizza in New York",
    "good tacos, bad pizza",
    "tacos and tacos",
    "bad bad service",
]
ROWS = [{"key": f"d{n}", "body": text, "topic": "food", "stars": n} for n, text in enumerate(TEXTS)]
FIELDS = {"id": "key", "text": "body", "labels": ["topic"], "covariates": ["stars"]}
WORDS = {**FIELDS, "phrases": "npmi", "phrase_count": 2, "min_documents": 2}


def upper_words(text):
    """Tokenize into words in upper case, as a user-defined function."""
    return text.upper().split()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    place = tmp_path_factory.mktemp("made")
    ingest(put_lines(place / "old.jsonl", ROWS), place / "whole", **WORDS)
    split(place / "whole", place / "train", place / "held", fraction=0.2)
    fit(place / "train", place / "run", family="lda", topics=2, iterations=2, scheduler="serial")
    return place


def test_a_run__reads_new_texts_as_its_documents_were_read(fitted, tmp_path):
    ingest(fitted / "old.jsonl", tmp_path / "again", like=fitted / "run")
    assert bags_of(tmp_path / "again") == bags_of(fitted / "whole")
    assert columns_of(tmp_path / "again") == columns_of(fitted / "whole")
    assert "new_york" in Corpus(tmp_path / "again").vocabulary.words


@given(
    st.lists(
        st.lists(st.sampled_from(["Aa", "bb", "CC", "the", "dd", "ee.", "don't", "x", "new", "york"]), max_size=9),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=12, deadline=None)
def test_a_corpus_read_again_with_its_options__is_identical(tmp_path_factory, texts):
    place = tmp_path_factory.mktemp("same")
    source = put_lines(place / "x.jsonl", [{"id": f"d{n}", "text": " ".join(words)} for n, words in enumerate(texts)])
    options = {
        "phrases": "count",
        "phrase_count": 1,
        "phrase_threshold": 0.5,
        "segments": "sentences",
        "min_characters": 2,
    }
    try:
        first = ingest(source, place / "c", scheduler="serial", max_document_share=0.9, **options)
    except InputError:  # no words remain
        return
    assert ingest(source, place / "again", like=place / "c", scheduler="serial") == first
    assert ingest(source, place / "twice", like=place / "again", scheduler="serial") == first


def test_unknown_shares__are_stored_with_the_documents_of_another_corpus_too(fitted, tmp_path):
    source = put_lines(tmp_path / "x.jsonl", [{"key": "a", "body": "zzz tacos zzz zzz"}])
    plain = ingest(source, tmp_path / "plain", like=fitted / "run")
    with_shares = ingest(source, tmp_path / "shares", like=fitted / "run", unknown_share=True)
    assert set(with_shares.fields) - set(plain.fields) == {"unknown_share"}
    shares = [reference.further()["unknown_share"].to_pylist() for reference in Corpus(tmp_path / "shares").references]
    assert shares == [[0.75]]


def test_texts_of_another_format_without_the_fields__are_read(fitted, tmp_path):
    (tmp_path / "new.csv").write_text("key,body\nn1,new york tacos zzz\nn2,\n")
    with documents_for(fitted / "run", tmp_path / "new.csv") as found:
        assert bags_of(found.corpus.url) == {"n1": {"new_york": 1, "tacos": 1}, "n2": {}}
        assert columns_of(found.corpus.url)["stars"] == [None, None]
        assert (found.unknown.unknown, found.unknown.tokens) == (1, 3)
        place = found.corpus.url
    assert not Folder(place).exists()


def test_a_model__can_read_texts_without_its_corpus(fitted, tmp_path):
    shutil.copytree(fitted / "run" / "model", tmp_path / "model")
    put_lines(tmp_path / "x.jsonl", [{"key": "a", "body": "New York service"}])
    with documents_for(tmp_path / "model", tmp_path / "x.jsonl") as found:
        assert bags_of(found.corpus.url) == {"a": {"new_york": 1}}


def test_a_model_without_a_record__is_read_as_the_corpus_of_its_run(fitted, tmp_path):
    shutil.copytree(fitted / "run", tmp_path / "run")
    (tmp_path / "run/model/ingest.json").unlink()
    found, expected = recorded_reading(tmp_path / "run"), read_history(Folder(fitted / "train"))
    assert found.history == expected
    shutil.rmtree(tmp_path / "run/checkpoints")
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert run["corpus"]["url"] == str(fitted / "train")


def test_unknown_words__give_a_warning_if_there_are_many(fitted, tmp_path):
    put_lines(tmp_path / "x.jsonl", [{"key": "a", "body": "strange foreign words, pizza"}])
    lines = []
    with documents_for(fitted / "run", tmp_path / "x.jsonl", notice=lines.append) as found:
        assert found.unknown.share == pytest.approx(0.75)
        assert found.corpus.manifest.tokens == 1
    assert lines[0] == "guessed: format jsonl (`format`)"
    assert "3 of 4 tokens (75.0%)" in lines[1]
    put_lines(tmp_path / "x.jsonl", [{"key": "a", "body": "zzz"}])
    with documents_for(fitted / "run", tmp_path / "x.jsonl") as found:
        assert found.corpus.manifest.tokens == 0


def test_ingest_like__reports_unknown_words(fitted, tmp_path, capsys):
    put_lines(tmp_path / "x.jsonl", [{"key": "a", "body": "strange foreign words, pizza"}])
    command = ["ingest", str(tmp_path / "x.jsonl"), str(tmp_path / "c"), "--like", str(fitted / "run")]
    assert main(command) == 0
    output = capsys.readouterr()
    assert "3 of 4 tokens (75.0%)" in output.out
    assert "warning: 3 of 4 tokens" in output.err
    shutil.rmtree(tmp_path / "c")
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["ingest"]
    assert (report["unknown_tokens"], report["unknown_share"]) == (3, 0.75)


def test_parts_of_a_split__accept_additions_like_the_whole(fitted, tmp_path):
    ingest(fitted / "old.jsonl", tmp_path / "whole", **WORDS)
    split(tmp_path / "whole", tmp_path / "train", tmp_path / "held", documents=True, fraction=0.4, seed=1)
    for number in range(2):
        row = {"key": f"n{number}", "body": "New York tacos", "topic": "food", "stars": 1}
        append(tmp_path / "train", put_lines(tmp_path / f"{number}.jsonl", [row]))
        assert bags_of(tmp_path / "train")[f"n{number}"] == {"new_york": 1, "tacos": 1}
    history, manifest = read_history(Folder(tmp_path / "train")), Corpus(tmp_path / "train").manifest
    assert [record.documents for record in history.until(manifest.documents).appended] == [1, 1]


def test_functions_and_patterns_of_a_record__run_only_if_the_user_names_them_again(tmp_path):
    put_lines(tmp_path / "x.jsonl", [{"id": "a", "text": "Aa Bb\nCH 1\nCc Bb"}])
    named = {"tokenizer": f"{__name__}:upper_words", "segments": "headings:CH"}
    ingest(tmp_path / "x.jsonl", tmp_path / "c", scheduler="serial", **named)
    for left_out, pattern in (("tokenizer", "upper_words"), ("segments", "headings:CH")):
        remaining = {name: value for name, value in named.items() if name != left_out}
        with pytest.raises(OptionError, match=pattern):
            ingest(tmp_path / "x.jsonl", tmp_path / "new", like=tmp_path / "c", scheduler="serial", **remaining)
        opened = documents_for(tmp_path / "c", tmp_path / "x.jsonl", reading=remaining)
        with pytest.raises(OptionError, match="if you trust it"), opened:
            pass
    with pytest.raises(OptionError, match="lines"):
        ingest(tmp_path / "x.jsonl", tmp_path / "new", like=tmp_path / "c", **{**named, "segments": "lines"})
    assert not (tmp_path / "new").exists()
    ingest(tmp_path / "x.jsonl", tmp_path / "new", like=tmp_path / "c", scheduler="serial", **named)
    assert bags_of(tmp_path / "new") == bags_of(tmp_path / "c")


@pytest.mark.parametrize(
    "option", [{"stop_words": "none"}, {"min_documents": 3}, {"phrases": "count"}, {"min_characters": 3}]
)
def test_like__refuses_options_that_would_change_the_words(fitted, tmp_path, option):
    with pytest.raises(OptionError, match=next(iter(option)).replace("_", "[-_]")):
        ingest(fitted / "old.jsonl", tmp_path / "c", like=fitted / "run", **option)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("named", ["english", ["english"]])
def test_like__accepts_the_default_stop_words_by_name(fitted, tmp_path, named):
    manifest = ingest(fitted / "old.jsonl", tmp_path / "c", like=fitted / "run", stop_words=named)
    assert manifest.documents == len(TEXTS)


def test_like__names_the_stop_words_that_were_left_out(fitted, tmp_path):
    (tmp_path / "mine.txt").write_text("tacos\n")
    with pytest.raises(
        OptionError, match=r"^`stop_words` none: the documents of .* were read with english; read new ones"
    ):
        ingest(fitted / "old.jsonl", tmp_path / "c", like=fitted / "run", stop_words="none")
    with pytest.raises(
        OptionError, match=r"^`stop_words` english and a list of 1 words: .* read with english; read new ones"
    ):
        ingest(fitted / "old.jsonl", tmp_path / "c", like=fitted / "run", stop_words=f"english,{tmp_path}/mine.txt")


def test_new_documents_for_exploded_corpora__are_exploded_too(tmp_path):
    put_lines(tmp_path / "x.jsonl", [{"id": "a", "text": "Aa bb. Cc aa."}, {"id": "b", "text": "Bb bb."}])
    ingest(tmp_path / "x.jsonl", tmp_path / "c", segments="sentences")
    explode(tmp_path / "c", tmp_path / "flat")
    manifest = ingest(tmp_path / "x.jsonl", tmp_path / "again", like=tmp_path / "flat")
    assert manifest == Corpus(tmp_path / "flat").manifest
    assert list(bags_of(tmp_path / "again")) == ["a#1", "a#2", "b#1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "c", "flat", "x.jsonl"]
    with pytest.raises(OptionError, match="append to the original corpus"):
        append(tmp_path / "flat", tmp_path / "x.jsonl")


@pytest.fixture
def counted(tmp_path):
    (tmp_path / "docword.a.txt").write_text("2\n3\n3\n1 1 2\n1 3 1\n2 2 1\n")
    (tmp_path / "vocab.a.txt").write_text("aa\nthe\ncc\n")
    return tmp_path


def test_counted_words__are_matched_by_their_spelling(counted):
    ingest(counted / "docword.a.txt", counted / "a")
    (counted / "docword.b.txt").write_text("1\n3\n3\n1 1 1\n1 2 4\n1 3 2\n")
    (counted / "vocab.b.txt").write_text("cc\nzz\naa\n")
    ingest(counted / "docword.b.txt", counted / "b", like=counted / "a")
    assert bags_of(counted / "b") == {"1": {"aa": 2, "cc": 1}}
    assert Corpus(counted / "b").vocabulary.words == ["aa", "the", "cc"]
    assert read_history(Folder(counted / "b")).report.unknown_tokens == 4


def test_counts_without_words__use_the_recorded_vocabulary_unless_it_was_pruned(counted, tmp_path):
    ingest(counted / "docword.a.txt", counted / "a")
    ingest(counted / "docword.a.txt", counted / "pruned", max_words=2)
    (counted / "new").mkdir()
    shutil.copy(counted / "docword.a.txt", counted / "new/docword.a.txt")
    ingest(counted / "new/docword.a.txt", counted / "b", like=counted / "a")
    assert bags_of(counted / "b") == bags_of(counted / "a")
    with pytest.raises(InputError, match="`vocabulary` FILE"):
        ingest(counted / "new/docword.a.txt", counted / "c", like=counted / "pruned")
    named = {"vocabulary": str(counted / "vocab.a.txt")}
    with documents_for(counted / "pruned", counted / "new/docword.a.txt", reading=named) as found:
        assert found.unknown.unknown == 1


def test_texts_for_counted_words__are_tokenized_by_default_with_a_notice(counted):
    ingest(counted / "docword.a.txt", counted / "a")
    lines = []
    (counted / "t.txt").write_text("The AA; cc cc zz of")
    with documents_for(counted / "a", counted / "t.txt", notice=lines.append) as found:
        assert bags_of(found.corpus.url) == {"t.txt": {"aa": 1, "cc": 2, "the": 1}}
        assert found.unknown.unknown == 1
    assert "default tokenizer" in lines[0]


def test_vectors__have_the_columns_of_the_record(tmp_path):
    (tmp_path / "x.csv").write_text("kind,u,v\na,1,2\nb,3,4\n")
    ingest(tmp_path / "x.csv", tmp_path / "c", format="vectors", labels=["kind"])
    ingest(tmp_path / "x.csv", tmp_path / "again", like=tmp_path / "c")
    assert Corpus(tmp_path / "again").manifest == Corpus(tmp_path / "c").manifest
    (tmp_path / "y.csv").write_text("kind,v,u\na,1,2\n")
    with pytest.raises(MismatchError, match="'v' for 'u'"):
        ingest(tmp_path / "y.csv", tmp_path / "new", like=tmp_path / "c")


@pytest.mark.parametrize("of", ["whole", "run", "run/model", "whole/vocabulary.parquet", "words.parquet", "words"])
def test_vocabulary__is_read_from_corpora_runs_and_tables(fitted, tmp_path, of):
    words = Corpus(fitted / "whole").vocabulary.words
    table = pa.table({"number": np.arange(len(words)), "lemma": words})
    pq.write_table(table, tmp_path / "words.parquet")
    (tmp_path / "words").write_text("\n".join(words))
    path = tmp_path / of if of.startswith("words") else fitted / of
    ingest(fitted / "old.jsonl", tmp_path / "c", vocabulary=str(path), **FIELDS)
    assert Corpus(tmp_path / "c").vocabulary.words == words


def test_a_vocabulary_of_another_kind__is_refused(fitted, tmp_path):
    pq.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "two.parquet")
    pq.write_table(pa.table({"word": ["x", "x"]}), tmp_path / "twice.parquet")
    for path, error, pattern in (
        (tmp_path / "two.parquet", InputError, "column 'word'"),
        (tmp_path / "twice.parquet", InputError, "row 2"),
        (tmp_path, AbsentError, "`vocabulary`"),
    ):
        with pytest.raises(error, match=pattern):
            ingest(fitted / "old.jsonl", tmp_path / "c", vocabulary=str(path), **FIELDS)
    assert not (tmp_path / "c").exists()


def test_an_output_folder_that_is_not_a_corpus__is_not_read_as_texts(fitted):
    with pytest.raises(AbsentError, match="run.json"), documents_for(fitted / "run", fitted / "run"):
        pass


def test_errors__name_the_texts_and_not_their_temporary_corpus(fitted, tmp_path):
    with pytest.raises(MismatchError, match=r"old\.jsonl: .*documents that were fitted are not unseen") as caught:
        evaluate(fitted / "run", unseen=fitted / "old.jsonl", scheduler="serial")
    assert "collapsium-" not in str(caught.value)
    unknown = put_lines(tmp_path / "unknown.jsonl", [{"key": "x", "body": "qqq", "topic": "food", "stars": 1}])
    with pytest.raises(InputError, match=r"unknown\.jsonl: no token is left") as caught:
        evaluate(fitted / "run", unseen=unknown, scheduler="serial")
    assert "collapsium-" not in str(caught.value)

"""The word rule in commands that split texts into words, and corpora that keep the first rule."""

import json
import unicodedata
import warnings

import numpy as np
import pytest

from collapsium.pipeline import Corpus, append, fit, ingest
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.engine.setup.inputs import seeds_of
from collapsium.pipeline.models.registry import make_options
from collapsium.storage.building.ingest_record import FILE, read_history
from collapsium.storage.corpus.word_rule import FIRST_RULE, RULE
from collapsium.storage.errors import DamagedError, InputError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import DIGEST, dump
from tests.pipeline.corpora.test_text_ingest import bags_of, put_lines

NFD = unicodedata.normalize("NFD", "café")
TEXTS = [f"{NFD} don’t ship", "café don't ship"]


def put_texts(path, texts=TEXTS):
    return put_lines(path, [{"id": f"{path.stem}{number}", "text": text} for number, text in enumerate(texts)])


def of_first_rule(corpus):
    """Turn the record of a corpus into one of release 0.1, which names no rule."""
    record = json.loads((corpus / FILE).read_text())
    assert record["reading"].pop("word_rule") == RULE
    record.pop(DIGEST)
    (corpus / FILE).write_bytes(dump(record))
    return corpus


def test_ingest__records_the_rule(tmp_path):
    ingest(put_texts(tmp_path / "x.jsonl"), tmp_path / "c", stop_words="none")
    assert bags_of(tmp_path / "c") == {name: {"café": 1, "don't": 1, "ship": 1} for name in ("x0", "x1")}
    assert read_history(Folder(tmp_path / "c")).options.word_rule == RULE


def test_corpora_of_the_first_rule__keep_it_in_append_and_like(tmp_path):
    ingest(put_texts(tmp_path / "x.jsonl", ["ship harbour don cafe"]), tmp_path / "c", stop_words="none")
    of_first_rule(tmp_path / "c")
    assert read_history(Folder(tmp_path / "c")).options.word_rule == FIRST_RULE
    ingest(put_texts(tmp_path / "y.jsonl", [f"{NFD} ship don’t"]), tmp_path / "like", like=tmp_path / "c")
    assert bags_of(tmp_path / "like") == {"y0": {"cafe": 1, "ship": 1}}
    assert read_history(Folder(tmp_path / "like")).options.word_rule == FIRST_RULE
    append(tmp_path / "c", tmp_path / "y.jsonl", grow=True)
    assert bags_of(tmp_path / "c")["y0"] == {"cafe": 1, "ship": 1, "don’t": 1}


def test_models__are_applied_by_the_rule_of_their_documents(tmp_path):
    corpus = tmp_path / "c"
    ingest(put_texts(tmp_path / "x.jsonl", ["ship harbour cafe", "bread flour café"]), corpus, stop_words="none")
    with pytest.warns(UserWarning, match="1 of 1 tokens"):
        assert fit(str(corpus), tmp_path / "new", family="lda", topics=2, iterations=2).transform(
            [NFD.replace("e", "E")[:3]]
        ).shape == (1, 2)
    of_first_rule(corpus)
    model = fit(str(corpus), tmp_path / "old", family="lda", topics=2, iterations=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # By the first rule, a combining mark ends the word "cafe", which the vocabulary contains.
        assert model.transform([NFD]).shape == (1, 2)


def test_a_record_with_a_later_rule__is_refused(tmp_path):
    ingest(put_texts(tmp_path / "x.jsonl"), tmp_path / "c")
    record = json.loads((tmp_path / "c" / FILE).read_text())
    record["reading"]["word_rule"] = RULE + 1
    record.pop(DIGEST)
    (tmp_path / "c" / FILE).write_bytes(dump(record))
    with pytest.raises(DamagedError, match=f"expected word_rule from 1 to {RULE}, found {RULE + 1}"):
        read_history(Folder(tmp_path / "c"))


def test_vocabularies__are_spelled_like_the_words_of_texts(tmp_path):
    path = put_texts(tmp_path / "x.jsonl")
    (tmp_path / "words.txt").write_text(f"{NFD}\ndonʼt\n")
    ingest(path, tmp_path / "c", vocabulary=tmp_path / "words.txt", stop_words="none")
    assert bags_of(tmp_path / "c") == {name: {"café": 1, "don't": 1} for name in ("x0", "x1")}


def test_vocabularies_with_two_spellings_of_a_word__are_refused(tmp_path):
    path = put_texts(tmp_path / "x.jsonl")
    (tmp_path / "words.txt").write_text(f"{NFD}\nship\ncafé\n")
    with pytest.raises(InputError, match="are one word, 'café'"):
        ingest(path, tmp_path / "c", vocabulary=tmp_path / "words.txt")
    assert not (tmp_path / "c").exists()


def test_stop_lists__omit_every_spelling(tmp_path):
    (tmp_path / "stop.txt").write_text(f"{NFD}\ndon’t\n")
    ingest(put_texts(tmp_path / "x.jsonl"), tmp_path / "c", stop_words=str(tmp_path / "stop.txt"))
    assert bags_of(tmp_path / "c") == {"x0": {"ship": 1}, "x1": {"ship": 1}}


def test_seeds__match_every_spelling(tmp_path):
    ingest(put_texts(tmp_path / "x.jsonl"), tmp_path / "c", stop_words="none")
    corpus = Corpus(tmp_path / "c")
    options = make_options("lda", {"topics": 2, "seeds": {"a": [NFD, "don’t"], "b": ["ship"]}})
    seeds = seeds_of(corpus, options)
    assert [corpus.vocabulary.words[word] for word in seeds.words] == ["café", "don't", "ship"]


def test_texts_for_a_vocabulary_without_a_record__are_matched_in_every_spelling(tmp_path):
    ingest(put_texts(tmp_path / "x.jsonl"), tmp_path / "c", stop_words="none")
    (tmp_path / "c" / FILE).unlink()
    ingest(put_texts(tmp_path / "y.jsonl", [f"{NFD} don’t"]), tmp_path / "d", like=tmp_path / "c")
    assert bags_of(tmp_path / "d") == {"y0": {"café": 1, "don't": 1}}


CHINESE = ["昨天港口来了一艘大船。船长和水手在甲板上聊天。", "面包师傅早上烤了新鲜的面包，面粉和酵母都用完了。"]


def test_texts_without_spaces__give_one_notice(tmp_path, capsys):
    path = put_texts(tmp_path / "x.jsonl", CHINESE)
    assert main(["ingest", path, str(tmp_path / "c")]) == 0
    assert capsys.readouterr().out.count("--tokenizer MODULE:FUNCTION names a function that cuts them") == 1
    assert read_history(Folder(tmp_path / "c")).report.unspaced_tokens == 4
    with pytest.warns(UserWarning, match="`tokenizer` names a function"):
        fit(CHINESE, family="lda", topics=2, iterations=1)


@pytest.mark.parametrize(
    "texts", [["港口 大船 船长 水手 甲板 聊天"], ["the ship of 北京市朝阳区人民政府 " + "sails again " * 99]]
)
def test_texts_already_cut_into_words_or_with_a_few_names__give_no_notice(tmp_path, texts):
    ingest(put_texts(tmp_path / "x.jsonl", texts), tmp_path / "c")
    assert read_history(Folder(tmp_path / "c")).report.unspaced_tokens == 0


def test_attachments__are_left_out_with_a_count(tmp_path, capsys):
    lines = "\n".join("M" + "AX>'" * 15 for _ in range(5))
    path = put_texts(
        tmp_path / "x.jsonl", [f"a picture of a ship\n\nbegin 644 ship.gif\n{lines}\n`\nend\n", "a harbour"]
    )
    assert main(["ingest", path, str(tmp_path / "c")]) == 0
    assert "  1 encoded attachment left out" in capsys.readouterr().out
    assert bags_of(tmp_path / "c") == {"x0": {"picture": 1, "ship": 1}, "x1": {"harbour": 1}}
    assert read_history(Folder(tmp_path / "c")).report.attachments == 1


def test_attachments__are_left_out_before_texts_are_cut_into_segments(tmp_path):
    lines = "\n".join("M" + "AX>'" * 15 for _ in range(5))
    ingest(put_texts(tmp_path / "x.jsonl", [f"a ship\n{lines}\na harbour\n"]), tmp_path / "c", segments="lines")
    (shard,) = [reference.load() for reference in Corpus(tmp_path / "c").references]
    assert np.asarray(shard.counts).sum() == 2
    assert read_history(Folder(tmp_path / "c")).report.segments == 2


def test_words_that_are_given_twice__are_refused_as_such(tmp_path):
    (tmp_path / "a.txt").write_text("aa bb")
    with pytest.raises(InputError, match="vocabulary: the word 'aa' is given twice"):
        ingest(tmp_path / "a.txt", tmp_path / "c", vocabulary=["aa", "bb", "aa"])

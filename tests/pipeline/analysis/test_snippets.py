"""Passages of example documents: found by id in any ingested source, with marked words, and never interpreted as
markup."""

import csv
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Model, append, explode, fit, ingest, report
from collapsium.pipeline.analysis.snippets import LENGTH, passage
from collapsium.pipeline.cli.main import main
from collapsium.storage.corpus.word_rule import composed
from collapsium.storage.errors import AbsentError, InputError, OptionError
from collapsium.storage.runs.summary import read_summary

THEMES = (["wheat", "corn", "harvest", "grain"], ["bank", "rate", "dollar", "loan"])
HOSTILE = "</script><img src=x onerror=alert(1)> & <b>"


def texts_of(seed, count=24):
    """Return texts on one of two themes, which contain markup."""
    generator = np.random.default_rng(seed)
    texts = []
    for number in range(count):
        words = generator.choice(THEMES[number % 2], 12)
        texts.append(f"Start{number} {HOSTILE} {' '.join(words[:6])}.\n\nThen {' '.join(words[6:])} &amp; end.")
    return texts


def shown(path):
    """Return the passages of a page by document, with the marked words."""
    text = path.read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])
    found = {}
    for topic in data["topics"]:
        for document, _, _, *snippet in topic["examples"]:
            if snippet:
                found[data["documents"][document]["id"]] = snippet[0]
    return found, data, text


def fitted(corpus, place):
    fit(corpus, place, family="lda", topics=2, iterations=5, scheduler="serial")
    return place


def write_lines(path, texts, first=0):
    lines = [json.dumps({"id": f"d{n}", "text": text}) for n, text in enumerate(texts, start=first)]
    path.write_text("\n".join(lines) + "\n")
    return path


def check(path, expected):
    """Require that all examples show passages of their texts, and that the page contains none of the texts' markup."""
    found, data, text = shown(path)
    assert set(found) == {document["id"] for document in data["documents"]}
    for name, snippet in found.items():
        plain = " ".join(expected[name].split())
        assert "".join(snippet).strip("… ") in plain
        marked = {word.lower() for word in snippet[1::2]}
        assert len(marked) > 2
        assert marked < {*THEMES[0], *THEMES[1], "then", "end", "src", "img", "onerror", "alert", "script", "amp"} | {
            f"start{n}" for n in range(50)
        }
    assert "<img" not in text
    assert "</script><" not in text.replace("</script>\n<script>", "").replace("</script>\n</body>", "")


def test_report__shows_passages_of_json_lines(tmp_path, capsys):
    texts = texts_of(1)
    source = write_lines(tmp_path / "news.jsonl", texts)
    ingest(source, tmp_path / "corpus")
    run = fitted(tmp_path / "corpus", tmp_path / "run")
    assert main(["report", str(run), str(tmp_path / "out.html"), "--texts", str(source)]) == 0
    check(tmp_path / "out.html", {f"d{n}": text for n, text in enumerate(texts)})
    report(run, tmp_path / "without.html")
    assert shown(tmp_path / "without.html")[0] == {}
    unrelated = write_lines(tmp_path / "other.jsonl", texts, first=100)
    same_ids = write_lines(tmp_path / "same.jsonl", ["nothing of that kind"] * 24)
    for wrong, kind in ((unrelated, InputError), (same_ids, InputError), (tmp_path / "none.jsonl", AbsentError)):
        with pytest.raises(kind):
            report(run, tmp_path / "wrong.html", texts=wrong)
        assert not (tmp_path / "wrong.html").exists()
    half = write_lines(tmp_path / "half.jsonl", texts[:12])
    found = report(run, tmp_path / "half.html", texts=[half])
    assert "No text was found" in " ".join(found.notes)


def test_report__finds_numbered_documents_of_tables_including_appended_ones(tmp_path):
    texts = texts_of(2, 30)
    for name, part in (("a.csv", texts[:20]), ("b.csv", texts[20:])):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows([["text"], *([text] for text in part)])
    ingest(tmp_path / "a.csv", tmp_path / "corpus")
    append(tmp_path / "corpus", tmp_path / "b.csv", grow=True)
    run = fitted(tmp_path / "corpus", tmp_path / "run")
    model = Model(run)
    names = {example.id for example in read_summary(model.folder, model.record).examples}
    assert names <= {*(str(n + 1) for n in range(20)), *(f"b.csv/{n + 1}" for n in range(10))}
    expected = {str(n + 1): text for n, text in enumerate(texts[:20])}
    appended = {f"b.csv/{n + 1}": text for n, text in enumerate(texts[20:])}
    report(run, tmp_path / "first.html", texts=tmp_path / "a.csv")
    found = shown(tmp_path / "first.html")[0]
    assert set(found) == names & set(expected)
    if names & set(appended):
        report(run, tmp_path / "second.html", texts=str(tmp_path / "b.csv"))
        assert set(shown(tmp_path / "second.html")[0]) == names & set(appended)


def test_report__finds_files_and_exploded_segments(tmp_path):
    texts = texts_of(3, 16)
    (tmp_path / "texts/more").mkdir(parents=True)
    for number, text in enumerate(texts):
        (tmp_path / ("texts" if number % 3 else "texts/more") / f"{number}.txt").write_text(text)
    ingest(tmp_path / "texts", tmp_path / "corpus", segments="paragraphs")
    explode(tmp_path / "corpus", tmp_path / "flat")
    names = {f"{number}.txt" if number % 3 else f"more/{number}.txt": text for number, text in enumerate(texts)}
    run = fitted(tmp_path / "corpus", tmp_path / "run")
    report(run, tmp_path / "whole.html", texts=tmp_path / "texts")
    check(tmp_path / "whole.html", names)
    report(fitted(tmp_path / "flat", tmp_path / "flatrun"), tmp_path / "flat.html", texts=tmp_path / "texts")
    found, data, _ = shown(tmp_path / "flat.html")
    assert found
    assert set(found) == {document["id"] for document in data["documents"]}
    for name, snippet in found.items():
        base, _, number = name.rpartition("#")
        assert "".join(snippet).strip("… ") in " ".join(names[base].split("\n\n")[int(number) - 1].split())


def test_texts__of_vectors_and_of_other_formats_are_refused(tmp_path, small):
    fitted(small[0], tmp_path / "run")
    (tmp_path / "x.ldac").write_text("1 0:2\n")
    with pytest.raises(OptionError, match="expected texts"):
        report(tmp_path / "run", tmp_path / "out.html", texts=tmp_path / "x.ldac")


words = st.sampled_from(
    ["wheat", "corn", "the", "a", "of", "harvest", "İstanbul", "x<y", "end.", "new", "york", "\u2028", "\x1b"]
)


@given(st.lists(words, max_size=300), st.sampled_from([None, str.upper, lambda word: word]))
def test_passage__is_a_part_of_the_text_with_its_words_marked(given_words, form):
    text = " ".join(given_words)
    weights = {"wheat": 2.0, "harvest": 1.0, "new_york": 1.0, "absent": 3.0}
    found = passage(text, weights, form)
    whole = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(text.split()))
    assert "".join(found).removeprefix("… ").removesuffix(" …") in whole
    assert len("".join(found)) <= LENGTH + 4
    assert len(found) % 2 == 1
    assert {word.lower() for word in found[1::2]} <= {"wheat", "harvest", "new", "york"}
    if {"wheat", "harvest"} & set(given_words):
        assert len(found) > 1


def test_passage__is_the_part_with_most_of_the_words():
    filler = "nothing of note happens here at all, and it goes on. " * 20
    text = f"{filler}Some wheat. {filler}The wheat harvest was good in New York. {filler}"
    found = passage(text, {"wheat": 1.0, "harvest": 1.0, "new_york": 1.0})
    assert found[1::2] == ["wheat", "harvest", "New", "York"]
    assert found[0] == "… The "
    assert found[-1].endswith(" …")
    assert passage("short", {}) == ["short"]


def test_passage__has_words_marked_by_their_normal_forms():
    forms = {"harvesting": "harvest", "rates": "rate", "mining": "mine"}
    text = "Harvesting, a harvester, the rates of New Rates, mining"
    weights = {"harvest": 1.0, "new_rate": 1.0, "mining": 1.0}
    assert passage(text, weights, lambda word: forms.get(word, word))[1::2] == ["Harvesting", "New", "Rates", "mining"]


@pytest.mark.parametrize("way", ["stem:english", "lemma:english"])
def test_report_of_normalised_words__marks_all_words_with_these_forms(tmp_path, way):
    themes = (["harvests", "ponies", "crises", "grains"], ["banking", "dollars", "loans", "economies"])
    texts = [" ".join([*themes[number % 2], "ponder", "bankrupt"]) for number in range(12)]
    source = write_lines(tmp_path / "x.jsonl", texts)
    ingest(source, tmp_path / "corpus", id="id", normalise=way)
    report(fitted(tmp_path / "corpus", tmp_path / "run"), tmp_path / "out.html", texts=source)
    found, data, _ = shown(tmp_path / "out.html")
    assert set(found) == {document["id"] for document in data["documents"]}
    marked = {word for snippet in found.values() for word in snippet[1::2]}
    assert marked == {*themes[0], *themes[1], "ponder", "bankrupt"}
    vocabulary = set(Model(tmp_path / "run").vocabulary.words)
    assert not vocabulary & {"harvests", "ponies", "dollars", "economies"}


def test_passages__mark_words_in_every_unicode_form_and_spelling():
    text = composed("The cafe\u0301 is closed, don\u2019t wait by the ca\u00adfe\u0301.")
    assert passage(text, {"caf\u00e9": 1.0, "don't": 1.0})[1::2] == ["caf\u00e9", "don\u2019t", "caf\u00e9"]

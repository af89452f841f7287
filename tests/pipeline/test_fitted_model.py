"""A model in memory for analysts: frames of topics and documents, passages, search, reports and files."""

import gc
import json
import os
import pickle
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from collapsium.pipeline import (
    Corpus,
    Model,
    edit,
    evaluate,
    examples,
    explode,
    export,
    fit,
    infer,
    ingest,
    measure,
    report,
    resume,
    simulate,
    split,
)
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.outputs import overwrites
from collapsium.storage.errors import (
    AbsentError,
    CollapsiumError,
    InputError,
    LockedError,
    MismatchError,
    OccupiedError,
    OptionError,
)
from collapsium.storage.html import table
from collapsium.storage.runs.run import Run

ANIMALS, MARKETS = "cats and dogs purr and bark", "stocks and bonds rise on markets"
ROWS = 24
FRAME = pd.DataFrame(
    {
        "speech": [f"{ANIMALS} at home" if row % 2 else f"{MARKETS} at noon" for row in range(ROWS)],
        "name": [f"speech {row}" for row in range(ROWS)],
        "party": ["a", "b"] * (ROWS // 2),
        "year": [1990 + row for row in range(ROWS)],
    },
    index=pd.Index([f"key {row}" for row in range(ROWS)], name="key"),
)
FIELDS = {"text": "speech", "title": "name", "labels": "party", "covariates": "year"}
HOW = {"family": "lda", "topics": 2, "iterations": 8, "scheduler": "serial"}


@pytest.fixture(scope="module")
def model():
    with fit(FRAME, **FIELDS, **HOW) as found:
        yield found


@pytest.fixture(scope="module")
def animals(model):
    return int(model.find("cats dogs")["topic"].iloc[0])


def test_methods__have_names_for_analysts(model):
    names = [name for name in dir(model) if not name.startswith("_")]
    assert {"topics", "documents", "examples", "find", "report", "effects", "shares_by", "save", "load"} <= {*names}
    assert not {"rows", "blocks", "global_state", "record", "describe", "own", "check_local"} & {*names}
    assert model.record.family == "lda"


def test_frames_of_topics__have_words_as_text_and_probabilities(model, animals):
    assert "cats" in model.topics().loc[animals, "words"].split(", ")
    words = model.words(animals, 3)
    assert words.index.tolist() == [(animals, 1), (animals, 2), (animals, 3)]
    assert ", ".join(words["word"]) == model.topics(words=3).loc[animals, "words"]
    with pytest.raises(OptionError, match="there is no topic 7 with tokens; topics: 0, 1"):
        model.words(7)


def test_frames_of_documents__have_their_main_topic_and_their_fields(model, animals):
    found = model.documents()
    pd.testing.assert_index_equal(found.index, FRAME.index)
    assert ((found["topic"] == animals) == (FRAME["party"] == "b")).all()
    assert found[["title", "party", "year"]].iloc[3].tolist() == ["speech 3", "b", 1993.0]
    np.testing.assert_array_equal(found["proportion"], model.document_topic.max(axis=1))


@pytest.mark.parametrize("count", [1, 5])
def test_examples__have_passages_of_the_texts(model, animals, count):
    found = model.examples(animals, count)
    assert found.columns.tolist() == ["topic", "id", "title", "proportion", "passage"]
    assert len(found) == count
    assert (FRAME.loc[found["id"], "speech"].to_numpy() == found["passage"]).all()
    assert (FRAME.loc[found["id"], "name"].to_numpy() == found["title"]).all()
    assert found["proportion"].is_monotonic_decreasing
    with pytest.raises(OptionError, match="there is no topic 9"):
        model.examples(9)


def test_examples__without_texts_have_no_passage(model):
    assert examples(model)["passage"].isna().all()


def test_find__ranks_topics_for_one_or_several_texts(model, animals):
    found = model.find(FRAME["speech"].iloc[:2], 1)
    assert found.index.tolist() == ["key 0", "key 1"]
    assert found["topic"].tolist() == [1 - animals, animals]
    assert len(model.find("cats", 5)) == 2


def test_documents_for_a_model__may_be_a_frame_a_list_a_file_or_a_corpus(model, tmp_path):
    new = FRAME.iloc[:3]
    new.to_csv(tmp_path / "new.csv", index=False)
    ingest(tmp_path / "new.csv", tmp_path / "new", like=model)
    expected = infer(model, new)
    pd.testing.assert_index_equal(expected.index, new.index)
    np.testing.assert_allclose(expected.sum(axis=1), 1.0, atol=1e-6)
    inputs = [pl.from_pandas(new), pa.Table.from_pandas(new), new["speech"].tolist(), new["speech"]]
    inputs += [str(tmp_path / "new.csv"), [tmp_path / "new.csv"], tmp_path / "new", Corpus(tmp_path / "new")]
    for documents in inputs:
        np.testing.assert_array_equal(infer(model, documents), expected)


def test_scores_and_metrics__accept_frames(model):
    new = pd.DataFrame({"speech": ["dogs bark at cats at home", "bonds and stocks rise"]})
    assert evaluate(model, unseen=new).tokens == evaluate(model, unseen=new["speech"].tolist()).tokens > 0
    how = {"metrics": "c_npmi", "top_words": 4}
    measured = measure(model, coherence=FRAME, **how)["c_npmi"].value
    assert measured == measure(model, coherence=FRAME["speech"].tolist(), **how)["c_npmi"].value


def test_a_fit__accepts_files_and_corpora(tmp_path):
    FRAME.to_csv(tmp_path / "speeches.csv", index=False)
    how = {**HOW, "iterations": 1}
    with fit(tmp_path / "speeches.csv", separator=",", **FIELDS, **how) as found:
        with fit(Corpus(corpus_of(found)), **how) as again:
            np.testing.assert_array_equal(found.document_topic, again.document_topic)
        assert found.examples(0, 1)["passage"].notna().all()


def corpus_of(model):
    return f"{model.__fspath__()}/corpus"


@pytest.mark.parametrize(
    "kind", [lambda frame: frame, pl.from_pandas, pa.Table.from_pandas, lambda frame: [*frame["speech"]]]
)
def test_split__divides_documents_in_memory_like_a_corpus(model, kind):
    train, heldout = split(kind(FRAME), documents=True, fraction=0.3)
    assert len(train) + len(heldout) == ROWS
    assert type(train) is type(kind(FRAME))
    parts = split(corpus_of(model), documents=True, fraction=0.3)
    assert [part.manifest.documents for part in parts] == [len(train), len(heldout)]


def test_split__keeps_the_index_and_makes_temporary_corpora_of_tokens():
    train, heldout = split(FRAME, folds=3, fold=1)
    assert sorted([*train.index, *heldout.index]) == sorted(FRAME.index)
    train, heldout = split(FRAME, **FIELDS)
    assert train.manifest.documents == heldout.manifest.documents == ROWS
    folders = [Path(train), Path(heldout)]
    with fit(train, heldout=heldout, **HOW) as found:
        assert evaluate(found, heldout=heldout).tokens == heldout.manifest.tokens
    del train, heldout
    gc.collect()
    assert not any(folder.exists() for folder in folders)
    with pytest.raises(OptionError, match="name both folders, or none"):
        split(FRAME, "train")


def test_plot__returns_a_figure_or_writes_a_file(model, tmp_path):
    figure = model.plot("sizes")
    assert figure.axes
    assert model.plot(["sizes"], tmp_path / "sizes.svg") == ["sizes"]
    assert (tmp_path / "sizes.svg").read_text().startswith("<?xml")


def test_effects_and_shares__are_methods(model):
    assert model.shares_by("party").terms == ["party=a", "party=b"]
    effects = model.effects("~ party")
    assert effects.terms == ["Intercept", "party[T.b]"]
    assert "<table" in effects._repr_html_()


def test_compare_with__matches_topics(model, tmp_path):
    found = model.compare_with(model)
    assert (found["other"] == found.index).all()
    assert (found["similarity"] > 0.999).all()
    with (
        fit(["other words here", "and more of them"], **HOW) as other,
        pytest.raises(MismatchError, match="vocabulary"),
    ):
        model.compare_with(other)


def test_a_saved_model__outlives_the_closed_one(tmp_path):
    with fit(FRAME, **FIELDS, **HOW) as found:
        topics, ids = found.topics(), found.document_ids
        found.save(tmp_path / "saved")
        with pytest.raises(OccupiedError):
            found.save(tmp_path / "saved")
        found.save(tmp_path / "saved", overwrite=True)
        copied = pickle.loads(pickle.dumps(found))
        assert copied.index.equals(FRAME.index)
    again = Model.load(tmp_path / "saved", texts=FRAME)
    pd.testing.assert_frame_equal(again.topics(), topics)
    assert again.document_ids == ids
    assert again.examples(0, 1)["passage"].notna().all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved"]


@pytest.mark.parametrize("change", ["overwritten", "continued", "removed"])
def test_a_model_whose_run_has_changed__is_refused_and_replaces_no_saved_one(tmp_path, change):
    run = tmp_path / "run"
    found = fit(FRAME, run, **FIELDS, **HOW)
    found.save(tmp_path / "saved")
    if change == "overwritten":
        fit(FRAME, run, **FIELDS, **{**HOW, "topics": 3}, overwrite=True)
    elif change == "continued":
        resume(run, iterations=9, scheduler="serial")
    else:
        shutil.rmtree(run)
    for use in (
        lambda: found.topics(),
        lambda: found.document_topic,
        lambda: report(found, tmp_path / "page.html"),
        lambda: found.save(tmp_path / "saved", overwrite=True),
    ):
        with pytest.raises(CollapsiumError, match="no such file|another model has replaced it.*open it again"):
            use()
    assert Model.load(tmp_path / "saved").record.iterations == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == [*["run"] * (change != "removed"), "saved"]


def test_overwrite__refuses_a_run_that_another_process_works_on(tmp_path):
    run = tmp_path / "run"
    fit(FRAME, run, **FIELDS, **HOW)
    with Run(run).held(), pytest.raises(LockedError, match="works on it; wait for it, or stop it"):
        fit(FRAME, run, overwrite=True, **FIELDS, **HOW)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    fit(FRAME, run, overwrite=True, **FIELDS, **HOW)


def test_overwrite__replaces_results_only_if_the_call_succeeds(model, tmp_path):
    report(model, tmp_path / "page.html")
    before = (tmp_path / "page.html").read_text()
    with pytest.raises(OptionError):
        report(model, tmp_path / "page.html", overwrite=True, levels=3)
    assert (tmp_path / "page.html").read_text() == before
    report(model, tmp_path / "page.html", overwrite=True, title="Another")
    assert "Another" in (tmp_path / "page.html").read_text()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("")
    with pytest.raises(OccupiedError, match="did not write"):
        fit(FRAME, tmp_path / "mine", overwrite=True, **FIELDS, **HOW)
    simulate(tmp_path / "corpus", family="lda", topics=2, documents=9, words=5, tokens=4)
    with pytest.raises(AbsentError):
        fit(tmp_path / "nothing", tmp_path / "corpus", overwrite=True, **HOW)
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "mine", "corpus"}


def test_overwrite__refuses_to_replace_files_of_users_and_results_of_another_kind(model, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/manifest.json").write_text('{"name": "a program of the user"}')
    (tmp_path / "table").mkdir()
    (tmp_path / "table/documents.csv").write_text("id,text")
    (tmp_path / "texts.csv").write_text("id,text")
    (tmp_path / "run").symlink_to(model)
    words = {"words": 5, "tokens": 4, "overwrite": True}
    for name in ("mine", "table", "texts.csv"):
        with pytest.raises(OccupiedError, match="is not replaced"):
            simulate(tmp_path / name, family="lda", topics=2, documents=9, **words)
    for write in (report, infer):
        with pytest.raises(OccupiedError, match="is not replaced by a file"):
            write(model, *([["cats"]] if write is infer else []), tmp_path / "run", overwrite=True)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OccupiedError, match="a pipe or a device is not replaced"):
        report(model, tmp_path / "pipe", overwrite=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(
        ["documents.csv", "manifest.json", "mine", "pipe", "run", "table", "texts.csv"]
    )


def test_overwrite__replaces_a_link_but_not_its_target(tmp_path):
    drawn = {"family": "lda", "topics": 2, "documents": 9, "words": 5, "tokens": 4}
    simulate(tmp_path / "target", **drawn)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    simulate(tmp_path / "link", overwrite=True, **drawn)
    assert not (tmp_path / "link").is_symlink()
    for name in ("link", "target"):
        assert Corpus(tmp_path / name).manifest.documents == 9
    with pytest.raises(AbsentError, match="found an empty text"):
        Corpus("")


def test_overwrite__replaces_companion_files_of_outputs(model, tmp_path):
    for _ in range(2):
        infer(model, ["cats purr", "stocks rise"], tmp_path / "shares.npy", overwrite=True, scheduler="serial")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shares.ids.csv", "shares.npy"]


def test_a_failed_overwrite__keeps_the_earlier_result_besides_the_new_one(tmp_path, caplog):
    place = tmp_path / "corpus"
    simulate(place, family="lda", topics=2, documents=9, words=5, tokens=4)
    earlier = (place / "manifest.json").read_bytes()

    @overwrites("out")
    def stop_halfway(out):
        out.mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_halfway(place, overwrite=True)
    assert (tmp_path / "corpus.replaced/manifest.json").read_bytes() == earlier
    assert "corpus: not complete; the earlier output is kept as" in caplog.text


def test_overwrite__works_for_all_functions_that_write(tmp_path):
    texts = ("One two. Two three.", "Three one. Four.") * 4
    rows = [f'{{"id": "{number}", "text": "{text}"}}\n' for number, text in enumerate(texts)]
    (tmp_path / "texts.jsonl").write_text("".join(rows))
    read = {"segments": "sentences", "min_documents": 1, "stop_words": [], "scheduler": "serial"}
    corpus = tmp_path / "corpus"
    for words in (5, 7):
        simulate(corpus, family="lda", topics=2, documents=9, words=words, tokens=4, overwrite=True)
    assert ingest(tmp_path / "texts.jsonl", corpus, overwrite=True, **read).documents == 8
    for _ in range(2):
        assert explode(corpus, tmp_path / "segments", overwrite=True).documents == 16
        fit(corpus, tmp_path / "run", family="lda", topics=2, iterations=2, overwrite=True, scheduler="serial")
        assert edit(tmp_path / "run", tmp_path / "edited", rename={0: "a"}, overwrite=True).topics
        for to, out in (("csv", tmp_path / "tables"), ("pyldavis", tmp_path / "vis.json")):
            assert export(tmp_path / "run", out, to=to, overwrite=True, scheduler="serial").topics
    with pytest.raises(OccupiedError, match="or replace it with `overwrite`"):
        explode(corpus, tmp_path / "segments")
    for source in (corpus, f"{corpus}/"):
        with pytest.raises(OptionError, match="corpus: is what the call reads"):
            explode(source, corpus, overwrite=True)
    assert main(["explode", str(corpus), str(tmp_path / "segments")]) == 1
    assert main(["explode", str(corpus), str(tmp_path / "segments"), "--overwrite"]) == 0
    (tmp_path / "tables/notes.txt").write_text("")
    with pytest.raises(OccupiedError, match="did not write"):
        export(tmp_path / "run", tmp_path / "tables", to="csv", overwrite=True, scheduler="serial")


def test_outputs_without_a_path__are_temporary_and_live_as_long_as_their_object(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(f'{{"id": "{number}", "text": "One two. Two three."}}\n' for number in range(8)))
    corpus = ingest(texts, segments="sentences", stop_words=[], scheduler="serial")
    simulated = [
        corpus,
        explode(corpus),
        simulate(family="lda", topics=2, documents=9, words=5, tokens=4),
        *split(corpus),
        found := fit(corpus, family="lda", topics=2, iterations=2, scheduler="serial"),
        edit(found, rename={0: "a name"}),
        *(export(found, to=to, corpus=corpus if to == "csv" else None) for to in ("csv", "pyldavis")),
    ]
    assert [part.manifest.documents for part in simulated[:5]] == [8, 16, 9, 8, 8]
    assert "a name" in simulated[6].topics().to_string()
    assert (Path(simulated[7]) / "topics.csv").exists()
    assert len(json.loads(Path(simulated[8]).read_text())["topic_term_dists"]) == 2
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == len(simulated)
    with pytest.raises(InputError):
        ingest(texts, text="nothing", scheduler="serial")
    del corpus, found
    simulated.clear()
    gc.collect()
    assert list(tmp_path.iterdir()) == [texts]


def test_a_report_without_a_file__is_a_page(model, tmp_path):
    found = model.report()
    assert "purr" in found.page
    assert "<iframe" in found._repr_html_()
    found.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == found.page


def test_models_and_corpora_in_notebooks__are_tables_with_escaped_text(model):
    assert model._repr_html_().count("<tr>") >= 3
    assert "24" in Corpus(corpus_of(model))._repr_html_()
    assert "&lt;b&gt;" in table(["a"], [["<b>"]])

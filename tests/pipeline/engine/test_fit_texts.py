"""Fits to texts in memory, arrays and frames of models, and new texts for them."""

import gc
import os
import pickle
import tempfile
from pathlib import Path

import dask.array
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse

from collapsium.pipeline import Model, fit, infer, ingest, topics
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import ClosedError, CollapsiumError, OccupiedError, OptionError
from collapsium.storage.readers.read_options import ReadOptions

ANIMALS, MARKETS = "cats and dogs purr and bark", "stocks and bonds rise on markets"
TEXTS = [f"{ANIMALS} at home {n}" if n % 2 else f"{MARKETS} at noon {n}" for n in range(12)]
SECRET = "xylophone quux secret"
HOW = {"family": "lda", "topics": 2, "iterations": 8, "scheduler": "serial"}


@pytest.fixture(scope="module")
def model():
    with fit(TEXTS, **HOW) as found:
        yield found


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path_factory, monkeypatch):
    """Use a temporary folder that no other process uses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))


def temporary():
    return {path.name for path in Path(tempfile.gettempdir()).glob("collapsium-*")}


def test_texts__give_the_same_bits_as_a_file_of_them(model, tmp_path):
    (tmp_path / "texts.csv").write_text("text\n" + "\n".join(TEXTS) + "\n")
    ingest(tmp_path / "texts.csv", tmp_path / "corpus")
    beside = fit(tmp_path / "corpus", tmp_path / "run", **HOW)
    np.testing.assert_array_equal(model.topic_word, beside.topic_word)
    np.testing.assert_array_equal(model.document_topic, beside.document_topic)
    assert model.document_ids == beside.document_ids == [str(number) for number in range(1, 13)]
    assert model.record.corpus == beside.record.corpus
    beside.close()
    assert (tmp_path / "run/model").exists()


def test_arrays_and_frames__agree(model):
    words, shares = model.topic_word, model.document_topic
    assert words.shape == (2, len(model.vocabulary))
    assert shares.shape == (12, 2)
    np.testing.assert_allclose(words.sum(axis=1), 1.0)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    frame, listed = model.topics(words=3), topics(model, words=3)
    assert frame.index.tolist() == [topic.id for topic in listed]
    assert frame.loc[listed[0].id, "words"] == ", ".join(listed[0].names)
    ranked = model.words(listed[0].id, 3)
    assert list(ranked.itertuples(index=False, name=None)) == listed[0].words
    top = np.argsort(-words[listed[0].id], kind="stable")[:3]
    assert [model.vocabulary.words[word] for word in top] == listed[0].names
    table = model.document_topics()
    assert table.index.tolist() == model.document_ids
    np.testing.assert_array_equal(table.to_numpy(), shares)


def test_document_topics__have_the_index_of_the_frame(model):
    dates = pd.MultiIndex.from_product([["a", "b", "c"], range(4)], names=["who", "when"])
    for index in (pd.RangeIndex(5, 29, 2), pd.Index([f"k{n}" for n in range(12)], name="key"), dates):
        frame = pd.DataFrame({"text": TEXTS, "id": [f"i{n}" for n in range(12)]}, index=index)
        for texts in (frame, frame["text"]):
            with fit(texts, **{**HOW, "iterations": 1}) as found:
                pd.testing.assert_index_equal(found.document_topics().index, index)
    assert model.document_topics().index.name == "id"


class Lazy:
    """A lazy frame of polars, which does not know its columns."""

    def __init__(self, frame):
        self.collect = lambda: frame


Lazy.__module__, Lazy.__name__ = "polars.lazyframe.frame", "LazyFrame"


def test_lazy_frames__are_collected(model):
    with fit(Lazy(pd.DataFrame({"text": TEXTS})), **{**HOW, "iterations": 1}) as found:
        assert found.record.corpus == model.record.corpus
        texts = pd.DataFrame({"text": TEXTS[:2]})
        np.testing.assert_array_equal(found.transform(Lazy(texts)), found.transform(texts))


class Annotated:
    """An object like AnnData."""

    X, obs_names, var_names, shape = np.ones((2, 3)), ["a", "b"], list("xyz"), (2, 3)


COUNTS = np.array([[1, 0, 2], [0, 3, 0]])


@pytest.mark.parametrize(
    "counts",
    [
        COUNTS, COUNTS.tolist(), scipy.sparse.csr_array(COUNTS), scipy.sparse.coo_matrix(COUNTS), pd.DataFrame(COUNTS),
        pd.DataFrame.sparse.from_spmatrix(scipy.sparse.csr_matrix(COUNTS)), pd.Series([1, 2]), Annotated(),
        dask.array.from_array(COUNTS),
    ],
)  # fmt: skip
def test_counts_in_place_of_texts__are_refused_with_the_function_that_accepts_them(counts, model):
    for take in (lambda: fit(counts, **HOW), lambda: model.transform(counts)):
        with pytest.raises(OptionError, match=r"expected texts, found numbers \(.*CollapsedLDA"):
            take()


@pytest.mark.parametrize(
    "missing",
    [pd.Series([np.nan, np.nan]), pd.DataFrame({"text": [np.nan, np.nan]}), pd.DataFrame({"id": [1, 2], "text": np.nan})],
)  # fmt: skip
def test_columns_of_missing_texts__are_texts_although_pandas_has_numbers_for_them(missing, model):
    shares = model.transform(missing)
    assert shares.index.tolist() == [0, 1]
    assert np.array_equal(shares, model.transform(["", None]))
    assert model.transform(missing[:0]).shape == (0, shares.shape[1])


def test_columns_of_pandas_with_numbers_as_names__are_named_by_their_digits():
    frame = pd.DataFrame({0: ["sea ship sea", "bread"], 1: ["x", None], 2: [1.5, 2]})
    model = fit(frame, text="0", labels="1", covariates="n=2", **HOW)
    fields = model.documents()
    assert (fields["1"].tolist()[0], fields["n"].tolist()) == ("x", [1.5, 2])
    assert model.transform(frame).shape == (2, model.topic_word.shape[0])


FORMS = {
    "tuple": tuple,
    "array": np.array,
    "generator": iter,
    "series": pd.Series,
    "arrow": pa.array,
    "table": lambda texts: pa.table({"text": texts, "other": range(len(texts))}),
    "frame": lambda texts: pd.DataFrame({"text": texts, "other": [object()] * len(texts)}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_texts__is_the_same_corpus(form, model):
    with fit(FORMS[form](TEXTS), **{**HOW, "iterations": 1}) as found:
        assert found.record.corpus == model.record.corpus


class Stream:
    """An object that only implements the Arrow C stream protocol."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def test_frames__have_columns_by_name(tmp_path):
    frame = {
        "body": [*TEXTS[:3], None],
        "key": list("abcd"),
        "tag": [["x"], ["x", "y"], [], None],
        "stars": [1, 2, 3, None],
    }
    options = {"text": "body", "id": "key", "labels": "topic=tag", "covariates": ["stars"], "stop_words": "none"}
    found = fit(Stream(pa.table(frame)), tmp_path / "run", **HOW, **options, min_documents=1)
    assert found.document_ids == list("abcd")
    corpus = Corpus(tmp_path / "run/corpus")
    assert set(corpus.manifest.fields) == {"labels", "stars"}
    assert "and" in found.vocabulary.words
    assert Model(tmp_path / "run").document_ids == list("abcd")
    shares = found.transform(pd.DataFrame({"body": ["cats purr"], "other": [1]}))
    np.testing.assert_array_equal(shares, found.transform(["cats purr"]))


def test_a_column_of_ids__is_used_as_from_a_file():
    table = pa.table({"text": [*TEXTS[:2], "cats"], "id": [7, 8, 9]})
    with fit(table, **{**HOW, "iterations": 1}) as found:
        assert found.document_ids == ["7", "8", "9"]
        np.testing.assert_array_equal(found.transform(table), found.transform(table["text"]))
        assert found.transform(["cats \ud83d"]).shape == (1, 2)  # half of a surrogate pair


def test_transform__gives_what_infer_writes(model, tmp_path):
    new = ["Cats purr", "bonds rise; stocks", "", None, float("nan"), "the"]
    shares = model.transform(new)
    (tmp_path / "new.jsonl").write_text('{"id": 1, "text": "Cats purr"}\n{"id": 2, "text": "bonds rise; stocks"}\n')
    ingest(tmp_path / "new.jsonl", tmp_path / "new", like=model)
    infer(model, tmp_path / "new", tmp_path / "out.parquet", threshold=0.0)
    table = pd.read_parquet(tmp_path / "out.parquet")
    for row, (ids, values) in enumerate(zip(table["topics"], table["proportions"], strict=True)):
        np.testing.assert_array_equal(shares[row].astype(np.float32)[ids], values)
    np.testing.assert_array_equal(model.transform(tmp_path / "new"), shares[:2])
    np.testing.assert_array_equal(model.transform(str(tmp_path / "new.jsonl")), shares[:2])
    np.testing.assert_array_equal(shares[2:], shares[[2]].repeat(4, axis=0))
    assert shares.shape == (6, 2)
    assert model.transform([]).shape == (0, 2)
    assert shares[0].argmax() != shares[1].argmax()


def test_unknown_words__are_a_warning(model):
    with pytest.warns(UserWarning, match=r"3 of 3 tokens \(100.0%\)"):
        model.transform([SECRET])


def test_a_temporary_model__leaves_no_files(tmp_path):
    before = temporary()
    with fit(TEXTS, **{**HOW, "iterations": 1}) as found:
        place = found.folder.path
        copy = pickle.loads(pickle.dumps(found))
        np.testing.assert_array_equal(copy.topic_word, found.topic_word)
        del copy
        gc.collect()
        assert Path(place).exists()
    assert not Path(place).exists()
    found = fit(TEXTS, **{**HOW, "iterations": 1})
    del found
    gc.collect()
    assert temporary() == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("named", [False, True])
def test_a_fit_that_is_stopped_at_its_beginning__leaves_no_files(error, named, tmp_path, monkeypatch):
    before = temporary()

    def stop(*arguments, **options):
        raise error

    # the corpus is complete, and the run has not begun
    monkeypatch.setattr("collapsium.pipeline.engine.fit.LoadedCorpus", stop)
    with pytest.raises(error):
        fit(TEXTS, tmp_path / "run" if named else None, **HOW)
    assert temporary() == before
    assert not (tmp_path / "run").exists()


WRONG = {
    "a single text": (SECRET, {}, "put texts into a list"),
    "a text of lines": (f"{SECRET}\nsecret", {}, "put texts into a list"),
    "numbers": ([1, 2], {}, "expected strings, found int at position 0"),
    "bytes": ([b"a"], {}, "found bytes"),
    "nothing": ([], {}, "at least one text"),
    "a mapping": ({"text": [SECRET]}, {}, "found dict"),
    "no column": (pd.DataFrame({"txt": [SECRET]}), {}, "no column 'text' (did you mean 'txt'?)"),
    "numbers in a frame": (pa.table({"text": [1]}), {}, "found int64"),
    "mixed": (pd.DataFrame({"text": [SECRET, 1]}), {}, "found"),
    "labels of a list": ([SECRET], {"labels": "tag"}, "expected a frame with the column 'tag'"),
    "a number in words": (pa.table({"text": [SECRET], "n": [SECRET]}), {"covariates": "n"}, "'n'"),
    "a number for a name": (pd.DataFrame({0: [SECRET]}), {"text": 0}, "text: expected the name of a column, found 0"),
    "an option": ([SECRET], {"stop_word": "none"}, "(did you mean 'stop_words'?)"),
    "no word": (["the of"], {}, "texts"),
}


@pytest.mark.parametrize("name", WRONG)
def test_values_that_are_not_texts__are_reported_without_quoting_texts(name, tmp_path):
    texts, more, message = WRONG[name]
    before = temporary()
    with pytest.raises(CollapsiumError) as caught:
        fit(texts, **{**HOW, **more})
    assert message in str(caught.value)
    assert "xylophone" not in str(caught.value)
    assert temporary() == before
    (tmp_path / "run").mkdir()
    (tmp_path / "run/file").write_text("")
    with pytest.raises(OccupiedError):
        fit(TEXTS, tmp_path / "run", **HOW)


def test_transform__refuses_a_single_text_and_unknown_options(model):
    with pytest.raises(OptionError, match="put texts into a list") as caught:
        model.transform(SECRET)
    assert "xylophone" not in str(caught.value)
    with pytest.raises(OptionError, match=r"transform: unknown option 'txt' \(did you mean 'text'"):
        model.transform(["a"], txt="body")
    with pytest.raises(OptionError, match="no column 'words'"):
        model.transform(pd.DataFrame({"text": ["a"]}), text="words")


def test_trees__have_nodes(tmp_path):
    with fit(TEXTS, family="ncrp", depth=2, iterations=2, scheduler="serial") as found:
        assert found.topic_word.shape[0] == found.document_topic.shape[1] == found.transform(["cats"]).shape[1]
        assert {"parent", "level", "below"} <= set(found.topics().columns)


def test_models_of_vectors__have_components_and_no_words(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 3)))
    ingest(tmp_path / "x.npy", tmp_path / "c", format="vectors")
    with fit(tmp_path / "c", family="hca", depth=2, iterations=2, scheduler="serial") as found:
        with pytest.raises(OptionError, match="components of vectors"):
            _ = found.topic_word
        with pytest.raises(OptionError, match="takes vectors, not texts"):
            found.transform(["a"])
        assert found.words().columns.tolist() == ["word", "loading"]


def test_representations__are_short(model):
    words = tuple(f"word{number}" for number in range(10_000))
    corpus = Corpus(os.fspath(Path(os.fspath(model)) / "corpus"))
    for part in (
        model,
        model.vocabulary,
        model.record,
        corpus,
        corpus.manifest,
        ReadOptions(vocabulary=words),
        model.global_state,
    ):
        assert len(repr(part)) < 1500 or part is model.global_state
    documents = next(iter(corpus.references)).documents()
    assert len(repr(documents)) < 500
    assert repr(model.vocabulary).startswith(f"Vocabulary({len(model.vocabulary)} words: 'bark', 'bonds', ")


def test_a_folder_that_another_fit_has_just_made__is_not_overwritten(tmp_path, monkeypatch):
    def ingest_after_another(path, corpus, **options):
        Path(corpus).mkdir(parents=True)
        (Path(corpus) / "manifest.json").write_text("{}")
        raise OccupiedError(f"{corpus}: exists already")

    monkeypatch.setattr("collapsium.pipeline.corpora.new_texts.ingest", ingest_after_another)
    with pytest.raises(OccupiedError):
        fit(TEXTS, tmp_path / "run", **HOW)
    assert (tmp_path / "run/corpus/manifest.json").exists()


def test_texts_that_cannot_be_read__leave_no_folder(tmp_path):
    with pytest.raises(CollapsiumError, match="empty"):
        fit(["the", "and"], tmp_path / "run", **HOW)
    assert list(tmp_path.iterdir()) == []


def test_a_frame_with_duplicate_column_names__is_refused():
    frame = pd.DataFrame([["1", "cats", "dogs"]], columns=["id", "text", "text"])
    with pytest.raises(OptionError, match="the frame has 2 columns 'text'"):
        fit(frame, **HOW)


def test_a_vocabulary__may_be_a_list_of_words():
    with fit(TEXTS, **HOW, vocabulary=["cats", "bonds"]) as found:
        assert list(found.vocabulary.words) == ["cats", "bonds"]


def test_the_stop_words_of_the_user__may_be_named_again_for_new_texts(tmp_path):
    (tmp_path / "mine.txt").write_text("cats\n")
    named = f"english,{tmp_path}/mine.txt"
    with fit(TEXTS, **HOW, stop_words=named) as found:
        np.testing.assert_array_equal(found.transform(TEXTS[:2], stop_words=named), found.transform(TEXTS[:2]))


def test_a_closed_model__says_that_it_is_closed(tmp_path):
    closed = fit(TEXTS, **HOW)
    closed.close()
    for use in (topics, os.fspath, repr, lambda model: model.topic_word, lambda model: model.vocabulary, Model.topics):
        if use is repr:
            assert "Model(" in repr(closed)
            continue
        with pytest.raises(ClosedError, match="the model is closed"):
            use(closed)
    closed.close()
    with fit(TEXTS, tmp_path / "run", **HOW) as kept:
        pass
    assert topics(kept)

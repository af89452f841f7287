"""The comparison with classifiers on unseen documents: their training examples, and the output of its command."""

import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from collapsium.pipeline import Corpus
from collapsium.pipeline.analysis.label_prediction import scored
from collapsium.pipeline.engine.setup.inputs import label_table
from collapsium.storage.corpus.labels import LabelTable
from collapsium.storage.errors import InputError, OptionError
from tests.benchmarks.comparison import __main__ as command
from tests.benchmarks.comparison import classifiers as learning
from tests.benchmarks.comparison.classifiers import (
    BINARY,
    CLASSIFIERS,
    LINEAR,
    SUPERVISED_LDA,
    LabelledCorpus,
    LabelledDocuments,
    TrainingExamples,
    classified,
    classifier_fits,
    learned,
    predicted_classes,
    read_known,
    responses,
    tallied,
    with_labels,
)
from tests.conftest import write_corpus
from tests.pipeline.analysis.test_given_labels import labelled_corpus

PARTS = ("train", "unseen")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Corpora of labelled documents."""
    place = tmp_path_factory.mktemp("classifiers")
    labelled_corpus(place / "train", 1, 90)
    labelled_corpus(place / "unseen", 2, 44)
    return place


@pytest.fixture(scope="module")
def compared(place):
    """A comparison of two families and four classifiers, by the command."""
    words = [str(place / "train"), str(place / "out"), "--unseen", str(place / "unseen"), "--field", "kind"]
    words += [
        "--families",
        "hdsp,lda",
        "--topics",
        "4",
        "--iterations",
        "3",
        "--seed",
        "4",
        "--workers",
        "1",
        "--quiet",
    ]
    words += ["--classifiers", "lda-svm,naive-bayes,svm,tree", "--lda-topics", "3"]
    return command.main([*words, "--svm-labels", "place", "--svm-labels", "", "--covariates", "stars"])


def test_the_command__adds_classifiers_to_a_comparison(place, compared):
    rows, left_out = compared
    names = ["hdsp-4", "lda-4", "lda-svm-3-labels-place", "lda-svm-3-labels-none", "naive-bayes", "svm", "tree"]
    assert ([row["cell"] for row in rows], left_out) == (names, [])
    text = (place / "out/labels.md").read_text()
    for row in rows[2:]:
        assert f"| {row['macro_f1']:.3f} | {row['micro_f1']:.3f} |" in text
    plots = {path.stem for path in (place / "out/plots").iterdir()}
    assert plots == {"perplexity", "classification", "confusion"}


def test_classifiers__equal_scikit_learn_tuned_on_a_share(place, compared):
    from sklearn.metrics import f1_score
    from sklearn.naive_bayes import MultinomialNB

    train, unseen = (read_known(Corpus(place / part), "kind", numeric=False, table=LabelTable()) for part in PARTS)
    lesson = TrainingExamples.of(train, 4, "train")
    words, tuning = train.words[lesson.rows], lesson.tuning
    grid = [(a, f) for a in learning.GRIDS["naive-bayes"]["alpha"] for f in (True, False)]
    reached = [
        f1_score(
            lesson.target[tuning],
            MultinomialNB(alpha=a, fit_prior=f).fit(words[~tuning], lesson.target[~tuning]).predict(words[tuning]),
            average="macro",
        )
        for a, f in grid
    ]
    alpha, prior = grid[int(np.argmax(reached))]
    row = next(row for row in compared[0] if row["cell"] == "naive-bayes")
    assert row["tuned"] == {"alpha": alpha, "fit_prior": prior}
    model = MultinomialNB(alpha=alpha, fit_prior=prior).fit(words, lesson.target)
    found = [lesson.classes[number] for number in model.predict(unseen.words)]
    expected = scored("kind", tallied(unseen, found))
    assert (row["accuracy"], row["macro_f1"]) == (expected.accuracy, expected.macro_f1)
    by_hand = [
        guess in known
        for known, guess, size in zip(unseen.values, found, unseen.lengths, strict=True)
        if known and size
    ]
    assert row["accuracy"] == np.mean(by_hand)


def test_the_features_of_lda_svm__are_proportions_labels_and_covariates(place):
    train = Corpus(place / "train")
    table = label_table(train, ("place",), ("stars",))
    known = read_known(train, "kind", numeric=False, table=table)
    theta = np.full((90, 2), 0.5)
    features = with_labels(theta, known).toarray()
    assert features.shape == (90, 2 + len(table))
    labels = [[label["value"] for label in pairs if label["field"] == "place"] for pairs in column(train, "labels")]
    for row, document_labels in zip(features, labels, strict=True):
        assert sorted(document_labels) == [table.names[n][1] for n in np.flatnonzero(row[2:-1])]
    stars = np.array([np.nan if number is None else number for number in column(train, "stars")])
    np.testing.assert_allclose(features[:, -1], np.nan_to_num((stars - np.nanmean(stars)) / np.nanstd(stars)))


def column(corpus, name):
    return [document for reference in corpus.references for document in reference.documents().extras[name].to_pylist()]


@pytest.mark.parametrize("name", ["lda-svm", "naive-bayes", "svm", "tree"])
def test_classifiers__learn_labels_that_words_determine(name):
    target = np.arange(60) % 3
    counts = np.eye(6)[target] * 5 + np.eye(6)[3 + np.arange(60) % 2]
    known = LabelledCorpus(csr_matrix(counts), csr_matrix((60, 0)), [(f"k{value}",) for value in target])
    lesson = TrainingExamples.of(known, 1, "here")
    found, _ = learned(name, known.words, known.words, lesson, 0)
    assert found == [label for (label,) in known.values]


def test_a_number__can_be_predicted(place, monkeypatch):
    monkeypatch.setattr(learning, "installed", lambda name: False)
    documents = LabelledDocuments(Corpus(place / "train"), Corpus(place / "unseen"), "stars", 0, 2)
    (bayes, supervised) = classifier_fits(("naive-bayes", "slda"), documents, "nowhere")
    assert [value["value"] for value in bayes.measure()["classified"]["classes"]] == [1.0, 2.0, 3.0]
    with pytest.raises(learning.BaselineError, match="tomotopy is not installed"):
        supervised.measure()


@pytest.mark.parametrize(
    ("names", "labels", "message"),
    [
        (("smv",), (), "unknown classifier 'smv'"),
        (("lda-svm",), (("plac",),), "unknown field of labels 'plac' .did you mean 'place'"),
        (("lda-svm",), (("kind",),), "unknown field of labels 'kind'"),
    ],
)
def test_unknown_classifiers_and_labels__are_refused(place, names, labels, message):
    documents = LabelledDocuments(Corpus(place / "train"), Corpus(place / "unseen"), "kind", 0, 2)
    with pytest.raises(OptionError, match=message):
        classifier_fits(names, documents, "nowhere", labels=labels)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), min_size=12, max_size=40))
def test_training_examples__are_documents_with_words_and_a_single_value(rows):
    words = csr_matrix(np.array([[size] for _, _, size in rows], dtype=float))
    values = [tuple(f"v{value + n}" for n in range(several)) for value, several, _ in rows]
    train = LabelledCorpus(words, csr_matrix((len(rows), 0)), values)
    single = [n for n, (_, several, size) in enumerate(rows) if several == 1 and size]
    if len({values[n] for n in single}) < 2:
        with pytest.raises(InputError, match="two or more values"):
            TrainingExamples.of(train, 0, "here")
        return
    lesson = TrainingExamples.of(train, 0, "here")
    assert lesson.rows.tolist() == single
    assert [(lesson.classes[value],) for value in lesson.target] == [values[n] for n in single]
    assert 0 < lesson.tuning.sum() < len(single)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=20).filter(lambda words: len(set(words)) > 1))
def test_responses__are_mapped_back_to_their_classes(target):
    target = np.array(target)
    for way in (LINEAR, BINARY):
        kinds, values = responses(way, ["1", "2", "3.5", "4", "5"], target)
        assert len(kinds) == values.shape[1]
        np.testing.assert_array_equal(predicted_classes(way, ["1", "2", "3.5", "4", "5"], target, values), target)


class ExactModel:
    """A stub of tomotopy's model that returns the classes it was given for words."""

    def __init__(self, **options):
        self.vars, self.known = options["vars"], {}

    def add_doc(self, words, y):
        self.known.setdefault(words[0], []).append(y)

    def train(self, iterations, workers):
        self.used_vocabs = list(self.known)

    def make_doc(self, words):
        return words

    def infer(self, documents, iterations, workers):
        assert documents

    def estimate(self, words):
        return np.mean(self.known[next(word for word in words if word in self.known)], axis=0).tolist()


def test_supervised_lda__takes_the_better_response(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tomotopy", types.SimpleNamespace(SLDAModel=ExactModel))
    rows, labels = [{n % 3: 2} for n in range(40)], [[("stars", f"{1 + n % 3}")] for n in range(40)]
    write_corpus(tmp_path / "train", rows, 4, labels=labels)
    write_corpus(tmp_path / "unseen", [{2: 1}, {0: 4}, {3: 1}], 4, labels=[[], [], []])
    given_ = {"train": str(tmp_path / "train"), "unseen": str(tmp_path / "unseen"), "field": "stars", "numeric": False}
    given_.update(topics=2, iterations=3, seed=0, workers=1)
    found = classified(types.SimpleNamespace(**given_))
    assert found == {"predicted": ["3", "1", "1"], "tuned": {"response": "linear"}}


def test_the_catalogue__names_existing_classifiers():
    assert set(learning.GRIDS) == set(CLASSIFIERS) - {SUPERVISED_LDA}

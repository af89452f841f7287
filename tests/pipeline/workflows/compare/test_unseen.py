"""Comparisons on unseen documents: perplexity given labels, what varies, and classifiers beside the families."""

import json
import math
import sys
import types
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from collapsium.pipeline import Corpus, compare, evaluate, info, verify
from collapsium.pipeline.analysis.labels.classification import scored
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.workflows.compare.baselines import classifier_fits as learning
from collapsium.pipeline.workflows.compare.baselines.classifier_fits import (
    BINARY,
    LINEAR,
    LabelledCorpus,
    TrainingExamples,
    chosen,
    classified,
    learned,
    read_known,
    responses,
    tallied,
    with_labels,
)
from collapsium.pipeline.workflows.compare.metrics.base import best_of_families
from collapsium.pipeline.workflows.compare.options import CLASSIFIERS, SUPERVISED_LDA
from collapsium.storage.corpus.label_index import LabelTable, label_table
from collapsium.storage.errors import InputError, MismatchError, OptionError
from tests.conftest import write_corpus
from tests.pipeline.analysis.test_given_labels import WORDS, labelled_corpus

pytestmark = pytest.mark.xdist_group("unseen")  # what these tests look at is made once

ASKED = {
    "families": ("hdsp", "labeled-lda", "lda"),
    "topics": (4,),
    "restarts": 2,
    "iterations": 5,
    "samples": 2,
    "sample_every": 1,
    "vary": {"*": {"eta": [0.1, 0.5]}},
    "field": "kind",
    "classifiers": ("lda-svm", "naive-bayes", "svm", "tree"),
    "without": ("place",),
    "lda_topics": (3,),
    "seed": 4,
}
SAME_BY_HAND = """--families hdsp,labeled-lda,lda --topics 4 --restarts 2 --iterations 5 --samples 2 --sample-every 1
 --vary eta=0.1,0.5 --field kind --classifiers lda-svm,naive-bayes,svm,tree --without place --lda-topics 3 --seed 4"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Corpora of labelled documents, and others."""
    place = tmp_path_factory.mktemp("unseen")
    labelled_corpus(place / "train", 1, 90)
    labelled_corpus(place / "unseen", 2, 44)
    write_corpus(place / "bare", [{0: 2, 7: 1}, {17: 3}], WORDS)
    write_corpus(place / "other", [{0: 2}], 3)
    return place


@pytest.fixture(scope="module")
def compared(place):
    """Three families, two values of an option, with and without a field; four classifiers; and plots of it all."""
    return compare(place / "train", place / "out", unseen=place / "unseen", scheduler="serial", **ASKED)


# Families ---------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_cells__have_the_scores_of_evaluate(place, compared):
    names = [f"{name}-eta-{eta}{more}" for name in ("hdsp-4", "labeled-lda") for eta in (0.1, 0.5) for more in VARIANTS]
    assert [row["cell"] for row in compared.rows] == [*names, "lda-4"]
    for row in compared.rows[:2] + compared.rows[-3:]:
        run = place / "out/runs" / row["cell"]
        fields = [] if row["family"] == "lda" else ["kind"]
        found = evaluate(run, unseen=place / "unseen", given_labels=True, field=fields, seed=4)
        assert row["ensemble_score"] == pytest.approx(found.given_labels.score, rel=1e-12)
        assert (row["labelled"], row["unknown"]) == (found.given_labels.labelled, found.given_labels.unknown)
        each = [evaluate(run / f"members/00{n}", unseen=place / "unseen", given_labels=True, seed=4) for n in (0, 1)]
        np.testing.assert_allclose(row["scores"], [one.given_labels.score for one in each], rtol=1e-12)
        assert row["perplexity"] == math.exp(-np.mean(row["scores"]))
        assert row["samples"] == (2 if row["family"] == "labeled-lda" else 0)
        if not fields:
            assert row["classified"] is row["accuracy"] is None
            continue
        (own,) = found.fields
        assert (row["accuracy"], row["macro_f1"], row["micro_f1"]) == (own.accuracy, own.macro_f1, own.micro_f1)
        assert row["classified"]["confusion"] == [list(line) for line in own.confusion]
        assert [one["f1"] for one in row["classified"]["classes"]] == [one.f1 for one in own.classes]


VARIANTS = ("", "-without-place")


def test_variants__are_fitted_with_what_they_say(compared):
    for row in compared.rows[:-1]:
        options = json.loads(row["options"])
        assert options["eta"] == (0.1 if "eta-0.1" in row["cell"] else 0.5)
        assert f"eta = {options['eta']}" in row["start"]
        assert ("without place" in row["start"]) == (options.get("labels") == ["kind"])
    assert compared.left_out == ("lda-4 does not use 'kind' and cannot predict it",)


@pytest.mark.long
def test_files__hold_the_tables_and_name_the_best(place, compared):
    out = place / "out"
    kept = pq.read_table(out / "table.parquet").to_pylist()
    assert kept == [{name: row[name] for name in kept[0]} for row in compared.rows]
    classes = pq.read_table(out / "classes.parquet").to_pylist()
    assert {row["cell"] for row in classes} == {
        row["cell"] for row in (*compared.rows, *compared.baselines) if row["classified"]
    }
    text = (out / "table.md").read_text()
    for family, row in best_of_families(compared.rows).items():
        assert row["perplexity"] == min(one["perplexity"] for one in compared.rows if one["family"] == family)
        assert f"**{row['perplexity']:.1f}**" in text
    for row in compared.baselines:
        assert f"| {row['macro_f1']:.3f} | {row['micro_f1']:.3f} |" in text
    assert compared.plots == ("perplexity", "perplexity-by-option", "classification", "confusion")
    for name in compared.plots:
        assert (out / f"plots/{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert (out / f"plots/{name}.svg").stat().st_size > 1000
    assert not verify(out).broken
    assert info(out)["cells"]["naive-bayes"] is None


def test_the_same_again__does_nothing_anew_and_prints_json(place, compared, capsys):
    words = [str(place / name) for name in ("train", "out", "unseen")]
    words[2:2] = ["--unseen"]
    assert main(["compare", *words, *SAME_BY_HAND.split(), "--scheduler", "serial", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["cells"] == list(compared.rows)
    assert found["baselines"] == list(compared.baselines)
    assert "14 cells, 14 done before" in err
    assert main(["compare", *words, "--field", "kind"]) == 2
    assert "was begun with" in capsys.readouterr().err


# Classifiers ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_classifiers__are_those_of_scikit_learn_tuned_on_a_share(place, compared):
    from sklearn.metrics import f1_score
    from sklearn.naive_bayes import MultinomialNB

    train, unseen = (read_known(Corpus(place / one), "kind", numeric=False, table=LabelTable()) for one in PARTS)
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
    row = next(row for row in compared.baselines if row["cell"] == "naive-bayes")
    assert row["tuned"] == {"alpha": alpha, "fit_prior": prior}
    model = MultinomialNB(alpha=alpha, fit_prior=prior).fit(words, lesson.target)
    found = [lesson.classes[one] for one in model.predict(unseen.words)]
    own = scored("kind", tallied(unseen, found))
    assert (row["accuracy"], row["macro_f1"]) == (own.accuracy, own.macro_f1)
    by_hand = [
        guess in known
        for known, guess, size in zip(unseen.values, found, unseen.lengths, strict=True)
        if known and size
    ]
    assert row["accuracy"] == np.mean(by_hand)


PARTS = ("train", "unseen")


def test_lda_and_a_machine__have_labels_beside_topics(place, compared):
    names = [row["cell"] for row in compared.baselines]
    assert names == ["lda-svm-3", "lda-svm-3-without-place", "naive-bayes", "svm", "tree"]
    train = Corpus(place / "train")
    table = label_table(train, ("place",), ("stars",))
    known = read_known(train, "kind", numeric=False, table=table)
    theta = np.full((90, 2), 0.5)
    features = with_labels(theta, known).toarray()
    assert features.shape == (90, 2 + len(table))
    labels = [[one["value"] for one in each if one["field"] == "place"] for each in column(train, "labels")]
    for row, own in zip(features, labels, strict=True):
        assert sorted(own) == [table.names[n][1] for n in np.flatnonzero(row[2:-1])]
    stars = np.array([np.nan if one is None else one for one in column(train, "stars")])
    np.testing.assert_allclose(features[:, -1], np.nan_to_num((stars - np.nanmean(stars)) / np.nanstd(stars)))


def column(corpus, name):
    return [one for reference in corpus.references for one in reference.documents().extras[name].to_pylist()]


@pytest.mark.parametrize("name", ["lda-svm", "naive-bayes", "svm", "tree"])
def test_classifiers__learn_what_there_is_to_learn(name):
    target = np.arange(60) % 3
    counts = np.eye(6)[target] * 5 + np.eye(6)[3 + np.arange(60) % 2]
    known = LabelledCorpus(csr_matrix(counts), csr_matrix((60, 0)), [(f"k{one}",) for one in target])
    lesson = TrainingExamples.of(known, 1, "here")
    found, _ = learned(name, known.words, known.words, lesson, 0)
    assert found == [own for (own,) in known.values]


def test_a_number__is_predicted_too(place, monkeypatch):
    monkeypatch.setattr("collapsium.pipeline.workflows.compare.baselines.classifier_fits.installed", lambda name: False)
    settings = {"hdsp": {"scaling": "linear", "covariates": ["stars"]}}
    asked = {"families": ("hdsp",), "topics": (3,), "iterations": 2, "labels": ("kind",), "settings": settings}
    asked.update(field="stars", classifiers=("naive-bayes", "slda"), scheduler="serial")
    found = compare(place / "train", place / "numbers", unseen=place / "unseen", **asked)
    (row,), (other,) = found.rows, found.baselines
    assert [one["value"] for one in row["classified"]["classes"]] == [1.0, 2.0, 3.0]
    assert json.loads(row["options"])["labels"] == ["kind"]
    assert other["classified"]["documents"] == row["classified"]["documents"]
    assert found.left_out == ("slda-50: tomotopy is not installed",)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), min_size=12, max_size=40))
def test_lessons__are_of_documents_with_words_and_one_value(rows):
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
    assert [(lesson.classes[one],) for one in lesson.target] == [values[n] for n in single]
    assert 0 < lesson.tuning.sum() < len(single)


# Supervised LDA ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 4), min_size=2, max_size=20).filter(lambda one: len(set(one)) > 1))
def test_responses__say_the_classes_that_they_are_made_of(target):
    target = np.array(target)
    for way in (LINEAR, BINARY):
        kinds, values = responses(way, ["1", "2", "3.5", "4", "5"], target)
        assert len(kinds) == values.shape[1]
        np.testing.assert_array_equal(chosen(way, ["1", "2", "3.5", "4", "5"], target, values), target)


class Exact:
    """Stands for tomotopy's model: says of words what it was told of them."""

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
        return np.mean(self.known[next(one for one in words if one in self.known)], axis=0).tolist()


def test_supervised_lda__takes_the_better_response(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tomotopy", types.SimpleNamespace(SLDAModel=Exact))
    rows, labels = [{n % 3: 2} for n in range(40)], [[("stars", f"{1 + n % 3}")] for n in range(40)]
    write_corpus(tmp_path / "train", rows, 4, labels=labels)
    write_corpus(tmp_path / "unseen", [{2: 1}, {0: 4}, {3: 1}], 4, labels=[[], [], []])
    given_ = {"train": str(tmp_path / "train"), "unseen": str(tmp_path / "unseen"), "field": "stars", "numeric": False}
    given_.update(topics=2, iterations=3, seed=0, workers=1)
    found = classified(types.SimpleNamespace(**given_))
    assert found == {"predicted": ["3", "1", "1"], "tuned": {"response": "linear"}}


# What cannot be ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"field": "kid"}, "field: .* has no field 'kid' .did you mean 'kind'"),
        ({"classifiers": ("svm",)}, "classifiers: requires `field`"),
        ({"field": "kind", "classifiers": ("smv",)}, "unknown classifier 'smv'"),
        ({"field": "kind", "without": ("kind",)}, "without: 'kind' is the field to predict"),
        ({"field": "kind", "labels": ("place",)}, "labels: expected 'kind' among them"),
        ({"field": "stars", "covariates": ("stars",)}, "covariates: 'stars' is the field"),
        ({"without": ("plac",)}, "without: unknown field of labels 'plac' .did you mean 'place'"),
        ({"without": ("kind", "place")}, "no field of labels would be left"),
        ({"lda_topics": (0,)}, "lda_topics: expected a whole number of 1 or more, found 0"),
        ({"families": ("gibbs-ncrp",)}, "families: 'gibbs-ncrp' cannot score documents"),
        ({"vary": {"*": {"eat": [1.0]}}}, "--vary eat: no compared family has such an option"),
    ],
)
def test_wrong_options__are_refused_before_anything_is_made(place, options, said):
    options = {"families": ("hdsp", "labeled-lda"), **options}
    with pytest.raises(OptionError, match=said):
        compare(place / "train", place / "nothing", unseen=place / "unseen", **options)
    assert not (place / "nothing").exists()


def test_wrong_documents__are_refused(place):
    with pytest.raises(MismatchError, match="is the training corpus"):
        compare(place / "train", place / "nothing", unseen=place / "train")
    with pytest.raises(MismatchError, match="vocabulary"):
        compare(place / "train", place / "nothing", unseen=place / "other")
    with pytest.raises(OptionError, match="field: .*bare has no field 'kind'"):
        compare(place / "bare", place / "nothing", unseen=place / "unseen", families=("hdsp",), field="kind")
    assert not (place / "nothing").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--field", "kind"], "--field requires --unseen"),
        (["--unseen", "U", "--peers", "gensim"], "--peers cannot be combined with --unseen"),
        (["--unseen", "U", "--vary", "eta"], "--vary: expected OPTION=V,V"),
        (["--unseen", "U", "--lda-topics", "many"], "--lda-topics: expected whole numbers"),
    ],
)
def test_wrong_words__are_refused(words, said, capsys):
    assert main(["compare", "T", "O", *words]) == 2
    assert said in capsys.readouterr().err
    assert not Path("O").exists()


def test_the_catalogue__names_the_classifiers_that_there_are():
    assert set(learning.GRIDS) == set(CLASSIFIERS) - {SUPERVISED_LDA}

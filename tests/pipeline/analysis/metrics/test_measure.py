"""Metrics of models, against gensim, arrays, and the commands that compute the same metrics."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from collapsium.pipeline import Corpus, Model, coherence, evaluate, fit, ingest, measure, split
from collapsium.pipeline.analysis.metrics import catalogue, topic_words
from collapsium.pipeline.analysis.metrics import labelled as clustering
from collapsium.pipeline.analysis.metrics.measure import log_likelihood
from collapsium.pipeline.analysis.metrics.topic_words import text_coherence, top_words
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.estimators import CollapsedLDA
from collapsium.storage.errors import InputError, MismatchError, OptionError
from collapsium.storage.readers.texts.stopwords import stop_words
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.kernels.prediction import DirichletTopics
from tests.conftest import write_corpus

pytestmark = pytest.mark.xdist_group("clusters")  # shared fixtures are built once, and on a cluster

SUBJECTS = {
    "sea": "ship sail harbour wave captain storm anchor shore tide whale",
    "sky": "star planet orbit moon telescope comet rocket gravity light galaxy",
    "farm": "cow barn wheat plough field harvest tractor milk hen soil",
}
COMMON = "people work night friend long road"
SERIAL = {"scheduler": "serial"}


def records(seed, documents, first):
    """Return texts of one subject each, which also contain unknown words and stop words."""
    generator = np.random.default_rng(seed)
    for number in range(documents):
        subject = list(SUBJECTS)[number % 3]
        words = generator.choice(SUBJECTS[subject].split(), size=int(generator.integers(5, 60))).tolist()
        words += generator.choice([*COMMON.split(), "the", "of", f"rare{number}"], size=len(words) // 2).tolist()
        generator.shuffle(words)
        yield {"id": f"{first}{number}", "text": " ".join(words), "subject": subject, "place": f"p{number % 2}"}


def write_records(path, *arguments):
    path.write_text("".join(json.dumps(record) + "\n" for record in records(*arguments)))
    return str(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Texts, corpora with two fields of labels, and runs."""
    place = tmp_path_factory.mktemp("measure")
    texts, new = write_records(place / "texts.jsonl", 1, 90, "a"), write_records(place / "new.jsonl", 2, 60, "b")
    ingest(texts, place / "corpus", labels=["subject", "place"], min_documents=2, shard_tokens=700)
    split(place / "corpus", place / "train", place / "heldout")
    fit(place / "train", place / "run", family="lda", topics=3, iterations=40, init="random", **SERIAL)
    fit(place / "train", place / "members", family="lda", topics=3, iterations=10, restarts=2, **SERIAL)
    fit(place / "train", place / "tree", family="ncrp", depth=2, iterations=5, **SERIAL)
    assert new
    return place


def tokens_of(place):
    """Return the texts as ingest tokenizes them: in lower case, without stop words."""
    stops = stop_words(None)
    texts = [json.loads(line)["text"] for line in (place / "texts.jsonl").read_text().splitlines()]
    return [[word for word in re.findall(r"[a-z][a-z0-9]+", text) if word not in stops] for text in texts]


def words_of(run, count=10):
    model = Model(run)
    return [[model.vocabulary.words[word] for word in row] for row in top_words(model, count)[1].tolist()]


@pytest.mark.parametrize("name", ["c_v", "c_npmi", "c_uci", "u_mass"])
def test_coherence__equals_gensim_on_the_same_texts(place, name):
    models = pytest.importorskip("gensim.models")
    from gensim.corpora import Dictionary

    texts, topics = tokens_of(place), words_of(place / "run")
    dictionary = Dictionary(texts)
    source = {"corpus": [dictionary.doc2bow(text) for text in texts]} if name == "u_mass" else {"texts": texts}
    reference = models.CoherenceModel(topics=topics, dictionary=dictionary, coherence=name, processes=1, **source)
    measured = measure(place / "run", metrics=name, coherence=place / "texts.jsonl", **SERIAL)[name]
    assert measured.value == pytest.approx(reference.get_coherence(), abs=1e-6)
    np.testing.assert_allclose(list(measured.topics.values()), reference.get_coherence_per_topic(), rtol=0, atol=1e-6)
    np.testing.assert_allclose(text_coherence(topics, texts, name), list(measured.topics.values()), rtol=0, atol=1e-12)


def test_npmi_and_diversity__match_coherence(place):
    expected = coherence(place / "run", place / "train", **SERIAL)
    measured = measure(place / "run", metrics=["npmi", "diversity"], **SERIAL)
    assert measured["npmi"].value == pytest.approx(expected.npmi, abs=1e-15)
    assert measured["diversity"].value == expected.diversity
    assert list(measured["npmi"].topics) == expected.topics.tolist()


def test_metrics_of_topics__match_their_words(place):
    measured = measure(place / "run", metrics="strict_diversity,irbo,diversity", top_words=4, **SERIAL)
    assert list(measured) == ["strict-diversity", "inverted-rbo", "diversity"]
    words = top_words(Model(place / "run"), 4)[1]
    assert measured["strict-diversity"].value == topic_words.strict_diversity(words)
    assert measured["inverted-rbo"].value == topic_words.inverted_rbo(words)
    assert "among its 4 most probable words" in measured["strict-diversity"].definition
    assert "Wu" in measured["strict-diversity"].source


def test_metrics_of_labels__match_the_largest_topics(place):
    names = "purity,nmi,ari,classifier-accuracy"
    measured = measure(place / "run", metrics=names, label_field="subject", **SERIAL)
    theta = Model(place / "run").document_topic
    labels = np.array([record["subject"] for record in records(1, 90, "a")])
    assert measured["purity"].value == clustering.purity(labels, theta.argmax(axis=1))
    assert measured["nmi"].value == clustering.normalised_mutual_information(labels, theta.argmax(axis=1))
    assert measured["ari"].value == clustering.adjusted_rand_index(labels, theta.argmax(axis=1))
    assert measured["classifier-accuracy"].value == clustering.linear_accuracy(labels, theta)
    assert measured["purity"].value > 0.9
    assert "the 90 of 90 training documents" in measured["nmi"].definition


def test_metrics_of_labels__work_with_unseen_texts(place):
    ingest(place / "new.jsonl", place / "new", like=place / "run", **SERIAL)
    names = "purity,classifier-accuracy"
    of_texts = measure(place / "run", metrics=names, unseen=place / "new.jsonl", label_field="subject", **SERIAL)
    of_corpus = measure(place / "run", metrics=names, unseen=place / "new", label_field="subject", **SERIAL)
    assert {name: metric.value for name, metric in of_texts.items()} == {
        name: metric.value for name, metric in of_corpus.items()
    }
    assert of_corpus["classifier-accuracy"].value > 0.9
    assert "fitted to 90 training documents, on 60 unseen ones" in of_corpus["classifier-accuracy"].definition


def test_perplexity__equals_evaluates(place):
    heldout = measure(place / "run", metrics="perplexity,document-perplexity", heldout=place / "heldout", **SERIAL)
    assert heldout["perplexity"].value == pytest.approx(
        evaluate(place / "run", heldout=place / "heldout", **SERIAL).perplexity
    )
    unseen = measure(place / "run", metrics="perplexity,document-perplexity", unseen=place / "new.jsonl", **SERIAL)
    assert unseen["perplexity"].value == pytest.approx(
        evaluate(place / "run", unseen=place / "new.jsonl", **SERIAL).perplexity
    )
    assert unseen["document-perplexity"].value != unseen["perplexity"].value


def test_document_perplexity__gives_each_document_the_same_weight(tmp_path):
    corpus = write_corpus(tmp_path / "corpus", [{0: 30}, {1: 3}, {}, {0: 10, 1: 2}], 2)
    heldout = write_corpus(tmp_path / "heldout", [{0: 8}, {1: 1}, {}, {0: 1, 1: 1}], 2)
    fit(corpus, tmp_path / "run", family="lda", topics=1, iterations=2, **SERIAL)
    measured = measure(tmp_path / "run", metrics="document-perplexity", heldout=heldout, **SERIAL)
    log = np.log(Model(tmp_path / "run").topic_word[0])
    means = [log[0], log[1], (log[0] + log[1]) / 2]
    assert measured["document-perplexity"].value == pytest.approx(np.exp(-np.mean(means)))


@pytest.mark.parametrize("name", ["left-to-right", "annealed-importance"])
def test_likelihood_of_a_single_topic__follows_from_its_words(tmp_path, name):
    corpus = write_corpus(tmp_path / "corpus", [{0: 30}, {1: 3}, {0: 10, 2: 2}], 3)
    unseen = write_corpus(tmp_path / "unseen", [{0: 4, 1: 2}, {}, {2: 1}], 3, ids=["x", "y", "z"])
    fit(corpus, tmp_path / "run", family="lda", topics=1, iterations=2, **SERIAL)
    measured = measure(tmp_path / "run", metrics=name, unseen=unseen, **SERIAL)[name]
    log = np.log(Model(tmp_path / "run").topic_word[0])
    assert measured.value == pytest.approx((4 * log[0] + 2 * log[1] + log[2]) / 7)
    assert "all 3 documents, with 7 tokens" in measured.definition


def test_likelihoods_of_a_fitted_model__agree_and_exceed_document_completion(place):
    names = "left-to-right,annealed-importance"
    measured = measure(place / "run", metrics=names, unseen=place / "new.jsonl", sample_documents=20, **SERIAL)
    first, second = (metric.value for metric in measured.values())
    assert first == pytest.approx(second, abs=0.02)
    assert "20 of 60 documents, drawn at random" in measured["left-to-right"].definition


def test_likelihood_of_a_document__depends_only_on_its_number(small):
    shard = next(iter(Corpus(small[0]).references)).load()
    generator = Stream(0).generator()
    phi = generator.dirichlet(np.ones(shard.words.size), size=4).T
    topics = DirichletTopics(np.ascontiguousarray(phi), np.full(4, 0.3))
    every = log_likelihood(shard, topics, "left-to-right", 3, first=7)
    again = log_likelihood(shard, topics, "left-to-right", 3, first=7)
    assert every.tobytes() == again.tobytes()
    assert not np.array_equal(every, log_likelihood(shard, topics, "left-to-right", 4, first=7))


def test_bits__do_not_depend_on_the_executor(place, clusters):
    options = {"metrics": "all", "coherence": place / "texts.jsonl", "unseen": place / "new.jsonl"}
    options |= {"label_field": "subject", "sample_documents": 10}
    serial = measure(place / "run", **options, **SERIAL)
    assert list(serial) == list(catalogue.METRICS)
    for where in ({"scheduler": "threads", "workers": 3}, {"scheduler": clusters(2)}):
        parallel = measure(place / "run", **options, **where)
        assert list(parallel) == list(serial)
        for name, metric in serial.items():
            assert (metric.value, metric.definition) == (parallel[name].value, parallel[name].definition)


def test_metrics_of_ensembles__are_means_over_the_members(place):
    options = {"c_npmi": {"coherence": place / "texts.jsonl"}, "nmi": {"label_field": "subject"}}
    measured = measure(place / "members", metrics="c_npmi,nmi", **options["c_npmi"], **options["nmi"])
    for name, metric in measured.items():
        members = [f"{place}/members/members/{member.member}" for member in metric.members]
        alone = [measure(member, metrics=name, **options[name])[name].value for member in members]
        assert [member.value for member in metric.members] == alone
        assert metric.value == pytest.approx(np.mean(alone))
        assert "mean of its members" in metric.definition


def test_metrics_of_trees__count_nodes_as_topics_and_lack_an_integrated_likelihood(place):
    notices = []
    options = {"coherence": place / "texts.jsonl", "unseen": place / "new.jsonl", "label_field": "subject"}
    measured = measure(place / "tree", metrics="all", notice=notices.append, **options, **SERIAL)
    assert set(catalogue.METRICS) - set(measured) == {"left-to-right", "annealed-importance", "dispersion"}
    assert notices == [line for line in notices if "family 'ncrp' has no Dirichlet prior" in line]
    with pytest.raises(OptionError, match="left-to-right: family 'ncrp' has no Dirichlet prior"):
        measure(place / "tree", metrics="left-to-right", unseen=place / "new.jsonl", **SERIAL)


def test_labels_of_unseen_documents__are_not_used_by_a_model_fitted_with_labels(place):
    fit(place / "train", place / "labelled", family="labeled-lda", iterations=10, **SERIAL)
    labelled = measure(place / "labelled", metrics="nmi", label_field="place", **SERIAL)["nmi"]
    unseen = measure(place / "labelled", metrics="nmi", label_field="place", unseen=place / "new.jsonl", **SERIAL)
    assert "a field that the model was fitted with" in labelled.definition
    assert unseen["nmi"].value < 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": "purty"}, r"metrics: unknown metric 'purty' \(did you mean 'purity'\?\)"),
        ({"metrics": ()}, "metrics: expected one name or more"),
        ({"metrics": "c_v"}, "c_v: needs texts"),
        ({"metrics": "c_v", "coherence": "train"}, "c_v: needs texts, and .*train is a corpus"),
        ({"metrics": "left-to-right"}, "left-to-right: needs documents that the model was not fitted to"),
        ({"metrics": "perplexity"}, "perplexity: needs held-out tokens"),
        ({"metrics": "purity"}, "purity: .* has several fields of labels .place, subject.; name one"),
        ({"metrics": "purity", "label_field": "subjct"}, "did you mean 'subject'"),
        ({"metrics": "diversity", "top_words": 1}, "top_words: expected a whole number of 2 or more, found 1"),
        ({"metrics": "left-to-right", "unseen": "new.jsonl", "sample_documents": 0}, "sample_documents: expected"),
        ({"metrics": "Purty"}, r"did you mean 'purity'"),
        ({"metrics": "diversity,nmi", "coherence": "train"}, "coherence: is not used by the metrics diversity, nmi"),
        (
            {"metrics": "npmi", "label_field": "subject"},
            "label_field: is not used by the metrics npmi; it applies to pur",
        ),
        ({"metrics": "npmi", "sample_documents": 5}, "sample_documents: is not used by the metrics npmi"),
        ({"metrics": "npmi", "bad_bytes": "replace"}, "bad_bytes: applies only to texts, and none are named"),
    ],
)
def test_missing_inputs__are_an_error_in_one_line(place, options, message):
    paths = {name: place / options[name] for name in ("coherence", "unseen") if name in options}
    with pytest.raises(OptionError, match=message) as raised:
        measure(place / "run", **{**options, **paths}, **SERIAL)
    assert "\n" not in str(raised.value)


def test_unsuitable_documents__are_refused(place, small, tmp_path):
    with pytest.raises(MismatchError):
        measure(place / "run", metrics="npmi", coherence=small[0], **SERIAL)
    with pytest.raises(MismatchError):
        measure(place / "run", metrics="left-to-right", unseen=place / "train", **SERIAL)
    with pytest.raises(OptionError, match="needs documents with labels"):
        plain = write_corpus(tmp_path / "plain", [{0: 3, 1: 2}, {1: 2}], 3)
        fit(plain, tmp_path / "run", family="lda", topics=2, iterations=1, **SERIAL)
        measure(tmp_path / "run", metrics="nmi", **SERIAL)
    (tmp_path / "other.jsonl").write_text('{"id": "1", "text": "nothing known here"}\n')
    with pytest.raises(InputError, match="expected texts with words of the topics"):
        measure(place / "run", metrics="c_v", coherence=tmp_path / "other.jsonl", **SERIAL)


def test_coherence__reports_texts_that_lack_most_of_the_words(place, tmp_path):
    words = words_of(place / "run")
    lines = [{"id": n, "text": f"{words[0][0]} {words[0][1]} and unknown ones"} for n in range(3)]
    (tmp_path / "few.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    measured = measure(place / "run", metrics="c_v,u_mass", coherence=tmp_path / "few.jsonl", **SERIAL)
    absent = len({word for row in words for word in row}) - 2
    for metric in measured.values():
        assert re.search(
            r"; \d+ of the topics' 30 words do not occur in the (texts|documents), so that", metric.definition
        )
        assert int(re.search(r"; (\d+) of", metric.definition)[1]) >= absent
    assert "do not occur in the documents" in coherence(place / "run", tmp_path / "few.jsonl", **SERIAL).definition
    assert (
        "do not occur"
        not in measure(place / "run", metrics="c_v", coherence=place / "texts.jsonl", **SERIAL)["c_v"].definition
    )


def test_command__refuses_options_of_metrics_that_were_not_requested(place, capsys):
    for options in (["--top-words", "5"], ["--label-field", "subject"], ["--seed", "3"]):
        with pytest.raises(SystemExit):
            main(["evaluate", f"{place}/run", "--coherence", f"{place}/train", *options])
        assert f"{options[0]} requires " in capsys.readouterr().err


def test_arrays_of_an_estimator__can_be_measured():
    texts = [record["text"] for record in records(1, 60, "a")]
    labels = [record["subject"] for record in records(1, 60, "a")]
    words = CountVectorizer(stop_words="english", min_df=2)
    counts = pd.DataFrame(words.fit_transform(texts).toarray(), columns=words.get_feature_names_out())
    lda = CollapsedLDA(n_components=3, max_iter=30, random_state=0).fit(counts)
    assert clustering.purity(labels, lda.transform(counts).argmax(axis=1)) > 0.9
    assert topic_words.strict_diversity(lda.top_words(5)) > 0.5
    coherent = text_coherence(lda.top_words(5), [text.split() for text in texts], "c_npmi")
    assert coherent.mean() > 0.0


def test_command__prints_definitions_and_sources(place, capsys):
    assert main(["evaluate", f"{place}/run", "--metrics", "strict_diversity,npmi", "--scheduler", "serial"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == [
        "strict-diversity",
        "defined",
        "source",
        "npmi",
        "defined",
        "source",
    ]
    assert main(["evaluate", f"{place}/run", "--metrics", "npmi", "--heldout", f"{place}/heldout", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["score"] < 0
    assert set(record["metrics"]["npmi"]) == {"name", "value", "definition", "source", "topics"}


def test_command__reports_errors_in_one_line(place, capsys):
    assert main(["evaluate", f"{place}/run", "--metrics", "c_v"]) == 2
    assert "c_v: needs texts in which windows of tokens are counted; name them (--coherence TEXTS)" in (
        capsys.readouterr().err
    )
    with pytest.raises(SystemExit):
        main(["evaluate", f"{place}/run"])
    assert "--metrics is required" in capsys.readouterr().err


def test_help__lists_every_metric(capsys):
    with pytest.raises(SystemExit):
        raise SystemExit(main(["evaluate", "--help"]))
    printed = capsys.readouterr().out
    for name in catalogue.METRICS:
        assert re.search(rf"  {name}[ ,]", printed)


def test_phrases_and_segments__are_read_as_in_training(tmp_path):
    texts = [
        ["new york harbour", f"ship word{n} new york"] if n % 3 else ["harbour", f"ship word{n}"] for n in range(9)
    ]
    lines = [json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    reading = {"segments": "column", "phrases": "count", "phrase_count": 2, "phrase_threshold": 0.1}
    ingest(tmp_path / "texts.jsonl", tmp_path / "corpus", min_documents=2, **reading)
    fit(tmp_path / "corpus", tmp_path / "run", family="lda", topics=1, iterations=2, **SERIAL)
    measured = measure(tmp_path / "run", metrics="c_npmi", coherence=tmp_path / "texts.jsonl", **SERIAL)["c_npmi"]
    words = words_of(tmp_path / "run")
    assert sorted(words[0]) == ["harbour", "new_york", "ship"]
    phrased = [" ".join(text).replace("new york", "new_york").split() for text in texts]
    assert measured.value == pytest.approx(text_coherence(words, phrased, "c_npmi")[0])
    assert abs(measured.value) < 0.9

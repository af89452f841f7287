"""Topics that labels imply, prediction of labels from words, and tables and maps of labels and topics."""

import csv
import json
import math
import re
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import Corpus, Model, evaluate, expected_topics, fit, label_topics, plot, predict, report
from collapsium.pipeline.analysis import label_prediction as judging
from collapsium.pipeline.analysis.label_prediction import require_expectations
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.reporting.label_map import label_map
from collapsium.storage.corpus.manifest import MAX_SHARD_DOCUMENTS
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.errors import DamagedError, InputError, MismatchError, OccupiedError, OptionError
from collapsium.storage.io.folder import Folder, created
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.families.family import Stochastic
from collapsium.workers.kernels.vb.mean_field import DocumentLabels
from tests.chaos.hostile_corpora import rewrite_manifest
from tests.conftest import write_corpus
from tests.naive import gamma_proportions as naive
from tests.strategies import documents_of

WORDS, KINDS = 18, ("a", "b", "c, and d")


def labelled_corpus(path, seed, documents, infinite=False):
    """Write documents whose label `kind` determines the third of the words they use, and `stars` the part of it.

    Some documents are empty, have no kind or two kinds, or have a label that no other document has.
    """
    generator, rows, labels, stars = np.random.default_rng(seed), [], [], []
    for number in range(documents):
        kind, star = number % 3, generator.integers(1, 4)
        phi = np.full(WORDS, 0.02)
        phi[6 * kind + 2 * (star - 1) :][:2] += 0.3
        phi[6 * kind :][:6] += 0.05
        counts = generator.multinomial(0 if number % 20 == 7 else 14, phi / phi.sum())
        rows.append({int(word): int(counts[word]) for word in np.flatnonzero(counts)})
        names = [("kind", KINDS[kind])] * (number % 11 != 3) + [("kind", KINDS[0])] * (number % 13 == 2)
        names += [("place", f"p{place}") for place in generator.integers(0, 3, size=generator.integers(0, 3))]
        names += [("kind", f"new {seed}")] * (number == 9) + [("place", "a")] * (number % 10 == 0)
        labels.append([{"field": field, "value": value} for field, value in sorted(set(names))])
        stars.append(None if number % 9 == 4 else math.inf if infinite else float(star))
    extras = {"labels": pa.array(labels, LABELS), "stars": pa.array(stars, pa.float64())}
    with created(Folder(path)) as folder:
        writer = CorpusWriter(folder, WORDS, 300)
        writer.add(replace(documents_of(rows), extras=extras))
        writer.finish([f"w{n}" for n in range(WORDS)])
    return str(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Corpora, and runs: an ensemble with all labels, one with kind and stars, another family, and one without labels."""
    place = tmp_path_factory.mktemp("labels")
    labelled_corpus(place / "train", 1, 90)
    labelled_corpus(place / "unseen", 2, 44)
    labelled_corpus(place / "infinite", 2, 5, infinite=True)
    write_corpus(place / "bare", [{0: 2, 7: 1}, {17: 3}], WORDS)
    write_corpus(place / "other", [{0: 2}], 3)
    some = {"iterations": 12, "scheduler": "serial", "seed": 3}
    fit(place / "train", place / "all", family="hdsp", topics=6, restarts=2, **some)
    stars = {"scaling": "linear", "labels": "kind", "covariates": "stars"}
    fit(place / "train", place / "stars", family="hdsp", topics=6, **stars, **some)
    fit(place / "train", place / "plda", family="partially-labeled-lda", **some)
    fit(place / "train", place / "lda", family="lda", topics=3, **some)
    return place


def blocks_of(model):
    return [tasks.Block(low, high, model.rows(n), Delta()) for n, (low, high) in enumerate(model.blocks)]


def expected_naive(model, labels):
    """Return E[pi_k / sum_l pi_l] for pi_k ~ Gamma(g_k, exp(sum_j r_j x_jk)), from labels and numbers {index in the
    table: r}."""
    known = np.array([0, len(labels)]), np.array([*labels], dtype=int), np.array([*labels.values()], dtype=float)
    return naive.expected(DocumentLabels(*known, model.global_state.rates.label_log), model.global_state.prior)[0]


def phi_of(model):
    half, blocks = model.family, blocks_of(model)
    return np.concatenate([half.probabilities(block.rows, model.global_state)["word_topic"] for block in blocks])


def table_of(model):
    return judging.require_table(model)


def documents_in(corpus):
    """Return the words, counts, kinds, all labels and stars of each document."""
    for reference in Corpus(corpus).references:
        documents = reference.documents()
        for n in range(len(documents)):
            pairs = slice(documents.offsets[n], documents.offsets[n + 1])
            labels = [(label["field"], label["value"]) for label in documents.extras["labels"][n].as_py()]
            yield (
                documents.ids[n].as_py(),
                documents.words[pairs],
                documents.counts[pairs],
                labels,
                documents.extras["stars"][n].as_py(),
            )


def of_table(table, labels, stars):
    """Return {index in the table: value} of what is known of a document."""
    found = {table.names.index(label): 1.0 for label in labels if label in table.names}
    for place_, number in enumerate(table.numbers, start=len(table.names)):
        if stars is not None:
            found[place_] = (stars - number.mean) / number.deviation
    return found


@pytest.mark.parametrize("run", ["all/members/000", "stars"])
def test_given_labels__scores_the_proportions_that_labels_imply(place, run):
    model, logs, tokens, labelled = Model(place / run), 0.0, 0, 0
    table, phi = table_of(model), phi_of(model)
    for _, words, counts, labels, stars in documents_in(place / "unseen"):
        known = of_table(table, labels, stars)
        logs += counts @ np.log(phi[words] @ expected_naive(model, known))
        tokens += counts.sum()
        labelled += bool(known)
    found = evaluate(place / run, unseen=place / "unseen", workers=1).given_labels
    assert (found.tokens, found.documents, found.labelled, found.unknown) == (tokens, 44, labelled, 1)
    assert found.score == pytest.approx(logs / tokens, rel=1e-9)
    assert found.perplexity == pytest.approx(math.exp(-logs / tokens), rel=1e-9)


def test_given_labels_of_other_families__uses_the_prior_proportions(place):
    assert evaluate(place / "lda", unseen=place / "unseen", workers=1).given_labels is None
    assert evaluate(place / "all", unseen=place / "bare", workers=1).given_labels is None
    model = Model(place / "lda")
    found = evaluate(place / "lda", unseen=place / "unseen", given_labels=True, workers=1).given_labels
    theta = model.family.infer(
        model.family.documents_type.from_arrays({"document_topic": np.zeros((1, 3))}), model.global_state
    )["document_topic"][0]
    logs_of_documents = [
        (counts, np.log(phi_of(model)[words] @ theta)) for _, words, counts, _, _ in documents_in(place / "unseen")
    ]
    assert found.score == pytest.approx(
        sum(counts @ logs for counts, logs in logs_of_documents) / found.tokens, rel=1e-6
    )
    assert (found.labelled, found.unknown) == (0, 0)
    without = evaluate(place / "all", unseen=place / "bare", given_labels=True, workers=1).given_labels
    assert (without.labelled, without.tokens) == (0, 6)
    with pytest.raises(InputError, match="finite"):
        evaluate(place / "stars", unseen=place / "infinite", workers=1)
    point = type(
        "Model",
        (),
        {
            "record": type("Record", (), {"family": "gibbs-ncrp"}),
            "family": load_family("gibbs-ncrp"),
            "folder": Folder("x"),
        },
    )
    with pytest.raises(OptionError, match="a single point of its prior"):
        require_expectations(point)


def log_probabilities_naive(models, field, values, words, counts, labels, stars):
    """Return the log probability of a document under each value, as the mean of the models' probabilities."""
    logs = []
    for value in values:
        names = [label for label in labels if label[0] != field] + [(field, value)] * isinstance(value, str)
        given_stars = value if field == "stars" else stars
        by_member = [
            phi_of(model)[words] @ expected_naive(model, of_table(table_of(model), names, given_stars))
            for model in models
        ]
        logs.append(counts @ np.log(np.mean(by_member, axis=0)))
    return np.array(logs)


@pytest.mark.parametrize(
    ("run", "field"), [("all", "kind"), ("all/members/001", "place"), ("stars", "stars"), ("stars", "kind")]
)
def test_prediction__selects_the_value_under_which_a_document_is_most_probable(
    place, tmp_path, monkeypatch, run, field
):
    members = [place / run / "members/000", place / run / "members/001"] if run == "all" else [place / run]
    models = [Model(member) for member in members]
    table = table_of(models[0])
    values = [value for name, value in table.names if name == field] or list(table.numbers[0].values)
    monkeypatch.setattr(judging, "MAX_CELLS", 40)  # ranges of documents within a shard
    progress = []
    found = predict(
        place / run,
        place / "unseen",
        tmp_path / "out.parquet",
        field=field,
        scheduler="serial",
        progress=progress.append,
    )
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert len(rows) == found.documents == progress[-1] == 44
    known = right = 0
    for row, (id_, words, counts, labels, stars) in zip(rows, documents_in(place / "unseen"), strict=True):
        actual = (
            [value for name, value in labels if name == field] if field != "stars" else [stars] * (stars is not None)
        )
        assert (row["id"], row["labels"]) == (id_, values)
        assert row["known"] == (row["predicted"] if row["predicted"] in actual else actual[0] if actual else None)
        assert sum(row["scores"]) == pytest.approx(1.0)
        if not words.size:
            assert (row["predicted"], row["perplexity"]) == (None, None)
            assert row["scores"] == pytest.approx([1 / len(values)] * len(values))
            continue
        logs = log_probabilities_naive(models, field, values, words, counts, labels, stars)
        assert row["scores"] == pytest.approx(np.exp(logs - np.logaddexp.reduce(logs)), rel=1e-6)
        assert row["predicted"] == values[int(np.argmax(logs))]
        assert row["score"] == max(row["scores"])
        assert row["perplexity"] == pytest.approx(math.exp(-logs.max() / counts.sum()), rel=1e-6)
        known, right = known + bool(actual), right + (row["predicted"] in actual)
    assert (found.known, found.right) == (known, right)


def test_prediction__finds_what_is_simulated_and_is_scored(place, tmp_path):
    from sklearn.metrics import f1_score

    out, picture = tmp_path / "out.parquet", tmp_path / "kinds.svg"
    found = predict(place / "all", place / "unseen", out, field="kind", confusion=picture, workers=1)
    assert found.right / found.known > 0.8
    (scores,) = evaluate(place / "all", unseen=place / "unseen", field=["kind"], workers=1).fields
    assert scores.accuracy == found.right / found.known
    assert scores.documents == found.known
    rows = dict(zip(*pq.read_table(out, columns=["id", "predicted"]).to_pydict().values(), strict=True))
    pairs = [
        ([value for name, value in labels if name == "kind"], rows[id_])
        for id_, words, _, labels, _ in documents_in(place / "unseen")
        if words.size
    ]
    known, given_ = zip(*((actual[0], guess) for actual, guess in pairs if len(actual) == 1), strict=True)
    assert scores.single == len(known) < scores.documents
    assert scores.macro_f1 == pytest.approx(f1_score(known, given_, average="macro", zero_division=0.0))
    assert scores.micro_f1 == pytest.approx(f1_score(known, given_, average="micro"))
    assert [judged.value for judged in scores.classes] == sorted({*known, *given_})
    assert sum(map(sum, scores.confusion)) == scores.single
    assert [sum(row) for row in scores.confusion] == [judged.support for judged in scores.classes]
    assert [known.count(judged.value) for judged in scores.classes] == [judged.support for judged in scores.classes]
    text = picture.read_text(encoding="utf-8")
    assert all(f">{kind}<" in text for kind in KINDS)


def test_other_families__predict_labels_too(place, tmp_path):
    for number, where in enumerate([{"scheduler": "serial"}, {"workers": 3}]):
        found = predict(place / "plda", place / "unseen", tmp_path / f"{number}", field="kind", **where)
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    assert found.right / found.known > 0.8
    scores = [evaluate(place / run, unseen=place / "unseen", given_labels=True, workers=1) for run in ("plda", "lda")]
    assert scores[0].given_labels.score > scores[1].given_labels.score
    weights = label_topics(place / "plda", 2)
    for row, title in enumerate(weights.titles):
        label = title.rpartition("=")[2]
        if weights.documents[row] > 5:  # labels of fewer documents may have no tokens
            assert any(label in weights.topics[topic].title for topic in weights.foremost(row, 2))
    assert len(label_map(weights).marks) == len(weights.titles) + len(weights.topics)


def test_values__restrict_the_predicted_labels(place, tmp_path):
    predict(place / "all", place / "unseen", tmp_path / "two", field="kind", values=["b", KINDS[2]], workers=1)
    assert pq.read_table(tmp_path / "two")["labels"][0].as_py() == ["b", KINDS[2]]
    command = ["predict", str(place / "stars"), str(place / "unseen"), str(tmp_path / "some"), "--field", "stars"]
    assert main([*command, "--values", "0.5,4", "--values", "2", "--workers", "1"]) == 0
    assert pq.read_table(tmp_path / "some")["labels"][0].as_py() == [0.5, 4.0, 2.0]
    kind = ["predict", str(place / "all"), str(place / "unseen"), str(tmp_path / "comma"), "--field", "kind"]
    assert main([*kind, "--values", KINDS[2], "--values", "a,b", "--workers", "1"]) == 0
    assert pq.read_table(tmp_path / "comma")["labels"][0].as_py() == [KINDS[2], "a", "b"]


@pytest.mark.parametrize(
    ("run", "corpus", "options", "error", "message"),
    [
        ("lda", "unseen", {"field": "kind"}, OptionError, "does not use labels; families that do: .*hdsp"),
        ("all", "unseen", {"field": "kinds"}, OptionError, "did you mean 'kind'"),
        ("all", "unseen", {"field": "stars"}, OptionError, "fitted without it"),
        ("stars", "unseen", {"field": "place"}, OptionError, "fitted without it, with kind, stars alone"),
        ("all", "unseen", {"field": "place", "values": ["p1", "p7"]}, OptionError, "unknown place 'p7' .*p0, p1, p2"),
        ("all", "unseen", {"field": "place", "values": []}, OptionError, "found none"),
        ("stars", "unseen", {"field": "stars", "values": ["many"]}, OptionError, "stars is a number"),
        ("stars", "unseen", {"field": "stars", "values": ["nan"]}, OptionError, "finite"),
        ("all", "other", {"field": "kind"}, MismatchError, "vocabulary"),
        ("all", "unseen", {"field": "kind", "confusion": "x.bmp"}, OptionError, "ends in"),
        ("all", "bare", {"field": "kind", "confusion": "x.png"}, InputError, "no document has a value"),
    ],
)
def test_invalid_predictions__are_refused_before_anything_is_written(
    place, tmp_path, monkeypatch, run, corpus, options, error, message
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        predict(place / run, place / corpus, tmp_path / "out", **options, workers=1)
    assert not list(tmp_path.iterdir())


def test_prediction__overwrites_nothing_and_accepts_documents_without_labels(place, tmp_path):
    found = predict(place / "all", place / "bare", tmp_path / "out", field="kind", workers=1)
    assert (found.documents, found.known) == (2, 0)
    assert pq.read_table(tmp_path / "out")["known"].null_count == 2
    with pytest.raises(OccupiedError):
        predict(place / "all", place / "bare", tmp_path / "out", field="kind", workers=1)
    with pytest.raises(InputError, match="has a value of 'kind'"):
        evaluate(place / "all", unseen=place / "bare", field=["kind"], workers=1)
    with pytest.raises(OptionError, match="unseen"):
        evaluate(place / "all", heldout=place / "unseen", field=["kind"])


def test_a_corpus_with_a_wrong_number_of_documents__is_refused_at_once(place, tmp_path):
    corpus = shutil.copytree(place / "unseen", tmp_path / "unseen")
    more = MAX_SHARD_DOCUMENTS - Corpus(corpus).manifest.shards[0].documents
    for counted in (lambda record: record, lambda record: record["shards"][0]):
        rewrite_manifest(corpus, lambda record, of=counted: of(record).update(documents=of(record)["documents"] + more))
    with pytest.raises(DamagedError, match="documents"):
        predict(place / "plda", corpus, tmp_path / "out", field="kind", workers=1)
    rewrite_manifest(corpus, lambda record: record["shards"][0].update(documents=MAX_SHARD_DOCUMENTS + 1))
    with pytest.raises(DamagedError, match="documents"):
        Corpus(corpus)


def test_expected_topics__are_those_that_the_labels_imply(place):
    model = Model(place / "stars")
    table, phi = table_of(model), phi_of(model)
    for given_, labels, stars in (
        ([], [], None),
        (["b"], ["b"], None),
        ([KINDS[2], "a", "stars=3"], ["a", KINDS[2]], 3.0),
        (["kind=a", "stars=1.5"], ["a"], 1.5),
    ):
        theta = expected_naive(model, of_table(table, [("kind", label) for label in labels], stars))
        found = expected_topics(place / "stars", given_, 3)
        assert [topic.expected for topic in found] == sorted((topic.expected for topic in found), reverse=True)
        for topic in found:
            assert topic.expected == pytest.approx(theta[topic.topic.id], rel=1e-8)
    best = expected_topics(place / "all", ["kind=b"])[0]
    assert {int(word[1:]) // 6 for word, _ in best.topic.words[:3]} == {1}
    assert phi.shape[0] == WORDS


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ("bb", "unknown label 'bb' .*'b'"),
        ("kind=x", "unknown label 'kind=x'"),
        ("kinds=a", "unknown field 'kinds' .*'kind'"),
        ("stars", "expected stars=NUMBER"),
        ("stars=much", "finite number"),
        ("stars=inf", "finite number"),
    ],
)
def test_expected_topics_of_unknown_labels__suggest_similar_ones(place, given_, message):
    with pytest.raises(OptionError, match=message):
        expected_topics(place / "stars", [given_])


def test_expected_topics__require_a_field_if_labels_are_ambiguous(place):
    with pytest.raises(OptionError, match="kind=a or place=a"):
        expected_topics(place / "all", ["a"])
    with pytest.raises(OptionError, match="does not use labels"):
        expected_topics(place / "lda", [])


def test_label_topics__are_the_familys_weights_or_proportions_relative_to_shares(place, monkeypatch):
    model = Model(place / "all")
    found = label_topics(place / "all", 2)
    ids = [topic.id for topic in found.topics]
    assert np.array_equal(found.weights, -model.global_state.rates.label_log[:, ids])
    assert {"kind=a", "place=a", "b"} < set(found.titles)
    assert found.foremost(found.titles.index("b"), 1)[0] in np.argsort(-found.weights[found.titles.index("b")])[:1]
    monkeypatch.setattr("collapsium.pipeline.analysis.expected_topics.WeighsLabels", Stochastic)
    ratings = label_topics(place / "stars", 2)
    stars = Model(place / "stars")
    for row, known in zip(ratings.weights, [*({j: 1.0} for j in range(len(ratings.titles)))], strict=True):
        theta = expected_naive(stars, known)
        for weight, topic in zip(row, ratings.topics, strict=True):
            assert weight == pytest.approx(math.log(max(theta[topic.id], 1e-9) / max(topic.share, 1e-9)), rel=1e-6)


def test_commands__print_text_and_json(place, tmp_path, capsys):
    run, unseen = str(place / "all"), str(place / "unseen")

    def printed(*words):
        assert main([*words]) == 0
        return capsys.readouterr().out

    output = json.loads(printed("evaluate", run, "--unseen", unseen, "--field", "kind", "--json", "--workers", "1"))
    assert output["given_labels"]["perplexity"] > 1
    assert len(output["given_labels"]["members"]) == 2
    assert output["fields"][0]["confusion"]
    text = printed("evaluate", run, "--unseen", unseen, "--field", "kind", "--workers", "1")
    assert "given labels" in text
    assert "macro F1" in text
    assert "given_labels" not in json.loads(printed("evaluate", str(place / "lda"), "--unseen", unseen, "--json"))
    given_ = json.loads(printed("topics", run, "--given", KINDS[2], "--given", "p1,place=a", "--json"))
    assert sum(record["expected"] for record in given_) == pytest.approx(1.0)
    assert "expected" in printed("topics", run, "--given", "b")
    table = json.loads(printed("topics", run, "--labels", "--csv", str(tmp_path / "w.csv"), "--json"))
    assert {len(label["weights"]) for label in table["labels"]} == {len(table["topics"])}
    rows = list(csv.DictReader((tmp_path / "w.csv").open(encoding="utf-8")))
    assert len(rows) == len(table["labels"]) * len(table["topics"])
    assert float(rows[0]["weight"]) == table["labels"][0]["weights"][0]
    assert "kind=a" in printed("topics", run, "--labels")
    for words in (["--labels", "--picture", "x.svg"], ["--csv", "x.csv"], ["--labels", "--given", "b"]):
        with pytest.raises(SystemExit):
            main(["topics", run, *words])
    with pytest.raises(SystemExit):
        main(["evaluate", run, "--coherence", unseen, "--field", "kind"])
    assert main(["topics", run, "--given", "nothing"]) == 2


def test_plots_and_report__show_labels_and_topics(place, tmp_path):
    for kind in ("svg", "png"):
        assert plot(place / "all", tmp_path / f"map.{kind}", what=["labels"]) == ["labels"]
        assert (tmp_path / f"map.{kind}").stat().st_size > 1000
    assert "kind=a" in (tmp_path / "map.svg").read_text(encoding="utf-8")
    with pytest.raises(OptionError, match="a separate picture"):
        plot(place / "all", tmp_path / "both.svg", what=["labels", "map"])
    with pytest.raises(OptionError, match="does not use labels"):
        plot(place / "lda", tmp_path / "none.svg", what=["labels"])
    report(place / "all", tmp_path / "all.html")
    page = (tmp_path / "all.html").read_text(encoding="utf-8")
    section = re.search(r'<section id="label-map".*?</section>', page, re.DOTALL)[0]
    assert section.count("<rect") == len(label_topics(place / "all").titles)
    assert ">kind=a<" in section
    report(place / "lda", tmp_path / "lda.html")
    assert 'id="label-map"' not in (tmp_path / "lda.html").read_text(encoding="utf-8")

"""Weights of words: the weights of tokens, held-out scores of unweighted tokens, and tables of weights from files."""

import csv
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import Corpus, estimate, evaluate, fit, infer, info, report, resume, topics, verify
from collapsium.pipeline.engine.setup.inputs import weights_of
from collapsium.pipeline.estimators import CollapsedLDA
from collapsium.pipeline.models.registry import make_options
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import OptionError
from collapsium.workers.families import word_weights
from collapsium.workers.families.document_entries import weighed
from tests.conftest import mark_rest_long, write_corpus, write_halves
from tests.fits import arrays_of, bits, problem_of, scores_of
from tests.pipeline.cli.commands import command, one_line
from tests.strategies import documents_of

ROWS = [{0: 3, 1: 2}, {0: 1, 2: 5}, {}, {0: 2, 1: 1, 3: 1}, {0: 4}]
FORMULAS = ("idf", "log-tf-idf", "entropy")
WORDS, COMMON = 120, 20


@pytest.fixture
def tiny(tmp_path):
    """Five documents of four words in two shards; the fifth word never occurs."""
    return write_corpus(tmp_path / "tiny", ROWS, 5, shard_tokens=8)


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """A training and a held-out corpus with five topics over separate words, mixed with common words."""
    generator, place = np.random.default_rng(3), tmp_path_factory.mktemp("common")
    phi = np.zeros((5, WORDS))
    for topic in range(5):
        phi[topic, :COMMON] = 0.6 / COMMON
        phi[topic, COMMON + 20 * topic : COMMON + 20 * topic + 20] = 0.4 * generator.dirichlet(np.ones(20))
    rows = []
    for _ in range(150):
        counts = generator.multinomial(100, generator.dirichlet(np.full(5, 0.2)) @ phi)
        rows.append({int(word): int(counts[word]) for word in np.flatnonzero(counts)})
    return write_halves(place, rows, WORDS)


@pytest.fixture(scope="module")
def runs(halves, tmp_path_factory):
    """A function that returns the run with some weights, each fitted once."""
    place = tmp_path_factory.mktemp("runs")

    def run_with(weights):
        out = place / str(weights)
        if not out.exists():
            fit(
                halves[0], out, family="lda", topics=5, alpha=0.2, iterations=60, weights=weights,
                heldout=halves[1], scheduler="serial",
            )  # fmt: skip
        return out

    return run_with


def pair_weights(corpus, formula):
    """Return the total weight of the tokens of each pair of document and word, from the weights of the shards."""
    opened, found = Corpus(corpus), []
    problem = problem_of(corpus, "lda", {"topics": 2, "weights": formula})
    table = weights_of(opened, problem.config, problem.executor, problem.shards)
    for shard in problem.shards:
        weighted = weighed(shard.value, table.weights[shard.value.words], log_counts=problem.config.log_counts)
        found.extend((weighted.counts * weighted.weights).tolist())
    return np.array(found)


def expected_weights(formula):
    """Return these weights by the definitions, scaled to sum to the number of tokens."""
    counts = np.array([[row.get(word, 0) for word in range(4)] for row in ROWS], dtype=np.float64)
    idf = np.log(len(ROWS) / (counts > 0).sum(axis=0))
    shares = counts / counts.sum(axis=0)
    entropy = 1 + (shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=0) / np.log(len(ROWS))
    weights = counts * entropy if formula == "entropy" else counts * idf
    weights = np.log1p(counts) * idf if formula == "log-tf-idf" else weights
    return (weights * counts.sum() / weights.sum())[counts > 0]


@pytest.mark.parametrize("formula", FORMULAS)
def test_weights__match_the_definitions_and_keep_the_number_of_tokens(tiny, formula):
    found = pair_weights(tiny, formula)
    np.testing.assert_allclose(found, expected_weights(formula), rtol=1e-5)
    assert found.sum() == pytest.approx(Corpus(tiny).manifest.tokens, rel=1e-6)


def test_weights_of_a_table__are_scaled_and_other_words_have_weight_one(tiny):
    found = pair_weights(tiny, {"w0": 0.0, "w1": 5.0})
    counts = np.array([count for row in ROWS for _, count in sorted(row.items())], dtype=np.float64)
    weights = np.array([{0: 0.0, 1: 5.0}.get(word, 1.0) for row in ROWS for word in sorted(row)])
    mean = (weights * counts).sum() / counts.sum()
    # A weight of 0 becomes a thousandth of the mean, so that the word's number of tokens can be recovered.
    weights = np.maximum(weights, 1e-3 * mean)
    np.testing.assert_allclose(found, weights * counts * counts.sum() / (weights * counts).sum(), rtol=1e-6)


@pytest.mark.parametrize("family", ["lda", "hdp", "vb-lda"])
def test_equal_weights__give_the_scores_of_a_fit_without_weights(small, tmp_path, family):
    scores = {}
    for name, weights in (("none", None), ("ones", {"w0": 1.0})):
        options = {"topics": 4, "iterations": 10, "heldout": small[1], "weights": weights, "scheduler": "serial"}
        fit(small[0], tmp_path / name, family=family, **options)
        scores[name] = scores_of(tmp_path / name)[-1]
    assert scores["ones"] == pytest.approx(scores["none"], abs=0.02)


@pytest.mark.parametrize("formula", mark_rest_long(FORMULAS))
def test_weights__keep_common_words_out_of_the_top_words(runs, formula):
    shares, scores = {}, {}
    for name, weights in (("none", None), ("weighted", formula)):
        words = [word for topic in topics(runs(weights), words=10) for word, _ in topic.words]
        shares[name] = np.mean([int(word[1:]) < COMMON for word in words])
        scores[name] = scores_of(runs(weights))[-1]
    assert shares["none"] > 0.3
    assert shares["weighted"] < 0.1
    # Scores count unweighted tokens, so they stay comparable: the same topics predict as well with weights.
    assert scores["weighted"] == pytest.approx(scores["none"], abs=0.05)
    assert verify(runs(formula)).broken == []


def test_unseen_documents__are_weighted_like_training_documents(runs, tmp_path):
    """In a document of many common and a few rare words, the rare words determine the topics."""
    rows = [{**dict.fromkeys(range(COMMON), 6), **dict.fromkeys(range(COMMON + 20 * topic, COMMON + 20 * topic + 4), 1)}
            for topic in range(5)]  # fmt: skip
    unseen, largest = write_corpus(tmp_path / "unseen", rows, WORDS), {}
    for name, weights in (("none", None), ("weighted", "idf")):
        infer(runs(weights), unseen, tmp_path / f"{name}.parquet", scheduler="serial", threshold=0.0)
        table = pq.read_table(tmp_path / f"{name}.parquet").column("proportions").to_pylist()
        largest[name] = np.mean([max(row) for row in table])
        assert np.isfinite(evaluate(runs(weights), unseen=unseen, scheduler="serial").score)
    assert largest["weighted"] > largest["none"] + 0.05


@pytest.mark.parametrize(("before", "after"), [(None, "log-tf-idf"), ("idf", None), ("idf", "entropy")])
@pytest.mark.parametrize("responsibilities", mark_rest_long(["active", "dense"]))
def test_warm_starts_between_different_weights__conserve_counts(halves, tmp_path, before, after, responsibilities):
    options = {"family": "lda", "topics": 5, "responsibilities": responsibilities, "scheduler": "serial"}
    fit(halves[0], tmp_path / "first", iterations=6, weights=before, checkpoint_every=3, **options)
    fit(halves[0], tmp_path / "second", iterations=4, weights=after, warm=tmp_path / "first", **options)
    assert verify(tmp_path / "second").broken == []


@pytest.mark.long
def test_restarts_and_samples__support_weights(halves, tmp_path):
    options = {"family": "lda", "topics": 5, "iterations": 6, "weights": "idf", "scheduler": "serial"}
    fit(halves[0], tmp_path / "restarts", restarts=2, **options)
    fit(halves[0], tmp_path / "samples", samples=2, sample_every=2, **options)
    assert verify(tmp_path / "restarts").broken == []
    assert verify(tmp_path / "samples").broken == []


def write_table(path, rows):
    """Write words and weights in the format that the path's suffix names."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"word": [word for word, _ in rows], "weight": [weight for _, weight in rows]}), path)
        return path
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",").writerows(rows)
    return path


@pytest.mark.parametrize("ending", ["tsv", "csv", "parquet"])
def test_files_of_weights__give_the_bits_of_the_same_mapping(small, tmp_path, ending):
    table = {"w1": 0.25, "w2": 3.0}
    path = write_table(tmp_path / f"weights.{ending}", [*table.items()])
    options = {"family": "lda", "topics": 3, "iterations": 3, "scheduler": "serial"}
    model = fit(small[0], tmp_path / "one", weights=path, **options)
    path.unlink()  # the run has a copy of the weights
    from_file = fit(small[0], tmp_path / "other", weights=table, **options)
    assert bits(model) == bits(from_file)
    assert model.record.options["weights"] == {"words": ["w1", "w2"], "weights": [0.25, 3.0]}
    assert info(tmp_path / "one")["options"]["weights"] == "a table of 2 words"


def test_weights__can_be_set_in_a_configuration_file(small, tmp_path, capsys):
    (tmp_path / "fit.toml").write_text('family = "lda"\ntopics = 3\niterations = 2\n[weights]\nw0 = 0.5\n')
    assert command(capsys, "fit", str(small[0]), str(tmp_path / "run"), "--config", str(tmp_path / "fit.toml"))[0] == 0
    assert json.loads((tmp_path / "run/run.json").read_text())["options"]["weights"]["words"] == ["w0"]


def test_a_table_of_zeros__is_a_list_of_stop_words(small, tmp_path):
    (tmp_path / "stop.tsv").write_text("w0\t0\nw1\t0\n")
    model = fit(small[0], tmp_path / "run", family="lda", topics=3, iterations=2, weights=tmp_path / "stop.tsv")
    tokens = Corpus(small[0]).vocabulary.tokens
    assert tokens[:2].all()
    weights = np.asarray(model.rows(0).word_topic).sum(axis=1)[tokens > 0] / tokens[tokens > 0]
    assert (weights[:2] < 0.01).all()
    np.testing.assert_allclose(weights[2:], weights[2:].mean(), rtol=1e-3)
    assert weights[2:].mean() > 1.0


BAD = {
    "w0\t-1\n": r"expected weights from 0 to 1e\+12 \(-1.0 of 'w0'\)",
    "w0\tnan\n": r"expected weights from 0 to 1e\+12 \(nan of 'w0'\)",
    "w0\tinf\n": r"expected weights from 0 to 1e\+12 \(inf of 'w0'\)",
    "".join(f"w{n}\t0\n" for n in range(30)): "expected a weight above 0 for a word of the corpus",
    "": "expected a word and its weight",
    "word\tweight\n": "expected a word and its weight",
    "w0\t1\nw0\t2\n": "expected each word once",
    "w0;1,5\nw1;2\n": "expected a number after each word .*'1,5' in line 1",
    "w0\t1\nw1\tmuch\n": "expected a number after each word .* in line 2",
    "w0\t1\t2\n": "3 columns in line 1",
}


@pytest.mark.parametrize("text", BAD)
def test_invalid_tables__are_refused_before_anything_is_written(small, tmp_path, text):
    (tmp_path / "bad.tsv").write_text(text)
    with pytest.raises(OptionError, match=BAD[text]):
        fit(small[0], tmp_path / "run", family="lda", topics=3, weights=tmp_path / "bad.tsv")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"PAR1 and then nothing"])
@pytest.mark.parametrize("ending", ["tsv", "parquet"])
def test_files_of_another_format__are_refused(small, tmp_path, content, ending):
    (tmp_path / f"bad.{ending}").write_bytes(content)
    with pytest.raises(OptionError, match="weights: .*: expected"):
        fit(small[0], tmp_path / "run", family="lda", topics=3, weights=tmp_path / f"bad.{ending}")


def test_pipes_and_decompression_bombs__are_refused(tmp_path, monkeypatch):
    """A path may come from an untrusted record, so the reader must neither block on a pipe nor decode a decompression
    bomb."""
    os.mkfifo(tmp_path / "pipe.tsv")
    for place in (tmp_path / "pipe.tsv", tmp_path):
        with pytest.raises(OptionError, match="weights: .*: expected a file .it is a folder, a pipe or a device"):
            make_options("lda", {"topics": 3, "weights": str(place)})
    words = pa.chunked_array([pa.array(["a" * 10**8])] * 4)
    swollen = pa.table({"word": words, "weight": np.ones(4)})
    pq.write_table(swollen, tmp_path / "bomb.parquet", compression="zstd")
    with pytest.raises(OptionError, match="weights: .*: expected a Parquet file"):
        make_options("lda", {"topics": 3, "weights": str(tmp_path / "bomb.parquet")})
    monkeypatch.setattr(word_weights, "MAX_BYTES", 3)
    with pytest.raises(OptionError, match="weights: .*: expected a file of at most 3 bytes"):
        make_options("lda", {"topics": 3, "weights": str(write_table(tmp_path / "w.csv", [("w1", 1)]))})


@pytest.mark.parametrize("value", ["idff", 3, ["idf"], {"w0": "1"}, {"w0": True}, {1: 1.0}, {}])
def test_values_of_another_type__are_refused(value):
    with pytest.raises(OptionError, match="weights: expected"):
        make_options("lda", {"topics": 3, "weights": value})


def test_tables_for_another_vocabulary__are_refused_with_the_nearest_words(small, tmp_path, capsys):
    with pytest.raises(OptionError, match=r"lacks 2 of 2: 'w1x' \(did you mean 'w1"):
        fit(small[0], tmp_path / "run", family="lda", topics=3, weights={"w1x": 1.0, "other": 2.0})
    code, _, err = command(capsys, "fit", str(small[0]), str(tmp_path / "run"), "--family", "lda", "--topics", "3",
                            "--weights", str(write_table(tmp_path / "w.csv", [("w1x", 1), ("v", 2)])))  # fmt: skip
    assert code != 0
    assert "lacks 2 of 2" in one_line(err)
    # A few unknown words are ignored, with a notice.
    path = write_table(tmp_path / "few.csv", [("w1", 1), ("w2", 2), ("w3x", 2)])
    code, _, err = command(capsys, "fit", str(small[0]), str(tmp_path / "few"), "--family", "lda", "--topics", "3",
                            "--iterations", "2", "--weights", str(path))  # fmt: skip
    assert code == 0
    assert "does not have are left out: 'w3x'" in err


@pytest.mark.parametrize("family", ["gibbs-lda", "hdsp", "ncrp", "labeled-lda", "segmented-lda"])
def test_families_without_weights__are_refused_with_a_list_of_those_with_weights(small, tmp_path, family, capsys):
    with pytest.raises(OptionError, match="unknown option 'weights' of family .*; families with it: hdp, keyword-lda"):
        make_options(family, {"weights": "idf"})
    code, _, err = command(capsys, "fit", str(small[0]), str(tmp_path / "run"), "--family", family, "--weights", "idf")
    assert code != 0
    assert "Families with it: hdp, keyword-lda, lda, vb-lda" in one_line(err)


def test_estimates_reports_and_estimators__support_weights(halves, tmp_path):
    assert estimate(halves[0], family="lda", topics=5, weights="idf").run > 0
    fit(halves[0], tmp_path / "run", family="lda", topics=5, iterations=5, weights="log-tf-idf", scheduler="serial")
    report(tmp_path / "run", tmp_path / "report.html")
    assert "log-tf-idf" in (tmp_path / "report.html").read_text(encoding="utf-8")
    counts = np.array([[3, 2, 0, 0], [1, 0, 5, 0], [2, 1, 0, 1], [4, 0, 0, 2]])
    model = CollapsedLDA(n_components=2, max_iter=5, options={"weights": "idf"}).fit(counts)
    assert np.isfinite(model.transform(counts)).all()


def test_a_run_that_was_stopped_before_its_first_iteration__keeps_its_weights(small, tmp_path):
    """The state before the first update is stored with the weights of all words."""
    options = {"family": "lda", "topics": 4, "iterations": 4, "weights": "entropy", "scheduler": "serial"}

    def stop(event):
        if event["event"] == "start":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(small[0], tmp_path / "run", sinks=[stop], **options)
    undisturbed = fit(small[0], tmp_path / "other", **options)
    assert bits(resume(tmp_path / "run", scheduler="serial")) == bits(undisturbed)


def test_weighted_counts__do_not_drift_over_many_sweeps(small, tmp_path):
    """Counts are sums of weights, which are rounded in each sweep."""
    options = {"topics": 4, "weights": "log-tf-idf", "inverse_temperature": 1.0}
    model = fit(small[0], tmp_path / "run", family="lda", iterations=150, scheduler="serial", **options)
    assert verify(tmp_path / "run").broken == []
    rows = arrays_of(model.rows(0))
    tokens = rows["word_topic"].sum(axis=1, dtype=np.float64) / rows["word_mean"]
    np.testing.assert_allclose(tokens, Corpus(small[0]).vocabulary.tokens, rtol=5e-5, atol=5e-4)


def test_shards_without_words__have_empty_weights():
    shard = weighed(Shard.of(0, documents_of([{}, {}])), np.zeros(0, dtype=np.float32), log_counts=True)
    np.testing.assert_array_equal(shard.weighted_lengths, [0.0, 0.0])

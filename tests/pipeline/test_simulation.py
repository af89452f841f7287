import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.optimize import linear_sum_assignment

from collapsar.pipeline import Corpus, Model, evaluate, fit, simulate, split, topics
from collapsar.storage.errors import OccupiedError, OptionError


def probabilities(model):
    counts = np.concatenate([model.rows(block)["word_topic"] for block in range(len(model.blocks))])
    return (counts / counts.sum(axis=0)).T


def distance(one, other):
    """Mean total variation of the topics, matched one to one."""
    every = 0.5 * np.abs(one[:, np.newaxis] - other[np.newaxis]).sum(axis=2)
    return every[linear_sum_assignment(every)].mean()


@pytest.mark.parametrize("family", ["lda", "hdp"])
def test_simulate__has_the_sizes_the_seed_and_the_truth_that_were_asked_for(tmp_path, family):
    given = {"family": family, "documents": 300, "words": 40, "tokens": 30, "topics": 5, "shard_tokens": 2000}
    manifest = simulate(tmp_path / "a", seed=3, **given)
    assert manifest.digest == simulate(tmp_path / "b", seed=3, **given).digest
    assert manifest.digest != simulate(tmp_path / "c", seed=4, **given).digest
    assert (manifest.documents, manifest.vocabulary.words, len(manifest.shards)) == (300, 40, 5)
    assert abs(manifest.tokens - 9000) < 500
    true = topics(tmp_path / "a", words=40)
    assert len(true) == 5
    for topic in true:
        assert sum(p for _, p in topic.words) == pytest.approx(1.0, abs=1e-6)
    theta = pq.read_table(tmp_path / "a/truth/proportions").to_pylist()
    assert len(theta) == 300
    for row in theta:
        assert sum(row["proportions"]) == pytest.approx(1.0, abs=1e-4)


def test_simulate__words_follow_the_truth(tmp_path):
    simulate(tmp_path / "c", family="lda", documents=2000, words=20, tokens=100, topics=3, beta=20.0, seed=1)
    corpus, model = Corpus(tmp_path / "c"), Model(tmp_path / "c")
    phi = probabilities(model)
    expected = np.zeros(20)
    documents = [one for reference in corpus.references for one in [reference.documents()]]
    lengths = np.concatenate([part.tokens for part in documents])
    for row, length in zip(pq.read_table(tmp_path / "c/truth/proportions").to_pylist(), lengths, strict=True):
        theta = np.zeros(3)
        theta[row["topics"]] = row["proportions"]
        expected += length * (theta @ phi)
    found = corpus.vocabulary.tokens
    assert (np.abs(found - expected) < 5 * np.sqrt(expected) + 5).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_planted_topics__are_recovered_at_the_defaults(tmp_path, seed):
    given = {"documents": 1000, "words": 500, "tokens": 100, "topics": 10, "seed": seed}
    simulate(tmp_path / "c", family="lda", **given)
    model = fit(tmp_path / "c", tmp_path / "run", family="lda", topics=10, seed=seed, scheduler="serial")
    assert distance(probabilities(model), probabilities(Model(tmp_path / "c"))) < 0.1


@pytest.mark.parametrize("family", ["lda", "hdp"])
def test_order_2__stays_finite_far_above_the_true_number_of_topics(tmp_path, family):
    """Single-token documents, and sticks that fall to nothing."""
    simulate(tmp_path / "c", family="lda", documents=200, words=60, tokens=1.5, topics=3, seed=1)
    fit(tmp_path / "c", tmp_path / "run", family=family, topics=80, order=2, iterations=40, scheduler="serial")
    assert np.isfinite(evaluate(tmp_path / "run", unseen=tmp_path / "c", scheduler="serial").score)


def test_learned_word_priors__keep_a_chance_for_words_without_tokens(tmp_path):
    simulate(tmp_path / "c", family="lda", documents=50, words=2000, tokens=20, topics=3, seed=2)
    split(tmp_path / "c", tmp_path / "train", tmp_path / "held", fraction=0.2)
    scores = {}
    for learn in ((), ("beta",), ("asymmetric-beta",)):
        out = tmp_path / f"run{len(scores)}"
        model = fit(tmp_path / "train", out, family="lda", topics=3, learn=learn, iterations=60, scheduler="serial")
        scores[learn] = evaluate(out, heldout=tmp_path / "held", scheduler="serial").score
        if "asymmetric-beta" in learn:
            prior = model.rows(0)["word_tables"] + model.globals["word_tables_prior"]
            assert prior.sum() / model.globals["beta_rate"] == pytest.approx(model.globals["beta"], rel=1e-9)
    assert scores[("asymmetric-beta",)] > scores[()] - 1.0


def test_simulate__refuses_what_cannot_be(tmp_path):
    good = {"family": "lda", "documents": 3, "words": 5, "tokens": 4, "topics": 2}
    for name in ("documents", "words", "tokens"):
        with pytest.raises(OptionError, match=f"--{name}: expected 1 or more"):
            simulate(tmp_path / "c", **{**good, name: 0})
    with pytest.raises(OptionError, match="--shard-tokens"):
        simulate(tmp_path / "c", **good, shard_tokens=0)
    (tmp_path / "c").mkdir()
    with pytest.raises(OccupiedError):
        simulate(tmp_path / "c", **good)

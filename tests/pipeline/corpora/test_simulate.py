import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import linear_sum_assignment

from collapsium.pipeline import Corpus, Model, evaluate, fit, simulate, split, topics, verify
from collapsium.pipeline.analysis.infer import sparse
from collapsium.pipeline.corpora import simulate as simulation
from collapsium.storage.corpus.writer import numbered_ids
from collapsium.storage.errors import OccupiedError, OptionError
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families import generative as drawing
from tests.conftest import mark_rest_long


def probabilities(model):
    counts = np.concatenate([model.rows(block).word_topic for block in range(len(model.blocks))])
    return (counts / counts.sum(axis=0)).T


def files(folder):
    """Return the bytes of all files in a folder, by name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def dense(model, words):
    """Return phi (topics, words) from the sparse topics of `drawing`."""
    return (drawing.expected_counts(model, 0, words) / model["tokens"]).T


def distance(first, second):
    """Return the mean total variation distance of topics, matched one to one."""
    every = 0.5 * np.abs(first[:, np.newaxis] - second[np.newaxis]).sum(axis=2)
    return every[linear_sum_assignment(every)].mean()


@pytest.mark.parametrize("family", ["lda", "hdp"])
def test_simulate__has_the_requested_sizes_seed_and_truth(tmp_path, family):
    options = {"family": family, "documents": 300, "words": 40, "tokens": 30, "topics": 5, "shard_tokens": 2000}
    manifest = simulate(tmp_path / "a", seed=3, **options)
    assert manifest.digest == simulate(tmp_path / "b", seed=3, **options).digest
    assert manifest.digest != simulate(tmp_path / "c", seed=4, **options).digest
    assert (manifest.documents, manifest.vocabulary.words, len(manifest.shards)) == (300, 40, 5)
    assert abs(manifest.tokens - 9000) < 500
    true = topics(tmp_path / "a", words=40)
    assert len(true) == 5
    for topic in true:
        assert sum(p for _, p in topic.words) == pytest.approx(1.0, abs=1e-6)
    theta = pq.read_table(tmp_path / "a/truth/proportions").to_pylist()
    assert len(theta) == 300
    for row in theta:
        assert 1.0 - 5 * 1e-4 < sum(row["proportions"]) < 1.0 + 1e-6
        assert 1e-4 <= row["proportions"][-1] <= row["proportions"][0]
        assert row["proportions"] == sorted(row["proportions"], reverse=True)


def test_simulated_words__follow_the_true_topics(tmp_path):
    simulate(tmp_path / "c", family="lda", documents=2000, words=20, tokens=100, topics=3, beta=20.0, seed=1)
    corpus, model = Corpus(tmp_path / "c"), Model(tmp_path / "c")
    phi = probabilities(model)
    expected = np.zeros(20)
    documents = [document for reference in corpus.references for document in [reference.documents()]]
    lengths = np.concatenate([part.tokens for part in documents])
    for row, length in zip(pq.read_table(tmp_path / "c/truth/proportions").to_pylist(), lengths, strict=True):
        theta = np.zeros(3)
        theta[row["topics"]] = row["proportions"]
        expected += length * (theta @ phi)
    found = corpus.vocabulary.tokens
    assert (np.abs(found - expected) < 5 * np.sqrt(expected) + 5).all()


@pytest.mark.parametrize("family", ["lda", "hdp"])
def test_simulate__gives_the_same_bytes_for_the_same_seed_only(tmp_path, monkeypatch, family):
    monkeypatch.setattr(drawing, "CHUNK_CELLS", 300)  # several chunks per shard
    options = {"family": family, "documents": 100, "words": 50, "tokens": 20, "topics": 6, "shard_tokens": 900}
    for name, seed in (("a", 3), ("again", 3), ("other", 4)):
        manifest = simulate(tmp_path / name, seed=seed, **options)
        ids = [
            document
            for reference in Corpus(tmp_path / name).references
            for document in reference.documents().ids.to_pylist()
        ]
        assert ids == [str(number) for number in range(1, 101)]
        assert pq.read_table(tmp_path / name / "truth/proportions").column("id").to_pylist() == ids
    assert len(manifest.shards) == 3
    first, same, reseeded = (files(tmp_path / name) for name in ("a", "again", "other"))
    assert first == same
    assert first.keys() == reseeded.keys()
    differ = {name for name in first if first[name] != reseeded[name]}
    assert {name for name in first if name.startswith(("documents/", "truth/proportions/"))} <= differ
    assert any(name.startswith("truth/rows/") for name in differ)


def test_truth_in_blocks__covers_the_vocabulary_and_is_the_same_model(tmp_path, monkeypatch):
    options = {"family": "lda", "documents": 60, "words": 41, "tokens": 30, "topics": 4, "seed": 5}
    simulate(tmp_path / "whole", **options)
    monkeypatch.setattr(simulation, "BLOCK_CELLS", 4 * 10)
    simulate(tmp_path / "cut", **options)
    whole, cut = Model(tmp_path / "whole"), Model(tmp_path / "cut/truth")
    assert whole.blocks == [(0, 41)]
    assert cut.blocks == [(0, 10), (10, 20), (20, 30), (30, 40), (40, 41)]
    rows = [cut.rows(number).word_topic for number in range(5)]
    assert [part.shape for part in rows] == [(high - low, 4) for low, high in cut.blocks]
    np.testing.assert_array_equal(np.concatenate(rows), whole.rows(0).word_topic)
    np.testing.assert_allclose(sum(part.sum(axis=0) for part in rows), cut.global_state.topic_moments[0], rtol=1e-12)
    for topic, cut_topic in zip(topics(tmp_path / "whole", 7), topics(tmp_path / "cut/truth", 7), strict=True):
        assert (topic.id, topic.share) == (cut_topic.id, cut_topic.share)
        assert [word for word, _ in topic.words] == [word for word, _ in cut_topic.words]
    scores = [
        evaluate(tmp_path / name, unseen=tmp_path / "whole", scheduler="serial").score for name in ("whole", "cut")
    ]
    assert scores[0] == pytest.approx(scores[1], rel=1e-9)
    assert scores[0] > -np.log(41)  # better than without knowing the topics


@given(
    words=st.integers(1, 60),
    topics=st.integers(1, 5),
    concentration=st.sampled_from([1e-6, 0.3, 5.0, 100.0, 1e5]),
    seed=st.integers(0, 2**31),
    data=st.data(),
)
def test_topics__are_distributions_for_any_blocks(words, topics, concentration, seed, data):
    tokens = np.linspace(1.0, 1e9, topics)
    model = drawing.draw_topics(words, tokens, concentration, Stream(seed))
    for first, last in zip(model["start"], model["start"][1:], strict=False):
        assert last > first
        assert (np.diff(model["word"][first:last]) > 0).all()
        assert model["probability"][first:last].sum() == pytest.approx(1.0, abs=1e-12)
        assert (model["probability"][first:last] >= drawing.MIN_PROBABILITY).all()
    assert 0 <= model["word"].min() <= model["word"].max() < words
    cuts = sorted({0, words, *data.draw(st.lists(st.integers(0, words), max_size=3))})
    rows = [drawing.expected_counts(model, low, high) for low, high in zip(cuts, cuts[1:], strict=False)]
    assert np.concatenate(rows).shape == (words, topics)
    np.testing.assert_allclose(np.concatenate(rows).sum(axis=0), tokens, rtol=1e-12)


@pytest.mark.parametrize("concentration", [0.5, 20.0, 3000.0])
def test_topics__follow_the_dirichlet_distribution(concentration):
    """One word of each topic, and two words together, are compared with their Beta distributions."""
    words, parameter = 200, concentration / 200
    phi = dense(drawing.draw_topics(words, np.ones(3000), concentration, Stream(2)), words)
    for found, shape in ((phi[:, 7], parameter), (phi[:, 198] + phi[:, 199], 2 * parameter)):
        known = stats.beta(shape, concentration - shape)
        above, below = found[found > 0], known.cdf(drawing.MIN_PROBABILITY)
        assert stats.binomtest(above.size, 3000, 1.0 - below).pvalue > 0.001
        assert stats.kstest(above, lambda x: (known.cdf(x) - below) / (1.0 - below)).pvalue > 0.001  # noqa: B023


def test_topics_over_a_large_vocabulary__are_sparse(tmp_path):
    model = drawing.draw_topics(1_000_000, np.ones(3), 100.0, Stream(0))
    assert 6000 < model["word"].size < 7500
    assert abs(model["word"].mean() - 500_000) < 20_000


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_proportions__follow_the_dirichlet_distribution(scale):
    prior = scale * np.array([1.0, 2.0, 0.5, 4.0])
    model = drawing.draw_topics(5, np.ones(4), 1.0, Stream(0))
    _, theta = drawing.draw_documents(model, 5, prior, 4000, 1.0, Stream(2))
    np.testing.assert_allclose(theta.sum(axis=1), 1.0, rtol=1e-12)
    for topic, parameter in enumerate(prior):
        assert stats.kstest(theta[:, topic], stats.beta(parameter, prior.sum() - parameter).cdf).pvalue > 0.001


def test_proportions_with_vanishing_parameters__are_single_topics():
    prior = np.array([1e-9, 3e-9, 0.0])
    model = drawing.draw_topics(5, np.ones(3), 1.0, Stream(0))
    _, theta = drawing.draw_documents(model, 5, prior, 4000, 1.0, Stream(2))
    assert (np.sort(theta, axis=1)[:, -1] == 1.0).all()
    assert stats.binomtest(int(theta[:, 1].sum()), 4000, 0.75).pvalue > 0.001
    assert not theta[:, 2].any()


def test_documents__follow_their_proportions_and_topics():
    """Given theta and phi, the tokens of a word in a document are Poisson, and independent of all others."""
    words, documents, tokens = 30, 600, 80.0
    model = drawing.draw_topics(words, np.ones(6), 10.0, Stream(3))
    drawn, theta = drawing.draw_documents(model, words, np.full(6, 0.4), documents, tokens, Stream(4))
    expected = tokens * theta @ dense(model, words)
    found = np.zeros((documents, words))
    owner = np.repeat(np.arange(documents), np.diff(drawn.offsets))
    np.add.at(found, (owner, drawn.words), drawn.counts)
    assert drawn.words.size == np.count_nonzero(found)  # each word of a document occurs once
    assert (np.diff(owner * words + drawn.words) > 0).all()
    often = expected > 1.0
    square = ((found - expected) ** 2 / expected)[often].sum()
    assert abs(square - often.sum()) < 5 * np.sqrt(3 * often.sum())
    lengths = found.sum(axis=1)
    assert abs(lengths.mean() - tokens) < 4 * np.sqrt(tokens / documents)
    assert abs(lengths.var() / tokens - 1.0) < 4 * np.sqrt(2 / documents)
    # sampling error: 0.01
    assert 0.5 * np.abs(found.sum(axis=0) / found.sum() - expected.sum(axis=0) / expected.sum()).sum() < 0.02


@given(
    documents=st.integers(1, 8),
    words=st.sampled_from([1, 3, 2**31 - 1]),
    tokens=st.sampled_from([1e-3, 1.0, 30.0]),
    seed=st.integers(0, 2**31),
)
def test_documents__are_valid_even_if_empty_or_over_very_large_vocabularies(documents, words, tokens, seed):
    model = drawing.draw_topics(words, np.ones(2), 5.0, Stream(seed))
    drawn, theta = drawing.draw_documents(model, words, np.full(2, 0.1), documents, tokens, Stream(seed))
    assert len(drawn) == documents == len(theta) == len(drawn.ids)
    assert drawn.offsets[0] == 0
    assert drawn.offsets[-1] == drawn.words.size == drawn.counts.size
    assert (np.diff(drawn.offsets) >= 0).all()
    for first, last in zip(drawn.offsets, drawn.offsets[1:], strict=False):
        assert (np.diff(drawn.words[first:last]) > 0).all()
    assert (drawn.counts > 0).all()
    assert np.isin(drawn.words, model["word"]).all()


def test_the_table_of_proportions__has_the_format_of_infer():
    theta = np.random.default_rng(0).dirichlet(np.full(40, 0.02), size=50)
    ids = numbered_ids(1, 50)
    assert simulation._table(ids, theta).equals(sparse(ids, theta, simulation.MIN_PROPORTION))


@pytest.mark.parametrize("seed", mark_rest_long([0, 1]))
def test_simulated_topics__are_recovered_with_default_options(tmp_path, seed):
    options = {"documents": 1000, "words": 500, "tokens": 100, "topics": 10, "seed": seed}
    simulate(tmp_path / "c", family="lda", **options)
    model = fit(tmp_path / "c", tmp_path / "run", family="lda", topics=10, seed=seed, scheduler="serial")
    assert distance(probabilities(model), probabilities(Model(tmp_path / "c"))) < 0.1


@pytest.mark.parametrize("family", ["lda", "hdp"])
def test_order_2__stays_finite_far_above_the_true_number_of_topics(tmp_path, family):
    """The documents have a single token, and the sticks of topics vanish."""
    simulate(tmp_path / "c", family="lda", documents=200, words=60, tokens=1.5, topics=3, seed=1)
    split(tmp_path / "c", tmp_path / "train", tmp_path / "test", documents=True)
    fit(tmp_path / "train", tmp_path / "run", family=family, topics=80, order=2, iterations=40, scheduler="serial")
    assert np.isfinite(evaluate(tmp_path / "run", unseen=tmp_path / "test", scheduler="serial").score)


def test_learned_word_priors__give_words_without_tokens_a_probability_above_zero(tmp_path):
    simulate(tmp_path / "c", family="lda", documents=50, words=2000, tokens=20, topics=3, seed=2)
    split(tmp_path / "c", tmp_path / "train", tmp_path / "held", fraction=0.2)
    scores = {}
    for learn in ((), ("beta",), ("asymmetric-beta",)):
        out = tmp_path / f"run{len(scores)}"
        model = fit(tmp_path / "train", out, family="lda", topics=3, learn=learn, iterations=30, scheduler="serial")
        scores[learn] = evaluate(out, heldout=tmp_path / "held", scheduler="serial").score
        if "asymmetric-beta" in learn:
            prior = model.rows(0).word_tables + model.global_state.word_tables_prior
            assert prior.sum() / model.global_state.beta_rate == pytest.approx(model.global_state.beta, rel=1e-9)
    assert scores[("asymmetric-beta",)] > scores[()] - 1.0


def test_simulate__refuses_invalid_options(tmp_path):
    good = {"family": "lda", "documents": 3, "words": 5, "tokens": 4, "topics": 2}
    for name in ("documents", "words", "tokens"):
        with pytest.raises(OptionError, match=f"{name}: expected 1 or more"):
            simulate(tmp_path / "c", **{**good, name: 0})
        with pytest.raises(OptionError, match=f"{name}: expected at most 2,147,483,647, found 1"):
            simulate(tmp_path / "c", **{**good, name: 10**30})
    with pytest.raises(OptionError, match="shard_tokens"):
        simulate(tmp_path / "c", **good, shard_tokens=0)
    (tmp_path / "c").mkdir()
    with pytest.raises(OccupiedError):
        simulate(tmp_path / "c", **good)


# Vectors -------------------------------------------------------------------------------------------------------------


def test_vectors__have_the_requested_sizes_seed_and_truth(tmp_path):
    options = {"family": "hca", "documents": 300, "words": 6, "depth": 3, "branching": [3, 2], "shard_tokens": 600}
    manifest = simulate(tmp_path / "a", seed=3, **options)
    assert manifest.digest == simulate(tmp_path / "b", seed=3, **options).digest
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert manifest.digest != simulate(tmp_path / "c", seed=4, **options).digest
    assert (manifest.documents, manifest.vocabulary.words, len(manifest.shards)) == (300, 6, 3)
    assert manifest.holds == "vectors"
    listed = topics(tmp_path / "a", words=6)
    assert [node.level for node in listed].count(1) == 3
    assert [node.level for node in listed].count(2) == 6
    assert [node.share for node in listed if node.level == 2] == pytest.approx([1 / 6] * 6)
    assert not verify(tmp_path / "a").broken
    leaves = {node.id for node in listed if node.level == 2}
    rows = pq.read_table(tmp_path / "a/truth/proportions").to_pylist()
    assert [row["id"] for row in rows] == [str(n + 1) for n in range(300)]
    assert all(row["proportions"] == [1.0] and set(row["topics"]) <= leaves for row in rows)


def test_vectors__follow_the_truth(tmp_path):
    """In each leaf, t ~ N(mu, W W' + noise)."""
    simulate(tmp_path / "c", family="hca", documents=6000, words=4, branching=2, noise_scale=0.5, loading_scale=2.0)
    simulated = Model(tmp_path / "c").rows(0).word_node
    leaf = [row["topics"][0] for row in pq.read_table(tmp_path / "c/truth/proportions").to_pylist()]
    values = np.concatenate([reference.load().values for reference in Corpus(tmp_path / "c").references])
    for node in (1, 2):
        vectors = values[np.array(leaf) == node]
        assert abs(len(vectors) - 3000) < 200
        basis = simulated[:, [0, node]]
        expected = basis @ basis.T + 0.25 * np.eye(4)
        whitened = np.linalg.solve(np.linalg.cholesky(expected), (vectors - simulated[:, -1]).T)
        assert np.abs(whitened.mean(axis=1)).max() < 5 / np.sqrt(len(vectors))
        np.testing.assert_allclose(np.cov(whitened), np.eye(4), atol=0.12)
        assert stats.kstest(whitened.ravel(), "norm").pvalue > 0.001


def test_the_true_tree_of_vectors__reconstructs_all_but_noise(tmp_path):
    """The residual of a vector is noise in the dimensions that its path does not span."""
    simulate(tmp_path / "c", family="hca", documents=1000, words=20, depth=3, seed=2)
    found = evaluate(tmp_path / "c/truth", unseen=tmp_path / "c", scheduler="serial")
    assert found.reconstruction_error == pytest.approx(0.09 * 17, rel=0.05)


def test_vectors__refuse_options_for_documents(tmp_path):
    with pytest.raises(OptionError, match="tokens: family 'hca' draws vectors"):
        simulate(tmp_path / "c", family="hca", documents=3, words=5, tokens=4)
    with pytest.raises(OptionError, match="`tokens` is required"):
        simulate(tmp_path / "c", family="lda", documents=3, words=5, topics=2)
    with pytest.raises(OptionError, match="branching: expected 1 value or 2, found 3"):
        simulate(tmp_path / "c", family="hca", documents=3, words=5, depth=3, branching=[2, 2, 2])
    with pytest.raises(OptionError, match="branching"):
        simulate(tmp_path / "c", family="hca", documents=3, words=5, branching=0)
    assert not (tmp_path / "c").exists()


def test_a_single_vector_with_one_column__can_be_simulated(tmp_path):
    assert simulate(tmp_path / "c", family="hca", documents=1, words=1, depth=1).documents == 1
    assert not verify(tmp_path / "c").broken

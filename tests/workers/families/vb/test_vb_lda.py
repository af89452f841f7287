from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma, gammaln

from collapsium.pipeline import Corpus, fit
from collapsium.pipeline.models.registry import make_options
from collapsium.storage.corpus.shard import Shard
from collapsium.workers.arrays.delta import Delta, fresh, total
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families import dirichlet as dirichlet
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.families.family import Summary
from collapsium.workers.families.vb.states import MeanFieldRows, VbLdaLocal
from collapsium.workers.families.vb.vb_lda import VbLda
from collapsium.workers.kernels.vb.mean_field import MeanFieldTopics, PassLimits
from tests.conformance import OptionsConformance, references  # noqa: F401 - fixtures
from tests.conftest import simulated_rows
from tests.fits import states
from tests.naive import mean_field as naive
from tests.strategies import documents_of, shards

FROM_THE_FIRST = {"topics": 4, "even_sweeps": 0}


class TestMeanFieldLDA(OptionsConformance):
    family = "vb-lda"
    matrix = (
        {"topics": 4},
        FROM_THE_FIRST,
        {"topics": 3, "even_sweeps": 2, "document_sweeps": 1},
        {"topics": 12, "even_sweeps": 0, "learn": ("asymmetric-alpha", "beta")},
        {"topics": 4, "even_sweeps": 0, "learn": ("alpha",)},
        {"topics": 4, "even_sweeps": 0, "weights": "log-tf-idf"},
    )
    ascends = tuple(row for row in matrix if row.get("even_sweeps") == 0)
    separate_processes = True
    # The local state stores nothing per pair, so it has no active responsibilities.
    test_active_responsibilities__predict_as_well_as_dense_ones = None

    def test_counts__equal_a_recount_from_the_local_state(self, small, options):
        """The naive version recomputes each iteration's responsibilities from the preceding state."""
        problem, found = states(small[0], self.family, options, 6)
        tokens = Corpus(small[0]).manifest.vocabulary
        for number, (state, _) in enumerate(found):
            counts = np.zeros((tokens.words, problem.config.topics))
            of_words = state.blocks[0].value.rows
            for place, plain in enumerate(shard.value for shard in problem.shards):
                shard = problem.family.weighed(plain, of_words.of_words(plain.words, complete=True))
                local = state.swept[place].value.local
                by_document, by_word = self.sweep_naive(
                    shard, place, problem, found[number - 1][0] if number else None, local
                )
                np.testing.assert_allclose(local.document_topic, by_document, rtol=1e-4, atol=1e-4)
                np.testing.assert_allclose(local.document_topic.sum(axis=1), shard.weighted_lengths, rtol=1e-6)
                counts[shard.words] += by_word
            rows = state.blocks[0].value.rows.block_topic
            np.testing.assert_allclose(rows, counts, rtol=1e-4, atol=1e-4)
            mean = np.ones(len(rows)) if of_words.word_mean is None else of_words.word_mean
            rounding = 1e-9 if of_words.word_mean is None else 1e-5
            np.testing.assert_allclose(rows.sum(axis=1), mean * Corpus(small[0]).vocabulary.tokens, rtol=rounding)
            np.testing.assert_allclose(state.global_state.topic_total, rows.sum(axis=0), rtol=1e-12)

    def sweep_naive(self, shard, place, problem, before, local):
        """Return E[n_dk] and E[n_kw] of the sweep from a state, or of the initialisation, by the naive version."""
        if before is None:
            even = np.ones((shard.words.size, problem.config.topics))
            return naive.products(document_pairs(shard), local.document_topic + 1e-30, even)
        old, global_state = before.swept[place].value.local, before.global_state
        begin = old.document_topic
        if before.iteration < problem.config.even_sweeps:
            begin = np.broadcast_to(shard.lengths[:, np.newaxis] / begin.shape[1], begin.shape)
        b = global_state.beta / global_state.vocabulary
        rows = before.blocks[0].value.rows.block_topic[shard.words]
        if "beta" in problem.config.learn:  # lambda still has the b_w of the preceding iteration
            expected, log_total = before.blocks[0].value.rows.word_expected[shard.words], global_state.topic_log
        else:
            expected, log_total = (
                np.exp(digamma(b + rows)),
                digamma(global_state.beta + global_state.topic_total),
            )
        limits = PassLimits(problem.config.document_sweeps, problem.config.document_tolerance)
        topics = MeanFieldTopics(expected, global_state.alpha, log_total)
        return naive.sweep(document_pairs(shard), topics, begin, limits)[:2]

    def test_the_number_of_shards__changes_nothing_but_rounding(self, small, tmp_path):
        """The fits start from the same responsibilities."""
        whole = Shard.of(0, documents_of(simulated_rows(1)))
        local, _ = start(whole, 3)
        found = []
        for cuts in ((0, 60), (0, 1, 20, 21, 60)):
            parts = [part_of(whole, *cut) for cut in zip(cuts, cuts[1:], strict=False)]
            locals_ = [VbLdaLocal(local.document_topic[a:b]) for a, b in pairwise(cuts)]
            found.append(iterated(parts, locals_, 6, words=30, even=2)[0].block_topic)
        np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-6)


def global_state_of(topics, words=30, **options):
    return model_of(topics, **options).initialise(Summary(60, words, 1000), Stream(0))


def options_of(topics, **options):
    return make_options("vb-lda", {"topics": topics, **options})


def model_of(topics, **options):
    return VbLda(options_of(topics, **options))


def start(shard, topics, warm=None, **options):
    return model_of(topics, **options).start(
        shard, MeanFieldRows(), global_state_of(topics, **options), Stream(3), warm
    )


def part_of(shard, first, last):
    low, high = shard.offsets[first], shard.offsets[last]
    offsets = shard.offsets[first : last + 1] - low
    return Shard(0, offsets, shard.words, shard.position[low:high], shard.counts[low:high])


def iterated(parts, locals_, iterations, words, even=0, block=None, **options):
    """Return the blocks, the global state and the bounds after some iterations, without the loop."""
    topics = locals_[0].document_topic.shape[1]
    global_state, bounds = global_state_of(topics, words, **options), []
    model, locals_ = model_of(topics, **options), [replace(local, even_sweeps_left=even) for local in locals_]
    if block is None:
        first = [counted(part, local.document_topic) for part, local in zip(parts, locals_, strict=True)]
        block, sums = model.fold(model.initial_rows(words, global_state), total(first), global_state)
        global_state = model.update(global_state, sums, Stream(0))
    else:
        block, global_state = block
    for _ in range(iterations):
        rows = [block.of_words(part.words, complete=False) for part in parts]
        swept = [model.sweep(p, l, r, global_state, Stream(0)) for p, l, r in zip(parts, locals_, rows, strict=True)]  # noqa: E741
        locals_, delta = [local for local, _ in swept], total([delta for _, delta in swept])
        block, sums = model.fold(block, delta, global_state)
        sums = delta.without_dim("word") + sums
        bounds.append(model.objective(global_state, sums)["objective"])
        global_state = model.update(global_state, sums, Stream(0))
    return block, global_state, locals_, bounds


def counted(shard, document_topic):
    weights = document_topic.astype("f8") + 1e-30, np.ones((shard.words.size, document_topic.shape[1]))
    _, by_word = naive.products(document_pairs(shard), *weights)
    return Delta({"word_topic": fresh(by_word, "word", "topic")}, {"word": shard.words})


def bound_written_out(shard, q, gamma, lambda_, a, b):
    """Return E[log p] - E[log q] with every term written out; lambda_ has shape (words, topics)."""
    theta = digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))
    phi = digamma(lambda_) - digamma(lambda_.sum(axis=0))
    owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
    word = shard.words[shard.position]
    bound = (shard.counts[:, np.newaxis] * q * (theta[owner] + phi[word] - np.log(q))).sum()
    for given_, logs, axis, prior in ((gamma, theta, 1, a), (lambda_, phi, 0, b)):
        vectors, size = given_.shape[1 - axis], given_.shape[axis]
        bound += vectors * (gammaln(size * prior) - size * gammaln(prior)) + ((prior - 1) * logs).sum()
        bound -= (gammaln(given_.sum(axis=axis)) - gammaln(given_).sum(axis=axis)).sum() + ((given_ - 1) * logs).sum()
    return bound


@given(shards(), st.integers(0, 5))
def test_objective__is_the_bound_written_out(drawn, iterations):
    """This includes empty documents, which contribute zero."""
    shard, first = drawn
    topics, words = first.shape[1], int(shard.words.max()) + 2
    local, _ = start(shard, topics)
    block, global_state, locals_, _ = iterated([shard], [local], iterations, words, alpha=0.3, beta=2.0)
    options, expected = options_of(topics), block.word_expected[shard.words]
    last = iterated([shard], locals_, 1, words, 0, (block, global_state), alpha=0.3, beta=2.0)
    # one pass over the documents, from which q follows: the last iteration is computed again
    before = locals_[0].document_topic.astype("f8")
    q, logs = np.zeros((shard.pairs, topics)), global_state.topic_log
    for d in range(shard.documents):
        pairs, document_counts = slice(shard.offsets[d], shard.offsets[d + 1]), before[d]
        for _ in range(options.document_sweeps if pairs.stop > pairs.start else 0):
            log_word = np.log(expected)[shard.position[pairs]]
            q[pairs] = naive.responsibilities(digamma(0.3 + document_counts) - logs, log_word)[0]
            new = (shard.counts[pairs, np.newaxis] * q[pairs]).sum(axis=0)
            change, document_counts = np.abs(new - document_counts).mean(), new
            if change < options.document_tolerance:
                break
    owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
    gamma = np.full((shard.documents, topics), 0.3)
    np.add.at(gamma, owner, shard.counts[:, np.newaxis] * q)
    lambda_ = np.full((words, topics), 2.0 / words)
    np.add.at(lambda_, shard.words[shard.position], shard.counts[:, np.newaxis] * q)
    np.testing.assert_allclose(
        last[3][-1], bound_written_out(shard, q, gamma, lambda_, 0.3, 2.0 / words), rtol=1e-6, atol=1e-5
    )


@pytest.mark.parametrize(("iterations", "close"), [(1, 1e-8), (4, 0.02)])
def test_sweeps__match_scikit_learn(iterations, close):
    """One sweep equals up to rounding; later ones up to the initialisation of documents, which is random in
    scikit-learn."""
    from sklearn.decomposition import LatentDirichletAllocation

    shard, topics, words = Shard.of(0, documents_of(simulated_rows(1))), 3, 30
    dense = np.zeros((shard.documents, words))
    dense[np.repeat(np.arange(shard.documents), np.diff(shard.offsets)), shard.words[shard.position]] = shard.counts
    peer = LatentDirichletAllocation(
        topics, doc_topic_prior=0.1, topic_word_prior=0.1, max_iter=iterations, random_state=5, max_doc_update_iter=3000,
        mean_change_tol=1e-12, evaluate_every=0,
    ).fit(dense)  # fmt: skip
    begun = np.random.RandomState(5).gamma(100.0, 0.01, (topics, words)).T
    options = {"beta": 3.0, "document_sweeps": 3000, "document_tolerance": 1e-12}
    global_state = global_state_of(topics, words, **options)
    model, counts_ = model_of(topics, **options), {"word_topic": fresh(begun - 0.1, "word", "topic")}
    delta = Delta(counts_, {"word": np.arange(words)})
    block, sums = model.fold(model.initial_rows(words, global_state), delta, global_state)
    global_state = model.update(global_state, sums, Stream(0))
    local, _ = start(shard, topics)
    block, global_state, locals_, _ = iterated([shard], [local], iterations, words, 9, (block, global_state), **options)
    np.testing.assert_allclose(block.block_topic.T + 0.1, peer.components_, rtol=close, atol=10 * close)
    if iterations == 1:  # then documents are fitted to fixed topics
        unseen = model.fold_in(shard, MeanFieldRows(word_topic=block.block_topic[shard.words]), global_state, Stream(0))
        theta, occupied = model.infer(unseen, global_state)["document_topic"], shard.lengths > 0
        close = np.isclose(theta[occupied], peer.transform(dense)[occupied], atol=1e-3).all(axis=1)
        assert close.mean() > 0.9


def test_a_warm_start__starts_from_theta_and_phi():
    shard, generator = Shard.of(0, documents_of(simulated_rows(1))), np.random.default_rng(0)
    theta = generator.dirichlet(np.ones(3), size=shard.documents)
    phi = generator.dirichlet(np.ones(shard.words.size), size=3).T
    phi[0] = 0.0  # a word that the other run lacked
    local, delta = start(shard, 5, {"document_topic": theta, "word_topic": phi})
    q = theta[np.repeat(np.arange(shard.documents), np.diff(shard.offsets))] * phi[shard.position]
    gone = shard.position == 0
    q[gone] = theta[np.repeat(np.arange(shard.documents), np.diff(shard.offsets))][gone]
    q /= q.sum(axis=1, keepdims=True)
    by_word = np.zeros((shard.words.size, 5))
    np.add.at(by_word[:, :3], shard.position, shard.counts[:, np.newaxis] * q)
    np.testing.assert_allclose(delta["word_topic"], by_word, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(local.document_topic.sum(axis=1), shard.lengths, rtol=1e-6)
    assert local.even_sweeps_left == 0  # it continues from the state that it received
    assert start(shard, 5)[0].even_sweeps_left == 20
    with pytest.raises(ValueError, match="at most 2 topics"):
        start(shard, 2, {"document_topic": theta, "word_topic": phi})


def test_a_warm_start__stays_where_the_other_run_converged():
    """Sweeps that start at the topics of a converged run stay there."""
    shard = Shard.of(0, documents_of(simulated_rows(1)))
    block, global_state, locals_, bounds = iterated([shard], [start(shard, 3)[0]], 40, 30, even=10)
    phi = (block.block_topic + 100.0 / 30) / (100.0 + global_state.topic_total)
    warm = {
        "document_topic": model_of(3).infer(locals_[0], global_state)["document_topic"],
        "word_topic": phi[shard.words],
    }
    local, delta = start(shard, 3, warm)
    sweep_naive = iterated([shard], [local], 10, 30, even=local.even_sweeps_left)[3]
    cold = iterated([shard], [start(shard, 3)[0]], 1, 30, even=10)[3]
    assert sweep_naive[0] > cold[0]
    assert sweep_naive[-1] > bounds[-1] - 1e-3 * abs(bounds[-1])


def test_the_bound__increases_after_the_even_sweeps(small):
    _, found = states(small[0], "vb-lda", {"topics": 4, "even_sweeps": 3}, 12)
    values = [progress.metrics["objective"] for _, progress in found if "objective" in progress.metrics]
    assert all(after >= before - 1e-7 * abs(before) for before, after in zip(values[3:], values[4:], strict=False))


def test_local_sweeps__continue_from_the_state_of_the_documents(small, tmp_path):
    """Local sweeps are further passes over the documents between two sums."""
    options = {"family": "vb-lda", "topics": 4, "iterations": 10, "scheduler": "serial", "document_tolerance": 0.0}
    twice = fit(small[0], tmp_path / "twice", local_sweeps=2, document_sweeps=3, **options)
    once = fit(small[0], tmp_path / "once", document_sweeps=6, **options)
    np.testing.assert_allclose(twice.rows(0).word_topic, once.rows(0).word_topic, rtol=1e-4, atol=1e-4)


# Learning the priors ------------------------------------------------------------------------------------------------


@given(st.integers(2, 8), st.integers(0, 1000), st.floats(1e-4, 1e4))
def test_asymmetric__is_stationary_from_any_start(topics, seed, begin):
    generator = np.random.default_rng(seed)
    true = generator.gamma(1.0, 1.0, topics) + 0.02
    logs = 200 * (digamma(true) - digamma(true.sum()))
    found = dirichlet.asymmetric(np.full(topics, begin), logs, 200.0)
    np.testing.assert_allclose(found, true, rtol=1e-5)


@given(st.integers(2, 500), st.floats(1e-4, 50), st.floats(1e-6, 1e5))
def test_symmetric__is_stationary_from_any_start(size, true, begin):
    logs = 30 * size * (digamma(true) - digamma(size * true))
    np.testing.assert_allclose(dirichlet.symmetric(begin, size, logs, 30.0), true, rtol=1e-4)


def test_symmetric__has_bounds_and_fixes_a_single_parameter():
    assert dirichlet.symmetric(0.5, 1, -3.0, 2.0) == 0.5
    assert dirichlet.symmetric(0.5, 3, -1e12, 2.0) == pytest.approx(dirichlet.NEWTON.smallest)
    assert dirichlet.symmetric(0.5, 3, -3 * 2.0 * np.log(3.0), 2.0) == pytest.approx(dirichlet.NEWTON.largest)


def test_learned_alpha__follows_the_documents(tmp_path):
    from collapsium.pipeline import simulate

    simulate(tmp_path / "c", family="vb-lda", documents=400, words=60, tokens=80, topics=3, alpha=0.6, beta=5.0)
    options = {"family": "vb-lda", "topics": 3, "beta": 5.0, "iterations": 80, "scheduler": "serial"}
    model = fit(tmp_path / "c", tmp_path / "run", learn="alpha", alpha=0.05, **options)
    assert 0.3 < model.global_state.alpha[0] < 1.0


@pytest.mark.parametrize("learn", [("alpha", "asymmetric-alpha"), ("tau",)])
def test_invalid_options__are_refused(learn):
    from collapsium.storage.errors import OptionError

    with pytest.raises(OptionError, match="learn: "):
        make_options("vb-lda", {"topics": 3, "learn": learn})

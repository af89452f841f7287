from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma, gammaln

from collapsium.pipeline import Corpus, fit, infer, ingest, simulate
from collapsium.pipeline.engine.setup.inputs import missing_inputs
from collapsium.pipeline.models.registry import make_options
from collapsium.storage.corpus.labels import Labels, LabelTable, NumberField, numbered
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.runs.run import Run
from collapsium.workers.arrays.delta import total
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.families.family import Summary
from collapsium.workers.families.vb.hdsp import Hdsp, gradient, within_range
from collapsium.workers.families.vb.label_scaling import scaling_of
from collapsium.workers.families.vb.states import HdspSums, MeanFieldRows
from collapsium.workers.kernels.vb.mean_field import DocumentLabels, MeanFieldTopics, PassLimits
from tests.conformance import Conformance, references  # noqa: F401 - fixture
from tests.fits import states
from tests.naive import gamma_proportions as naive
from tests.strategies import shards


def labels_of(local, global_state):
    """Return the labels of a local state's documents, with their log rates."""
    labels = local.document_label_offsets, local.document_label, local.document_label_value
    return DocumentLabels(*labels, global_state.rates.label_log)


class TestHDSP(Conformance):
    family = "hdsp"
    labelled, word_prior = True, {"eta": 0.1}
    matrix = (
        {"topics": 4},
        {"topics": 3, "scaling": "linear", "lda_sweeps": 1, "document_sweeps": 1, "initial_topics": "lda"},
        {"topics": 12, "learn": ["gamma", "weights"], "alpha": 5.0},
    )
    ascends = matrix
    # The local state stores nothing per pair, so it has no active responsibilities.
    test_active_responsibilities__predict_as_well_as_dense_ones = None

    def test_counts__equal_a_recount_from_the_local_state(self, small, options):
        """The naive version recomputes each iteration's responsibilities from the preceding state."""
        problem, found = states(small[0], self.family, options, 4)
        tokens = Corpus(small[0]).vocabulary.tokens
        for (before, _), (state, _) in zip(found[1:], found[2:], strict=False):
            counts, global_state = np.zeros((tokens.size, problem.config.topics)), before.global_state
            for place, shard in enumerate(shard.value for shard in problem.shards):
                old, local = (problem_state.swept[place].value.local for problem_state in (before, state))
                expected = before.blocks[0].value.rows.word_expected[shard.words]
                labels = labels_of(old, global_state)
                topics = MeanFieldTopics(expected, global_state.prior, global_state.topic_log)
                limits = PassLimits(problem.config.document_sweeps, problem.config.document_tolerance)
                again = naive.sweep(document_pairs(shard), topics, labels, old.document_topic, limits, 4)
                np.testing.assert_allclose(local.document_topic, again["document_topic"], rtol=1e-4, atol=1e-4)
                np.testing.assert_allclose(local.document_topic.sum(axis=1), shard.lengths, rtol=1e-6)
                counts[shard.words] += again["word_topic"]
            rows = state.blocks[0].value.rows.block_topic
            np.testing.assert_allclose(rows, counts, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(rows.sum(axis=1), tokens, rtol=1e-9)
            np.testing.assert_allclose(state.global_state.topic_total, rows.sum(axis=0), rtol=1e-12)


OPTIONS = (
    {"topics": 4},
    {"topics": 3, "scaling": "linear", "lda_sweeps": 2, "document_sweeps": 2, "document_tolerance": 0.0},
    {"topics": 4, "learn": ["alpha"], "gamma": 2.0},
    {"topics": 4, "learn": ["gamma"], "alpha": 3.0, "eta": 0.5},
)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """A simulated corpus of several shards whose documents have labels."""
    place = tmp_path_factory.mktemp("hdsp") / "corpus"
    sizes = {"documents": 120, "words": 40, "tokens": 30, "shard_tokens": 900, "seed": 3}
    simulate(place, family="hdsp", topics=4, eta=0.1, alpha=2.0, gamma=3.0, **sizes)
    return place


class Fit:
    """A fit without the loop, of shards in memory."""

    def __init__(self, shards_, words, table, seed=0, **options):
        self.shards, self.words, self.config = shards_, words, make_options("hdsp", options)
        documents, tokens = sum(shard.documents for shard in shards_), sum(shard.tokens for shard in shards_)
        summary = Summary(documents, words, tokens, labels=table)
        self.model = Hdsp(self.config)
        self.global_state = self.model.initialise(summary, Stream(seed))
        self.block = self.model.initial_rows(words, self.global_state)
        streams = [Stream(seed).at(place=place) for place in range(len(shards_))]
        begun = [
            self.model.start(shard, None, self.global_state, stream)
            for shard, stream in zip(shards_, streams, strict=True)
        ]
        self.locals, self.sums = [local for local, _ in begun], None
        self.fold(total(delta for _, delta in begun))

    def fold(self, delta):
        self.before = self.global_state
        self.block, sums = self.model.fold(self.block, delta, self.global_state)
        self.sums = delta.without_dim("word") + sums
        self.global_state = self.model.update(self.global_state, self.sums, Stream(0))

    def sweep(self):
        """Sweep once; return the bound, or None during the initial sweeps of LDA."""
        rows = [self.block.of_words(shard.words, complete=False) for shard in self.shards]
        self.swept = self.global_state, self.block, self.locals
        inputs = zip(self.shards, self.locals, rows, strict=True)
        found = [self.model.sweep(*parts, self.global_state, Stream(0)) for parts in inputs]
        self.locals = [local for local, _ in found]
        self.fold(total(delta for _, delta in found))
        return self.model.objective(self.before, self.sums).get("objective")


def known(draw_seed, documents, labels, numbers):
    """Return labels and covariates of documents, some of which have none, and the table of all labels."""
    generator = np.random.default_rng(draw_seed)
    has = generator.random((documents, labels)) < 0.5
    names = tuple(("label", f"{label}") for label in range(labels))
    offsets = np.concatenate([[0], np.cumsum(has.sum(axis=1))]).astype(np.int64)
    columns = {f"x{number}": generator.normal(size=documents) for number in range(numbers)}
    for column in columns.values():
        column[generator.random(documents) < 0.2] = np.nan
    fields = tuple(NumberField(name, documents, 0.1, 1.3, 5.0, ()) for name in columns)
    table = LabelTable(
        names, tuple(int(count) for count in has.sum(axis=0)), fields, int(has.sum(axis=1).max(initial=0))
    )
    return Labels(names, offsets, np.nonzero(has)[1].astype(np.int32), columns), table


@st.composite
def fits(draw):
    """Draw a fit of one shard, after its sweeps of LDA and perhaps some more."""
    shard, _ = draw(shards())
    linear = draw(st.booleans())
    labels, table = known(draw(st.integers(0, 99)), shard.documents, draw(st.integers(0, 4)), 2 * linear)
    options = {"topics": draw(st.integers(1, 4)), "eta": 0.3, "lda_sweeps": draw(st.integers(1, 2))}
    options["scaling"] = "linear" if linear else "labels"
    if draw(st.booleans()):
        options.update(learn=[], gamma=2.5, alpha=1.5)
    shard = type(shard)(shard.number, shard.offsets, shard.words, shard.position, shard.counts, labels)
    fitted = Fit([shard], int(shard.words.max(initial=0)) + 2, table, **options)
    for _ in range(options["lda_sweeps"] + draw(st.integers(0, 3))):
        fitted.sweep()
    return fitted


def bound_written_out(fit_):
    """Return E[log p] - E[log q] of the last sweep, with each term written out."""
    global_state, block, locals_ = fit_.swept
    shard, before, config = fit_.shards[0], locals_[0].document_topic, fit_.config
    labels = labels_of(locals_[0], global_state)
    expected, g, topic_log = block.word_expected[shard.words], global_state.prior, global_state.topic_log
    passes, tolerance = config.document_sweeps, config.document_tolerance
    lambda_, bound = np.full((fit_.words, g.size), config.eta), 0.0
    for d in range(shard.documents):
        pairs, document_counts = slice(shard.offsets[d], shard.offsets[d + 1]), before[d].astype("f8")
        rate, q, count = naive.rates(*labels, d), np.zeros((0, g.size)), shard.counts[pairs][:, np.newaxis]
        for _ in range(passes if count.size else 0):
            log_pi = digamma(g + document_counts) - np.log(rate + naive.balance(g, document_counts, rate))
            q, _ = naive.responsibilities(log_pi - topic_log, np.log(expected)[shard.position[pairs]])
            new = (count * q).sum(axis=0)
            change, document_counts = np.abs(new - document_counts).mean(), new
            if change < tolerance:
                break
        np.add.at(lambda_, shard.words[shard.position[pairs]], count * q)
        a = g + document_counts
        b = rate + naive.balance(g, document_counts, rate)
        log_pi, pi, xi = digamma(a) - np.log(b), a / b, max((a / b).sum(), 1e-300)
        mine = slice(labels[0][d], labels[0][d + 1])
        mean_log = (labels[2][mine, np.newaxis] * global_state.rates.label_mean_log[labels[1][mine]]).sum(axis=0)
        bound += (count * q * (log_pi - np.log(np.maximum(q, 1e-300)))).sum() - count.sum() * np.log(xi)
        bound += (g * mean_log + (g - 1) * log_pi - rate * pi - gammaln(g)).sum()
        bound += (a - np.log(b) + gammaln(a) + (1 - a) * digamma(a)).sum()
    phi = digamma(lambda_) - digamma(lambda_.sum(axis=0))
    bound += ((lambda_ - config.eta) * phi).sum()  # E[log p(x | z, phi)]
    size = fit_.words
    bound += g.size * (gammaln(size * config.eta) - size * gammaln(config.eta)) + ((config.eta - 1) * phi).sum()
    bound -= (gammaln(lambda_.sum(axis=0)) - gammaln(lambda_).sum(axis=0)).sum() + ((lambda_ - 1) * phi).sum()
    p, gamma = g / g.sum(), global_state.gamma
    bound += (g.size - 1) * np.log(gamma) + (gamma - 1) * np.log(p[global_state.last])
    return bound + scaling_of(global_state.rates).bound(global_state.rates)


@given(fits())
def test_objective__is_the_bound_written_out(fitted):
    bound = fitted.sweep()
    assert bound == pytest.approx(bound_written_out(fitted), rel=1e-6, abs=1e-4)


@given(fits())
def test_objective__never_decreases(fitted):
    bounds = [fitted.sweep() for _ in range(6)]
    for before, after in zip(bounds, bounds[1:], strict=False):
        assert after >= before - 1e-7 * abs(before)


@given(fits())
def test_gradient_of_the_sticks__agrees_with_finite_differences(fitted):
    """q(pi) and xi at their best for each g_k."""
    fitted.sweep()
    global_state, local = fitted.before, fitted.locals[0]
    labels = labels_of(local, global_state)
    counts = local.document_topic.astype("f8")

    def terms(g):
        yield (global_state.gamma - 1) * np.log(g[global_state.last] / g.sum())
        for d, document_counts in enumerate(counts):
            rate = naive.rates(*labels, d)
            u, mine = naive.balance(g, document_counts, rate), slice(labels[0][d], labels[0][d + 1])
            mean_log = (labels[2][mine, np.newaxis] * global_state.rates.label_mean_log[labels[1][mine]]).sum(axis=0)
            yield gammaln(g + document_counts)
            yield -gammaln(g)
            yield -(g + document_counts) * np.log(rate + u)
            yield g * mean_log
            yield document_counts.sum() * np.log(u) if u else 0.0

    def value(g):
        return sum(np.sum(term) for term in terms(g))

    sums, present = fitted.sums.read(HdspSums), fitted.sums.ids.get("label")
    prior, found = global_state.prior, gradient(global_state, sums, present)
    scale = 1.0 + sums.tables / prior  # the function of which the gradient is approximated by differences
    for topic in range(prior.size):
        step = np.zeros(prior.size)
        step[topic] = 1e-3 * prior[topic]
        once, twice = ((value(prior + n * step) - value(prior - n * step)) / (2 * n * step[topic]) for n in (1, 2))
        # the difference quotient is exact up to the fourth power of the step, and to rounding
        slope = (4 * once - twice) / 3
        rounding = 8 * np.finfo(float).eps * sum(np.abs(term).sum() for term in terms(prior)) / step[topic]
        assert found[topic] == pytest.approx(slope, rel=1e-6, abs=1e-6 * scale[topic] + rounding)


@pytest.mark.parametrize("options", OPTIONS)
def test_fits__increase_the_bound_in_every_iteration(labelled, tmp_path, options):
    fit(labelled, tmp_path / "run", family="hdsp", iterations=25, tolerance=0, scheduler="serial", **options)
    found = [event["objective"] for event in Run(tmp_path / "run").events() if event["event"] == "iteration"]
    assert len(found) == 25
    assert all(after >= before - 1e-7 * abs(before) for before, after in zip(found, found[1:], strict=False))


def test_without_labels__it_is_the_normalised_gamma_construction(small, tmp_path):
    """All rates are then one, so that proportions are (g + n) / (alpha + N)."""
    model = fit(small[0], tmp_path / "run", family="hdsp", topics=4, iterations=5, scheduler="serial")
    local, prior = model.local_state(0), model.global_state.prior
    theta = model.family.infer(local, model.global_state)["document_topic"]
    counts = local.document_topic.astype("f8")
    total_ = prior.sum() + counts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(theta, (prior + counts) / total_, rtol=1e-9)


def inferred(model, shard, global_state):
    """Return the proportions of documents without words."""
    rows = MeanFieldRows(word_topic=np.zeros((0, 4)))
    local = model.family.fold_in(shard, rows, global_state, Stream(0))
    return model.family.infer(local, global_state)["document_topic"]


def test_documents_without_words__have_the_proportions_that_their_labels_imply(labelled, tmp_path):
    """By (40), E[pi_k / sum_l pi_l] with pi_k ~ Gamma(alpha p_k, E[R_k]) is near p_k / E[R_k] for a large alpha."""
    model = fit(labelled, tmp_path / "run", family="hdsp", topics=4, iterations=5, scheduler="serial")
    shard = Corpus(labelled).references[0].load(labelled=True).emptied()
    found = numbered(shard.labels, model.global_state.labels, shard.documents)
    prior, label_log = model.global_state.prior, model.global_state.rates.label_log
    labels = DocumentLabels(found.offsets, found.label, found.value, label_log)
    np.testing.assert_allclose(inferred(model, shard, model.global_state), naive.expected(labels, prior), rtol=1e-8)
    theta = inferred(model, shard, replace(model.global_state, prior=prior * 1e7))
    for d in range(shard.documents):
        mine = found.label[found.offsets[d] : found.offsets[d + 1]]
        expected = prior / np.exp(label_log[mine].sum(axis=0))
        np.testing.assert_allclose(theta[d], expected / expected.sum(), rtol=1e-4)


def test_covariates_that_the_scaling_ignores__are_reported_or_refused(tmp_path):
    frame = pd.DataFrame(
        {"id": ["1", "2", "3"], "text": ["aa bb aa", "cc dd", "aa cc"], "kind": ["x", "y", "x"], "stars": [1, 2, 3]}
    )
    with pytest.raises(OptionError, match="covariates: numbers need `scaling` linear"):
        fit(frame, family="hdsp", topics=2, iterations=1, covariates="stars", labels="kind", scheduler="serial")
    how = {"family": "hdsp", "topics": 2, "iterations": 1, "scaling": "linear", "scheduler": "serial"}
    for stars in ([1e300, -1e300, 1.0], [1e-320, 0.0, 0.0]):
        with pytest.raises(InputError, match="the numbers of covariate 'stars' are too large or too close"):
            fit(frame.assign(stars=stars), covariates="stars", labels="kind", **how)
    frame.to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    ingest(tmp_path / "x.jsonl", tmp_path / "c", labels="kind", covariates="stars", scheduler="serial")
    corpus = Corpus(tmp_path / "c")
    notices = [missing_inputs(corpus, "hdsp", make_options("hdsp", {"topics": 2, **options})) for options in (
        {}, {"scaling": "linear"}, {"scaling": "linear", "covariates": "stars"}
    )]  # fmt: skip
    assert [len(lines) for lines in notices] == [1, 1, 1]
    assert (
        "(labels, stars), the model uses labels; 'hdsp' uses covariates with scaling = linear and cov" in notices[0][0]
    )
    assert notices[2][0].endswith("of the documents' fields (labels, stars), the model uses labels, stars")


def test_rates_beyond_floating_point__give_the_proportions_of_the_same_rates_divided_by_the_smallest():
    log_rate = np.array([[0.5, -0.5, 0.0], [2.0, 1.0, -3.0]])
    offsets, label = np.array([0, 1, 3, 3, 4]), np.array([0, 0, 1, 1], dtype=np.int32)
    labels = DocumentLabels(offsets, label, np.array([1.0, 1.0, 250.0, 1e300]), log_rate)
    within = within_range(labels)
    assert within.offsets.tolist() == [0, 1, 2, 2, 3]
    assert within.label.tolist() == [0, 2, 3]
    assert within.value.tolist() == [1.0, 1.0, 1.0]
    np.testing.assert_array_equal(within.log_rate, [*log_rate, [600.0, 600.0, 0.0], [600.0, 600.0, 0.0]])
    usual = labels._replace(value=np.array([1.0, 1.0, 150.0, -190.0]))
    assert within_range(usual) is usual


@pytest.mark.parametrize("stars", [999.0, -1e9, 1e300])
def test_numbers_far_beyond_the_training_corpus__give_proportions_of_which_one_is_the_whole(tmp_path, stars):
    texts = ["aa bb aa bb", "cc dd dd cc"] * 10
    frame = pd.DataFrame({"id": [str(n) for n in range(20)], "text": texts, "stars": [1.0, 2.0] * 10})
    how = {"family": "hdsp", "topics": 3, "iterations": 5, "scaling": "linear", "scheduler": "serial"}
    model = fit(frame, tmp_path / "run", covariates="stars", **how)
    far = pd.DataFrame({"id": ["a", "b"], "text": ["aa cc", "zz"], "stars": [stars, stars]})
    far.to_json(tmp_path / "far.jsonl", orient="records", lines=True)
    infer(tmp_path / "run", tmp_path / "far.jsonl", tmp_path / "far.npy", scheduler="serial")
    theta = np.load(tmp_path / "far.npy")
    np.testing.assert_allclose(theta.sum(axis=1), 1.0, rtol=1e-5)
    rate = (1.0 if stars > 0 else -1.0) * model._opened.global_state.rates.label_log[0]
    assert theta[1].argmax() == rate.argmin()
    assert theta[1].max() > 0.99


def test_unknown_fields_and_covariates__are_refused(labelled, tmp_path):
    for options, message in (
        ({"labels": ["labl"]}, r"`labels` labl: .* no such field \(did you mean 'label'\?\)"),
        ({"covariates": ["stars"]}, "linear"),
        ({"covariates": ["stars"], "scaling": "linear"}, "`covariates` stars: .* no such field"),
    ):
        with pytest.raises(OptionError, match=message):
            fit(labelled, tmp_path / "run", family="hdsp", topics=3, **options)
        assert not (tmp_path / "run").exists()


def test_simulated_weights__are_recovered_in_order(tmp_path):
    settings_ = {"documents": 600, "words": 60, "tokens": 60, "seed": 5}
    simulate(tmp_path / "c", family="hdsp", topics=4, eta=0.05, alpha=1.0, gamma=8.0, **settings_)
    options = {"topics": 4, "eta": 0.05, "initial_topics": "lda", "alpha": 1.0}
    model = fit(tmp_path / "c", tmp_path / "run", family="hdsp", scheduler="serial", iterations=60, **options)
    from collapsium.pipeline.models.model import Model

    true = Model(tmp_path / "c")
    phi, fitted_phi = (fit.rows(0).word_topic / fit.rows(0).word_topic.sum(axis=0) for fit in (true, model))
    match = np.abs(phi[:, :, np.newaxis] - fitted_phi[:, np.newaxis]).sum(axis=0).argmin(axis=1)
    gains = [-fit.global_state.rates.label_log for fit in (true, model)]
    left, right = (gain - gain.mean(axis=1, keepdims=True) for gain in (gains[0], gains[1][:, match]))
    assert np.corrcoef(left.ravel(), right.ravel())[0, 1] > 0.8

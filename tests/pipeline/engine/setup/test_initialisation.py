"""Fits that are initialised with proportions of their documents."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import digamma

from collapsium.pipeline import Corpus, Model, estimate, fit, resume, verify
from collapsium.pipeline.engine import state as growth
from collapsium.pipeline.engine.checkpoints import Checkpointer
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.computed_initialisation import ComputedStart
from collapsium.pipeline.engine.setup.initialisation import StartSource
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.pipeline.models.registry import FAMILIES, load_family
from collapsium.storage.errors import AbsentError, InputError, MismatchError, OptionError
from collapsium.storage.runs.run import Run
from collapsium.workers.families.family import COMPUTED_STARTS, FILE_START
from collapsium.workers.families.gibbs.gibbs_hdp import GibbsHdpOptions
from collapsium.workers.initialisation import QUICK_CLUSTERS
from tests.conftest import mark_rest_long, simulated_rows, write_corpus, write_halves
from tests.fits import LosingExecutor, arrays_of, bits, problem_of, resumed, scores_of, state_bits
from tests.pipeline.engine.model_io.test_checkpoints import events_of, stop_at

TOPICS, SHARDS = 3, 3
FIT = {"family": "lda", "topics": TOPICS, "iterations": 4, "scheduler": "serial"}
BEGINNING = [
    ("lda", {}),
    ("lda", {"responsibilities": "dense"}),
    ("lda", {"topics": 140, "alpha": 0.01}),
    ("hdp", {}),
    ("gibbs-lda", {}),
    ("gibbs-hdp", {}),
    ("vb-lda", {}),
]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A corpus in shards, held-out tokens of its documents, and for each document the topic with most of its words."""
    rows = simulated_rows(5, documents=120, words=30, topics=TOPICS, tokens=60)
    folders = write_halves(tmp_path_factory.mktemp("simulated"), rows, 30)
    model = fit(folders[0], tmp_path_factory.mktemp("known") / "run", **{**FIT, "iterations": 60})
    theta = np.concatenate([part["document_topic"] for part in map(model_proportions, [model] * SHARDS, range(SHARDS))])
    return *folders, theta


def model_proportions(model, number):
    return model.family.infer(model.local_state(number), model.global_state)


def ids_of(corpus):
    return [name for reference in Corpus(corpus).references for name in reference.ids().to_pylist()]


def written(path, theta, ids=None):
    columns = {} if ids is None else {"id": ids}
    columns |= {f"topic_{k}": values for k, values in enumerate(np.asarray(theta, dtype=np.float64).T)}
    pq.write_table(pa.table(columns), path)
    return str(path)


@pytest.mark.parametrize(("family", "options"), BEGINNING, ids=lambda value: str(value))
def test_a_fit__starts_from_the_given_proportions(simulated, tmp_path, family, options):
    settings = {**FIT, "family": family, "heldout": simulated[1], **options}
    settings.pop("topics") if family == "gibbs-hdp" else None
    file = written(tmp_path / "theta.parquet", simulated[2], ids_of(simulated[0]))
    fit(simulated[0], tmp_path / "started", init=file, **settings)
    fit(simulated[0], tmp_path / "random", **{**settings, "iterations": 1, "init": "random"})
    assert scores_of(tmp_path / "started")[0] > scores_of(tmp_path / "random")[0] + 0.1
    assert verify(tmp_path / "started").broken == []
    record = Run(tmp_path / "started").record()["start"]
    assert (record["kind"], Path(record["url"]).name) == (FILE_START, "theta.parquet")


def test_rows__are_matched_by_id_or_by_order(simulated, tmp_path):
    ids, theta = ids_of(simulated[0]), simulated[2]
    order = np.random.default_rng(1).permutation(len(ids))
    files = [
        written(tmp_path / "ids.parquet", theta, ids),
        written(tmp_path / "order.parquet", theta),
        written(tmp_path / "mixed.parquet", theta[order], [ids[i] for i in order]),
    ]
    models = [fit(simulated[0], tmp_path / str(number), init=file, **FIT) for number, file in enumerate(files)]
    assert len({str(bits(model, SHARDS)) for model in models}) == 1


def test_documents_without_proportions__start_at_random_depending_on_the_seed(simulated, tmp_path):
    file = written(tmp_path / "some.parquet", simulated[2][:70], ids_of(simulated[0])[:70])
    events = []
    models = [
        fit(simulated[0], tmp_path / str(number), init=file, seed=seed, sinks=[events.append], **FIT)
        for number, seed in enumerate((1, 1, 2))
    ]
    found = [str(bits(model, SHARDS)) for model in models]
    assert found[0] == found[1] != found[2]
    notices = [event["text"] for event in events if event["event"] == "notice"]
    assert any("50 of 120 documents have no proportions" in text for text in notices)


def test_proportions_with_another_number_of_topics__are_truncated_or_leave_topics_empty(simulated, tmp_path):
    wide = np.zeros((len(simulated[2]), 9))
    wide[:, [1, 4, 8]] = simulated[2]
    options = {**FIT, "heldout": simulated[1]}
    plain = fit(simulated[0], tmp_path / "plain", init=written(tmp_path / "a.parquet", simulated[2]), **options)
    unused = fit(simulated[0], tmp_path / "unused", init=written(tmp_path / "b.parquet", wide), **options)
    assert bits(plain, SHARDS) == bits(unused, SHARDS)
    events = []
    path = written(tmp_path / "c.parquet", simulated[2])
    fit(simulated[0], tmp_path / "cut", init=path, sinks=[events.append], **{**options, "topics": 2})
    assert any("2 largest of 3 topics" in event["text"] for event in events if event["event"] == "notice")
    more = fit(simulated[0], tmp_path / "more", init=path, sinks=[events.append], **{**options, "topics": 5})
    assert any("3 topics; the other 2 begin empty" in event["text"] for event in events if event["event"] == "notice")
    assert more.record.iterations == 4


def test_topics_above_a_familys_limit__are_truncated_to_the_largest(simulated, tmp_path, monkeypatch):
    monkeypatch.setattr(GibbsHdpOptions, "max_start_topics", 2)
    events, file = [], written(tmp_path / "a.parquet", simulated[2])
    options = {"family": "gibbs-hdp", "iterations": 1, "scheduler": "serial", "sinks": [events.append]}
    model = fit(simulated[0], tmp_path / "run", init=file, **options)
    assert any("2 largest of 3 topics" in event["text"] for event in events if event["event"] == "notice")
    assert model.record.iterations == 1


STOPPED_OPTIONS = [{}, {"family": "hdp"}, {"workers": 2, "scheduler": "local"}]


@pytest.mark.parametrize("options", mark_rest_long(STOPPED_OPTIONS, retained=(0, 1)), ids=str)
def test_a_stopped_run__continues_to_the_same_bits(simulated, tmp_path, options):
    file = written(tmp_path / "theta.parquet", simulated[2])
    settings = {**FIT, "heldout": simulated[1], "init": file, **options}
    whole = fit(simulated[0], tmp_path / "whole", **{**settings, "scheduler": "serial", "workers": None})
    with pytest.raises(KeyboardInterrupt):
        fit(simulated[0], tmp_path / "run", sinks=[stop_at(2)], **settings)
    Path(file).unlink()
    assert bits(resumed(tmp_path / "run", scheduler="serial"), SHARDS) == bits(whole, SHARDS)
    assert events_of(tmp_path / "run")[1:] == events_of(tmp_path / "whole")[1:]  # after the cluster's event


def test_a_moved_file__may_be_named_again_but_a_changed_one_is_refused(simulated, tmp_path):
    file = written(tmp_path / "theta.parquet", simulated[2])
    fit(simulated[0], tmp_path / "run", init=file, **FIT)
    moved, reversed_rows = tmp_path / "moved.parquet", written(tmp_path / "other.parquet", simulated[2][::-1])
    shutil.move(file, moved)
    with pytest.raises(MismatchError, match="is not the run's initialisation"):
        resume(tmp_path / "run", init=reversed_rows, iterations=6)
    assert resume(tmp_path / "run", init=str(moved), iterations=6, scheduler="serial").record.iterations == 6
    assert Run(tmp_path / "run").record()["start"]["url"].endswith("moved.parquet")


def test_proportions_that_do_not_fit__are_refused_before_anything_is_written(simulated, tmp_path):
    good = written(tmp_path / "good.parquet", simulated[2])
    short = written(tmp_path / "short.parquet", simulated[2][:-1])
    strange = written(tmp_path / "strange.parquet", simulated[2][:2], ["x", "y"])
    fit(simulated[0], tmp_path / "warm", **FIT)
    for options, kind, text in (
        ({"init": "randon"}, OptionError, r"init: expected random.*, found 'randon'.*random"),
        ({"init": str(tmp_path / "no.parquet")}, AbsentError, "no.parquet"),
        ({"init": short}, InputError, "expected 120 rows, one for each document .*, found 119"),
        (
            {"init": strange},
            InputError,
            r"expected ids of the documents of .*, found none among 2 \(such as 'x', 'y'\)",
        ),
        ({"init": good, "schedule": "stochastic"}, OptionError, "init: the stochastic schedule"),
        ({"init": good, "warm": tmp_path / "warm"}, OptionError, "init: cannot be combined with `warm`"),
        ({"init": good, "restarts": 3}, OptionError, "restarts: 3 fits of 'lda' from one file"),
        ({"init": good, "family": "ncrp"}, OptionError, "init: family 'ncrp' starts only at random"),
    ):
        with pytest.raises(kind, match=text) as raised:
            settings = {
                name: value for name, value in FIT.items() if options.get("family") != "ncrp" or name != "topics"
            }
            fit(simulated[0], tmp_path / "run", **{**settings, **options})
        assert "\n" not in str(raised.value)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("family", FAMILIES)
def test_families__list_the_initialisations_that_they_support(family):
    assert set(load_family(family).starts) <= {FILE_START, *COMPUTED_STARTS}


# each initialisation with one of the two families, and then with the other
@pytest.mark.parametrize(
    ("kind", "family"),
    mark_rest_long(
        [
            *zip(COMPUTED_STARTS, ("lda", "gibbs-lda") * 2, strict=True),
            *zip(COMPUTED_STARTS, ("gibbs-lda", "lda") * 2, strict=True),
        ],
        retained=range(len(COMPUTED_STARTS)),
    ),
)
def test_a_computed_initialisation__does_not_depend_on_the_executor(simulated, tmp_path, kind, family):
    events, options = [], {**FIT, "family": family, "heldout": simulated[1], "init": kind, "iterations": 2}
    model = fit(simulated[0], tmp_path / "serial", sinks=[events.append], **options)
    again = fit(simulated[0], tmp_path / "threads", **{**options, "scheduler": "threads", "workers": 2})
    assert bits(model, SHARDS) == bits(again, SHARDS)
    notices = [event["text"] for event in events if event["event"] == "notice"]
    assert any(text.startswith(f"start {kind}: 120 documents in ") for text in notices)
    assert Run(tmp_path / "serial").record()["start"] == {"kind": kind}
    assert verify(tmp_path / "serial").broken == []


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "quick-clusters"),
        ({"family": "hdp"}, "quick-clusters"),
        ({"init": "clusters"}, "clusters"),
        ({"init": "random"}, None),
        ({"topics": 61}, None),
        ({"responsibilities": "dense"}, None),
        ({"schedule": "stochastic"}, None),
        ({"seeds": {"first": ["w0"]}}, None),
        ({"family": "vb-lda"}, None),
        ({"grow": "always", "iterations": 80}, None),
    ],
    ids=str,
)
def test_fits_of_lda_and_hdp__start_from_quick_clusters_by_default(simulated, tmp_path, options, kind):
    settings = {name: value for name, value in FIT.items() if options.get("schedule") is None or name != "iterations"}
    passes = {"passes": 1} if options.get("schedule") else {}
    model = fit(simulated[0], tmp_path / "run", **{**settings, **passes, **options})
    assert Run(tmp_path / "run").record().get("start") == (kind and {"kind": kind})
    assert model.record.iterations


@pytest.mark.parametrize(("options", "begins"), [({}, "start"), ({"init": "random"}, "growth")], ids=str)
def test_a_fit_large_enough_to_grow__grows_only_if_it_starts_at_random(
    simulated, tmp_path, monkeypatch, options, begins
):
    monkeypatch.setattr(growth, "MIN_DOCUMENTS", 1)
    monkeypatch.setattr(growth, "MIN_TOKENS", 1)
    fit(simulated[0], tmp_path / "run", **{**FIT, "iterations": 70, **options})
    assert {"start", "growth"} & Run(tmp_path / "run").record().keys() == {begins}


def test_quick_clusters__use_documents_if_these_are_short_or_have_few_words_per_topic():
    longer, documents = int(QUICK_CLUSTERS.short * 100), 100
    words = 20 * QUICK_CLUSTERS.least_words
    assert not QUICK_CLUSTERS.of_documents(longer, documents, words, 20)
    assert QUICK_CLUSTERS.of_documents(longer - 1, documents, words, 20)
    assert QUICK_CLUSTERS.of_documents(longer, documents, words, 21)


@pytest.mark.parametrize("mixing", [False, True])
def test_quick_clusters_of_documents_or_of_words__recover_the_true_proportions(tmp_path, mixing):
    """Before the first sweep, the clusters' proportions are near the true ones.

    The documents are short with one topic each, or longer with several topics.
    """
    generator, topics = np.random.default_rng(2), 6
    theta = generator.dirichlet(np.full(topics, 0.3 if mixing else 1e-3), size=300)
    length = 240 if mixing else 30
    drawn = [generator.choice(topics, size=length, p=row) * 60 + generator.integers(60, size=length) for row in theta]
    corpus = write_corpus(tmp_path / "corpus", [Counter(words.tolist()) for words in drawn], 360, shard_tokens=4000)
    pairs = np.mean([len(set(words.tolist())) for words in drawn])
    assert (pairs >= QUICK_CLUSTERS.short) == mixing
    problem = problem_of(corpus, "lda", {"topics": topics})
    start = ComputedStart(
        StartSource("quick-clusters"), topics, problem.shards, problem.executor, problem.stream, [].append
    )
    found = []
    for part in problem.executor.collect(list(start)):
        dense = np.zeros((part.proportions.documents, topics))
        owner = np.repeat(np.arange(len(dense)), np.diff(part.proportions.offsets))
        dense[owner, part.proportions.topics] = part.proportions.shares
        found.append(dense)
    together = np.concatenate(found).T @ theta
    # exact proportions would give the sum of their squares
    assert together.max(axis=0).sum() >= 0.9 * (theta**2).sum()


@pytest.mark.parametrize("kind", COMPUTED_STARTS)
def test_documents_of_one_topic__are_separated(tmp_path, kind):
    generator = np.random.default_rng(1)
    truth = generator.integers(4, size=240)
    rows = [Counter((generator.integers(10, size=30) + 10 * topic).tolist()) for topic in truth]
    corpus = write_corpus(tmp_path / "corpus", rows, 40, shard_tokens=2000)
    options = {"family": "lda", "topics": 4, "iterations": 1, "init": kind, "scheduler": "serial", "seed": 3}
    model = fit(corpus, tmp_path / "run", **options)
    theta = np.concatenate([model_proportions(model, n)["document_topic"] for n in range(len(model.record.shards))])
    together = np.zeros((4, 4))
    np.add.at(together, (theta.argmax(axis=1), truth), 1)
    assert together.max(axis=0).sum() >= 0.7 * len(rows)


def test_a_stopped_run_of_clusters__continues_to_the_same_bits(simulated, tmp_path):
    options = {**FIT, "heldout": simulated[1], "init": "clusters", "init_strength": 20.0, "iterations": 6}
    whole = fit(simulated[0], tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        fit(simulated[0], tmp_path / "run", sinks=[stop_at(3)], **options)
    assert bits(resumed(tmp_path / "run", scheduler="serial"), SHARDS) == bits(whole, SHARDS)


@pytest.mark.parametrize("kind", COMPUTED_STARTS)
def test_lost_work_of_an_initialisation__is_repeated_with_the_same_bits(simulated, kind):
    ended = []
    for every in (0, 3):
        problem = problem_of(simulated[0], "lda", {"topics": TOPICS})
        if every:
            problem = replace(problem, executor=LosingExecutor(problem.executor, every))
            problem.executor.losses = 3  # of 4; the fit loses its work once more
        start = ComputedStart(StartSource(kind), TOPICS, problem.shards, problem.executor, problem.stream, [].append)
        history = list(Fit(replace(problem, warm=start), Limits(iterations=2), Checkpointer()))
        ended.append(history[-1][0])
    assert any(progress.lost for _, progress in history)
    assert state_bits(ended[0]) == state_bits(ended[1])


@pytest.mark.parametrize(
    ("family", "options"),
    mark_rest_long(
        [
            ("lda", {}),
            ("hdp", {"topics": 140, "most_active": 2}),
            ("lda", {"inverse_temperature": 1.0}),
            ("hdp", {}),
            ("lda", {"topics": 140, "most_active": 2}),
            ("hdp", {"inverse_temperature": 1.0}),
        ],
        retained=range(3),
    ),
    ids=str,
)
def test_a_strong_initialisation__acts_as_a_prior(simulated, tmp_path, family, options):
    sharp = np.eye(TOPICS)[np.arange(len(simulated[2])) % TOPICS]
    settings = {**FIT, "family": family, "iterations": 30, "init": written(tmp_path / "a.parquet", sharp), **options}
    tokens, argmax = [], []
    for strength in (0.0, 1e5):
        model = fit(simulated[0], tmp_path / str(strength), init_strength=strength, **settings)
        parts = [model_proportions(model, number)["document_topic"] for number in range(SHARDS)]
        argmax.append(np.concatenate(parts).argmax(axis=1))
        tokens.append(sum(arrays_of(model.rows(block))["word_topic"].sum() for block in range(len(model.blocks))))
        assert verify(tmp_path / str(strength)).broken == []
    occupied = np.concatenate([np.diff(reference.load().offsets) > 0 for reference in Corpus(simulated[0]).references])
    assert (argmax[1] == sharp.argmax(axis=1))[occupied].all()
    assert not (argmax[0] == sharp.argmax(axis=1))[occupied].all()
    # pseudo-counts belong to documents, not to words
    assert tokens[1] == pytest.approx(tokens[0], rel=1e-4)


def test_tokens__are_counted_exactly_despite_a_very_strong_initialisation(simulated, tmp_path):
    sharp = np.eye(TOPICS)[np.arange(len(simulated[2])) % TOPICS]
    options = {**FIT, "family": "lda", "iterations": 12, "init": written(tmp_path / "a.parquet", sharp)}
    model = fit(simulated[0], tmp_path / "run", init_strength=1e9, **options)
    for number, reference in enumerate(Corpus(simulated[0]).references):
        np.testing.assert_allclose(model.local_state(number).lengths(), reference.load().lengths, rtol=1e-6)
    assert verify(tmp_path / "run").broken == []


@pytest.mark.parametrize("strength", [2.0, 6.0])
def test_pseudo_counts_of_an_initialisation__are_dropped_with_inactive_topics(simulated, tmp_path, strength):
    """Pseudo-counts of topics that a document no longer has active are dropped, and missing from the record."""
    drawn = np.random.default_rng(3).dirichlet(np.full(TOPICS, 0.7), len(simulated[2]))
    options = {
        **FIT,
        "family": "lda",
        "iterations": 30,
        "most_active": 2,
        "init": written(tmp_path / "a.parquet", drawn),
    }
    fit(simulated[0], tmp_path / "run", init_strength=strength, **options)
    assert verify(tmp_path / "run").broken == []


def test_learned_parameters__count_pseudo_counts_as_tokens(simulated, tmp_path):
    """alpha is learned from pseudo-counts whose proportions were drawn from a Dirichlet distribution with alpha = 0.7."""
    drawn, tokens = np.random.default_rng(3).dirichlet(np.full(TOPICS, 0.7), len(simulated[2])), 1e4
    options = {
        **FIT,
        "iterations": 60,
        "inverse_temperature": 1.0,
        "learn": ["alpha"],
        "init": written(tmp_path / "a.parquet", drawn),
    }
    model = fit(simulated[0], tmp_path / "run", init_strength=tokens, **options)
    alpha = model.global_state.alpha[0]
    counts = np.concatenate([model.local_state(n).loaded().counts(model.global_state.alpha) for n in range(SHARDS)])
    tables = (alpha * (digamma(alpha + counts) - digamma(alpha))).sum() / TOPICS
    rate = (digamma(TOPICS * alpha + counts.sum(axis=1)) - digamma(TOPICS * alpha)).sum()
    assert alpha == pytest.approx(tables / rate, rel=0.02)
    assert alpha == pytest.approx(0.7, rel=0.25)


def test_estimates__count_the_initialisation(simulated):
    options = {"family": "lda", "topics": TOPICS, "scheduler": "threads"}
    memory = {
        start: estimate(simulated[0], init=start, **options).memory["the start"]
        for start in ("random", *COMPUTED_STARTS)
    }
    assert memory["random"] == 0.0
    with pytest.raises(OptionError, match="starts only at random"):
        estimate(simulated[0], family="ncrp", init="clusters")


def test_a_strength__is_refused_if_the_prior_cannot_include_it(simulated, tmp_path):
    for options, text in (
        ({}, "init_strength: needs `init`: random proportions are not a prior"),
        ({"init": "clusters", "responsibilities": "dense"}, "init_strength: 'lda' with these options"),
        ({"init": "tree", "family": "gibbs-lda"}, "init_strength: 'gibbs-lda' with these options"),
        ({"init": "tree", "init_strength": -1.0}, "init_strength: "),
    ):
        with pytest.raises(OptionError, match=text):
            fit(simulated[0], tmp_path / "run", **{**FIT, "init_strength": 5.0, **options})


def test_single_words_and_empty_documents__are_supported(tmp_path):
    corpus = write_corpus(tmp_path / "one", [{}, {0: 2}, {}], 1)
    file = written(tmp_path / "theta.parquet", [[0.5, 0.5]] * 3)
    for family in ("lda", "hdp", "gibbs-lda", "vb-lda"):
        for start in (file, *COMPUTED_STARTS):
            place = tmp_path / family / Path(start).stem
            model = fit(corpus, place, family=family, topics=2, iterations=2, init=start, scheduler="serial")
            assert Model(model.folder.url).record.iterations == 2


class WeighingExecutor(SerialExecutor):
    """Counts the bytes of arrays that travel with the tasks, by the tasks' first argument."""

    def __init__(self):
        self.sent = Counter()

    def submit(self, function, *args, process=None):
        self.sent[function.__name__] += sum(_array_bytes(arg) for arg in args)
        return super().submit(function, *args, process=process)


def _array_bytes(arg):
    if isinstance(arg, np.ndarray):
        return arg.nbytes
    if isinstance(arg, (tuple, list)):
        return sum(map(_array_bytes, arg))
    return sum(map(_array_bytes, vars(arg).values())) if hasattr(arg, "proportions") else 0


@pytest.mark.parametrize("kind", ["quick-clusters", "clusters", "documents", "tree"])
def test_arrays_of_a_computed_initialisation__are_sent_once_and_not_with_each_shards_task(tmp_path, kind):
    """A worker keeps the arguments of its tasks, so copies would add up over the shards."""
    generator = np.random.default_rng(1)
    rows = [Counter(generator.integers(200, size=40).tolist()) for _ in range(120)]
    sent = {}
    for tokens in (100_000, 400):
        corpus = write_corpus(tmp_path / f"{tokens}", rows, 200, shard_tokens=tokens)
        problem = problem_of(corpus, "lda", {"topics": 4})
        executor = WeighingExecutor()
        start = ComputedStart(StartSource(kind), 4, problem.shards, executor, problem.stream, [].append)
        assert sum(part.proportions.documents for part in executor.collect(list(start))) == 120
        sent[tokens] = sum(executor.sent.values()), len(problem.shards)
    (alone, sends), (together, shards) = sent.values()
    assert sends == 1
    assert shards > 8
    # a few numbers per shard, but no copies of words, directions or mixtures
    assert together < 2 * alone + 1000 * shards


def test_a_computed_initialisation__is_computed_again_for_a_shard_that_was_lost(tmp_path):
    rows = [{n % 30: 2, (n + 1) % 30: 1} for n in range(60)]
    problem = problem_of(write_corpus(tmp_path / "c", rows, 30, shard_tokens=60), "lda", {"topics": 3})
    start = ComputedStart(StartSource("clusters"), 3, problem.shards, problem.executor, problem.stream, [].append)
    first, again = (problem.executor.collect([start[number] for number in range(len(start))]) for _ in range(2))
    assert len(first) == len(problem.shards) == 3
    for before, after in zip(first, again, strict=True):
        np.testing.assert_array_equal(before.proportions.topics, after.proportions.topics)
        np.testing.assert_array_equal(before.proportions.shares, after.proportions.shares)

"""Fits of the HDP in which topics merge and go, judged by tokens that are held out of the counts meanwhile."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from collapsium.pipeline import Corpus, Model, fit, resume, verify
from collapsium.pipeline.engine.loop.loop import run
from collapsium.pipeline.engine.model_io.checkpoints import CheckpointKeeper, NoKeeper
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.setup.warm_start import WarmSource, warm_references
from collapsium.pipeline.estimators import CollapsedHDP
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.pipeline.families.cvb import topic_moves as rounds
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.run import Run
from collapsium.workers import tasks
from collapsium.workers.families.cvb import topic_moves as moves
from collapsium.workers.families.cvb.parameters import counted
from tests.conformance import (
    TIMES,
    Conformance,
    Losing,
    bits,
    document_counts,
    problem_of,
    reference_bits,  # noqa: F401 - fixture
    scores_of,
    state_bits,
)
from tests.conftest import planted_rows, write_corpus, write_halves
from tests.naive import lists as naive_lists
from tests.strategies import documents_of

ITERATIONS = 90
# Few are enough for a test: topics part early on so small a corpus.
OPTIONS = {"topics": 12, "beta": 3.0, "moves": True}
FIT = {"family": "hdp", "iterations": ITERATIONS, "seed": 7, **OPTIONS}


DEFAULTS = {name: getattr(rounds, name) for name in ("BEGIN", "WORTH", "IDLE", "PARTING")}


@pytest.fixture(scope="module", autouse=True)
def early():
    """Rounds that begin early and end soon, and follow what little so small a corpus has to tell."""
    rounds.BEGIN, rounds.WORTH, rounds.IDLE, rounds.PARTING = 20, 0.0, 1, 5
    yield
    for name, value in DEFAULTS.items():
        setattr(rounds, name, value)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A corpus of three topics in four shards, some of its documents empty, and tokens of the same documents."""
    place = tmp_path_factory.mktemp("planted")
    return corpora(place, 5)


def corpora(place, seed, documents=120, topics=3):
    """A training corpus, and one of other tokens of the same documents."""
    rows = planted_rows(seed, documents=documents, words=30, topics=topics, tokens=80)
    return write_halves(place, rows, 30)


def lived(corpus, options=OPTIONS, local_sweeps=1, warm=None, limits=None, **given):
    """The problem, and the state after each iteration, run serially."""
    problem, executor, globals_ = problem_of(corpus, "hdp", options, iterations=ITERATIONS, **given)
    problem = replace(problem, local_sweeps=local_sweeps, warm=warm)
    limits = limits or Limits(iterations=ITERATIONS)
    return problem, (state for state, _ in run(problem, executor, globals_, limits))


def counting(problem, state):
    """The shards with the tokens that count in a state."""
    held = [moves.held_out(shard.value, state.globals, float(state.globals["held_before"])) for shard in problem.shards]
    shards = zip(problem.shards, held, strict=True)
    return [replace(shard.value, counts=shard.value.counts - one) for shard, one in shards]


def check_counts(problem, state):
    """All counts of a state equal a recount from its local states, of the tokens that count; what has gone is empty."""
    rows, globals_ = state.blocks[0].value.rows, state.globals
    held = counted(rows)
    total, background, tokens = np.zeros(held.shape), np.zeros(len(held)), 0
    for shard, swept in zip(counting(problem, state), state.swept, strict=True):
        local = swept.value.local
        by_word, rest, documents = Conformance().recount(shard, local)
        total[np.ix_(shard.words, np.arange(by_word.shape[1]))] += by_word
        background[shard.words] += rest
        found = document_counts(local, held.shape[1])[:, : documents.shape[1]]
        np.testing.assert_allclose(found, documents, rtol=1e-5, atol=1e-5)
        left = shard.lengths - documents.sum(axis=1)
        np.testing.assert_allclose(local["document_rest"], left, rtol=1e-4, atol=1e-4)
        tokens += shard.tokens
    np.testing.assert_allclose(held, total, rtol=1e-5, atol=2e-3)
    np.testing.assert_allclose(rows["word_rest"], background, rtol=1e-6, atol=1e-6)
    of_topics = globals_["topic_moments"][0]
    assert math.isclose(of_topics.sum(), tokens, rel_tol=1e-6)
    assert math.isclose(float(globals_.get("unsettled", 0.0)), missing(problem) - tokens)
    if not globals_["moving"]:
        gone = ~globals_["topic_alive"]
        assert np.abs(held[:, gone]).max(initial=0.0) < 1e-3
        assert np.abs(of_topics[gone]).max(initial=0.0) < 1e-3
        assert (globals_["pi"][gone] == 0.0).all()
        for swept in state.swept:
            listed = document_counts(swept.value.local, held.shape[1])
            assert not listed[:, gone].any()


def missing(problem):
    """All tokens of a corpus."""
    return sum(shard.value.tokens for shard in problem.shards)


@pytest.mark.parametrize(
    ("options", "local_sweeps"),
    [
        ({}, 1),
        ({}, 3),
        ({"momentum": 0.0, "most_active": 4}, 1),
        ({"topics": 140}, 1),
        ({"learn": ("pi",)}, 1),
        ({"learn": ("alpha", "gamma", "pi", "beta", "tau")}, 1),
    ],
    ids=str,
)
def test_counts__equal_a_recount_after_every_iteration(planted, options, local_sweeps):
    options = {**OPTIONS, **options}
    problem, states = lived(planted[0], options, local_sweeps)
    seen = set()
    for state in states:
        check_counts(problem, state)
        now = state.globals
        assert math.isclose(now["pi"][now["topic_alive"]].sum(), now["pi"].sum())
        seen.add((int(now["ask"]), bool(now["moving"]), float(now["held_share"]) > 0))
    assert seen == {(0, False, True), (1, False, True), (2, False, True), (0, True, True), (0, True, False),
                    (0, False, False)}  # fmt: skip
    assert now["merges"] + now["deletes"] - now["splits"] + now["topic_alive"].sum() == options["topics"]
    assert now["split_tried"] or options["topics"] > 12
    assert now["merges"] > 0
    assert now["deletes"] > 0
    assert float(now["unsettled"]) == 0.0


@pytest.mark.parametrize("shards", [1, 11])
def test_counts__are_conserved_by_any_number_of_shards(tmp_path, shards):
    rows = planted_rows(8, documents=120, words=30, topics=3, tokens=60)
    corpus = write_corpus(tmp_path / "corpus", rows, 30, shard_tokens=None if shards == 1 else 600)
    problem, states = lived(str(corpus))
    assert len(problem.shards) >= shards
    for state in states:
        check_counts(problem, state)
    assert state.globals["merges"] + state.globals["deletes"] > 0


def test_counts_and_variances_where_words_are_learned__equal_a_recount(planted):
    options = {**OPTIONS, "learn": ("alpha", "gamma", "pi", "beta"), "most_active": 5}
    problem, states = lived(planted[0], options)
    for state in itertools.islice(states, 0, None, 4):
        check_counts(problem, state)
        rows = state.blocks[0].value.rows
        shape = counted(rows).shape
        total = np.zeros((2, *shape))
        for shard, swept in zip(counting(problem, state), state.swept, strict=True):
            local = swept.value.local
            where = local["document_lists"], local["document_topics"]
            starts = np.concatenate([[0], np.cumsum(np.diff(shard.offsets) * np.diff(where[0]))])
            given = shard.offsets, shard.position, shard.counts, *where, starts, local["pair_shares"]
            total[:, shard.words] += naive_lists.moments((shard.words.size, shape[1]), *given)
        np.testing.assert_allclose(rows["word_topic_variance"], total[0], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(rows["word_topic_log_absent"], total[1], rtol=1e-6, atol=1e-6)
    assert state.globals["merges"] + state.globals["deletes"] > 0


@pytest.mark.parametrize("topics", [12, 140])
def test_counts_of_a_warm_start__equal_a_recount(planted, tmp_path, topics):
    fit(planted[0], tmp_path / "lda", family="lda", topics=8, beta=3.0, iterations=20, scheduler="serial")
    known = warm_references(WarmSource.of(tmp_path / "lda"), Corpus(planted[0]), topics)
    problem, states = lived(planted[0], {**OPTIONS, "topics": topics}, warm=known)
    for state in states:
        check_counts(problem, state)
    assert state.globals["merges"] + state.globals["deletes"] > 0


def test_probabilities__sum_to_one_at_any_time(planted):
    """Also between the decision and the sweep that carries it out, as every iteration may be scored."""
    problem, states = lived(planted[0])
    documents = problem.shards[0].value.documents
    every = Shard.of(0, documents_of([dict.fromkeys(range(30), 1)] * documents))
    moving = 0
    for state in states:
        blocks = [tasks.counted(block.value) for block in state.blocks]
        rows = tasks.gather(blocks, every.words, complete=True)
        table = problem.shard_model.predict(every, state.swept[0].value.local, rows, state.globals)
        sums = np.add.reduceat(table["probability"], every.offsets[:-1])
        np.testing.assert_allclose(sums, 1.0, rtol=1e-5)
        moving += bool(state.globals["moving"])
    assert moving >= 2


def test_tokens_held_out__are_those_of_their_addresses_throughout(planted):
    """The same ones until they count again; about the share that is told; each shard and seed has its own."""
    problem, states = lived(planted[0])
    before = None
    for state in states:
        held = [
            shard.value.counts - one.counts for shard, one in zip(problem.shards, counting(problem, state), strict=True)
        ]
        held = np.concatenate(held)
        assert before is None or not held.any() or np.array_equal(held, before)
        before = held if held.any() else before
    tokens = missing(problem)
    assert abs(before.sum() / tokens - rounds.SHARE) < 4 * math.sqrt(rounds.SHARE / tokens)
    assert not held.any()


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"topics": 140}], ids=str)
def test_bits__do_not_depend_on_where_local_states_lie_nor_on_lost_work(planted, options, tmp_path, monkeypatch):
    monkeypatch.setattr("collapsium.workers.families.cvb.document_lists.PORTION", 2000)
    found = []
    for scratch, every in ((None, 0), (str(tmp_path / "scratch"), 0), (None, 21)):
        executor = Losing(SerialExecutor(), every) if every else None
        problem, executor, globals_ = problem_of(
            planted[0], "hdp", {**OPTIONS, **options}, scratch=scratch, executor=executor, iterations=ITERATIONS
        )
        keeper = CheckpointKeeper(Run(tmp_path / "c"), executor, problem, every=7) if every else NoKeeper()
        state = [one for one, _ in run(problem, executor, globals_, Limits(iterations=ITERATIONS), keeper)][-1]
        assert not every or executor.losses == 4
        assert state.globals["merges"] + state.globals["deletes"] > 0
        found.append(state_bits(state))
    assert found[0] == found[1]
    assert found[0] == found[2]


@pytest.fixture(scope="module")
def whole(planted, tmp_path_factory, early):
    """A serial run in which moves were accepted."""
    out = tmp_path_factory.mktemp("whole") / "run"
    fit(planted[0], out, heldout=planted[1], scheduler="serial", **FIT)
    told = iterations_of(out)
    assert told[-1]["merges"] > 0
    assert told[-1]["deletes"] > 0
    return out


def iterations_of(run_):
    """The events of iterations, without their times."""
    events = [event for event in Run(run_).events() if event["event"] == "iteration"]
    return [{name: value for name, value in event.items() if name not in TIMES} for event in events]


def shards_of(corpus):
    return len(Corpus(corpus).manifest.shards)


@pytest.mark.long
@pytest.mark.parametrize("where", [("threads", 1), ("threads", 3), ("processes", 2)], ids=str)
@pytest.mark.xdist_group("clusters")
def test_bits__do_not_depend_on_the_executor(planted, whole, where, tmp_path, clusters):
    kind, workers = where
    scheduler = clusters(workers) if kind == "processes" else kind
    workers = workers if kind == "threads" else None
    model = fit(planted[0], tmp_path / "run", heldout=planted[1], scheduler=scheduler, workers=workers, **FIT)
    assert bits(model, shards_of(planted[0])) == bits(Model(whole), shards_of(planted[0]))
    assert iterations_of(tmp_path / "run") == iterations_of(whole)


def phases(planted):
    """The first iteration after which each step is pending: both questions, moves, the end, a split, its judgement."""
    _, states = lived(planted)
    found = {}
    for state in states:
        now = state.globals
        step = (int(now["ask"]), bool(now["moving"]), float(now["held_share"]) > 0)
        found.setdefault(step, state.iteration)
        if now["split_pairs"].size:
            found.setdefault("split" if now["moving"] else "judged" if now["ask"] else "parting", state.iteration)
    steps = (1, False, True), (2, False, True), (0, True, True), (0, True, False)
    return [found[step] for step in (*steps, "split", "judged")]


@pytest.mark.long
def test_a_run_that_stops_in_any_step_of_a_round__is_resumed_to_the_same_bits_and_events(planted, whole, tmp_path):
    expected = bits(Model(whole), shards_of(planted[0]))
    for number in phases(planted[0]):
        out = stopped(planted, tmp_path / str(number), number)
        assert Run(out).checkpoints.candidates()[0][0] == number
        assert verify(out).broken == []  # also while tokens do not count
        model = resume(out, scheduler="serial")
        assert bits(model, shards_of(planted[0])) == expected
        assert iterations_of(out) == iterations_of(whole)
        assert verify(out).broken == []


def stopped(planted, out, number):
    """A run that was stopped after an iteration, which it keeps."""

    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == number:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(planted[0], out, heldout=planted[1], sinks=[sink], scheduler="serial", **FIT)
    return out


def test_figures__tell_of_topics_and_moves(whole, planted, tmp_path):
    told = iterations_of(whole)
    for before, after in zip(told, told[1:], strict=False):
        pending = after["topics"] + after["merges"] + after["deletes"] - after["splits"] - OPTIONS["topics"]
        assert pending >= 0  # halves, until they are judged
        assert after["splits"] >= before["splits"]
        assert after["merges"] >= before["merges"]
        assert after["deletes"] >= before["deletes"]
        assert after["topics_99"] <= max(after["topics"], before["topics"])
    assert pending == 0
    fit(planted[0], tmp_path / "run", scheduler="serial", **{**FIT, "moves": False})
    assert "merges" not in iterations_of(tmp_path / "run")[-1]
    assert "topics_99" in iterations_of(tmp_path / "run")[-1]


def test_a_run_under_its_tolerance__does_not_end_while_tokens_are_held_out(planted, tmp_path):
    """Nor while moves are pending; it ends once all tokens count, and then every token has a topic."""
    given = {**FIT, "tolerance": 0.5, "scheduler": "serial"}
    for name, stop_on in (("counts", "counts"), ("score", "score")):
        model = fit(planted[0], tmp_path / name, heldout=planted[1], stop_on=stop_on, **given)
        assert phases(planted[0])[3] < model.record.iterations < ITERATIONS
        assert math.isclose(model.rows(0)["word_topic"].sum(), Corpus(planted[0]).manifest.tokens, rel_tol=1e-5)
        assert scores_of(tmp_path / name)[-1] < 0.0
        assert verify(tmp_path / name).broken == []
    model = fit(planted[0], tmp_path / "off", **{**given, "moves": False})
    assert model.record.iterations < phases(planted[0])[0]


def test_the_loop__asks_the_family_whether_a_run_may_end(planted):
    """`unsettled` above 0 keeps it from its tolerance, and a run that is out of iterations from a model."""
    problem, executor, globals_ = problem_of(planted[0], "hdp", {"topics": 4, "beta": 3.0})
    limits = Limits(iterations=9, tolerance=1.0)

    def made(waiting):
        family = Waiting(problem.family, waiting)
        return [state for state, _ in run(replace(problem, family=family), executor, globals_, limits)]

    assert made(0)[-1].iteration == 1
    assert made(5)[-1].iteration == 5
    assert made(9)[-1].iteration == 9
    with pytest.raises(OptionError, match="--iterations 9: the run was planned with more"):
        made(10)


class Waiting:
    """A family on the driver that is settled from an iteration on."""

    def __init__(self, family, until):
        self.family, self.until = family, until

    def __getattr__(self, name):
        return getattr(self.family, name)

    def update(self, globals_, delta, config, stream):
        after = self.family.update(globals_, delta, config, stream)
        return {**after, "unsettled": np.array(float(after["sweeps"] < self.until))}


def test_a_resumed_run_of_fewer_iterations__leaves_no_model_without_some_of_the_tokens(planted, whole, tmp_path):
    last = phases(planted[0])[3]
    out = stopped(planted, tmp_path / "run", last - 2)
    with pytest.raises(OptionError, match=f"--iterations {last - 1}: the run was planned with more"):
        resume(out, iterations=last - 1, scheduler="serial")
    assert not (out / "model").exists()
    model = resume(out, iterations=ITERATIONS, scheduler="serial")
    assert bits(model, shards_of(planted[0])) == bits(Model(whole), shards_of(planted[0]))


def test_a_resumed_run_of_more_iterations__goes_on_with_all_tokens(planted, whole, tmp_path):
    """Rounds end when they would have: the run was planned so."""
    out = stopped(planted, tmp_path / "run", phases(planted[0])[1])
    model = resume(out, iterations=ITERATIONS + 20, scheduler="serial")
    assert iterations_of(out)[: len(iterations_of(whole))] == iterations_of(whole)
    assert model.record.iterations == ITERATIONS + 20
    assert verify(out).broken == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"responsibilities": "dense"}, "--moves true: takes active responsibilities"),
        ({"order": 2}, "--moves true: takes active responsibilities"),
        ({"schedule": "stochastic"}, "--moves true: takes active responsibilities, the batch schedule"),
        ({"learn": ("alpha", "gamma")}, "pi among what is learned"),
        ({"iterations": 20}, "--moves true: 20 iterations end before topics can be judged"),
        ({"iterations": 1}, "--moves true: 1 iterations end before"),
    ],
    ids=str,
)
def test_moves__are_refused_where_there_can_be_none(planted, tmp_path, options, text):
    with pytest.raises(OptionError) as raised:
        fit(planted[0], tmp_path / "run", scheduler="serial", **{**FIT, **options})
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "iterations", "on"),
    [
        ({}, 99, False),
        ({}, 100, True),
        ({}, 0, False),  # not known
        ({"moves": False}, 500, False),
        ({"moves": True}, 50, True),
        ({"responsibilities": "dense"}, 500, False),
        ({"order": 2}, 500, False),
        ({"learn": ("alpha",)}, 500, False),
        ({"topics": 1}, 500, False),
    ],
    ids=str,
)
def test_moves__are_on_by_themselves_where_there_is_time_for_them(planted, options, iterations, on):
    _, _, globals_ = problem_of(planted[0], "hdp", {"topics": 12, **options}, iterations=iterations)
    assert ("held_share" in globals_) == on


def test_moves__are_off_by_themselves_in_the_stochastic_schedule(planted):
    _, _, globals_ = problem_of(planted[0], "hdp", {"topics": 12}, iterations=500, stochastic=True)
    assert "held_share" not in globals_


def test_alpha__is_what_it_would_be_once_all_tokens_count(planted):
    """Held at its start where it is not learned, or not yet; learned, it begins there."""
    for options in ({"learn": ("pi",)}, {"hold": 200}):
        _, states = lived(planted[0], {**OPTIONS, **options})
        for state in states:
            alive = state.globals["topic_alive"].sum()
            held = float(state.globals["held_before"]) > 0
            assert state.iteration == 0 or state.globals["alpha"] == pytest.approx(
                rounds.PRIOR * alive if held else 1.0
            )


def test_an_estimator__has_the_topics_that_are_left(planted):
    """And makes steps from them: a topic that has gone stays empty."""
    rows = planted_rows(5, documents=120, words=30, topics=3, tokens=40)
    counts = np.array([[row.get(word, 0) for word in range(30)] for row in rows])
    model = CollapsedHDP(n_components=12, beta=3.0, max_iter=100, random_state=0).fit(counts)
    shape = model.components_.shape
    assert 3 <= shape[0] < 12
    np.testing.assert_allclose(model.components_.sum(), counts.sum() + 3.0 * shape[0], rtol=1e-5)
    np.testing.assert_allclose(model.transform(counts).sum(axis=1), 1.0, rtol=1e-6)
    model.partial_fit(counts[:40])
    assert model.components_.shape == shape
    np.testing.assert_allclose(model.transform(counts).sum(axis=1), 1.0, rtol=1e-6)


def test_samples_and_restarts__are_whole_models(planted, tmp_path):
    """A sample that is kept while tokens are held out is one of the others, as `verify` knows."""
    given = {**FIT, "heldout": planted[1], "scheduler": "serial"}
    fit(planted[0], tmp_path / "samples", samples=3, sample_every=35, **given)
    fit(planted[0], tmp_path / "restarts", restarts=2, **given)
    for name in ("samples", "restarts"):
        assert verify(tmp_path / name).broken == []

"""Fits of the HDP in which topics are merged and deleted, judged by tokens that are held out of the counts meanwhile."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from collapsium.pipeline import Corpus, fit
from collapsium.pipeline.engine.checkpoints import Checkpointer, RunCheckpointer
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.setup.warm_start import WarmSource, warm_references
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.run import Run
from collapsium.workers import tasks
from collapsium.workers.families.cvb import schedule
from tests.conformance import Conformance, references  # noqa: F401 - fixture
from tests.conftest import simulated_rows, write_corpus
from tests.counting import document_counts
from tests.fits import LosingExecutor, problem_of, state_bits
from tests.naive import active_topics as naive_active
from tests.strategies import documents_of
from tests.workers.families.cvb.conftest import (
    ITERATIONS,
    OPTIONS,
    check_recount,
    fit_with_moves,
    shards_without_held_out_tokens,
    tokens_of_corpus,
)

pytestmark = pytest.mark.usefixtures("short_rounds")


def check_counts(problem, state):
    """Require that all counts equal a recount, and that deleted topics are empty."""
    check_recount(problem, state)
    global_state, held = state.global_state, state.blocks[0].value.rows.active_counts
    of_topics = global_state.topic_moments[0]
    if not global_state.moves.moving:
        gone = ~global_state.moves.topic_alive
        assert np.abs(held[:, gone]).max(initial=0.0) < 1e-3
        assert np.abs(of_topics[gone]).max(initial=0.0) < 1e-3
        assert (global_state.pi[gone] == 0.0).all()
        for swept in state.swept:
            listed = document_counts(swept.value.local, held.shape[1])
            assert not listed[:, gone].any()


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
def test_counts__equal_a_recount_after_every_iteration(simulated, options, local_sweeps):
    options = {**OPTIONS, **options}
    problem, states = fit_with_moves(simulated[0], options, local_sweeps)
    seen = set()
    for state in states:
        check_counts(problem, state)
        now = state.global_state.moves
        assert math.isclose(state.global_state.pi[now.topic_alive].sum(), state.global_state.pi.sum())
        seen.add((now.ask, now.moving, state.global_state.held.held_share > 0))
    assert seen == {(0, False, True), (1, False, True), (2, False, True), (0, True, True), (0, True, False),
                    (0, False, False)}  # fmt: skip
    assert now.merges + now.deletes - now.splits + now.topic_alive.sum() == options["topics"]
    assert now.split_tried or options["topics"] > 12
    assert now.merges > 0
    assert now.deletes > 0
    assert state.global_state.held.held_tokens == 0.0


def test_a_small_held_out_share__is_released_too(simulated, monkeypatch):
    """A share as low as in large corpora is hardly above what the temperature search holds out, but is released
    all the same."""
    monkeypatch.setattr(schedule, "MAX_SPLIT_MERGE_HELD_SHARE", 0.06)
    problem, states = fit_with_moves(simulated[0])
    seen = []
    for state in states:
        held = state.global_state.held
        seen.append((held.held_share, held.held_before > held.held_share, state.global_state.alpha))
    check_counts(problem, state)
    assert [value for value, _ in itertools.groupby(share for share, _, _ in seen)] == [0.06, 0.0]
    assert sum(releasing for _, releasing, _ in seen) == 1
    assert state.global_state.moves.merges > 0
    # After the rounds, alpha is reset to its initial value; before, it had adapted to the topics that were left.
    assert min(alpha for _, _, alpha in seen) < 1.0
    assert state.global_state.alpha == 1.0


@pytest.fixture(scope="module")
def fit_states(simulated, short_rounds):
    """The problem of a fit with moves, and all its states."""
    problem, states = fit_with_moves(simulated[0])
    return problem, list(states)


@pytest.mark.parametrize("shards", [1, 7])
def test_counts__are_conserved_by_any_number_of_shards(tmp_path, shards):
    rows = simulated_rows(8, documents=120, words=30, topics=3, tokens=60)
    corpus = write_corpus(tmp_path / "corpus", rows, 30, shard_tokens=None if shards == 1 else 1000)
    problem, states = fit_with_moves(str(corpus))
    assert len(problem.shards) >= shards
    for state in states:
        check_counts(problem, state)
    assert state.global_state.moves.merges + state.global_state.moves.deletes > 0


def test_counts_and_variances_where_words_are_learned__equal_a_recount(simulated):
    options = {**OPTIONS, "learn": ("alpha", "gamma", "pi", "beta"), "most_active": 5}
    problem, states = fit_with_moves(simulated[0], options)
    for state in itertools.islice(states, 0, None, 4):
        check_counts(problem, state)
        rows = state.blocks[0].value.rows
        shape = rows.active_counts.shape
        total = np.zeros((2, *shape))
        for shard, swept in zip(shards_without_held_out_tokens(problem, state), state.swept, strict=True):
            local = swept.value.local
            where = local.document_lists, local.document_topics
            starts = np.concatenate([[0], np.cumsum(np.diff(shard.offsets) * np.diff(where[0]))])
            documents = shard.offsets, shard.position, shard.counts, *where, starts, local.pair_shares
            total[:, shard.words] += naive_active.moments((shard.words.size, shape[1]), *documents)
        np.testing.assert_allclose(rows.word_topic_variance, total[0], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(rows.word_topic_log_absent, total[1], rtol=1e-6, atol=1e-6)
    assert state.global_state.moves.merges + state.global_state.moves.deletes > 0


@pytest.mark.parametrize("topics", [12, 140])
def test_counts_of_a_warm_started_fit__equal_a_recount(simulated, tmp_path, topics):
    fit(simulated[0], tmp_path / "lda", family="lda", topics=8, beta=3.0, iterations=20, scheduler="serial")
    known = warm_references(WarmSource.of(tmp_path / "lda"), Corpus(simulated[0]), topics)
    problem, states = fit_with_moves(simulated[0], {**OPTIONS, "topics": topics}, warm=known)
    for state in states:
        check_counts(problem, state)
    assert state.global_state.moves.merges + state.global_state.moves.deletes > 0


def test_probabilities__sum_to_one_after_every_iteration(fit_states):
    """This also holds between a decision and the sweep that carries it out, because every iteration may be scored."""
    problem, states = fit_states
    documents = problem.shards[0].value.documents
    every = Shard.of(0, documents_of([dict.fromkeys(range(30), 1)] * documents))
    moving = 0
    for state in states:
        blocks = [tasks.scored_rows(block.value) for block in state.blocks]
        rows = tasks.gather(blocks, every.words, complete=True)
        table = problem.family.predict(every, state.swept[0].value.local, rows, state.global_state)
        sums = np.add.reduceat(table["probability"], every.offsets[:-1])
        np.testing.assert_allclose(sums, 1.0, rtol=1e-5)
        moving += state.global_state.moves.moving
    assert moving >= 2


def test_held_out_tokens__stay_the_same_until_their_release(fit_states):
    """The same tokens remain held out until all are released, and make up about the intended share."""
    problem, states = fit_states
    before = None
    for state in states:
        held = [
            shard.value.counts - held.counts
            for shard, held in zip(problem.shards, shards_without_held_out_tokens(problem, state), strict=True)
        ]
        held = np.concatenate(held)
        assert before is None or not held.any() or np.array_equal(held, before)
        before = held if held.any() else before
    tokens = tokens_of_corpus(problem)
    share = schedule.MAX_SPLIT_MERGE_HELD_SHARE
    assert abs(before.sum() / tokens - share) < 4 * math.sqrt(share / tokens)
    assert not held.any()


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"topics": 140}], ids=str)
def test_bits__do_not_depend_on_where_local_states_are_stored_nor_on_lost_work(
    simulated, options, tmp_path, monkeypatch
):
    monkeypatch.setattr("collapsium.workers.families.cvb.active_topics.CHUNK_RESPONSIBILITIES", 2000)
    found = []
    for scratch, every in ((None, 0), (str(tmp_path / "scratch"), 0), (None, 21)):
        executor = LosingExecutor(SerialExecutor(), every) if every else None
        problem = problem_of(
            simulated[0], "hdp", {**OPTIONS, **options}, scratch=scratch, executor=executor, iterations=ITERATIONS
        )
        checkpointer = RunCheckpointer(Run(tmp_path / "c"), problem, every=7) if every else Checkpointer()
        state = [state for state, _ in Fit(problem, Limits(iterations=ITERATIONS), checkpointer)][-1]
        assert not every or executor.losses == 4
        assert state.global_state.moves.merges + state.global_state.moves.deletes > 0
        found.append(state_bits(state))
    assert found[0] == found[1]
    assert found[0] == found[2]


def test_the_loop__does_not_end_while_tokens_are_held_out(simulated):
    """Held-out tokens keep a run from ending by its tolerance, and from saving a model when its iterations are used
    up."""
    problem = problem_of(simulated[0], "hdp", {"topics": 4, "beta": 3.0})
    limits = Limits(iterations=9, tolerance=1.0)

    def made(waiting):
        family = UncountedUntil(problem.family, waiting)
        return [state for state, _ in Fit(replace(problem, family=family), limits)]

    assert made(0)[-1].iteration == 1
    assert made(5)[-1].iteration == 5
    assert made(9)[-1].iteration == 9
    with pytest.raises(OptionError, match="iterations: expected as many as the run was planned with, found 9"):
        made(10)


class UncountedUntil:
    """A family whose tokens are not all counted until the given iteration."""

    def __init__(self, family, until):
        self.family, self.until = family, until

    def __getattr__(self, name):
        return getattr(self.family, name)

    def uncounted_tokens(self, global_state):
        return float(global_state.sweeps < self.until)


@pytest.mark.parametrize("options", [{"learn": ("pi",)}, {"learn": ("alpha", "pi", "tau")}, {"hold": 200}], ids=str)
def test_alpha__is_fixed_while_redundant_topics_are_removed(simulated, options):
    """Before, alpha keeps its initial value while topic shares are learned; afterwards a learned alpha starts there
    again."""
    _, states = fit_with_moves(simulated[0], {**OPTIONS, **options})
    first = next(states)
    start, before, seen = first.global_state.alpha, False, set()
    for state in states:
        now, held = state.global_state, state.global_state.held.held_before > 0
        superfluous, before = before or now.moves.superfluous, now.moves.superfluous
        seen.add((held, superfluous))
        if held or "alpha" not in options.get("learn", ("pi",)):
            alive = now.moves.topic_alive.sum()
            assert now.alpha == pytest.approx(schedule.REDUNDANT_TOPIC_PRIOR * alive if held and superfluous else start)
        if held:
            assert now.tau_total == 0.0
            uniform = np.ptp(now.pi[now.moves.topic_alive]) < 1e-12
            assert uniform == (superfluous or now.sweeps <= now.hold)
    assert seen == {(True, False), (True, True), (False, False)}

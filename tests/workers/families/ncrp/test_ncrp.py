import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import digamma

from collapsium.pipeline import Corpus, evaluate, fit
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.models.registry import make_options
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.run import Run
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from collapsium.workers.families.ncrp.ncrp import Ncrp
from collapsium.workers.families.ncrp.tree import FREE, NOWHERE
from tests.conformance import Conformance, references  # noqa: F401 - fixtures
from tests.conftest import mark_rest_long, simulated_rows, write_corpus
from tests.fits import problem_of, states
from tests.naive import tree as naive

FALL = 1e-7  # relative decrease of the objective that rounding explains


class TestNCRP(Conformance):
    family = "ncrp"
    separate_processes = True
    matrix = (
        {},
        {"form": "factorised", "depth": 2, "learn": ("alpha", "gamma")},
        {"posterior": "dirichlet", "depth": 4, "learn": ("alpha", "eta", "gamma"), "new_paths": 2},
        {"depth": 4, "max_nodes": 9, "leaves": 4, "prune": 0.5, "compare": False},
        {
            "initial_tree": "gradual",
            "form": "factorised",
            "posterior": "dirichlet",
            "max_nodes": 40,
            "document_sweeps": 3,
        },
    )

    lost_every = (5, 6)  # the initialisation takes three rounds

    def sized(self, topics):
        return {"leaves": topics}

    def test_counts__equal_a_recount_from_the_local_state(self, small, options):
        """The naive version recomputes each iteration's responsibilities from the preceding state, through all moves."""
        problem, found = states(small[0], self.family, options, 22)
        tokens = Corpus(small[0]).vocabulary.tokens
        gradual = options.get("initial_tree") == "gradual"
        assert len({state.global_state.fitted.depth for state, _ in found}) == (
            1 if gradual else min(2, problem.config.depth - 1)
        )
        rests = [state.blocks[0].value.rows.word_rest for state, _ in found]
        for (state, _), rest in zip(found, rests, strict=True):
            missing = tokens - state.blocks[0].value.rows.word_topic.sum(axis=1) - rest
            assert missing.sum() == pytest.approx(state.global_state.initialisation.absent_tokens, abs=1e-3)
            assert (missing > -1e-4).all()
        # In a gradual initialisation, nodes are added in a round between two states.
        later = next(
            n
            for n, (state, _) in enumerate(found)
            if not (state.global_state.initialisation.absent_tokens or state.global_state.initialisation.seeding)
        )
        assert later == 0 or gradual
        assert later < 15
        found = found[later:]
        for number, (state, _) in enumerate(found):
            rows, global_state = state.blocks[0].value.rows.word_topic, state.global_state
            tree, total, ends = global_state.fitted.tree, np.zeros(rows.shape), 0.0
            for place, shard in enumerate(shard.value for shard in problem.shards):
                local = state.swept[place].value.local
                np.testing.assert_allclose(local.document_level.sum(axis=1), shard.lengths, rtol=1e-6)
                listed = np.add.reduceat(local.ends.document_masses, local.ends.document_lists[:-1])
                # almost equally probable ends may be truncated to 16 before sticks are fitted
                assert (listed > 0.5).all()
                assert (listed < 1.0 + 1e-6).all()
                assert (tree.levels[local.ends.document_ends] >= 0).all()
                ends += listed.sum()
                if number:
                    before = found[number - 1][0]
                    passes = options.get("document_sweeps", 1)
                    sums = self.sweep_naive(shard, before.swept[place].value.local, before, passes)
                    np.testing.assert_allclose(local.document_level, sums.document_level, rtol=1e-5, atol=1e-5)
                    total[np.ix_(shard.words, tree.columns)] += sums.row_node
            assert (rows >= 0.0).all()
            assert (rows.sum(axis=1) <= tokens * (1 + 1e-6)).all()  # some documents end outside the tree
            assert (rows[:, tree.levels < 0] == 0.0).all()
            if number:
                np.testing.assert_allclose(rows, total, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(global_state.node_tokens, rows.sum(axis=0), rtol=1e-12)
            np.testing.assert_allclose(global_state.node_passes[0], 60.0, rtol=1e-12)
            assert ends == pytest.approx(60.0, rel=0.05)

    def sweep_naive(self, shard, local, before, passes):
        """Return the sums of the sweep after a state by the naive version, with moves, topics and levels computed
        here."""
        global_state, moves = before.global_state, before.global_state.moves
        tree = global_state.upcoming.tree
        depth, words = tree.depth, global_state.vocabulary
        alpha = np.append(global_state.alpha[: depth - 1], global_state.alpha[depth - 1 :].sum())
        eta = np.append(global_state.eta[: depth - 1], global_state.eta[-1])
        matrix = np.diag((~np.isin(np.arange(tree.parents.size), moves.move_target)).astype(float))
        for source, target, weight in zip(moves.move_source, moves.move_target, moves.move_weight, strict=True):
            if source != NOWHERE:
                matrix[source, target] += weight
        held = before.blocks[0].value.rows.word_topic @ matrix[:, tree.columns]
        prior = eta[tree.level]
        logarithm = np.log if global_state.point else digamma
        log_node = logarithm(held + prior) - logarithm(held.sum(axis=0) + words * prior)
        outside = np.full(depth, -np.log(words)) if global_state.point else digamma(eta) - digamma(words * eta)
        pairs = shard.offsets, shard.position, shard.counts
        nodes = tree.parent, tree.level, global_state.upcoming.next_end_log[tree.columns]
        rows = log_node[shard.words]
        if global_state.factorised:
            begin = widened(local.pair_level, alpha).astype(np.float32)
            return naive.sweep_levels(*pairs, rows, *nodes, outside, alpha, begin, passes)
        begin = widened(local.document_level, alpha)
        return naive.sweep_paths(*pairs, np.exp(rows), *nodes, np.exp(outside), alpha, begin, passes, 0.0)

    def test_local_sweeps__conserve_counts(self, small, options):
        """Tokens in the tree and outside it sum to the documents' tokens by level."""
        problem = problem_of(small[0], self.family, {**options, "document_sweeps": 1})
        for state, _ in Fit(replace(problem, local_sweeps=3), Limits(iterations=16)):
            total = sum(shard.value.local.document_level.sum() for shard in state.swept)
            assert math.isclose(total, Corpus(small[0]).manifest.tokens, rel_tol=1e-6)
            assert state.global_state.node_tokens.sum() <= total * (1 + 1e-6)

    def test_dividing_the_vocabulary_into_blocks__changes_nothing_but_rounding(self, small, options):
        _, whole = states(small[0], self.family, options, 15)
        _, cut = states(small[0], self.family, options, 15, cuts=(0, 7, 8, 30))
        sides = [
            np.concatenate([block.value.rows.word_topic for block in found[-1][0].blocks]) for found in (cut, whole)
        ]
        np.testing.assert_allclose(*sides, rtol=1e-4, atol=1e-4)

    def test_objective__is_finite_and_never_falls_if_it_is_a_bound(self, small, options):
        """It may only decrease when nodes are pruned or merged; growing nodes does not decrease it."""
        _, found = states(small[0], self.family, options, 35)
        require_ascent(found)
        assert all(math.isfinite(value) for _, progress in found for value in progress.metrics.values())
        assert found[-1][1].metrics["nodes"] <= options.get("max_nodes", 256)

    def test_fit__accepts_one_word_one_document_and_one_topic(self, tmp_path, options):
        corpus = write_corpus(tmp_path / "one", [{0: 1}], 1)
        settings = {**options, **self.sized(1)}
        model = fit(corpus, tmp_path / "run", family=self.family, scheduler="serial", iterations=16, **settings)
        tree = model.global_state.fitted.tree
        assert set(model.rows(0).word_topic[0].nonzero()[0]) <= set(tree.columns)
        np.testing.assert_allclose(model.local_state(0).document_level.sum(), 1.0, rtol=1e-6)
        unseen = write_corpus(tmp_path / "unseen", [{0: 2}, {0: 3}], 1)
        found = evaluate(tmp_path / "run", unseen=unseen, scheduler="serial")
        assert found.score == pytest.approx(0.0, abs=1e-9)  # the only word has probability one

    test_ground_truth_topics__are_recovered = None  # replaced by the recovery of simulated trees


def widened(levels, alpha):
    """Distribute the last level of a shallower tree's documents over that level and the levels below it."""
    last = levels.shape[1] - 1
    return np.hstack([levels[:, :last], levels[:, last:] * (alpha[last:] / alpha[last:].sum())])


def require_ascent(found):
    """Require that the objective never decreases, except when nodes are pruned or merged."""
    metrics = [progress.metrics for _, progress in found if "objective" in progress.metrics]
    assert len(metrics) > 30
    for before, after in zip(metrics, metrics[1:], strict=False):
        moved = after["pruned"] > 0 or after["merged"] > 0
        assert moved or after["objective"] >= before["objective"] - FALL * abs(before["objective"])


def simulated_tree(seed, documents, words=200, tokens=100, alpha=(50.0, 20.0, 10.0), branching=3, eta=0.05):
    """Return documents simulated from a complete tree, the leaf of each document, and the topics of each level."""
    generator, depth = np.random.default_rng(seed), len(alpha)
    topics = [generator.dirichlet(np.full(words, eta), size=branching**level) for level in range(depth)]
    leaves, rows = generator.integers(0, branching ** (depth - 1), documents), []
    for leaf in leaves:
        path = [topics[level][leaf // branching ** (depth - 1 - level)] for level in range(depth)]
        counts = generator.multinomial(tokens, generator.dirichlet(alpha) @ path)
        rows.append({int(word): int(counts[word]) for word in np.flatnonzero(counts)})
    return rows, leaves, topics


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A corpus simulated from a tree, the leaf of each document, and the topics of each level."""
    place = tmp_path_factory.mktemp("simulated")
    rows, leaves, topics = simulated_tree(3, 1000)
    return write_corpus(place / "corpus", rows, 200, shard_tokens=30000), leaves, topics


def test_simulated_tree__is_recovered(simulated, tmp_path):
    """The fit recovers the tree's shape, the documents' paths, and the topics, as accurately as their numbers of
    tokens allow."""
    corpus, leaves, topics = simulated
    model = fit(corpus, tmp_path / "run", family="ncrp", scheduler="serial", iterations=40, seed=3)
    tree = model.global_state.fitted.tree
    occupied = model.global_state.node_passes > 0.01 * leaves.size
    assert [int((occupied & (tree.levels == level)).sum()) for level in range(3)] == [1, 3, 9]
    parts = [
        model.family.infer(model.local_state(shard), model.global_state) for shard in range(len(model.record.shards))
    ]
    path = np.concatenate([part["document_path"] for part in parts])
    phi = model.family.probabilities(model.rows(0), model.global_state)["word_topic"]
    found = {}
    for level, close in enumerate((0.05, 0.1, 0.3)):
        place = leaves // 3 ** (2 - level)
        for number, true in enumerate(topics[level]):
            columns, counts = np.unique(path[place == number, level], return_counts=True)
            found[level, number] = column = columns[counts.argmax()]
            assert counts.max() > 0.95 * counts.sum()
            assert level == 0 or tree.parents[column] == found[level - 1, number // 3]
            assert 0.5 * np.abs(phi[:, column] - true).sum() < close
    assert len(set(found.values())) == 13


OPTIONS = [
    {"form": "conditional", "posterior": "point", "learn": ("alpha", "gamma")},
    {"form": "factorised", "posterior": "point", "new_paths": 3},
    {"form": "conditional", "posterior": "dirichlet", "new_paths": 3, "learn": ("eta",)},
    {"form": "factorised", "posterior": "dirichlet", "learn": ("alpha", "eta", "gamma"), "document_sweeps": 2},
]


@pytest.mark.long
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: f"{options['form']}-{options['posterior']}")
@pytest.mark.parametrize("seed", range(3))
def test_objective__ascends_on_a_simulated_tree(tmp_path, options, seed):
    rows, _, _ = simulated_tree(seed, 150, words=60, tokens=50)
    corpus = write_corpus(tmp_path / "corpus", rows, 60, shard_tokens=3000)
    depth = 2 + seed % 3
    _, found = states(corpus, "ncrp", {**options, "depth": depth}, 45)
    require_ascent(found)
    assert sum(progress.metrics["merged"] for _, progress in found) > 0


@pytest.mark.parametrize("options", mark_rest_long(TestNCRP.matrix), ids=str)
def test_the_number_of_shards__changes_nothing_but_rounding(tmp_path, options):
    """Documents initialise topics, and let the tree grow, by their addresses."""
    rows, found = simulated_rows(1), []
    tokens = sum(sum(row.values()) for row in rows)
    for number, shards in enumerate((1, 3, 7)):
        corpus = write_corpus(tmp_path / str(number), rows, 30, shard_tokens=tokens // shards + 1)
        assert len(Corpus(corpus).manifest.shards) == pytest.approx(shards, abs=1)
        _, final = states(corpus, "ncrp", options, 10)
        found.append([progress.metrics["objective"] for _, progress in final if "objective" in progress.metrics])
    for sharded in found[1:]:
        np.testing.assert_allclose(sharded, found[0], rtol=1e-6)


def test_trees__grow_for_documents_that_fit_no_path(small):
    """The tree grows from one leaf by complete paths at the prior; with `new_paths=0` it does not grow."""
    for grow in (0, 3):
        options = {"leaves": 1, "new_paths": grow, "gamma": 5.0, "compare": False, "merge": 1.0, "prune": 0.0}
        _, found = states(small[0], "ncrp", options, 35)
        require_ascent(found)
        metrics = [progress.metrics for _, progress in found]
        settled = next(n for n, record in enumerate(metrics) if record["nodes"] == 3)
        assert (sum(record["grown"] for record in metrics[settled + 1 :]) > 0) == (grow > 0)
        assert (metrics[-1]["nodes"] > 3) == (grow > 0)
        for before, after in zip(metrics[settled:], metrics[settled + 1 :], strict=False):
            assert after["nodes"] == before["nodes"] + after["grown"]


def test_max_nodes__are_never_exceeded(small):
    for max_nodes in (3, 5, 20):
        _, found = states(small[0], "ncrp", {"max_nodes": max_nodes, "new_paths": 5, "gamma": 10.0, "leaves": 50}, 14)
        for state, _ in found:
            for parents in (state.global_state.fitted.node_parent, state.global_state.upcoming.next_parent):
                assert parents.size == max_nodes
                assert (parents != FREE).any()


@pytest.mark.parametrize("iterations", [1, 2, 3, 5, 9])
def test_a_few_iterations__suffice_for_a_tree_of_full_depth(small, tmp_path, iterations):
    """Clustering takes at most half of the planned iterations, so that no run ends during it."""
    model = fit(small[0], tmp_path / "run", family="ncrp", depth=4, iterations=iterations, scheduler="serial")
    assert model.global_state.fitted.depth == 4
    assert (model.global_state.fitted.tree.levels == 3).any()


def test_leaves__leave_room_for_the_levels_above_them():
    for depth in range(2, 9):
        for max_nodes in (depth, depth + 1, 50):
            config = make_options("ncrp", {"depth": depth, "max_nodes": max_nodes, "leaves": 40})
            state = Ncrp(config).initialise(Summary(60, 30, 1000), Stream(0))
            assert 1 <= state.initialisation.max_seeds <= max_nodes - 1 - (depth - 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 1}, "depth: expected"),
        ({"alpha": [1.0, 2.0]}, "expected 3 values, one per level"),
        ({"alpha": [1.0, 2.0, 0.0]}, "above zero"),
        ({"eta": [1.0, 2.0]}, "expected 1 value or 3"),
        ({"learn": ["eta"]}, "eta can be learned only with `posterior` dirichlet"),
        ({"depth": 5, "max_nodes": 4}, "expected at least 5, one per level, found 4"),
        ({"gamma": 0.0}, "gamma: expected"),
        ({"form": "other"}, "form: expected"),
    ],
)
def test_invalid_options__are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        make_options("ncrp", options)


def test_options_per_level__have_defaults():
    config = make_options("ncrp", {"depth": 5})
    np.testing.assert_array_equal(config.alphas(), [50.0, 20.0, 10.0, 5.0, 2.5])
    np.testing.assert_array_equal(config.etas(), [0.2, 0.2, 0.2, 0.2, 0.1])
    np.testing.assert_array_equal(make_options("ncrp", {"eta": 0.5}).etas(), [0.5] * 3)
    np.testing.assert_array_equal(make_options("ncrp", {"posterior": "dirichlet"}).etas(), [1.0] * 3)


def test_metrics__count_nodes_and_moves(small, tmp_path):
    fit(small[0], tmp_path / "run", family="ncrp", scheduler="serial", iterations=20)
    events = [event for event in Run(tmp_path / "run").events() if event["event"] == "iteration"]
    for before, after in zip(events, events[1:], strict=False):
        if after["grown"] == 0:
            assert after["nodes"] == before["nodes"] - after["pruned"] - after["merged"]


def test_simulate__gives_trees_of_the_requested_shape_and_paths(tmp_path):
    from collapsium.pipeline import simulate, topics, verify

    simulate(tmp_path / "c", family="ncrp", documents=200, words=50, tokens=30, depth=3, branching=[2, 3], seed=4)
    nodes = topics(tmp_path / "c")
    assert [sum(node.level == level for node in nodes) for level in range(3)] == [1, 2, 6]
    assert verify(tmp_path / "c").broken == []
    shares = [sum(node.share for node in nodes if node.level == level) for level in range(3)]
    np.testing.assert_allclose(shares, [50 / 80, 20 / 80, 10 / 80], rtol=1e-9)

"""Gaussian trees on vectors: properties of every fit, and the functions of its model."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import Corpus, Model, estimate, evaluate, fit, infer, topics, verify
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.models.registry import make_options
from collapsium.storage.errors import CollapsiumError, NumericalError, OptionError
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.families.hca.hca import MAX_ENDS, Hca
from collapsium.workers.families.hca.states import HcaRows, NextLoadings, TreeSums
from collapsium.workers.families.ncrp.node_moves import Moves
from tests.conftest import mark_rest_long, write_corpus
from tests.fits import bits, problem_of, resumed, state_bits, states
from tests.storage.corpus.test_vectors import write_vectors

FORMS = ("conditional", "factorised")


def simulated_vectors(seed, count=60, words=5, noise=0.3):
    """Return vectors simulated from a tree with a root and four leaves."""
    generator = np.random.default_rng(seed)
    root, leaves = generator.normal(scale=3.0, size=words), generator.normal(scale=3.0, size=(4, words))
    leaf, x = generator.integers(0, 4, count), generator.normal(size=(count, 2))
    return x[:, :1] * root + x[:, 1:] * leaves[leaf] + noise * generator.normal(size=(count, words)) + 5.0


CORPORA = {
    "simulated": simulated_vectors(1),
    "sharp": simulated_vectors(2, 40, noise=1e-4),
    "constant columns": np.hstack([simulated_vectors(3, 30, 3), np.full((30, 2), 7.0)]),
    "one column": simulated_vectors(4, 25, 1),
    "one vector": simulated_vectors(5, 1),
    "fewer vectors than leaves": simulated_vectors(6, 3, 4),
    "identical vectors": np.tile(simulated_vectors(7, 1, 4), (12, 1)),
    "few, many times": np.repeat(simulated_vectors(8, 5, 4), 4, axis=0),
    "nothing": np.zeros((9, 3)),
    "large": 1e6 * simulated_vectors(9, 40),
    "tiny": 1e-6 * simulated_vectors(9, 40),
}


def corpus_of(place, values, shards=3):
    return write_vectors(place / f"c{shards}", values, max(values.shape[1] * -(-len(values) // shards), 1))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return corpus_of(tmp_path_factory.mktemp("corpus"), simulated_vectors(11, 67), 4)


@pytest.fixture(scope="module")
def run_of(corpus, tmp_path_factory):
    """A function that returns the folder of a run of each form, fitted once."""
    place = tmp_path_factory.mktemp("runs")

    def run_with(form):
        if not (place / form).exists():
            fitted(corpus, place / form, 12, depth=3, form=form)
        return place / form

    return run_with


def fitted(corpus, out, iterations=8, **options):
    settings = {"scheduler": "serial", "max_nodes": 8, "seed": 3, **options}
    return fit(corpus, out, family="hca", iterations=iterations, **settings)


# The bound -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_objective__never_decreases_unless_nodes_are_removed(tmp_path, name, form, depth):
    corpus = corpus_of(tmp_path, CORPORA[name])
    for nodes in (depth, 9):
        _, found = states(corpus, "hca", {"form": form, "depth": depth, "max_nodes": nodes}, 25)
        metrics = [progress.metrics for _, progress in found if progress.iteration > 0]
        assert all(np.isfinite(record["objective"]) for record in metrics)
        for before, after in pairwise(metrics):
            allowed = 1e-7 * abs(before["objective"])
            if not after["pruned"] + after["merged"]:
                assert after["objective"] >= before["objective"] - allowed
        assert metrics[-1]["nodes"] <= nodes
        assert metrics[-1]["noise"] > 0.0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", mark_rest_long(range(4)))
def test_objective__never_decreases_for_any_seed(tmp_path, form, seed):
    corpus = corpus_of(tmp_path, simulated_vectors(seed, 90, 4))
    options = {"form": form, "depth": 3, "max_nodes": 14, "compare": False, "merge": 1.0, "prune": 0.0}
    _, found = states(corpus, "hca", options, 25)
    objectives = [progress.metrics["objective"] for _, progress in found if progress.iteration > 0]
    for before, after in pairwise(objectives):
        assert after >= before - 1e-9 * abs(before)
    assert objectives[-1] > objectives[0]


def swept_bound(problem, state, global_state):
    """Return the bound and the sums of a sweep from a state, made with another global state."""
    sums = Delta()
    for shard, swept in zip(problem.shards, state.swept, strict=True):
        rows = state.blocks[0].value.rows
        sums += problem.family.sweep(shard.value, swept.value.local, rows, global_state, problem.stream)[1]
    sums += problem.family.fold(state.blocks[0].value.rows, sums.with_dim("word"), global_state)[1]
    return problem.family.objective(global_state, sums)["objective"], sums.read(TreeSums)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_adding_nodes_at_the_prior__leaves_the_bound_unchanged(tmp_path, form, depth):
    """A tree is a special case of a larger one, whose additional nodes contribute in closed form."""
    options = {"form": form, "depth": depth, "max_nodes": 12, "gamma": 1.7, "prior_variance": 4.0}
    problem, found = states(
        corpus_of(tmp_path, simulated_vectors(depth)), "hca", {**options, "merge": 1.0, "compare": False}, 9
    )
    config = make_options("hca", options)
    seen = []
    for state, _progress in found[4:]:
        global_state = state.global_state
        upcoming = global_state.next_sweep.upcoming.tree
        inner = [int(c) for c in upcoming.columns if upcoming.levels[c] < depth - 1]
        before, sums = swept_bound(problem, state, global_state)
        for end in inner:
            moves = Moves(upcoming).grown([end])
            if not moves.counts["grown"]:
                continue
            grown = with_moves(problem, state, moves, config)
            after, of_grown = swept_bound(problem, state, grown)
            new = [column for column, sources in moves.sources.items() if not sources]
            assert after == pytest.approx(before, rel=1e-9)
            assert of_grown.ends[new].sum() > 0.0  # vectors that ended at the parent now partly end at the new nodes
            assert of_grown.ends.sum() == pytest.approx(sums.ends.sum(), rel=1e-12)
            seen.append(of_grown.ends[new].sum())
    assert max(seen) > 1e-6 or form == "factorised"


def with_moves(problem, state, moves, config):
    """Return the global state with new nodes at the prior, and everything else unchanged."""
    global_state, following = state.global_state, state.global_state.next_sweep
    from collapsium.workers.families.ncrp import tree as nested

    columns = [column for column, sources in moves.sources.items() if not sources]
    loadings = following.next_loadings
    gram, solve, spread = (np.array(values) for values in (loadings.gram, loadings.solve, loadings.spread))
    gram[columns], gram[:, columns], solve[:, columns] = 0.0, 0.0, 0.0
    spread[columns] = config.prior_variance
    assert spread.size == global_state.fitted.node_parent.size + 1
    old, tree = following.upcoming.tree, moves.tree
    # The sticks from which the coming sweep's log probabilities of ends were made; new nodes have the prior's sticks.
    ends = state.global_state.masses.node_ends
    sticks = nested.sticks(old, old.gathered(ends), ends, config.gamma)
    np.testing.assert_allclose(
        nested.end_logs(old, sticks, config.gamma)[old.columns], following.upcoming.next_end_log[old.columns]
    )
    sticks.a[columns], sticks.b[columns] = 1.0, config.gamma
    for column in columns:
        siblings = tree.children(tree.parents[column])
        sticks.rank[column] = siblings.size - 1
    logs = np.maximum(nested.end_logs(tree, sticks, config.gamma), -1e300)
    upcoming = replace(following.upcoming, next_parent=tree.parents, next_end_log=logs)
    loadings = NextLoadings(solve, gram, spread)
    after = replace(following, upcoming=upcoming, next_loadings=loadings, moves=moves.move_table())
    return replace(global_state, next_sweep=after)


# Where it runs, and how -----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("scheduler", "workers"), [("threads", 1), ("threads", 3), ("cluster", 2)])
@pytest.mark.xdist_group("clusters")
def test_bits__do_not_depend_on_the_executor(corpus, tmp_path, clusters, form, scheduler, workers):
    expected = bits(fitted(corpus, tmp_path / "serial", depth=3, form=form), 4)
    options = (
        {"scheduler": clusters(workers)} if scheduler == "cluster" else {"scheduler": scheduler, "workers": workers}
    )
    assert bits(fitted(corpus, tmp_path / "run", depth=3, form=form, **options), 4) == expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stop", mark_rest_long([2, 1, 5]))
def test_a_resumed_run__ends_with_the_same_bits(corpus, tmp_path, form, stop):
    expected = bits(fitted(corpus, tmp_path / "whole", form=form), 4)

    def stopping(event):
        if event["event"] == "iteration" and event["iteration"] == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(corpus, tmp_path / "run", form=form, sinks=[stopping])
    assert bits(resumed(tmp_path / "run", scheduler="serial"), 4) == expected
    assert not verify(tmp_path / "run").broken


@pytest.mark.parametrize("form", FORMS)
def test_the_number_of_shards__does_not_change_the_tree(tmp_path, form):
    """All sums are fresh totals, and vectors that initialise clusters are drawn by their address in the corpus."""
    values, found, shapes = simulated_vectors(13, 84), [], []
    for shards in (1, 3, 7):
        _, final = states(corpus_of(tmp_path, values, shards), "hca", {"form": form, "depth": 3, "max_nodes": 10}, 9)
        found.append(final[-1][1].metrics["objective"])
        shapes.append(final[-1][0].global_state.fitted.node_parent.tolist())
    assert found == pytest.approx([found[0]] * 3, rel=1e-6)
    assert shapes == [shapes[0]] * 3


def test_dividing_columns_into_blocks__does_not_change_the_fit(tmp_path):
    corpus = corpus_of(tmp_path, simulated_vectors(14, 50, 6))
    found = [states(corpus, "hca", {"max_nodes": 7}, 12, cuts=cuts)[1][-1] for cuts in ((0, 6), (0, 1, 4, 6))]
    assert found[1][1].metrics["objective"] == pytest.approx(found[0][1].metrics["objective"], rel=1e-9)


def test_local_states_in_scratch_files__give_the_same_bits(corpus, tmp_path):
    models = []
    for scratch in (None, str(tmp_path / "scratch")):
        problem = problem_of(corpus, "hca", {"form": "factorised", "max_nodes": 7}, scratch=scratch)
        models.append([state_bits(state) for state, _ in Fit(problem, Limits(iterations=6))])
    assert models[0] == models[1]


@pytest.mark.parametrize("form", FORMS)
def test_the_size_of_local_states__depends_on_vectors_and_depth_only(tmp_path, form):
    def size(count, words, nodes, depth):
        problem, found = states(
            write_vectors(tmp_path / f"{count}-{words}-{nodes}-{depth}", simulated_vectors(15, count, words)),
            "hca", {"form": form, "max_nodes": nodes, "depth": depth, "compare": False}, 3)  # fmt: skip
        local = found[-1][0].swept[0].value.local
        assert local.ends.document_ends.size <= MAX_ENDS * count
        return local.nbytes - local.ends.nbytes

    smallest = size(40, 4, 6, 2)
    assert size(40, 30, 6, 2) == size(40, 4, 12, 2) == smallest
    assert size(80, 4, 6, 2) == 2 * smallest
    assert size(40, 4, 6, 4) < 4.1 * smallest


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("factor", [1e20, 1e100])
def test_vectors_too_large_for_a_model__are_refused(tmp_path, form, factor):
    """A model with sums that overflow could not be read again."""
    vectors = write_vectors(tmp_path / "vectors", simulated_vectors(1) * factor)
    with pytest.raises(NumericalError, match="divide the vectors by a constant|squares can be summed"):
        fit(vectors, tmp_path / "run", family="hca", form=form, iterations=5, scheduler="serial")


@pytest.mark.parametrize(
    "values", [1e8 * simulated_vectors(1), 1e-9 * simulated_vectors(1), np.tile([1.0, 2.0, 3.0], (30, 1))]
)
def test_vectors_of_any_unit__leave_checkpoints_that_can_be_read(tmp_path, values):
    """The directions in which leaves may be split are sums of squares, which have other limits than the sums of B."""
    vectors = write_vectors(tmp_path / "vectors", values)
    fit(vectors, tmp_path / "run", family="hca", iterations=5, scheduler="serial")
    assert not verify(tmp_path / "run").broken


@pytest.mark.filterwarnings("error")
def test_vectors_whose_squares_overflow__are_refused_without_a_warning(tmp_path):
    vectors = write_vectors(tmp_path / "vectors", 1e200 * simulated_vectors(1))
    with pytest.raises(NumericalError, match="divide the vectors by a constant"):
        fit(vectors, tmp_path / "run", family="hca", iterations=5, scheduler="serial")


def test_initial_clusters__do_not_depend_on_the_order_of_vectors(tmp_path):
    values = simulated_vectors(16, 50)
    models = []
    for name, order in (("as", np.arange(50)), ("is", np.random.default_rng(0).permutation(50))):
        corpus = write_vectors(tmp_path / name, values[order], 60)
        models.append(states(corpus, "hca", {"max_nodes": 7}, 10)[1][-1][1].metrics["objective"])
    assert models[1] == pytest.approx(models[0], rel=1e-6)


# Models --------------------------------------------------------------------------------------------------------------


def loadings_of(model):
    return HcaRows.joined([model.rows(block) for block in range(len(model.blocks))]).loadings(model.global_state)


def best_paths_naive(model, values):
    """Return the most probable full path of unseen vectors and E[x] along it, with densities from scipy, one path at a
    time."""
    from scipy import stats

    global_state = model.global_state
    tree, loadings = global_state.fitted.tree, loadings_of(model)
    tau, words = global_state.next_sweep.tau, values.shape[1]
    full = [c for c in tree.columns if tree.levels[c] == tree.depth - 1]
    scores, factors = np.zeros((len(values), len(full))), np.zeros((len(values), len(full), tree.depth))
    for place, end in enumerate(full):
        path = tree.path(end)
        matrix = loadings[:, path]
        # how s changes the precision of x
        loose = np.eye(tree.depth) + tau * words * np.diag(global_state.loadings.spread[path])
        cover = np.eye(words) / tau + matrix @ np.linalg.inv(loose) @ matrix.T
        scores[:, place] = stats.multivariate_normal(loadings[:, -1], cover).logpdf(values)
        scores[:, place] += global_state.fitted.end_log[end] - 0.5 * np.linalg.slogdet(loose)[1]
        inverse = np.linalg.inv(loose + tau * matrix.T @ matrix)
        factors[:, place] = tau * (values - loadings[:, -1]) @ matrix @ inverse
    best = scores.argmax(axis=1)
    return np.array(full)[best], factors[np.arange(len(values)), best]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_evaluate__is_the_reconstruction_along_the_most_probable_path(tmp_path, corpus, depth):
    model = fitted(corpus, tmp_path / "run", 12, depth=depth, merge=1.0)
    values = simulated_vectors(11, 97)[67:]
    unseen = write_vectors(tmp_path / "unseen", values, 40)
    best, _ = best_paths_naive(model, values)
    loadings, tree, total = loadings_of(model), model.global_state.fitted.tree, 0.0
    for value, end in zip(values, best, strict=True):
        w, mean = loadings[:, tree.path(end)], loadings[:, -1]
        total += ((value - mean - w @ np.linalg.lstsq(w, value - mean, rcond=None)[0]) ** 2).sum()
    found = evaluate(tmp_path / "run", unseen=unseen, scheduler="serial")
    assert found.reconstruction_error == pytest.approx(total / len(values), rel=1e-8)
    assert evaluate(tmp_path / "run", unseen=unseen, scheduler="threads", workers=3) == found


@pytest.mark.parametrize("form", FORMS)
def test_infer__gives_paths_and_factors(tmp_path, corpus, run_of, form):
    model = Model(run_of(form))
    values, tree = simulated_vectors(11, 97)[67:], model.global_state.fitted.tree
    unseen = write_vectors(tmp_path / "unseen", values, 40)
    for place, count in ((corpus, 67), (unseen, 30)):
        assert infer(run_of(form), place, tmp_path / f"{count}.parquet", scheduler="serial").rows == count
        table = pq.read_table(tmp_path / f"{count}.parquet").to_pylist()
        assert [row["id"] for row in table] == [f"v{n}" for n in range(count)]
        for row in table:
            assert row["path"][0] == 0
            assert row["path"] == tree.path(row["path"][-1])
            assert len(row["path"]) == len(row["factors"]) == 3
            assert sum(row["proportions"]) <= 1.0 + 1e-6
    if form == "conditional":
        best, factors = best_paths_naive(model, values)
        assert [row["path"][-1] for row in table] == best.tolist()
        np.testing.assert_allclose([row["factors"] for row in table], factors, rtol=1e-4, atol=1e-5)


def test_topics__are_a_tree_of_signed_loadings(run_of, capsys):
    run = run_of("conditional")
    model = Model(run)
    model_loadings, tree = loadings_of(model), model.global_state.fitted.tree
    listed = topics(run, words=3)
    assert sorted(topic.id for topic in listed) == sorted(tree.columns.tolist())
    assert sum(topic.share for topic in listed) == pytest.approx(1.0)
    for topic in listed:
        loadings = model_loadings[:, topic.id]
        assert (topic.level, topic.parent) == (tree.levels[topic.id], None if topic.id == 0 else tree.parents[topic.id])
        assert [value for _, value in topic.words] == pytest.approx(
            loadings[np.argsort(-np.abs(loadings), kind="stable")[:3]]
        )
    assert any(value < 0.0 for topic in listed for _, value in topic.words)
    for before, node in pairwise(listed):
        assert node.level <= before.level + 1
    assert main(["topics", str(run), "--words", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "x" in line]) >= len(listed)
    assert any("-" in line.split("x", 1)[1] for line in lines if "x" in line)
    assert main(["topics", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_a_model__passes_verify_with_an_integral_number_of_vectors(run_of):
    run = run_of("conditional")
    model = Model(run)
    assert not verify(run).broken
    assert model.global_state.masses.node_ends.sum() == pytest.approx(67.0)
    assert model.global_state.masses.node_passes[0] == pytest.approx(67.0)
    assert isinstance(Model(run), Model)


# Refusals ------------------------------------------------------------------------------------------------------------


def test_warm_starts__are_refused_before_anything_is_written(tmp_path, corpus):
    fitted(corpus, tmp_path / "first", 2)
    documents = write_corpus(tmp_path / "d", [{0: 1, 1: 2}, {1: 3}], 2)
    fit(documents, tmp_path / "lda", family="lda", topics=2, iterations=1, scheduler="serial")
    for warm in ("first", "lda"):
        with pytest.raises(CollapsiumError) as raised:
            fitted(corpus, tmp_path / "run", warm=tmp_path / warm)
        assert "\n" not in str(raised.value)
        assert not (tmp_path / "run").exists()
    shard = Corpus(corpus).references[0].load()
    with pytest.raises(OptionError, match="cannot start from another run"):
        Hca(make_options("hca", {})).start(shard, None, None, None, {"document_topic": np.ones((1, 1))})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 4, "max_nodes": 3}, "max_nodes: expected at least 4, one per level"),
        ({"depth": 0}, "depth"),
        ({"depth": 9}, "depth"),
        ({"form": "exact"}, "form"),
        ({"merge": 0.0}, "merge"),
        ({"prior_variance": -1.0}, "prior.variance"),
        ({"topics": 3}, "unknown option 'topics' of family 'hca'"),
        ({"schedule": "stochastic"}, "schedule: expected batch with family 'hca'"),
    ],
)
def test_invalid_options__are_refused_in_one_line(tmp_path, corpus, options, message):
    with pytest.raises(CollapsiumError, match=message):
        fit(corpus, tmp_path / "run", family="hca", scheduler="serial", **options)
    with pytest.raises(CollapsiumError, match=message):
        estimate(corpus, family="hca", **options)
    assert not (tmp_path / "run").exists()


def test_sizes__sum_to_the_nodes_of_the_tree():
    for depth in range(1, 9):
        for nodes in range(depth, 60):
            sizes = make_options("hca", {"depth": depth, "max_nodes": nodes}).sizes()
            assert len(sizes) == depth
            assert sizes[0] == 1
            assert sum(sizes) == (nodes if depth > 1 else 1)
            assert all(upper <= lower for upper, lower in pairwise(sizes))

"""The tree sampler on several shards: nodes born and emptied in shards, initialisation, and unseen documents."""

from dataclasses import replace

import numpy as np
import pytest

from collapsium.pipeline import simulate
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.models.registry import make_options, recorded_family
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import OptionError
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.dirichlet import slice_sampled
from collapsium.workers.families.family import Summary
from collapsium.workers.families.ncrp import gibbs_ncrp as driver
from collapsium.workers.families.ncrp.gibbs_ncrp import GibbsNcrp
from collapsium.workers.families.ncrp.node_moves import depth_first, regular_tree
from collapsium.workers.families.ncrp.state import levels
from collapsium.workers.kernels.trees.paths import FREE
from tests.conftest import simulated_rows, write_corpus
from tests.fits import problem_of
from tests.strategies import documents_of

FAMILY = "gibbs-ncrp"
MODEL = recorded_family(FAMILY, {})


def require_tree(state):
    """Require that documents per node equal the shards' paths, which lead from the root down to the nodes."""
    held = state.global_state
    parent, documents = held.node_parent, np.zeros(held.node_parent.size, dtype=int)
    for swept in state.swept:
        path = swept.value.local.document_path
        assert (path[:, 0] == 0).all()
        np.testing.assert_array_equal(parent[path[:, 1:]], path[:, :-1])
        np.add.at(documents, path.ravel(), 1)
    np.testing.assert_array_equal(held.node_documents, documents)
    used = (documents > 0) | (np.arange(parent.size) == 0)
    np.testing.assert_array_equal(parent == FREE, ~used)
    np.testing.assert_array_equal(held.free, ~used)
    assert (parent[parent[used][1:]] != FREE).all()
    assert not held.topic[~used].any()
    level = levels(parent)
    assert ((level >= 0) == used).all()


@pytest.mark.parametrize(("lanes", "local_sweeps"), [(16, 1), (2, 1), (16, 3), (2, 3)])
@pytest.mark.parametrize("options", [{"gamma": 30.0, "eta": 0.02}, {"depth": 4, "entry": "together", "gamma": 5.0}])
def test_shards__share_one_valid_tree_through_births_and_deaths(tmp_path, monkeypatch, lanes, local_sweeps, options):
    """Nodes are born in several shards at once, die in one shard while another still uses them, and leave free slots."""
    monkeypatch.setattr(driver, "MAX_LANES", lanes)
    corpus = write_corpus(tmp_path / "five", simulated_rows(7, documents=60), 30, shard_tokens=480)
    problem = problem_of(corpus, FAMILY, {**options, "learn": ["alpha"]})
    assert len(problem.shards) == 5
    before, seen = set(), {"born": 0, "emptied": 0, "rescued": 0}
    found = {}
    sweep = GibbsNcrp.sweep

    def record_births(model, shard, local, rows, global_state, stream):
        local, delta = sweep(model, shard, local, rows, global_state, stream)
        moved = np.zeros(delta["node_documents"].size, dtype=int)
        moved[: global_state.node_documents.size] = global_state.node_documents
        lost = np.flatnonzero((moved > 0) & (moved + delta["node_documents"] == 0))
        found.setdefault(stream.iteration, []).append(
            (shard.number, set(lost), set(np.flatnonzero(delta["node_parent"])))
        )
        return local, delta

    monkeypatch.setattr(GibbsNcrp, "sweep", record_births)
    for state, _ in Fit(replace(problem, local_sweeps=local_sweeps), Limits(iterations=12)):
        require_tree(state)
        nodes = set(np.flatnonzero(state.global_state.node_documents))
        swept = found.get(state.iteration, [])
        seen["born"] += len(nodes - before)
        seen["emptied"] += len(before - nodes)
        seen["rescued"] += len(nodes & before & set().union(*(lost for _, lost, _ in swept), set()))
        if local_sweeps == 1 and state.iteration:
            births = [slots for _, _, slots in swept]
            assert sum(map(len, births)) == len(set().union(*births))  # no slot is taken twice
            turns = {number for number, _, slots in swept if slots}
            assert all(number // lanes % -(-5 // lanes) == state.iteration % -(-5 // lanes) for number in turns)
        before = nodes
    assert seen["born"] > 20
    assert seen["emptied"] > 5
    if options["gamma"] == 30.0 and local_sweeps == 1:
        assert seen["rescued"] > 0


def test_a_warm_start__puts_its_topics_below_the_root(tmp_path):
    shard, noise = Shard.of(0, documents_of(simulated_rows(3, documents=50))), np.random.default_rng(1)
    theta, phi = noise.dirichlet(np.ones(4), shard.documents), noise.dirichlet(np.ones(shard.words.size), 4).T
    global_state = MODEL.initialise(Summary(shard.documents, 30, shard.tokens, warm=4), Stream(0))
    block = tasks.empty_block(MODEL, 0, 30, global_state)
    local, delta = MODEL.start(shard, block.rows, global_state, Stream(1), {"document_topic": theta, "word_topic": phi})
    np.testing.assert_array_equal(local.document_level.sum(axis=1), shard.lengths)
    block = tasks.fold(MODEL, block, [delta], global_state)
    after = MODEL.update(global_state, block.sums, Stream(2))
    assert not after.another_round
    assert after.topic.sum() == shard.tokens
    path = local.document_path
    np.testing.assert_array_equal(after.node_parent[path[:, 1:]], path[:, :-1])
    _, group = np.unique(path[:, 1], return_inverse=True)
    assert len(set(zip(group, theta.argmax(axis=1), strict=True))) == len(set(group)) == 4
    with pytest.raises(ValueError, match="topics to start from, found 5"):
        more = {"document_topic": np.ones((shard.documents, 5)), "word_topic": np.ones((shard.words.size, 5))}
        MODEL.start(shard, block.rows, global_state, Stream(1), more)


def test_fold_in__finds_the_paths_of_unseen_documents(tmp_path):
    """The documents were simulated from the tree itself; a second fold-in gives the same result."""
    options = {"documents": 200, "words": 60, "tokens": 60, "eta": 0.05, "alpha": 2.0, "branching": [2, 3]}
    simulate(tmp_path / "c", family=FAMILY, seed=2, **options)
    corpus = Corpus(tmp_path / "c")
    from collapsium.pipeline.models.model import Model

    model = Model(tmp_path / "c")
    parent, shard = model.global_state.node_parent, corpus.references[0].load()
    assert np.bincount(levels(parent)).tolist() == [1, 2, 6]
    rows = model.rows(0).of_words(shard.words, complete=True)
    local = MODEL.fold_in(shard, rows, model.global_state, Stream(0))
    again = MODEL.fold_in(shard, rows, model.global_state, Stream(9))
    np.testing.assert_array_equal(local.document_path, again.document_path)
    np.testing.assert_allclose(MODEL.document_lengths(local), shard.lengths)
    import pyarrow.parquet as pq

    right = 0
    for path, row in zip(local.document_path, pq.read_table(tmp_path / "c/truth/proportions").to_pylist(), strict=True):
        right += set(row["topics"]) <= set(path.tolist())
        np.testing.assert_array_equal(parent[path[1:]], path[:-1])
    assert right > 190
    inferred = MODEL.infer(local, model.global_state)
    np.testing.assert_allclose(inferred["document_topic"].sum(axis=1), 1.0)
    np.testing.assert_array_equal(inferred["document_path"], local.document_path)


def test_shards_without_tokens__can_be_swept():
    shard = Shard.of(0, documents_of([{}, {}]))
    global_state = MODEL.initialise(Summary(2, 30, 0), Stream(0))
    block = tasks.empty_block(MODEL, 0, 30, global_state)
    swept = tasks.start(MODEL, shard, None, [block], global_state, Stream(1, "start"))
    for number in range(3):
        block = tasks.fold(MODEL, block, [swept.delta], global_state)
        global_state = MODEL.update(global_state, block.sums, Stream(1, "u", number))
        swept = tasks.sweep(MODEL, shard, swept, None, [block], global_state, Stream(1, "sweep", number))
    assert all(np.isfinite(array).all() for array in global_state.to_arrays().values() if array.dtype.kind == "f")
    assert np.isfinite(MODEL.infer(swept.local, global_state)["document_topic"]).all()
    assert isinstance(block.sums, Delta)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eta": [0.1, 0.2]}, "eta: expected 1 value or 3, found 2"),
        ({"alpha": 0.0}, "expected numbers above zero"),
        ({"depth": 4, "branching": [2, 2]}, "branching: expected 1 value or 3, found 2"),
        ({"depth": 9}, "depth"),
    ],
)
def test_invalid_options__are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        make_options(FAMILY, options)


def test_nodes__are_described_depth_first_with_their_parents():
    parent = regular_tree([2, 2])
    np.testing.assert_array_equal(parent, [-1, 0, 0, 1, 1, 2, 2])
    weight = np.array([10, 4, 6, 2, 2, 1, 5])
    assert depth_first(parent, weight).tolist() == [0, 2, 6, 5, 1, 3, 4]
    assert depth_first(np.array([-1, FREE]), np.zeros(2)).tolist() == [0]
    assert levels([-1, 0, FREE, 1, 4]).tolist() == [0, 1, -1, 2, -1]


def test_slice_sampling__draws_from_the_posterior():
    """The target is a Gamma density times the exponential prior; mean and standard deviation must match."""
    noise, value, found = np.random.default_rng(1), 1.0, []
    for _ in range(6000):
        value = slice_sampled(lambda x: 3.0 * np.log(x) - 2.0 * x, value, 0.5, noise)
        found.append(value)
    assert abs(np.mean(found) - 1.0) < 0.03  # Gamma(4, 2 + 2)
    assert abs(np.std(found) - 0.5) < 0.03
    assert 1e-6 <= slice_sampled(lambda x: -1e9 * x, 1e-6, 1.0, noise) < 1e-3

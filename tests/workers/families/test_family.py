"""A toy family whose nodes are born in shards, named by `update`, and merged by moves.

The family contract must support it without a change to the loop. It counts documents by their lengths, with one node
per length.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest

from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.processors import fit_kernels
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.state import Problem
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.pipeline.models.registry import family_names, load_family, make_family, make_options
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import OptionError
from collapsium.workers import tasks
from collapsium.workers.arrays.annotations import numbers
from collapsium.workers.arrays.delta import Delta, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import GlobalState, LocalState, Rows
from collapsium.workers.families.family import (
    Description,
    Family,
    FamilyOptions,
    Footprint,
    Stochastic,
    Summary,
)
from collapsium.workers.kernels.jit import Kernel
from collapsium.workers.shard_loading import load_shard
from tests.conftest import write_corpus
from tests.fits import problem_of
from tests.networks import DIAMOND, LABELS
from tests.storage.corpus.test_vectors import write_vectors

BORN = 1_000_000  # ids from here on mean (shard, n), until update gives the nodes their final ids


@dataclass(frozen=True)
class ToyGlobalState(GlobalState):
    """Nodes by id with their counts and lengths, and the moves that named them."""

    names: Annotated[Any, numbers("node", -np.inf, np.inf, dtypes="i8")]
    ids: Annotated[Any, numbers("node", -np.inf, np.inf, dtypes="i8")]
    counts: Annotated[Any, numbers("node", 0.0, np.inf, dtypes="f8")]
    moves: Annotated[Any, numbers("move pair", -np.inf, np.inf, dtypes="i8")]
    rounds: Annotated[int, numbers("", 0, np.inf)]
    another_round: Annotated[bool, numbers("", 0, 1)]


@dataclass(frozen=True)
class ToyRows(Rows):
    """Rows without content."""

    word_documents: Any


@dataclass(frozen=True)
class ToyLocal(LocalState):
    """The node of each document, and the last move that was applied to it."""

    node: Any
    moves: int

    def caught_up(self, global_state):
        """Apply the moves that a local state has missed."""
        node = self.node.copy()
        for number, old, new in global_state.moves:
            if number > self.moves:
                node[node == old] = new
        return node


def _delta(shard, before, node):
    ids = np.unique(np.concatenate([before, node]))
    counts = [np.array([(nodes == name).sum() for name in ids], dtype=float) for nodes in (node, before)]
    parts = {"node": change(counts[0] - counts[1], "node"), "tokens": fresh(float(shard.tokens))}
    parts["word_documents"] = change(np.zeros(shard.words.size), "word")
    return Delta(parts, {"node": ids, "word": shard.words})


class Toy(Family):
    """Counts documents by their lengths, and names the nodes that shards have created."""

    Options = FamilyOptions
    global_state_type, rows_type, local_type, documents_type = ToyGlobalState, ToyRows, ToyLocal, LocalState

    def initial_rows(self, words, global_state):
        return ToyRows(np.zeros(words))

    def start(self, shard, rows, global_state, stream, warm=None):
        return ToyLocal(np.full(shard.documents, -1), 0), Delta({"tokens": fresh(0.0)})

    def sweep(self, shard, local, rows, global_state, stream):
        before = local.caught_up(global_state)
        known = {int(length): int(name) for name, length in global_state.names}
        lengths = [int(length) for length in shard.lengths]
        new = sorted({length for length in lengths if length not in known})
        known.update({length: BORN * (shard.number + 1) + length for length in new})
        node = np.array([known[length] for length in lengths])
        return ToyLocal(node, len(global_state.moves)), _delta(shard, before[before >= 0], node)

    def fold(self, block, delta, global_state):
        return block, Delta()

    def _not_needed(self, *args):
        raise AssertionError("a method that these tests do not need")

    kernels = advance = fold_in = predict = probabilities = infer = document_lengths = _not_needed
    footprint = describe = _not_needed

    def initialise(self, summary, stream):
        nothing = np.zeros(0)
        return ToyGlobalState(np.zeros((0, 2), int), np.zeros(0, int), nothing, np.zeros((0, 3), int), 0, False)

    def update(self, global_state, delta, stream):
        if "node" not in delta:
            return global_state
        names = {int(length): int(name) for name, length in global_state.names}
        counts = {int(name): float(count) for name, count in zip(global_state.ids, global_state.counts, strict=True)}
        moves = [tuple(int(x) for x in row) for row in global_state.moves]
        for born, count in zip(delta.ids["node"], delta["node"], strict=True):
            name, length = int(born), int(born) % BORN
            if name >= BORN:
                name = names.setdefault(length, len(names))
                moves.append((len(moves) + 1, int(born), name))
            counts[name] = counts.get(name, 0.0) + float(count)
        counts = {name: count for name, count in counts.items() if count}
        return ToyGlobalState(
            names=np.array([(name, length) for length, name in sorted(names.items())]).reshape(-1, 2),
            ids=np.array(sorted(counts)),
            counts=np.array([counts[name] for name in sorted(counts)]),
            moves=np.array(moves).reshape(-1, 3),
            rounds=global_state.rounds + 1,
            another_round=global_state.rounds % 2 == 0,
        )

    def needs_another_round(self, global_state):
        return global_state.another_round

    def objective(self, global_state, delta):
        return {"objective": float(global_state.counts.sum())}

    def metrics(self, global_state):
        return {"nodes": float(len(global_state.ids))}


@pytest.mark.parametrize("cuts", [(0, 4), (0, 1, 4)])
def test_nodes_born_in_shards__are_named_merged_and_counted(tmp_path, cuts):
    family = Toy(FamilyOptions())
    first = family.initialise(None, None)
    rows = [{0: 2}, {1: 2}, {0: 1, 3: 1}, {2: 5}, {}, {0: 5}, {3: 1}]
    corpus = Corpus(write_corpus(tmp_path / "c", rows, 4, shard_tokens=4))
    assert len(corpus.manifest.shards) > 2
    executor = SerialExecutor()
    shards = [executor.submit(load_shard, reference) for reference in corpus.references]
    problem = Problem("toy", family, family.options, shards, [], cuts, Stream(0), executor, first)
    found = list(Fit(problem, Limits(iterations=3)))
    state, progress = found[-1]
    counts = dict(zip(state.global_state.ids.tolist(), state.global_state.counts.tolist(), strict=True))
    counted = {length: counts[name] for name, length in state.global_state.names.tolist()}
    assert counted == {0: 1.0, 1: 1.0, 2: 3.0, 5: 2.0}
    assert progress.metrics["nodes"] == 4.0
    assert state.global_state.rounds > 4  # there was more than one round in an iteration
    assert len(state.global_state.moves) > 4  # some lengths are born in several shards, and moves merge these births
    assert all((swept.value.local.node < BORN).all() for swept in state.swept)


def test_families__are_discovered_and_unknown_names_get_a_suggestion():
    named = (
        "author-topic dirichlet-network gibbs-hdp gibbs-lda gibbs-ncrp hca hdp hdsp keyword-lda labeled-lda lda ncrp "
    )
    named += "partially-labeled-lda segmented-lda sequential-lda vb-lda"
    assert family_names() == named.split()
    with pytest.raises(OptionError, match="did you mean 'lda'"):
        load_family("ldaa")


def test_families__have_descriptions_of_all_options():
    for name in family_names():
        family = load_family(name)
        assert family.Options.model_config["title"]
        for field in family.Options.model_fields.values():
            assert len(field.description) > 5
        assert Description.__doc__


@pytest.mark.parametrize("name", family_names())
def test_families__implement_the_capabilities_that_they_declare(name):
    family = load_family(name)
    assert issubclass(family, Family)
    assert issubclass(family, Stochastic) == ("stochastic" in family.schedules)
    assert issubclass(family.Options, FamilyOptions)


OPTIONS = [
    {"topics": 3},
    {"topics": 3, "responsibilities": "dense"},
    {"topics": 3, "order": 2},
    {"topics": 3, "learn": ["beta"]},
    {"topics": 3, "momentum": 0.0},
]
MATRIX = {
    "lda": OPTIONS,
    "hdp": OPTIONS,
    "gibbs-lda": [{"topics": 3}, {"topics": 3, "learn": ["asymmetric-alpha", "beta"]}],
    "gibbs-hdp": [{}, {"init_topics": 1}],
    "gibbs-ncrp": [{}, {"depth": 2, "learn": []}],
    "hca": [{"max_nodes": 6}, {"depth": 3, "form": "factorised"}],
    "ncrp": [{}, {"depth": 2, "learn": ["alpha"]}],
    "vb-lda": [{"topics": 3}, {"topics": 3, "learn": ["beta"]}],
    "author-topic": [{"topics": 3}],
    "hdsp": [{"topics": 3}],
    "keyword-lda": [{"topics": 3, "seeds": {"first": ["w0", "w1"]}}],
    "labeled-lda": [{}],
    "partially-labeled-lda": [{"background": 0}],
    "segmented-lda": [{"topics": 3}, {"topics": 3, "learn": ["discount", "asymmetric-alpha", "beta"]}],
    "sequential-lda": [{"topics": 3}],
    "dirichlet-network": [{"topics": 3, "network": DIAMOND}, {"topics": 3, "network": LABELS}],
}
EACH = [pytest.param(name, options, id=f"{name}-{options}") for name in family_names() for options in MATRIX[name]]


# Parts of the footprint for which a family needs no memory.
NOTHING = {
    "hdsp": {"pair"},
    "vb-lda": {"pair"},
    "hca": {"pair", "chunk"},
    "ncrp": {"pair", "chunk"},
}
COLLAPSED = {"hdp", "keyword-lda", "lda"}


def zero_parts(name, config):
    """Return the parts of a footprint that are 0 with few topics."""
    nothing = NOTHING.get(name, set())
    if name not in COLLAPSED:
        return nothing | {"first_pair", "carried", "selected", "proportions"}
    return nothing if config.active else nothing | {"first_pair", "carried", "selected"}


@pytest.mark.parametrize(("name", "options"), EACH)
def test_listed_kernels__are_those_that_a_fit_calls(small, labelled_small, tmp_path, monkeypatch, name, options):
    """A kernel that is missing from the list would be compiled in the first sweep, by one worker while all others
    wait."""
    corpus = labelled_small[0] if load_family(name).uses_labels else small[0]
    if load_family(name).corpus_kind == "vectors":
        corpus = write_vectors(tmp_path / "c", np.random.default_rng(0).normal(size=(20, 3)), 30)
    problem = problem_of(corpus, name, options)
    named = fit_kernels(problem.family, problem.global_state)
    assert len({id(state) for state in named}) == len(named)
    called, call = set(), Kernel.__call__

    def counting(self, *args, **kwargs):
        called.add(self)
        return call(self, *args, **kwargs)

    monkeypatch.setattr(Kernel, "__call__", counting)
    # Active sets are selected anew in the seventh sweep; leaves of a clustering are grouped later.
    limits = Limits(iterations=40 if name == "ncrp" else 8)
    states = [state for state, _ in Fit(problem, limits)]
    blocks = [block.value for block in states[-1].blocks]
    shard, swept, last = problem.shards[0].value, states[-1].swept[0].value, states[-1].global_state
    if load_family(name).corpus_kind == "vectors":
        tasks.fold_in(problem.family, shard, blocks, last, problem.stream)
    else:
        tasks.score(problem.family, [shard], [swept], blocks, last)
    assert {kernel.__name__ for kernel in called} <= {kernel.__name__ for kernel in named}


@pytest.mark.parametrize("name", family_names())
def test_footprint__is_finite_and_positive(name):
    for summary in (Summary(1, 1, 1, 1), Summary(60, 30, 2240, 473), Summary(10**8, 10**6, 10**10, 10**9)):
        for options in MATRIX[name]:
            settings = {**options, **({"topics": 50} if "topics" in options else {})}
            config = make_options(name, settings)
            found = make_family(name, config).footprint(summary)
            assert isinstance(found, Footprint)
            sizes = {part: value for part, value in vars(found).items() if value is not None}
            assert all(0 <= value < np.inf for value in sizes.values())
            nothing = {part for part, value in sizes.items() if value == 0}
            assert nothing == zero_parts(name, config)
            assert found.shown <= found.rows

"""Checks of the local states of sampled networks: table counts that are impossible for the customers are refused."""

import numpy as np
import pytest

from collapsium.pipeline.models.registry import recorded_family
from collapsium.storage.errors import DamagedError
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from collapsium.workers.families.gibbs.states import SampledRows
from collapsium.workers.families.model_checks import ModelChecks
from collapsium.workers.families.networks.states import SampledDocuments, SampledNetworkGlobalState
from tests.networks import DIAMOND
from tests.strategies import shard_of

WORDS, TOPICS = 4, 3
MODEL = recorded_family("dirichlet-network", {"topics": TOPICS, "network": DIAMOND})
DOCUMENTS = [[{0: 3, 1: 2}, {2: 4}], [{1: 5}], [{0: 2, 3: 6}, {1: 1, 2: 1}]]


@pytest.fixture(scope="module")
def state():
    """A shard, and the arrays of its local state and of the global state after all tokens were added."""
    shard = shard_of(DOCUMENTS)
    stream = Stream(3)
    global_state = MODEL.initialise(Summary(shard.documents, WORDS, shard.tokens), stream)
    local, delta = MODEL.start(shard, MODEL.initial_rows(shard.words.size, global_state), global_state, stream)
    changes = {"topic": delta["word_topic"].sum(axis=0), "shared_customers": delta["shared_customers"]}
    return shard, local.to_arrays(), {**global_state.to_arrays(), **changes}


def checks_of(global_state, tokens=None):
    return ModelChecks.of(MODEL, WORDS, global_state, "global_state", tokens)


def fault_of(state, changed, global_state=None):
    shard, local, sound = state
    with pytest.raises(DamagedError) as caught:
        checks_of({**sound, **(global_state or {})}).local({**local, **changed}, shard, "local")
    return str(caught.value)


def test_a_valid_state__is_accepted(state):
    shard, local, global_state = state
    checks_of(global_state).local(local, shard, "local")
    kept = {name: values for name, values in local.items() if name in SampledDocuments.array_names()}
    documents = checks_of(global_state).documents(kept, shard.documents, "documents").to_arrays()
    assert documents.keys() == kept.keys()
    assert all(np.array_equal(documents[name], values) for name, values in kept.items())


@pytest.mark.parametrize("count", [0, 100, 2**31 - 1])
def test_tables_without_customers__are_refused(state, count):
    counts = np.array(state[1]["table_number"])
    counts[0] = count
    assert "expected tables that have customers" in fault_of(state, {"table_number": counts})


def test_entries_that_do_not_cover_the_tables__are_refused(state):
    entries = np.array(state[1]["table_entries"])
    assert "entries in 'table_entries'" in fault_of(state, {"table_entries": np.zeros_like(entries)})


def test_token_topics_that_contradict_the_counts__are_refused(state):
    topics = (np.array(state[1]["token_topic"]) + 1) % TOPICS
    assert "in 'own_topic'" in fault_of(state, {"token_topic": topics.astype(np.uint16)})


def test_token_counts_that_contradict_the_documents__are_refused(state):
    counts = np.array(state[1]["own_tokens"])
    counts[0] += 1
    assert "in 'own_tokens'" in fault_of(state, {"own_tokens": counts})


def test_segments_out_of_order__are_refused(state):
    nodes = np.array(state[1]["segment_node"])
    nodes[[0, 1]] = nodes[[1, 0]]
    assert "in 'segment_node'" in fault_of(state, {"segment_node": nodes})


def test_parents_with_zero_mixing_weights__are_refused(state):
    mixing = np.zeros_like(state[1]["edge_mixing"])
    assert "in 'edge_mixing'" in fault_of(state, {"edge_mixing": mixing})


def test_tables_that_are_not_customers_of_shared_vectors__are_refused(state):
    none = np.zeros_like(state[2]["shared_customers"])
    assert "expected tables that 'shared_customers' of the global state counts" in fault_of(
        state, {}, {"shared_customers": none}
    )


@pytest.mark.parametrize("count", [1000, 2**31, 10**14])
def test_more_customers_of_shared_vectors_than_tokens__are_refused(state, count):
    changed = np.array(state[2]["shared_customers"])
    changed[0, 0] = count
    with pytest.raises(DamagedError, match="shared_"):
        checks_of({**state[2], "shared_customers": changed})


def test_unseen_documents_of_a_simulated_model__are_folded_in(state):
    shard, _, global_state = state
    rows = SampledRows(np.full((shard.words.size, TOPICS), 1e9 / 3.0))
    drawn = SampledNetworkGlobalState.from_arrays({**global_state, "topic": rows.word_topic.sum(axis=0)})
    local = MODEL.fold_in(shard, rows, drawn, Stream(1))
    assert np.isfinite(local.document_vectors).all()


def test_more_tokens_than_the_corpus_has__are_refused(state):
    shard, _, global_state = state
    checks_of(global_state, shard.tokens)
    forged = {
        **global_state,
        "topic": global_state["topic"] * 10**9,
        "shared_customers": global_state["shared_customers"] * 10**7,
    }
    with pytest.raises(DamagedError, match="expected at most the 24 tokens of the corpus"):
        checks_of(forged, shard.tokens)


def test_links_to_parents_over_fewer_documents__are_refused(state):
    """With these links, the corpus's vector would depend on one vector per document."""
    kinds = np.array(state[2]["kinds"])
    kinds[[0, 1], 0] = kinds[[1, 0], 0]
    with pytest.raises(DamagedError, match="in 'links'"):
        checks_of({**state[2], "kinds": kinds})


def test_a_discount_of_one__is_refused(state):
    with pytest.raises(DamagedError, match="discount"):
        checks_of({**state[2], "discount": np.ones_like(state[2]["discount"])})


def test_expected_tables_with_options_for_sampled_tables__are_refused():
    family = recorded_family("dirichlet-network", {"topics": TOPICS, "network": DIAMOND, "inference": "variational"})
    global_state = family.initialise(Summary(3, WORDS, 24), Stream(3)).to_arrays()
    ModelChecks.of(family, WORDS, global_state, "global_state")
    with pytest.raises(DamagedError, match="of another model"):
        checks_of(global_state)

"""Specifications of networks as users write them."""

import numpy as np
import pytest

from collapsium.pipeline.models.registry import make_options
from collapsium.storage.errors import OptionError
from collapsium.workers.families.networks.dirichlet_network import (
    Vectors,
    check_network,
    ordered,
    plan_of,
    source_of_words,
)
from collapsium.workers.families.networks.graph import CORPUS, DOCUMENT, SEGMENT, graph_of

TOML = """
[corpus]
over = "corpus"
[document]
over = "document"
parents = ["corpus"]
[section]
over = "segment"
parents = ["document", "section[-1]"]
"""
NONE = np.zeros(0, dtype=np.int64)

BAD = {
    "no such file": ("nix.toml", "network: expected a TOML file; there is no nix.toml"),
    "no TOML": ("[a", "network: expected TOML"),
    "nothing": ({}, "network: expected at least one kind of vectors"),
    "unknown scope": (
        {"a": {"over": "segmnt"}},
        "network: 'a': 'over': expected 'corpus', 'label', 'document' or 'segment'",
    ),
    "unknown parent": ({"a": {"over": "segment", "parents": ["b"]}}, "'a': unknown parent 'b'"),
    "its own parent": ({"a": {"over": "segment", "parents": ["a"]}}, "'a' cannot be a parent"),
    "later": ({"a": {"over": "segment", "parents": ["a[1]"]}}, "'a[1]' cannot be a parent"),
    "no name": ({"a": {"over": "segment", "parents": ["a b"]}}, "'a b' cannot be a parent"),
    "in a ring": (
        {"a": {"over": "segment", "parents": ["b"]}, "b": {"over": "segment", "parents": ["a"]}},
        "cannot be a parent; expected a kind that does not depend on it",
    ),
    "narrower": (
        {"a": {"over": "segment"}, "b": {"over": "document", "parents": ["a"]}},
        "a vector over a document cannot depend on one over a segment",
    ),
    "labels of labels": (
        {"a": {"over": "label", "field": "x"}, "b": {"over": "label", "field": "y", "parents": ["a"]}},
        "a vector over a label cannot depend on one over a label",
    ),
    "places": (
        {"a": {"over": "document"}, "b": {"over": "segment", "parents": ["a[-1]"]}},
        "only vectors over segments have an order",
    ),
    "every": ({"a": {"over": "document", "every": 2}}, "'every' applies only to vectors over segments"),
    "no whole number": (
        {"a": {"over": "segment", "every": 3}, "b": {"over": "segment", "every": 2, "parents": ["a"]}},
        "are not a multiple of its",
    ),
    "no field": ({"a": {"over": "label"}}, "vectors over labels name their field"),
    "a field": ({"a": {"over": "document", "field": "x"}}, "vectors over labels name their field"),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_networks__give_clear_errors(name):
    network, message = BAD[name]
    with pytest.raises(OptionError) as found:
        make_options("dirichlet-network", {"topics": 3, "network": network})
    assert message in str(found.value)


@pytest.mark.parametrize(
    ("words", "message"), [("sectoin", "did you mean 'section'"), ("corpus", "over documents or segm")]
)
def test_words_from__must_name_a_kind_below(words, message):
    with pytest.raises(OptionError, match="words_from: expected") as found:
        make_options("dirichlet-network", {"topics": 3, "network": TOML, "words_from": words})
    assert message in str(found.value)


def test_networks__are_the_same_from_a_file_a_text_and_a_mapping(tmp_path):
    (tmp_path / "net.toml").write_text(TOML)
    found = [
        make_options("dirichlet-network", {"topics": 3, "network": network})
        for network in (str(tmp_path / "net.toml"), TOML)
    ]
    assert found[0] == found[1]
    again = make_options("dirichlet-network", found[0].model_dump(mode="json"))
    assert again == found[0]
    assert again.words_from == "section"


def test_plans__list_parents_before_children_for_any_order():
    network = {
        "section": Vectors(over="segment", parents=("document", "section[-1]")),
        "corpus": Vectors(over="corpus"),
        "document": Vectors(over="document", parents=("corpus",)),
    }
    check_network(network)
    assert list(ordered(network)) == ["corpus", "document", "section"]
    plan = plan_of(network, source_of_words(network, "section"), None)
    assert plan.kinds[:, 0].tolist() == [CORPUS, DOCUMENT, SEGMENT]
    graph = graph_of(plan, np.array([0, 2, 2, 3]), (np.zeros(4, dtype=np.int64), NONE))
    parents = [graph.edge_parent[a:b].tolist() for a, b in zip(graph.node_edges, graph.node_edges[1:], strict=False)]
    assert parents == [[], [0], [1], [1, 2], [0], [0], [5]]
    assert graph.segment_node.tolist() == [2, 3, 6]


def test_networks__require_the_labels_that_they_name():
    network = {"year": Vectors(over="label", field="year"), "document": Vectors(over="document", parents=("year",))}
    with pytest.raises(OptionError, match="no labels of the field 'year'"):
        plan_of(network, "document", None)

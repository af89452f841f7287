"""The shape of trees of topics, and its GraphML."""

import xml.etree.ElementTree as ET

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline.models.topics import Topic
from collapsium.pipeline.reporting.plots.tree import graphml, write_files
from collapsium.workers.families.description import shape_of

GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"


@st.composite
def trees(draw, least=1, max_nodes=60):
    """Draw a tree as parents by number; parents precede their children."""
    count = draw(st.integers(least, max_nodes))
    return [-1, *(draw(st.integers(0, number - 1)) for number in range(1, count))]


def tree_of(parents, words=("w",)):
    """Return nodes with the ids 3 n + 1, depth-first."""
    ids = np.arange(len(parents)) * 3 + 1
    parent = np.array([-1 if place < 0 else ids[place] for place in parents])
    share = np.full(ids.size, 1.0 / ids.size)
    shape = shape_of(ids, parent, share)
    return [
        Topic(
            int(ids[row]),
            float(share[row]),
            [(word, 0.5) for word in words],
            parent=None if parent[row] < 0 else int(parent[row]),
            level=int(shape.level[row]),
            below=float(shape.below[row]),
        )
        for row in shape.rows
    ]


@given(trees())
def test_shape__is_depth_first_and_adds_up(parents):
    ids = np.arange(len(parents))
    share = np.random.default_rng(len(parents)).dirichlet(np.ones(len(parents)))
    shape = shape_of(ids, np.array(parents), share)
    assert sorted(shape.rows) == list(ids)
    descendants = {node: {node} for node in range(len(parents))}
    for node in reversed(range(1, len(parents))):
        descendants[parents[node]] |= descendants[node]
    order = shape.rows.tolist()
    for node, below in descendants.items():
        at = order.index(node)
        assert set(order[at : at + len(below)]) == below  # subtrees are contiguous
        assert shape.below[node] == pytest.approx(share[list(below)].sum())
        children = [child for child in order if parents[child] == node]
        assert children == sorted(children)  # siblings keep their original order
        assert shape.level[node] == (0 if parents[node] < 0 else shape.level[parents[node]] + 1)


@pytest.mark.parametrize("parents", [[1, 0], [-1, 5], [0], [-1, 2, 1]])
def test_shape__refuses_parents_that_make_no_tree(parents):
    with pytest.raises(ValueError, match="expected a tree"):
        shape_of(np.arange(len(parents)), np.array(parents), np.ones(len(parents)))


def test_shape__refuses_an_id_that_occurs_twice():
    with pytest.raises(ValueError, match="expected a tree"):
        shape_of(np.array([0, 1, 1]), np.array([-1, 0, 0]), np.ones(3))


@given(trees(), st.lists(st.text(max_size=8), max_size=5))
def test_graphml__contains_every_node_and_edge(parents, words):
    tree = tree_of(parents, words)
    root = ET.fromstring(graphml(tree))
    keys = {key.get("id"): key.get("attr.type") for key in root.iter(f"{GRAPHML}key")}
    assert set(keys) == {"label", "words", "share", "below", "level"}
    found = {}
    for node in root.iter(f"{GRAPHML}node"):
        found[int(node.get("id"))] = {data.get("key"): data.text or "" for data in node.iter(f"{GRAPHML}data")}
    assert list(found) == [node.id for node in tree]
    for node in tree:
        held = found[node.id]
        assert (float(held["share"]), float(held["below"]), int(held["level"])) == (node.share, node.below, node.level)
        text = ", ".join(words)
        assert held["words"] == "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    edges = {(int(edge.get("source")), int(edge.get("target"))) for edge in root.iter(f"{GRAPHML}edge")}
    assert edges == {(node.parent, node.id) for node in tree if node.parent is not None}
    assert root.find(f"{GRAPHML}graph").get("edgedefault") == "directed"


def test_graphml__can_be_read_by_networkx(tmp_path):
    tree = tree_of([-1, 0, 0, 1], ["cat & dog", "<b>"])
    write_files(tree, [], str(tmp_path / "t.graphml"))
    found = networkx.read_graphml(tmp_path / "t.graphml", node_type=int)
    assert networkx.is_arborescence(found)
    assert found.nodes[1] == {
        "label": "cat & dog <b>",
        "words": "cat & dog, <b>",
        "share": 0.25,
        "below": 1.0,
        "level": 0,
    }

"""Folded branches of trees: nothing is lost, shares add up, and large trees stay short."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import fit, plot, report, topics
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.models.topics import Topic
from collapsium.pipeline.reporting.page.drawings import MAX_OPEN_ROWS, branches, tree_view
from collapsium.pipeline.reporting.trees import MAX_DRAWN, FoldedNodes, fold
from collapsium.storage.errors import OptionError


def tree_of(seed, nodes, depth=4):
    """Draw a tree with some nodes, depth-first, whose shares add up."""
    generator = np.random.default_rng(seed)
    parent, level = [-1], [0]
    for _ in range(nodes - 1):
        above = int(generator.choice([n for n, height in enumerate(level) if height < depth - 1]))
        parent.append(above)
        level.append(level[above] + 1)
    share = generator.dirichlet(np.full(nodes, 0.3))
    below = share.copy()
    for node in reversed(range(1, nodes)):
        below[parent[node]] += below[node]
    found = []

    def add(node):
        words = [(f"word{node}", 0.5)]
        above = None if parent[node] < 0 else parent[node]
        found.append(Topic(node, share[node], words, parent=above, level=level[node], below=below[node]))
        for child in sorted((n for n in range(nodes) if parent[n] == node), key=lambda n: -below[n]):
            add(child)

    add(0)
    return found


def check_nothing_is_lost(tree, shown):
    """Require that each node is shown or counted once, and that the parts below a node add up to it."""
    stubs = [node for node in shown if isinstance(node, FoldedNodes)]
    nodes = [node for node in shown if not isinstance(node, FoldedNodes)]
    assert len(nodes) + sum(node.count for node in stubs) == len(tree)
    assert [node.id for node in nodes] == [node.id for node in tree if node.id in {node.id for node in nodes}]
    for node in nodes:
        below = [child.below for child in nodes if child.parent == node.id] + [
            stub.below for stub in stubs if stub.id == node.id
        ]
        if below:
            assert node.below == pytest.approx(node.share + sum(below))
    for stub in stubs:
        assert stub.level == next(node.level for node in nodes if node.id == stub.id) + 1


@given(
    st.integers(0, 1000), st.integers(1, 80), st.sampled_from([0.0, 0.01, 0.1, 1.0]), st.sampled_from([None, 1, 2, 3])
)
def test_folding__keeps_large_nodes_of_the_first_levels(seed, nodes, least, levels):
    tree = tree_of(seed, nodes)
    shown = fold(tree, min_share=least, levels=levels)
    check_nothing_is_lost(tree, shown)
    for node in shown:
        if not isinstance(node, FoldedNodes) and node.level:
            assert node.below >= least
            assert levels is None or node.level < levels
    if least == 0.0 and levels is None:
        assert shown == tree


@given(st.integers(0, 1000), st.integers(1, 120), st.integers(2, 60))
def test_automatic_folding__shows_the_largest_nodes_that_fit(seed, nodes, max_entries):
    tree = tree_of(seed, nodes)
    shown = fold(tree, max_entries=max_entries)
    check_nothing_is_lost(tree, shown)
    assert len(shown) <= max_entries
    if nodes <= max_entries:
        assert shown == tree


def rows_seen(found):
    """Return the rows of the list that are not in a closed branch."""
    return sum(1 + (rows_seen(row.children) if row.unfolded else 0) for row in found)


def ids_of(found):
    """Return the ids of all nodes of the list."""
    return [row.topic.id for row in found if row.topic is not None] + [i for row in found for i in ids_of(row.children)]


@given(st.integers(0, 1000), st.integers(1, 120))
def test_list_of_a_page__has_all_nodes_but_few_expanded_ones(seed, nodes):
    tree = tree_of(seed, nodes)
    found = branches(tree)
    assert sorted(ids_of(found)) == list(range(nodes))
    assert rows_seen(found) <= MAX_OPEN_ROWS
    assert sorted(ids_of(branches(tree, min_share=0.0))) == list(range(nodes))
    assert rows_seen(branches(tree, min_share=0.0)) == nodes
    assert rows_seen(branches(tree, levels=1)) == 1


def test_a_tree_of_many_nodes__is_not_much_higher_than_a_screen():
    assert tree_view(tree_of(3, 293)).height * tree_view(tree_of(3, 293)).scale < 2400
    assert tree_view(tree_of(3, 293), min_share=0.0).height > 5000


@pytest.mark.parametrize("wrong", [{"min_share": -0.1}, {"min_share": 1.5}, {"levels": 0}, {"min_share": float("nan")}])
def test_folding__refuses_invalid_shares_and_levels(wrong):
    with pytest.raises(OptionError, match="expected"):
        fold(tree_of(1, 3), **wrong)


@pytest.fixture(scope="module")
def tree(small, tmp_path_factory):
    """A run of a family of trees."""
    place = tmp_path_factory.mktemp("tree")
    fit(small[0], place / "run", family="gibbs-ncrp", iterations=4, scheduler="serial")
    return place / "run"


def test_topics__print_and_draw_folded_trees(tree, tmp_path, capsys):
    everything = topics(tree)
    assert main(["topics", str(tree), "--levels", "2", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["id"] for record in records] == [node.id for node in everything if node.level < 2]
    folded = sum(record.get("folded", {"nodes": 0})["nodes"] for record in records)
    assert folded + len(records) == len(everything)
    assert folded
    picture = tmp_path / "tree.svg"
    assert (
        main(["topics", str(tree), "--levels", "1", "--picture", str(picture), "--graphml", str(tmp_path / "t.xml")])
        == 0
    )
    out = capsys.readouterr().out
    assert f"… {len(everything) - 1} more" in out
    assert f"… {len(everything) - 1} more" in picture.read_text()
    assert (tmp_path / "t.xml").read_text().count("<node ") == len(everything) <= MAX_DRAWN
    assert main(["topics", str(tree), "--min-share", "7"]) != 0
    assert "expected a share from 0 to 1" in capsys.readouterr().err


def test_report__lists_all_nodes_in_branches(tree, small, tmp_path):
    report(tree, tmp_path / "out.html", levels=2)
    text = (tmp_path / "out.html").read_text()
    listed = text[text.index('<ul class="branches">') :]
    for node in topics(tree):
        assert f'data-topic="{node.id}">{node.id}</a>' in listed
    assert listed.count("<details open>") == 1
    fit(small[0], tmp_path / "flat", family="lda", topics=2, iterations=1, scheduler="serial")
    with pytest.raises(OptionError, match="not a tree"):
        report(tmp_path / "flat", tmp_path / "flat.html", min_share=0.1)
    assert not (tmp_path / "flat.html").exists()
    assert main(["topics", str(tmp_path / "flat"), "--levels", "2"]) != 0
    for wrong in ({"what": ["tree"]}, {"what": ["sizes"], "levels": 2}):
        with pytest.raises(OptionError):
            plot(tmp_path / "flat", tmp_path / "flat.svg", **wrong)


def test_plot__draws_a_folded_tree(tree, tmp_path):
    count = len(topics(tree))
    assert main(["plot", str(tree), str(tmp_path / "tree.svg"), "--what", "tree", "--levels", "1"]) == 0
    assert f"… {count - 1} more" in (tmp_path / "tree.svg").read_text()
    assert plot(tree, tmp_path / "all.svg", what=["tree"], min_share=0.0) == ["tree"]
    assert "more" not in (tmp_path / "all.svg").read_text()

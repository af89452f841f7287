"""Plots of trees: the positions of their cards, and the contents of the files."""

import itertools
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline.models.topics import Topic
from collapsium.pipeline.reporting.plots.style import Style
from collapsium.pipeline.reporting.plots.tree import _figure, tree_drawing
from collapsium.pipeline.reporting.trees import FONT, INNER, LEAF, cards_of, layout, parents_of, wrapped
from tests.conftest import mark_rest_long
from tests.pipeline.reporting.test_tree_shape import tree_of, trees

SVG = "{http://www.w3.org/2000/svg}"
sizes = st.tuples(st.floats(1, 300), st.floats(1, 90))


def letters(text, size=1.0):
    return len(text) * size


@st.composite
def sized(draw):
    levels = [node.level for node in tree_of(draw(trees()))]
    return levels, draw(st.lists(sizes, min_size=len(levels), max_size=len(levels)))


def boxes(levels, given_sizes):
    places = layout(levels, given_sizes)
    return [(x, y, x + width, y + height) for (x, y), (width, height) in zip(places, given_sizes, strict=True)]


@given(sized())
def test_layout__places_all_nodes_without_overlap(case):
    found = boxes(*case)
    assert len(found) == len(case[0])
    assert all(x >= 0 and y >= 0 for x, y, _, _ in found)
    for first, second in itertools.combinations(found, 2):
        apart = first[2] < second[0] or second[2] < first[0] or first[3] < second[1] or second[3] < first[1]
        assert apart, (first, second)


@given(sized())
def test_layout__places_parents_between_and_to_the_left_of_their_children(case):
    levels, found = case[0], boxes(*case)
    middle = [(box[1] + box[3]) / 2 for box in found]
    above = parents_of(levels)
    for parent in range(len(levels)):
        children = [number for number, second in enumerate(above) if second == parent]
        if children:
            assert middle[children[0]] - 1e-6 <= middle[parent] <= middle[children[-1]] + 1e-6
            assert all(found[parent][2] < found[child][0] for child in children)
    for upper, second in itertools.pairwise(range(len(levels))):
        if levels[upper] == levels[second]:
            assert found[upper][3] < found[second][1]  # children are in order


@given(trees())
def test_parents_of__returns_the_parents_that_levels_imply(parents):
    tree = tree_of(parents)
    found = parents_of([node.level for node in tree])
    assert [None if place < 0 else tree[place].id for place in found] == [node.parent for node in tree]


def test_layout__supports_several_roots():
    assert len({y for _, y in layout([0, 1, 0, 1, 1], [(10.0, 5.0)] * 5)}) == 4


@given(st.lists(st.text("abc", min_size=1, max_size=30), max_size=12), st.integers(5, 60))
def test_wrapped__keeps_the_words_in_lines_that_fit(words, width):
    found = wrapped(words, width, letters, " ")
    assert all(len(line) <= width for line in found)
    kept = " ".join(found).split()
    assert len(kept) == len(words)
    for word, held in zip(words, kept, strict=True):
        assert held == word if len(word) <= width else held == word[: width - 1] + "…"


@given(st.lists(st.text("abc", min_size=1, max_size=8), min_size=1, max_size=12), st.integers(8, 60))
def test_wrapped__uses_as_few_lines_as_possible(words, width):
    least, end = 1, -1
    for word in words:
        end += 1 + len(word)
        if end > width:
            least, end = least + 1, len(word)
    assert len(wrapped(words, width, letters, " ")) == least


@given(trees(max_nodes=20), st.lists(st.text(min_size=1, max_size=40), max_size=8))
def test_cards__are_as_large_as_their_text(parents, words):
    tree = tree_of(parents, words)
    for node, card in zip(tree, cards_of(tree, letters), strict=True):
        leaf = all(descendant.parent != node.id for descendant in tree)
        assert max(letters(line, FONT) for line in card.lines) <= (LEAF if leaf else INNER)
        assert card.indent + max(letters(line, FONT) for line in card.lines) < card.width
        assert card.head.startswith(f"{node.id} · ")
        assert len(card.lines) * FONT < card.height


ODD = ["$x_1$", "<b>&amp;", "naïve", "漢字", "tab\there", "a" * 300, "\x1b[31m"]


def test_draw__gives_an_svg_with_text_and_the_same_bytes_each_time():
    tree = tree_of([-1, 0, 0, 1, 1], ODD)
    found = tree_drawing(tree, "a <title> & $more$").file("svg")
    assert found == tree_drawing(tree, "a <title> & $more$").file("svg")
    assert b"dc:date" not in found
    texts = [element.text for element in ET.fromstring(found).iter(f"{SVG}text")]
    assert texts[0] == "a <title> & $more$"
    joined = " ".join(texts)
    for word in ("$x_1$", "<b>&amp;", "naïve", "漢字", "tab\ufffdhere", "\ufffd[31m"):
        assert joined.count(word) == len(tree), word
    assert "aaa…" in joined
    assert [text for text in texts if "·" in text] == [
        "1 · 100.0%",
        "4 · 60.0%",
        "10 · 20.0%",
        "13 · 20.0%",
        "7 · 20.0%",
    ]


def test_draw__a_png_is_as_large_as_its_tree():
    small, large = (tree_drawing(tree_of([-1] + [0] * count, ["w"]), "t").file("png") for count in (3, 60))
    height = [int.from_bytes(content[20:24], "big") for content in (small, large)]
    assert small.startswith(b"\x89PNG")
    assert height[1] > 5 * height[0]


def test_draw__limits_the_height_of_a_huge_tree_to_that_of_a_png(monkeypatch):
    tree = tree_of([-1] + [0] * 40, ["w"])
    high = int.from_bytes(tree_drawing(tree, "t").file("png")[20:24], "big")
    monkeypatch.setattr("collapsium.pipeline.reporting.plots.style.MAX_PIXELS", high // 2)
    assert high // 2 - 2 <= int.from_bytes(tree_drawing(tree, "t").file("png")[20:24], "big") <= high // 2


@pytest.mark.parametrize("signed", [False, True])
def test_draw__supports_one_node_without_words(signed):
    text = tree_drawing([Topic(0, 1.0, [], level=0, below=1.0, signed=signed)], "").file("svg").decode()
    assert ("loadings" in text) == signed
    assert ("tokens" in text) != signed


@pytest.mark.parametrize("nodes", mark_rest_long([1, 30, 60, 100], retained=(0, 1)))
@pytest.mark.parametrize("long", ["w", "internationalization", "x" * 80])
def test_drawn_texts__are_within_their_cards_and_do_not_overlap(nodes, long):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.patches import FancyBboxPatch

    generator = np.random.default_rng(nodes)
    parents = [-1, *(int(generator.integers(max(number - 12, 0), number)) for number in range(1, nodes))]
    figure = _figure(tree_of(parents, ["of", long, "Kernel", "government", long]), "title", Style())
    figure.dpi = 72
    renderer = FigureCanvasAgg(figure).get_renderer()
    (axes,) = figure.axes
    texts = [text.get_window_extent(renderer) for text in axes.texts]
    cards = [panel.get_window_extent(renderer) for panel in axes.patches if isinstance(panel, FancyBboxPatch)]
    assert len(cards) == nodes
    for first, second in [*itertools.combinations(texts, 2), *itertools.combinations(cards, 2)]:
        assert not first.padded(-0.7).overlaps(second.padded(-0.7))  # glyphs begin on whole pixels, and lines are close
    held = [
        sum(card.padded(1.0).contains(*text.p0) and card.padded(1.0).contains(*text.p1) for card in cards)
        for text in texts
    ]
    assert sum(held) == len(texts) - held.count(0)  # no text is in two cards
    assert held.count(0) == sum(1 for text in axes.texts if text.get_position()[1] < min(y for _, y in tops(axes)))
    whole = figure.bbox
    assert all(whole.contains(*text.p0) and whole.contains(*text.p1) for text in texts)


def tops(axes):
    from matplotlib.patches import FancyBboxPatch

    return [(panel.get_x(), panel.get_y()) for panel in axes.patches if isinstance(panel, FancyBboxPatch)]

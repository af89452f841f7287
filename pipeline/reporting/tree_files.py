"""Write a tree of topics to files: pictures and GraphML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import replace

from collapsium.pipeline.formatting import plain
from collapsium.pipeline.models.topics import Topic
from collapsium.pipeline.reporting.plots.style import picture_kind
from collapsium.pipeline.reporting.plots.tree import tree_drawing
from collapsium.pipeline.reporting.trees import MAX_DRAWN, fold
from collapsium.storage.errors import OptionError
from collapsium.storage.io.file import File, require_free

LABEL_WORDS = 3
NAMESPACE = "http://graphml.graphdrawing.org/xmlns"


def check(pictures: Sequence[str], graph: str | None, *, overwrite: bool = False) -> None:
    """Refuse files that could not be written, before any work is done."""
    for path in pictures:
        picture_kind(path, "picture")
    paths = [*pictures, *([] if graph is None else [graph])]
    for path in paths:
        if paths.count(path) > 1:
            raise OptionError(f"{path}: named twice")
    if not overwrite:
        require_free(*paths)


def write(
    tree: Sequence[Topic],
    pictures: Sequence[str],
    graph: str | None,
    *,
    title: str = "",
    words: int | None = None,
    min_share: float | None = None,
    levels: int | None = None,
) -> None:
    """Write pictures of a tree, and its GraphML."""
    paths = [*pictures, *([] if graph is None else [graph])]
    if paths and any(node.level is None for node in tree):
        option = "picture" if pictures else "graphml"
        raise OptionError(f"`{option}` {paths[0]}: this family's topics are not a tree; omit the option")
    shown = fold(tree, min_share=min_share, levels=levels, max_entries=MAX_DRAWN) if pictures else []
    short = [replace(node, words=node.words[:words]) for node in shown]
    files = {path: tree_drawing(short, title).file(picture_kind(path, "picture")) for path in pictures}
    if graph is not None:
        files[graph] = graphml(tree)
    for path, content in files.items():
        File(path).write(content)


def graphml(tree: Sequence[Topic]) -> bytes:
    """Return a tree as GraphML.

    Nodes have the attributes ``label`` (the first words), ``words`` (all words, separated by commas), ``share``,
    ``below`` and ``level``, and ``stability`` where it is known; edges go from parent to child.
    """
    kinds = {"label": "string", "words": "string", "share": "double", "below": "double", "level": "long"}
    if any(node.stability is not None for node in tree):
        kinds["stability"] = "double"
    root = ET.Element("graphml", {"xmlns": NAMESPACE})
    for name, kind in kinds.items():
        ET.SubElement(root, "key", {"id": name, "for": "node", "attr.name": name, "attr.type": kind})
    graph = ET.SubElement(root, "graph", {"id": "topics", "edgedefault": "directed"})
    for node in tree:
        element = ET.SubElement(graph, "node", {"id": str(node.id)})
        for name, value in _attributes(node).items():
            if name in kinds and value is not None:
                # Words may contain characters that XML does not allow.
                ET.SubElement(element, "data", {"key": name}).text = value if kinds[name] != "string" else plain(value)
    for node in tree:
        if node.parent is not None:
            ET.SubElement(graph, "edge", {"source": str(node.parent), "target": str(node.id)})
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="UTF-8", xml_declaration=True)
    return text + b"\n"


def _attributes(node: Topic) -> Mapping[str, str | None]:
    return {
        "label": " ".join(node.names[:LABEL_WORDS]) if node.title is None else node.title,
        "words": ", ".join(node.names),
        "share": repr(node.share),
        "below": repr(node.below),
        "level": str(node.level),
        "stability": None if node.stability is None else repr(node.stability),
    }

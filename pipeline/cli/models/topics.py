"""Print the topics of a model, the largest first: id, share of the tokens and most probable words.

Of a family whose topics are a tree, the nodes, depth-first, siblings by size, words indented
by level: id; share, of the tokens at the node; below, of those at it and all nodes below it.
Words of signed loadings, of which a minus sign marks the negative ones, fall by magnitude.

Of restarts or kept samples, the first restart's or the last sample's topics, with a
column between: how stable each is, 1 where all members have the very same topic.

Of families that take labels, --given lists the topics that a document with some labels is
expected to have, the largest proportion first, beside their share of the corpus; and --labels
each label with the topics that it raises most, by the log of the factor by which it does so,
beside their share of the corpus; of families without such factors, by lift (with one percent
added to both shares, so that rare topics do not come first by chance): the proportion expected
given the label, how many times the share of the corpus that is, and that share.

    collapsium topics RUN
    collapsium topics RUN --given grain,wheat --given "Cote d'Ivoire, Republic of" --given stars=4
    collapsium topics RUN --labels --csv weights.csv
    collapsium topics RUN --picture tree.svg --picture tree.png --graphml tree.graphml
    collapsium topics RUN --min-share 0.01 --levels 3
    collapsium topics RUN --json

Where topics are those of labels, the label stands before the words.

Branches of trees are folded by --min-share, the share of the tokens at a node and below it, and --levels; an entry
"… n more" then stands for the nodes and their share. By default all nodes are printed, and pictures have sixty entries
at most, those of the largest nodes (--min-share 0: all). GraphML always has all.

--json prints a list in the same order, an object a topic: id, title where it is that of a
label, share, stability where there are several members, and words, objects of word and
probability (or loading); a tree's nodes have parent (the id of the node above, null for
the root), level (0 for the root) and below; above folded ones, folded (nodes and below). With
--given each has expected too; with --labels it is an object: topics, such a list, and labels,
each with label, documents, and weights in the order of the topics (and expected, proportions,
of families without factors).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from collapsium.pipeline.analysis.options import LabelOptions, TopicOptions
from collapsium.pipeline.cli.command import Command, Flags, UsageError, argument
from collapsium.pipeline.cli.options import JsonOptions
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.options import FoldingOptions, TreeFileOptions
from collapsium.storage.errors import OptionError

if TYPE_CHECKING:
    from collapsium.pipeline.analysis.labels.expected_topics import ExpectedTopic, LabelTopics
    from collapsium.pipeline.analysis.topics import Topic

WORDS, DRAWN = 10, 5
FOREMOST, SHOWN = 5, 0.001  # topics of a label, and proportions, that are printed


def execute(
    run: Annotated[str, argument("RUN", "a run, a model, or a simulated corpus, whose true topics are printed")],
    /,
    flags: Flags,
) -> None:
    """Print the topics, and write their tree."""
    from collapsium.pipeline.analysis.topics import topics
    from collapsium.pipeline.reporting.tree_files import check, write
    from collapsium.pipeline.reporting.tree_folding import check_folding, fold

    words, labels, files = flags.of(TopicOptions).words, flags.of(LabelOptions), flags.of(TreeFileOptions)
    folding = dict(flags.of(FoldingOptions))
    if labels.given is not None and labels.labels:
        raise UsageError("argument --labels: not allowed with argument --given")
    if labels.csv is not None and not labels.labels:
        raise UsageError("--csv takes --labels")
    if labels.given is not None or labels.labels:
        if flags.given(TreeFileOptions, FoldingOptions):
            raise UsageError(
                "--picture, --graphml, --min-share and --levels are of trees, without --given and --labels"
            )
        _print_labelled(run, flags, WORDS if words is None else words)
        return
    check(files.picture, files.graphml)
    check_folding(**folding)
    found = topics(run, WORDS if words is None else words)
    for name, value in flags.given(FoldingOptions).items():
        if any(topic.level is None for topic in found):
            raise OptionError(f"`{name}` {value}: the family's topics are no tree; leave the option out")
    title, count = f"{run}: {len(found):,} nodes", len(found)
    drawn = DRAWN if words is None else words
    write(found, files.picture, files.graphml, title=title, words=drawn, **folding)
    if flags.given(FoldingOptions):
        found = fold(found, **folding)
    if flags.json:
        several = any(topic.stability is not None for topic in found)
        print_json(_records(found, several))
        return
    _print(found)
    for path in [*files.picture, *([] if files.graphml is None else [files.graphml])]:
        print(f"{path}: a tree of {count:,} nodes")


def _print_labelled(run: str, flags: Flags, words: int) -> None:
    """Print what labels let one expect."""
    from collapsium.pipeline.analysis.labels.expected_topics import (
        expected_topics,
        label_topics,
        named_labels,
        write_weights,
    )

    options = flags.of(LabelOptions)
    if options.given is not None:
        expected = expected_topics(run, named_labels(run, options.given), words)
        if flags.json:
            print_json([{**_record(one.topic, False), "expected": one.expected} for one in expected])
        else:
            _print_expected(expected)
        return
    table = label_topics(run, words)
    if options.csv is not None:
        write_weights(table, options.csv)
    if flags.json:
        rows = zip(table.titles, table.documents, table.weights.tolist(), strict=True)
        labels = [{"label": title, "documents": count, "weights": row} for title, count, row in rows]
        if table.expected is not None:
            for label, expected_row in zip(labels, table.expected.tolist(), strict=True):
                label["expected"] = expected_row
        print_json({"topics": [_record(one, False) for one in table.topics], "labels": labels})
        return
    _print_labels(table)
    if options.csv is not None:
        print(f"{options.csv}: weights of {len(table.titles):,} labels and {len(table.topics):,} topics")


def _said(topic: Topic) -> str:
    """Return a topic's title, where it has one, and its words."""
    return plain(" ".join(([] if topic.title is None else [f"{topic.title}:"]) + topic.names))


def _print_expected(found: Sequence[ExpectedTopic]) -> None:
    """Print a line a topic."""
    print(f"{'id':>5} {'expected':>8} {'share':>8}  words")
    for one in found:
        if one.expected >= SHOWN:
            print(f"{one.topic.id:5d} {one.expected:8.3%} {one.topic.share:8.3%}  {_said(one.topic)}")
    left = [one.expected for one in found if one.expected < SHOWN]
    if left:
        print(f"and {len(left):,} below {SHOWN:.1%}, {sum(left):.3%} in all")


def _print_labels(table: LabelTopics) -> None:
    """Print a line a label, and a line each of the topics that it raises most."""
    from collapsium.pipeline.analysis.labels.lift import LEAST_OVERALL
    from collapsium.pipeline.reporting.charts import times

    for label, (title, count) in enumerate(zip(table.titles, table.documents, strict=True)):
        print(f"{plain(title)}  ({count:,} documents)")
        for place in table.foremost(label, FOREMOST):
            topic = table.topics[place]
            if table.expected is None:
                figures = f"{table.weights[label, place]:+8.3f}"
            else:
                lift = times(float(table.expected[label, place]) / max(topic.share, LEAST_OVERALL))
                figures = f"{table.expected[label, place]:8.3%} {'×' + lift:>6}"
            print(f"{topic.id:7d} {figures} {topic.share:8.3%}  {_said(topic)}")


def _record(topic: Topic, several: bool) -> dict[str, Any]:
    value = "loading" if topic.signed else "probability"
    tree = {} if topic.level is None else {"parent": topic.parent, "level": topic.level, "below": topic.below}
    return {
        "id": topic.id,
        **({} if topic.title is None else {"title": topic.title}),
        **tree,
        "share": topic.share,
        **({"stability": topic.stability} if several else {}),
        "words": [{"word": word, value: p} for word, p in topic.words],
    }


def _records(found: Sequence[Topic], several: bool) -> list[dict[str, Any]]:
    """Return an object a topic; what is folded is told of the node above."""
    from collapsium.pipeline.reporting.tree_folding import FoldedNodes

    records = {topic.id: _record(topic, several) for topic in found if not isinstance(topic, FoldedNodes)}
    for topic in found:
        if isinstance(topic, FoldedNodes):
            records[topic.id]["folded"] = {"nodes": topic.count, "below": topic.below}
    return list(records.values())


def _print(found: Sequence[Topic]) -> None:
    """Print a line a topic; where they are a tree, under the columns' names."""
    from collapsium.pipeline.reporting.tree_folding import FoldedNodes

    several = any(topic.stability is not None for topic in found)
    if found and found[0].level is not None:
        print(f"{'id':>5} {'share':>8} {'below':>8}{' stable' if several else ''}  words")
    for topic in found:
        stable = (f" {topic.stability:6.3f}" if topic.stability is not None else f" {'':6}") if several else ""
        below, indent = ("", "") if topic.level is None else (f" {topic.below:8.3%}", "  " * topic.level)
        if isinstance(topic, FoldedNodes):
            print(f"{'':5} {'':8}{below}{stable}  {indent}{topic.label}")
            continue
        print(f"{topic.id:5d} {topic.share:8.3%}{below}{stable}  {indent}{_said(topic)}")


COMMAND = Command(execute, (TopicOptions, JsonOptions, LabelOptions, TreeFileOptions, FoldingOptions))

"""The command `collapsium topics`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.analysis.options import LabelOptions, NamerOptions, TopicOptions
from collapsium.pipeline.cli.command import JsonOptions, UsageError, argument, named_options, print_json
from collapsium.pipeline.formatting import counted, plain, times
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.options import OverwriteOptions, RankOptions
from collapsium.pipeline.reporting.options import FoldingOptions, TreeFileOptions
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import OptionError
from collapsium.storage.printable import guarded_note

# Default extent of the output
WORDS = 10  # Words of a topic in lists
PICTURE_WORDS = 5  # Words of a node in pictures
TOPICS_PER_LABEL = 5  # Those that the label raises most
MIN_EXPECTED = 0.001  # Smallest expected proportion that is printed
MIN_SHARE = 5e-6  # Smallest share of the tokens that is printed: smaller ones would be 0.000%
TOPICS_EPILOG = """examples:
  collapsium topics RUN
  collapsium topics RUN --rank-by frex --words 8
  collapsium topics RUN --name names:from_words
  collapsium topics RUN --name names:from_words --texts 'news/*.jsonl.gz'
  collapsium topics RUN --given grain,wheat --given "Cote d'Ivoire, Republic of" --given stars=4
  collapsium topics RUN --labels --csv weights.csv
  collapsium topics RUN --picture tree.svg --picture tree.png --graphml tree.graphml
  collapsium topics RUN --min-share 0.01 --levels 3
  collapsium topics RUN --json"""


def topics(
    run: Annotated[str, argument("RUN", "a run, a model, or a simulated corpus (whose true topics are printed)")],
    /,
    *,
    options: TopicOptions,
    naming: NamerOptions,
    ranking: RankOptions,
    output: JsonOptions,
    labels: LabelOptions,
    files: TreeFileOptions,
    replacing: OverwriteOptions,
    folds: FoldingOptions,
) -> None:
    """Print the topics of a model: id, share of the tokens and first words.

    The largest topic comes first. If topics belong to labels, the label precedes the
    words. For restarts or samples, the means of their matching topics are printed, with
    their stability (1 if all members have exactly the same topic) and the number of
    members in which each was found. For a consensus (`fit --combine consensus`), the
    topics of the joint model are printed. Topics of trees, labels, segments and vectors are
    not matched: the topics of the first restart or the last sample are printed, with their
    stability.

    Words. By default the most probable words come first, which many topics may share.
    --rank-by frex shows words that are frequent in the topic and rare in others,
    --rank-by relevance and lift words that are more frequent than in the corpus. Words
    with less than half an expected token in a topic come last.

    Names. --name calls a function for the name of each topic and saves the names with
    the model, so that reports, plots and exports show them too. A topic that it fails to
    name keeps its words, with a warning. The function is not called again for a topic
    whose words and documents it has seen, nor for names given by `edit --rename` or by
    seeds.

    Labels. --given prints the expected topics of a document with some labels, by
    decreasing proportion, with their share of the corpus. --labels prints each label
    with the topics that it raises most: the log of the factor by which it scales
    their proportion, and their share of the corpus. Families without such factors are
    ranked by lift, the expected proportion given the label divided by the share (1% is
    added to both, so that rare topics do not come first by chance).

    Trees. Nodes are printed depth-first, siblings by size, words indented by level.
    The column share is the share of the tokens at a node; the column below is the
    share at the node and at all nodes below it. If words have signed loadings, they
    are ordered by magnitude, and a minus sign marks negative ones. --min-share and
    --levels fold branches into an entry "… n more". By default all nodes are printed,
    and pictures show the largest, in at most sixty entries (--min-share 0: all).
    GraphML files have all nodes.

    JSON. --json prints a list with one object for each topic. Its keys are `id`,
    `title` (the name of the topic, or the label that it belongs to), `share`,
    `stability` (if there are several members), `support` (the number of members in
    which a matched topic was found) and `words`, a list of objects with `word` and
    `probability` (or `loading`). A node of a tree also has `parent` (the id of the node
    above, null for the root), `level` (0 for the root) and `below`; a node above folded
    nodes has `folded`, an object with the keys `nodes` and `below`. With --given, each
    topic also has `expected`. With --labels, there is one object: `topics` is such a
    list, and `labels` is a list of objects with `label`, `documents` and `weights` in
    the order of the topics (for families without factors also `expected`, the
    proportions).
    """
    from collapsium.pipeline.reporting import trees
    from collapsium.pipeline.reporting.plots.tree import check_files, write_files

    words, namer, count = options.words, options.name, WORDS if options.words is None else options.words
    if namer is None and named_options(naming):
        raise UsageError("--texts requires --name")
    folding = dict(folds)
    if labels.given is not None and labels.labels:
        raise UsageError("argument --labels: not allowed with argument --given")
    if labels.csv is not None and not labels.labels:
        raise UsageError("--csv requires --labels")
    if labels.given is not None or labels.labels:
        if namer is not None or named_options(ranking, files, folds):
            raise UsageError(
                "--name, --rank-by, --rank-weight, --picture, --graphml, --min-share and --levels cannot be combined "
                "with --given or --labels"
            )
        _print_labelled(run, labels, count, as_json=output.as_json, overwrite=replacing.overwrite)
        return
    check_files(files.picture, files.graphml, **named_options(replacing))
    trees.check_folding(**folding)
    if namer is not None:

        def warn(line: str) -> None:
            print(f"collapsium: warning: {plain(line)}", file=sys.stderr)

        with counting("naming") as progress:
            pipeline.name_topics(run, namer, **named_options(naming, ranking), notice=warn, progress=progress)
    entries = pipeline.topics(run, count, **named_options(ranking))
    for name, value in named_options(folds).items():
        if any(topic.level is None for topic in entries):
            raise OptionError(f"`{name}` {value}: the family's topics are not a tree; leave the option out")
    nodes, drawn = f"{len(entries):,} nodes", PICTURE_WORDS if words is None else words
    write_files(entries, files.picture, files.graphml, title=f"{run}: {nodes}", words=drawn, **folding)
    if named_options(folds):
        entries = trees.fold(entries, **folding)
    if output.as_json:
        several = any(topic.stability is not None for topic in entries)
        records = {topic.id: _record(topic, several) for topic in entries if not isinstance(topic, trees.FoldedNodes)}
        for topic in entries:
            if isinstance(topic, trees.FoldedNodes):
                records[topic.id]["folded"] = {"nodes": topic.count, "below": topic.below}
        print_json(list(records.values()))
        return
    _print(run, entries)
    for path in [*files.picture, *([] if files.graphml is None else [files.graphml])]:
        print(f"{path}: a tree of {nodes}")


def _print_labelled(run: str, options: LabelOptions, words: int, *, as_json: bool, overwrite: bool) -> None:
    """Print the topics expected given labels, or each label with its topics."""
    from collapsium.pipeline.analysis import expected_topics

    if options.given is not None:
        expected = pipeline.expected_topics(run, expected_topics.named_labels(run, options.given), words)
        if as_json:
            print_json([{**_record(topic.topic, False), "expected": topic.expected} for topic in expected])
            return
        print(f"{'id':>5} {'expected':>8} {'share':>8}  words")
        for row in expected:
            if row.expected >= MIN_EXPECTED:
                print(f"{row.topic.id:5d} {row.expected:8.3%} {row.topic.share:8.3%}  {_words_of(row.topic)}")
        rest = [row.expected for row in expected if row.expected < MIN_EXPECTED]
        if rest:
            print(f"and {len(rest):,} below {MIN_EXPECTED:.1%}, {sum(rest):.3%} in total")
        return
    table = pipeline.label_topics(run, words)
    guarded = 0 if options.csv is None else expected_topics.write_weights(table, options.csv, overwrite=overwrite)
    if as_json:
        rows = zip(table.titles, table.documents, table.weights.tolist(), strict=True)
        labels = [{"label": title, "documents": count, "weights": row} for title, count, row in rows]
        if table.expected is not None:
            for label, expected_row in zip(labels, table.expected.tolist(), strict=True):
                label["expected"] = expected_row
        print_json({"topics": [_record(topic, False) for topic in table.topics], "labels": labels})
        return
    for number, (title, count) in enumerate(zip(table.titles, table.documents, strict=True)):
        print(f"{plain(title)}  ({counted(count, 'document')})")
        for column in table.foremost(number, TOPICS_PER_LABEL):
            topic = table.topics[column]
            if table.expected is None:
                columns = f"{table.weights[number, column]:+8.3f}"
            else:
                lift = times(float(table.expected[number, column]) / max(topic.share, expected_topics.MIN_OVERALL))
                columns = f"{table.expected[number, column]:8.3%} {'×' + lift:>6}"
            print(f"{topic.id:7d} {columns} {topic.share:8.3%}  {_words_of(topic)}")
    if options.csv is not None:
        print(
            f"{options.csv}: weights of {counted(len(table.titles), 'label')} and {counted(len(table.topics), 'topic')}"
        )
        for note in guarded_note(guarded):
            print(note)


def _words_of(topic: pipeline.Topic) -> str:
    """Return a topic's title, if it has one, and its words."""
    return plain(" ".join(([] if topic.title is None else [f"{topic.title}:"]) + topic.names))


def _record(topic: pipeline.Topic, several: bool) -> JsonObject:
    """Return a topic for JSON."""
    value = "loading" if topic.signed else "probability"
    tree = {} if topic.level is None else {"parent": topic.parent, "level": topic.level, "below": topic.below}
    return {
        "id": topic.id,
        **({} if topic.title is None else {"title": topic.title}),
        **tree,
        "share": topic.share,
        **({"stability": topic.stability} if several else {}),
        **({} if topic.support is None else {"support": topic.support}),
        "words": [{"word": word, value: p} for word, p in topic.words],
    }


def _print(run: str, entries: Sequence[pipeline.Topic]) -> None:
    """Print a line for each topic, the number of topics that are not shown, and the family's remark on their number."""
    from collapsium.pipeline.models import model as models
    from collapsium.pipeline.reporting import trees

    shown = [topic for topic in entries if topic.level is not None or topic.share >= MIN_SHARE]
    entries = shown or entries
    several, joined = (any(getattr(entry, name) is not None for entry in entries) for name in ("stability", "support"))
    if joined:
        print(f"{'id':>5} {'share':>8} stable  in  words")
    elif entries and entries[0].level is not None:
        print(f"{'id':>5} {'share':>8} {'below':>8}{' stable' if several else ''}  words")
    for topic in entries:
        stable = (f" {topic.stability:6.3f}" if topic.stability is not None else f" {'':6}") if several else ""
        below, indent = ("", "") if topic.level is None else (f" {topic.below:8.3%}", "  " * topic.level)
        stable += f" {'' if topic.support is None else topic.support:3}" if joined else ""
        if isinstance(topic, trees.FoldedNodes):
            print(f"{'':5} {'':8}{below}{stable}  {indent}{topic.label}")
            continue
        print(f"{topic.id:5d} {topic.share:8.3%}{below}{stable}  {indent}{_words_of(topic)}")
    model = models.Model(run)
    limit = model.record.options.get("topics")
    if "topics" in model.metrics() and isinstance(limit, int) and 0 < len(shown) < limit:
        print(f"and {limit - len(shown):,} of at most {limit:,} topics, with no tokens or next to none")
    remark = model.remark()
    if remark is not None:
        print(remark)

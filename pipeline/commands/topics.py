"""Print the topics of a model, the largest first: share of the tokens and most probable words.

Of restarts or kept samples, the first restart's or the last sample's topics, with a
column between: how stable each is, 1 where all members have the very same topic.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collapsar.pipeline.commands.options import add_json, print_json

HELP = "print the topics of a model"


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument(
        "run", metavar="RUN", help="a run, a model, or a simulated corpus, whose true topics are printed"
    )
    parser.add_argument("--words", type=int, default=10, metavar="N", help="words to print of each (default: 10)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Print the topics."""
    from collapsar.pipeline.describing import topics
    from collapsar.pipeline.progress import plain

    found = topics(arguments.run, arguments.words)
    if arguments.json:
        print_json(
            [
                {
                    "id": topic.id,
                    "share": topic.share,
                    **({} if all(one.stability is None for one in found) else {"stability": topic.stability}),
                    "words": [{"word": word, "probability": p} for word, p in topic.words],
                }
                for topic in found
            ]
        )
        return
    several = any(topic.stability is not None for topic in found)
    for topic in found:
        stable = (f" {topic.stability:6.3f}" if topic.stability is not None else f" {'':6}") if several else ""
        print(f"{topic.id:5d} {topic.share:8.3%}{stable}  {plain(' '.join(word for word, _ in topic.words))}")

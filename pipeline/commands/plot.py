"""Draw a run: the course of its fit, the sizes of its topics and their map, as PNG or SVG (extra: plots).

    collapsar plot RUN run.svg
    collapsar plot RUN score.png --what score
    collapsar plot RUN topics.svg --what sizes --what map
    collapsar plot RUN labels.svg --what labels

score, objective: over iterations. topics: how many there are, over iterations. parameters: each hyperparameter
that has changed, over iterations. sizes: shares of the tokens, the largest first. map: topics in the plane,
by classical scaling of the Hellinger distances of their words' probabilities. labels: of families that take labels,
at most 40 labels and 40 topics in the plane, close where a label raises a topic (multidimensional scaling of the
weights that `collapsar topics --labels` lists); a picture by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

HELP = "draw the course of a fit, its topics' sizes and their map, as PNG or SVG"
WHAT = ("score", "objective", "topics", "parameters", "sizes", "map", "labels")


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("run", metavar="RUN", help="a run or a model")
    parser.add_argument("out", metavar="OUT", help="file to write, whose name ends in .png or .svg")
    parser.add_argument(
        "--what",
        action="append",
        choices=WHAT,
        metavar="WHAT",
        help=f"{', '.join(WHAT)}; may be given again (default: all that there is, but labels)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Draw, and say what was drawn."""
    from collapsar.pipeline.runplots import plot

    found = plot(arguments.run, arguments.out, what=arguments.what)
    print(f"{arguments.out}: {', '.join(found)}")

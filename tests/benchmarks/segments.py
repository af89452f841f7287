"""Experiments on segments and sequences (Buntine, Du and Nurmi 2010), each with a table (OUT/NAME.md and .json) and a plot.

``python -m tests.benchmarks.segments planted OUT``: drawn corpora; what is recovered of topics, strengths and segments.
``python -m tests.benchmarks.segments nips PAPERS OUT``: perplexity beside LDA on documents and on segments (Table 1).
``python -m tests.benchmarks.segments prince TEXT OUT``: how topics go on from chapter to chapter (Figures 4 and 5).
``python -m tests.benchmarks.segments speed CORPUS``: tokens a second, beside gibbs-lda on the same documents.
PAPERS are JSON lines with id and text, TEXT is the book's, CORPUS a folder with segments. Fits that lie in OUT already are
not made again: other options, another OUT.
"""

from tests.benchmarks import segments_planted, segments_texts
from tests.benchmarks.commands import run_command

COMMANDS = {  # each command's function, its paths, and its options with defaults
    "planted": (
        segments_planted.planted,
        ("out",),
        {"seeds": 10, "documents": 200, "segments": 20, "tokens": 20, "topics": 5, "words": 500, "iterations": 300},
    ),
    "nips": (
        segments_texts.nips,
        ("papers", "out"),
        {"topics": (100,), "iterations": 500, "samples": 5, "share": 0.6, "seed": 0},
    ),
    "prince": (segments_texts.prince, ("text", "out"), {"topics": 10, "iterations": 1000, "samples": 40, "seeds": 6}),
    "speed": (segments_texts.speed, ("corpus",), {"topics": 100, "iterations": 30, "rounds": 3}),
}


def main(arguments=None):
    """Run the requested experiments."""
    run_command(__doc__, COMMANDS, arguments)


if __name__ == "__main__":
    main()

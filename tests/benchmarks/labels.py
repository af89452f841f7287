"""The experiments of Kim and Oh (2017) on labels, each with a table (OUT/NAME.md and .json) and a plot (OUT/NAME.png).

``python -m tests.benchmarks.labels synthetic OUT``: five topics over ten terms and four labels (Figure 2).
``python -m tests.benchmarks.labels cube OUT``: weights from distances in a cube, by its side (Figure 3).
``python -m tests.benchmarks.labels predictive OUT``: perplexity given labels beside the HDP's (Figure 4).
``python -m tests.benchmarks.labels kept TRAIN TEST OUT``: perplexity with a share of the labels (Figure 8).
``python -m tests.benchmarks.labels classes TRAIN TEST FIELD OUT``: one label a document, beside LDA + SVM (Figure 9).
``python -m tests.benchmarks.labels eta TRAIN OUT``: topics used against eta (Figure 11).
Corpora are folders as `collapsium ingest` makes them. Fits that lie in OUT already are not made again: other options, another OUT.
"""

from tests.benchmarks import labels_kept, labels_synthetic
from tests.benchmarks.commands import run_command

COMMANDS = {  # each command's function, its paths, and its options with defaults
    "synthetic": (labels_synthetic.synthetic, ("out",), {"documents": 500, "tokens": 20, "seeds": 10, "restarts": 6}),
    "cube": (
        labels_synthetic.cube,
        ("out",),
        {
            "sides": (1.0, 2.0, 5.0, 10.0, 15.0, 20.0),
            "runs": 5,
            "documents": 1000,
            "topics": 10,
            "labels": 10,
            "tokens": 200,
            "alpha": 10.0,
            "restarts": 4,
        },
    ),
    "predictive": (
        labels_synthetic.predictive,
        ("out",),
        {"words": 1000, "topics": 200, "runs": 2, "iterations": 30, "alpha": 1.0, "variance": 4.0},
    ),
    "kept": (
        labels_kept.kept,
        ("train", "test", "out"),
        {
            "shares": (0.1, 0.2, 0.5, 0.9),
            "restarts": 4,
            "iterations": 20,
            "etas": (0.1, 0.25, 0.5, 0.75, 1.0),
            "sweeps": 200,
            "seed": 1,
        },
    ),
    "eta": (
        labels_kept.eta,
        ("train", "out"),
        {"etas": (0.1, 0.25, 0.5, 0.75, 1.0), "topics": 200, "iterations": 50, "seed": 1},
    ),
    "classes": (
        labels_kept.classes,
        ("train", "test", "field", "out"),
        {"topics": 200, "lda": 200, "slda": 50, "alphas": (10.0, 1000.0), "iterations": 20, "seed": 1},
    ),
}


def main(arguments=None):
    """Run the requested experiments."""
    run_command(__doc__, COMMANDS, arguments)


if __name__ == "__main__":
    main()

"""Small records of a run, as the program writes them."""

RUN = {
    "family": "lda",
    "options": {"topics": 3},
    "limits": {
        "iterations": 5, "tolerance": 0.0, "stop_on": "counts", "score_every": None, "local_sweeps": 1,
        "schedule": "batch", "passes": 1, "batch_shards": 4, "samples": 0, "sample_every": 0,
    },
    "planned": 5,
    "seed": 0,
    "corpus": {"url": "corpus", "digest": "0" * 64, "shards": ["1" * 64]},
    "heldout": None,
    "versions": {"collapsium": "0.1.0"},
}  # fmt: skip
START = {
    "event": "start", "iteration": 0, "elapsed": 0.0, "family": "lda", "documents": 2, "tokens": 8, "words": 3,
    "shards": 1, "iterations": 5,
}  # fmt: skip
CELL = {
    "cell": "lda-40", "family": "lda", "start": "random", "topics": 40, "restarts": 1, "iterations": 5, "samples": 0,
    "score": -7.5, "score_error": None, "ensemble_score": -7.5, "perplexity": 1808.0, "objective": None,
    "objective_error": None, "seconds": 1.0, "cell_seconds": 1.0, "topics_99": 38.0, "npmi": None, "diversity": None,
    "scores": [-7.5], "options": "{}",
}  # fmt: skip

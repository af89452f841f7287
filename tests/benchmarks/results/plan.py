"""What `make results` runs: corpora, and each contestant at its best documented settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from collapsium.storage.data_types import JsonObject

SEEDS = 5
HELD_OUT = 0.1
"""Share of each document's tokens that is held out."""
FLAT = 0.005
"""Nats by which a fit of twice the iterations has to score higher, or the curve of a contestant is flat."""
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""Iterations after which a fit is scored."""


@dataclass(frozen=True)
class Corpus:
    """A corpus: simulated by `collapsium simulate`, the sample texts, or a public one from the folder of sources."""

    name: str
    part: str
    topics: int  # K of all contestants except `hdp`
    about: str
    simulate: JsonObject = field(default_factory=dict)  # Options of `simulate`
    source: str = ""  # Path under the folder of sources


def _simulated(name: str, about: str, topics: int, *, tokens: int, skewed: bool = False) -> Corpus:
    # Topics have fewer words than the default prior of `lda` expects (100), so no contestant has the true prior.
    sizes = {"documents": 500, "words": 500, "tokens": tokens, "topics": topics, "beta": 25.0, "seed": 1}
    # Flat: each document has a few of the topics, all equally frequent. Skewed: shares by stick-breaking, the largest of which
    # # are some ten times the median.
    # are some ten times the median.
    flat = {"family": "lda", "alpha": 2.0 / topics}
    sticks = {
        "family": "hdp",
        "gamma_shape": 200.0 * topics,
        "gamma_rate": 800.0,
        "alpha_shape": 80.0,
        "alpha_rate": 40.0,
    }
    return Corpus(name, "truth", topics, about, simulate={**sizes, **(sticks if skewed else flat)})


CORPORA = (
    _simulated("10 flat", "10 topics, equal shares, 100 tokens", 10, tokens=100),
    _simulated("30 flat", "30 topics, equal shares, 100 tokens", 30, tokens=100),
    _simulated("100 flat", "100 topics, equal shares, 100 tokens", 100, tokens=100),
    _simulated("30 skewed", "30 topics, unequal shares, 100 tokens", 30, tokens=100, skewed=True),
    _simulated("30 short", "30 topics, equal shares, 20 tokens", 30, tokens=20),
    _simulated("100 skewed, short", "100 topics, unequal shares, 20 tokens", 100, tokens=20, skewed=True),
    Corpus("addresses", "peers", 50, "paragraphs of US presidents' addresses, which ship with the package"),
    Corpus("AG News", "peers", 50, "10,000 short news texts", source="topic-quality/AGNews"),
)


@dataclass(frozen=True)
class Contestant:
    """A family of Collapsium or another library, with its settings and its largest number of iterations."""

    name: str
    iterations: int
    family: str = ""  # Ours
    peer: str = ""  # Another library, as `comparison.libraries` names it
    options: JsonObject = field(default_factory=dict)
    parts: tuple[str, ...] = ("truth", "peers")
    about: str = ""


CONTESTANTS = (
    Contestant("lda", 200, family="lda", about="defaults"),
    Contestant(
        "lda-untempered",
        200,
        family="lda",
        options={"inverse_temperature": 1.0},
        parts=("truth",),
        about="not tempered",
    ),
    Contestant("hdp", 200, family="hdp", about="defaults, not told the number of topics"),
    Contestant("gibbs-lda", 300, family="gibbs-lda", options={"learn": ["asymmetric-alpha"]}, parts=("truth",)),
    Contestant("vb-lda", 200, family="vb-lda", options={"alpha": 0.1}, parts=("truth",)),
    Contestant("tomotopy", 1000, peer="tomotopy", options={"alpha": 0.1, "eta": 0.05, "optim_interval": 10}),
    Contestant("topica", 200, peer="topica", options={"alpha": 0.1, "beta": 100.0, "sampler": "cvb0"}),
    Contestant("pyrmallet", 1000, peer="pyrmallet", options={"alpha": 0.1, "eta": 0.01, "optimize_interval": 10}),
    Contestant("gensim", 50, peer="gensim", options={"alpha": "auto", "eta": "auto"}),
    Contestant("scikit-learn", 100, peer="scikit-learn", options={"alpha": 0.1, "beta": 100.0}),
)

"""
Ensembles and the number of topics
==================================

You will average fits with several seeds, see which topics are stable,
and choose a family and a number of topics by held-out scores.
"""

# %%
# Several seeds
# -------------
#
# A fit ends in one of many local optima. `restarts` fits the same
# corpus with several seeds. Together, the fits are an ensemble; each is
# a member, whose run is stored in ``run/members``. `evaluate` scores
# each member and the mean of their predictive probabilities. The texts
# are paragraphs of US presidents' annual addresses.

import pandas as pd

from collapsium.pipeline import (
    compare,
    evaluate,
    fit,
    ingest,
    plot,
    sample_texts,
    simulate,
    split,
    topics,
)

texts = pd.DataFrame(sample_texts())
texts = texts[texts.kind == "annual"]
texts.to_json("texts.jsonl", orient="records", lines=True)
ingest("texts.jsonl", "corpus", min_documents=5, max_document_share=0.2)
split("corpus", "train", "heldout")
fit("train", "run", family="lda", topics=20, iterations=40, restarts=5)
score = evaluate("run", heldout="heldout")
print("members", *(f"{member.score:.3f}" for member in score.members))
print(f"mean of their predictions {score.score:.3f}")

# %%
# The ensemble predicts better than any member.
#
# Stable topics
# -------------
#
# The members' topics are matched one to one. `topics` lists the means
# of matching topics with their *stability*: one minus the mean
# Hellinger distance to the members' topics. A topic that every seed
# finds has a stability near one.

by_stability = sorted(
    topics("run", words=7), key=lambda topic: -topic.stability
)
for topic in [*by_stability[:4], *by_stability[-4:]]:
    print(f"{topic.stability:.2f}", *(word for word, _ in topic.words))

# %%
# How many topics?
# ----------------
#
# One way to find out is a family that infers the number. Here a corpus
# is simulated from ten topics, and ``hdp`` may use at most 40. It
# merges, splits and deletes topics between iterations, and about ten
# remain. On texts it usually keeps nearly all.

simulate(
    "drawn",
    family="lda",
    topics=10,
    documents=600,
    words=300,
    tokens=80,
)
model = fit(
    "drawn", "inferred", family="hdp", topics=40, iterations=150
)
shares = model.topics().share
count = (shares.cumsum() < 0.99).sum() + 1
print(f"{count} topics have 99% of the tokens")
plot("inferred", "sizes.svg", what=["sizes"])

# %%
# Another way to choose the number is a comparison. `compare` fits
# families over numbers of topics and seeds, and tabulates the held-out
# scores. Called again after an interruption, it continues where it
# stopped.

comparison = compare(
    "train",
    "out",
    heldout="heldout",
    families=["lda", "hdp"],
    topics=[10, 20, 40],
    restarts=2,
    iterations=40,
)
table = pd.read_parquet("out/table.parquet")
table[
    [
        "family",
        "topics",
        "score",
        "score_error",
        "ensemble_score",
        "seconds",
    ]
]

# %%
# On real text, scores often rise with the number of topics well beyond
# what a person wants to read. Then let the purpose decide: few topics
# for reading, many for prediction.
#
# Where to go next
# ----------------
#
# * :doc:`/howto/batch`: an ensemble as a nightly job.
# * :doc:`/benchmarks/shapes`: ensembles and consensuses on other texts.
# * :doc:`/algorithms/number-of-topics`: how many topics ``hdp`` finds.

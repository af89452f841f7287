"""
Labels and ratings
==================

You will find the topics that belong to a label, predict labels and
ratings of documents from their words, and measure how well the
predictions work.
"""

# %%
# Documents with labels
# ---------------------
#
# The documents are paragraphs of US presidents' annual addresses; the
# label is the president. A fifth of the documents is set aside as
# unseen.

import random

import pandas as pd

from collapsium.pipeline import (
    evaluate,
    expected_topics,
    fit,
    ingest,
    label_topics,
    plot,
    predict,
    sample_texts,
    split,
)

texts = pd.DataFrame(sample_texts())
texts = texts[texts.kind == "annual"]
texts.to_json("texts.jsonl", orient="records", lines=True)
ingest(
    "texts.jsonl",
    "corpus",
    title="title",
    labels=["president"],
    min_documents=5,
    max_document_share=0.05,
)
split("corpus", "train", "unseen", documents=True, fraction=0.2)

# %%
# Labels as topics
# ----------------
#
# In ``partially-labeled-lda``, each label has separate topics, and all
# documents share background topics, which absorb words that say nothing
# about the label. The column `title` names each topic.

model = fit(
    "train",
    "labels",
    family="partially-labeled-lda",
    topics_per_label=1,
    background=3,
    iterations=100,
)
model.topics(words=6).head(8)

# %%
# `predict` looks at the words alone. It writes, for each document, the
# label under which the document's perplexity is lowest, and the scores
# of all candidates. `known` is the label that the document has.

predict(
    "labels",
    "unseen",
    "presidents.parquet",
    field="president",
    confusion="confusion.svg",
)
pd.read_parquet("presidents.parquet")[
    ["id", "predicted", "score", "known"]
].head()

# %%
# In the picture, each row stands for a true label, and each column for
# a predicted label.
#
# `evaluate` computes the scores. *Macro* F1 averages over the labels,
# so that rare labels count as much as common ones.

(scores,) = evaluate(
    "labels", unseen="unseen", field="president"
).fields
print(f"accuracy {scores.accuracy:.2f}, macro F1 {scores.macro_f1:.2f}")

# %%
# Labels and topics together
# --------------------------
#
# In ``hdsp``, the hierarchical Dirichlet scaling process, topics are
# shared by all labels. A label scales the proportions of topics up or
# down. `label_topics` returns the weights; the map draws labels next to
# the topics that they raise.

fit(
    "train",
    "scaled",
    family="hdsp",
    topics=40,
    iterations=20,
)
plot("scaled", "labels.svg", what=["labels"])

# %%
# Which topics are expected in a paragraph by Jimmy Carter?

for entry in expected_topics("scaled", ["Jimmy Carter"], words=5)[:4]:
    share, overall = entry.expected, entry.topic.share
    print(f"{share:.0%} expected, {overall:.0%} overall:")
    print("   ", *entry.topic.names)

# %%
# For every label, the topic that the label raises most:

weights = label_topics("scaled", words=5)
for row, name in enumerate(weights.titles):
    first = weights.topics[weights.foremost(row, 1)[0]]
    print(f"{name:21}", *(word for word, _ in first.words))

# %%
# Ratings
# -------
#
# A rating is a number. ``hdsp`` with ``scaling="linear"`` gives each
# topic a slope: how the topic changes with the number. These reviews
# are simulated: the more stars, the more words of praise. The slopes
# separate the two kinds of words.

draw = random.Random(0)
praise = [
    "excellent",
    "friendly",
    "delicious",
    "fresh",
    "wonderful",
    "perfect",
]
blame = ["slow", "rude", "cold", "expensive", "dirty", "disappointing"]
plain = [
    "table",
    "menu",
    "waiter",
    "kitchen",
    "order",
    "coffee",
    "bread",
    "dinner",
    "lunch",
    "street",
    "window",
]
reviews = []
for number in range(600):
    stars = number % 5 + 1
    words = [
        draw.choice(
            praise if draw.random() < (stars - 0.5) / 5 else blame
        )
        for _ in range(8)
    ]
    reviews.append(
        {
            "id": str(number),
            "text": " ".join(words + draw.choices(plain, k=5)),
            "stars": stars,
        }
    )
pd.DataFrame(reviews[:500]).to_json(
    "reviews.jsonl", orient="records", lines=True
)
pd.DataFrame(reviews[500:]).to_json(
    "later.jsonl", orient="records", lines=True
)

ingest("reviews.jsonl", "reviews", covariates=["stars"])
fit(
    "reviews",
    "ratings",
    family="hdsp",
    scaling="linear",
    covariates=["stars"],
    topics=3,
    iterations=60,
)
slopes = label_topics("ratings", words=6)
for topic, slope in zip(slopes.topics, slopes.weights[0], strict=True):
    print(
        f"{topic.share:.0%} {slope:+.1f}",
        *(word for word, _ in topic.words),
    )

# %%
# New texts need not be ingested first. Files are read with the same
# options as the training documents.

predict("ratings", "later.jsonl", "stars.csv", field="stars")
later = pd.read_csv("stars.csv")
error = (later.predicted - later.known).abs().mean()
print(f"mean error {error:.2f} stars")
later.groupby("known").predicted.mean()

# %%
# Where to go next
# ----------------
#
# * :doc:`/choosing`: labeled LDA, the author-topic model, and when to
#   choose which.
# * :doc:`/benchmarks/labels`: labels of Reuters, Yelp and NIPS, next to
#   other methods.
# * :doc:`/howto/formats`: labels from files next to the documents.

"""
Segments and sequences
======================

You will follow topics along a document, from segment to segment, and
compare models of segments with models of whole documents.
"""

# %%
# Documents of segments
# ---------------------
#
# Here a document is the annual address of a US president, and each of
# its paragraphs is a segment. The text field is a list of strings, one
# for each segment (``segments="column"``). Other values of `segments`
# split texts at paragraphs, sentences, lines or headings.

import pandas as pd

from collapsium.pipeline import (
    evaluate,
    explode,
    fit,
    infer,
    ingest,
    neighbour_distance,
    plot,
    sample_texts,
    split,
)

texts = pd.DataFrame(sample_texts())
texts = texts[texts.kind == "annual"]
addresses = texts.groupby(["year", "address"]).text.agg(list)
addresses = addresses.rename_axis(["year", "id"]).reset_index()
addresses[addresses.year.between(1961, 1980)].to_json(
    "addresses.jsonl", orient="records", lines=True
)

manifest = ingest(
    "addresses.jsonl",
    "addresses",
    segments="column",
    min_documents=2,
    max_document_share=0.9,
)
print(f"{manifest.documents} documents, {manifest.tokens} tokens")

# %%
# Segments that vary around their document
# ----------------------------------------
#
# In ``segmented-lda``, the proportions of a segment are drawn around
# the document's proportions. For comparison, LDA is fitted to a corpus
# in which each segment is a document, which `explode` creates.

fit(
    "addresses",
    "segmented",
    family="segmented-lda",
    topics=15,
    iterations=40,
)
explode("addresses", "segments")
fit("segments", "alone", family="gibbs-lda", topics=15, iterations=40)

# %%
# The picture shows the topics' shares along Kennedy's address of 1962.
# Matching topics have the same colour.

plot(
    "segmented",
    "segments.svg",
    what=["segments"],
    compare_with="alone",
    document="1962-Kennedy",
)

# %%
# How much do neighbouring segments differ? The mean Hellinger distance
# between their proportions is 0 for equal proportions and 1 for
# disjoint ones. It can be compared between models with different
# topics.

for run in ("segmented", "alone"):
    distance = neighbour_distance(run, document="1962-Kennedy")
    print(f"{run}: {distance:.2f}")

# %%
# `infer` with `segments` writes a row for each segment.

infer("segmented", "addresses", "shares.parquet", segments=True)
pd.read_parquet("shares.parquet").head(3)

# %%
# A sequence
# ----------
#
# In ``sequential-lda``, the proportions of each segment are drawn
# around the previous segment's. A single document is enough. This one
# consists of all addresses from 1945 to 2006, each a segment.

history = pd.DataFrame(
    [{"id": "history", "text": addresses.text.str.join("\n").tolist()}]
)
history.to_json("history.jsonl", orient="records", lines=True)
ingest(
    "history.jsonl",
    "history",
    segments="column",
    vocabulary="addresses",
)
fit(
    "history",
    "sequence",
    family="sequential-lda",
    topics=10,
    iterations=40,
)
plot("sequence", "sequence.svg", what=["segments"])

# %%
# Legislation and expenditures give way to taxes and jobs, and later to
# health care and children.
#
# Which predicts better?
# ----------------------
#
# Does ``segmented-lda`` predict words better than LDA on whole
# documents? Both are fitted to the same training documents. The
# proportions of the test documents are then fitted to half of their
# tokens, and the other half is scored; the halves are the same for both
# models.

split("addresses", "train", "test", documents=True, fraction=0.2)
split("test", "given", "scored", fraction=0.5)
fit(
    "train",
    "of_segments",
    family="segmented-lda",
    topics=15,
    iterations=40,
)
fit(
    "train",
    "of_documents",
    family="gibbs-lda",
    topics=15,
    iterations=40,
)
for run in ("of_segments", "of_documents"):
    score = evaluate(run, unseen="given", heldout="scored").score
    print(f"{run}: {score:.3f} nats per token")

# %%
# Where to go next
# ----------------
#
# * :doc:`/algorithms/networks`: ``dirichlet-network``, for topics that
#   depend on several things at once, such as years, journals and
#   sections.
# * :doc:`/benchmarks/papers`: papers of NIPS by sentences, and *The
#   Prince* by chapters.

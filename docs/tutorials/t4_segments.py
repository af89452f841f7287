"""
Segments and sequences
======================

You will be able to follow topics along a document, from segment to
segment, and to compare models of segments with models of documents.
"""

# %%
# Documents of segments
# ---------------------
#
# Here a document is a package of Python's standard library, and each of
# its modules, classes and functions is a segment. The text field is a
# list of strings, one for each segment (``segments="column"``). Other
# values of `segments` split texts at paragraphs, sentences, lines or
# headings.

import json
from pathlib import Path

import pandas as pd

from collapsium.pipeline import (
    evaluate,
    fit,
    flatten,
    infer,
    ingest,
    neighbour_distance,
    plot,
    sample_texts,
    split,
)

texts = pd.DataFrame(sample_texts()).sort_values(
    ["subject", "package", "id"]
)
packages = texts.groupby(["subject", "package"], sort=False).text.agg(
    list
)
lines = [
    {"id": name, "text": parts, "subject": subject}
    for (subject, name), parts in packages.items()
]
Path("packages.jsonl").write_text(
    "".join(json.dumps(line) + "\n" for line in lines)
)

manifest = ingest(
    "packages.jsonl",
    "packages",
    labels=["subject"],
    segments="column",
    min_documents=2,
)
print(f"{manifest.documents} documents, {manifest.tokens} tokens")

# %%
# Segments that vary about their document
# ---------------------------------------
#
# In ``segmented-lda`` the proportions of a segment are drawn around
# those of its document. For comparison, LDA is fitted to the segments
# as if they were documents by themselves: `flatten` makes such a
# corpus.

fit(
    "packages",
    "segmented",
    family="segmented-lda",
    topics=15,
    iterations=100,
)
flatten("packages", "segments")
fit("segments", "alone", family="gibbs-lda", topics=15, iterations=100)

# %%
# The picture shows the topics' shares along the package ``email``.
# Matching topics have the same colour.

plot(
    "segmented",
    "segments.svg",
    what=["segments"],
    compare_with="alone",
    document="email",
)

# %%
# How much do neighbouring segments differ? The mean Hellinger distance
# of their proportions is 0 for equal proportions and 1 for disjoint
# ones. The two models need not have the same topics for this.

for run in ("segmented", "alone"):
    print(f"{run}: {neighbour_distance(run, document='email'):.2f}")

# %%
# `infer` with `segments` writes a row for each segment.

infer("segmented", "packages", "shares.parquet", segments=True)
pd.read_parquet("shares.parquet").head(3)

# %%
# A sequence
# ----------
#
# In ``sequential-lda`` the proportions of each segment are drawn around
# those of the segment before it. One document is enough: this one has
# the packages of the library in the order of their subjects.

book = {
    "id": "library",
    "text": ["\n".join(parts) for parts in packages],
}
Path("library.jsonl").write_text(json.dumps(book) + "\n")
ingest("library.jsonl", "library", segments="column")
fit(
    "library",
    "sequence",
    family="sequential-lda",
    topics=10,
    iterations=60,
)
plot("sequence", "sequence.svg", what=["segments"])

# %%
# Which predicts better?
# ----------------------
#
# Both models are fitted to the same training documents. Proportions of
# the test documents are then fitted to half of their tokens, and the
# other half is scored. The tokens are the same for both models.

split("packages", "train", "test", documents=True, fraction=0.2)
split("test", "given", "scored", fraction=0.5)
fit(
    "train",
    "of_segments",
    family="segmented-lda",
    topics=15,
    iterations=100,
)
fit(
    "train",
    "of_documents",
    family="gibbs-lda",
    topics=15,
    iterations=100,
)
for run in ("of_segments", "of_documents"):
    score = evaluate(run, unseen="given", heldout="scored").score
    print(f"{run}: {score:.3f} nats a token")

# %%
# Where to go next
# ----------------
#
# * :doc:`/algorithms/index`: ``dirichlet-network``, for topics that
#   depend on several things at once, such as years, journals and
#   sections.
# * :doc:`/benchmarks/index`: papers of NIPS by sentences, and *The
#   Prince* by chapters.

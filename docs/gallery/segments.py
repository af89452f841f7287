"""
Segments along a text
=====================

In sequential LDA the proportions of each segment are drawn around the previous segment's. The picture shows the
topics' shares along an address, from paragraph to paragraph.
"""

# %%
# A document is an annual address of Kennedy or Johnson; its segments are the paragraphs.

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, plot, sample_texts

texts = pd.DataFrame(sample_texts())
chosen = texts[(texts["kind"] == "annual") & texts["year"].between(1961, 1969)]
addresses = chosen.groupby("address")["text"].agg(list).reset_index()
fit(
    addresses,
    "library",
    family="sequential-lda",
    topics=10,
    iterations=60,
    id="address",
    segments="column",
    min_documents=2,
    max_document_share=0.8,
)

# %%
# The picture also states the mean Hellinger distance between the proportions of neighbouring segments.

print(*plot("library", "segments.svg", what=["segments"], document="1962-Kennedy"))

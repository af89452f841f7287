"""
Segments along a text
=====================

In sequential LDA the proportions of each segment are drawn around those of the segment before it. The picture shows the
topics' shares along the document with the most segments.
"""

# %%
# The segments of these texts are their paragraphs.

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, plot, sample_texts

texts = pd.DataFrame(sample_texts())
texts = texts[texts["subject"].isin(["internet", "mail", "markup"])]
fit(
    texts,
    "library",
    family="sequential-lda",
    topics=10,
    iterations=60,
    id="id",
    segments="paragraphs",
    min_documents=4,
    max_document_share=0.3,
)

# %%
# The picture also states the mean Hellinger distance between the proportions of neighbouring segments.

print(*plot("library", "segments.svg", what=["segments"]))

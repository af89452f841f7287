"""
Topics over time
================

Where documents have dates, the picture shows the topics' shares by period: the mean of the documents' proportions,
weighted by their tokens, with 95% intervals. The bars at the bottom count the documents.
"""

# %%
# The documents are the paragraphs of the annual addresses of US presidents, 1945 to 2006.

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, plot, sample_texts

texts = pd.DataFrame(sample_texts())
texts = texts[texts["kind"] == "annual"]
fit(
    texts,
    "library",
    family="lda",
    topics=20,
    iterations=100,
    id="id",
    date="year",
    min_documents=5,
    max_document_share=0.2,
)
title = "Topics of US presidents' annual addresses"
print(*plot("library", "topics_over_time.svg", what=["time"], period="decade", title=title), sep="\n")

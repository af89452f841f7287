"""
Report page
===========

A report is one HTML file that needs no network. It shows each topic with its words and example documents, the map of
the topics, the labels whose documents have most of a topic, and the score over the iterations.
"""

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, report, sample_texts

texts = pd.DataFrame(sample_texts())
fit(
    texts,
    "library",
    family="lda",
    topics=20,
    iterations=100,
    id="id",
    title="title",
    labels=["subject"],
    min_documents=5,
    max_document_share=0.2,
)

# %%
# The picture is the top of the page. The link below it opens the page itself.

report("library", "report.html")

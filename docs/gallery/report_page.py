"""
Report page
===========

A report is a single HTML file that works offline. It shows each topic with its words and example documents, the map of
the topics, their shares over the years, the presidents who spoke most about each topic, and the score over the
iterations.
"""

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, report, sample_texts

texts = pd.DataFrame(sample_texts())
texts = texts[texts["kind"] == "annual"]
fit(
    texts,
    "library",
    family="lda",
    topics=20,
    iterations=100,
    id="id",
    title="title",
    date="year",
    labels=["president", "party"],
    min_documents=5,
    max_document_share=0.2,
)

# %%
# The picture is the top of the page. The link below it opens the page itself.

report("library", "report.html", title="Topics of US presidents' annual addresses, 1945 to 2006")

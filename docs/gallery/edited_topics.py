"""
Edited topics
=============

Two topics are merged into one, which gets a name. The map shows the topics before and after. The counts of documents
and words still have the same totals.
"""

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import edit, fit, plot, sample_texts, topics

texts = pd.DataFrame(sample_texts())
texts = texts[texts["kind"] == "annual"]
fit(
    texts,
    "library",
    family="lda",
    topics=20,
    iterations=60,
    id="id",
    min_documents=5,
    max_document_share=0.2,
)
plot("library", "before.svg", what=["map"])

# %%
# This merges the second and the third topic. The same on the command line:
# ``collapsium edit library edited --merge ...,... --rename ...=merged``.

_, second, third, *_ = [topic.id for topic in topics("library")]
edited = edit("library", "edited", merge=[(second, third)], rename={second: "merged"})
plot("edited", "after.svg", what=["map"])
print(f"{edited.topics} topics")

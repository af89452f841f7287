"""
Edited topics
=============

Two topics are merged, one is split and one is deleted. The map shows the topics before and after. Counts of documents
and words add up to the same.
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
# The largest topic is split, the next two are merged, and the smallest one is deleted. On the command line it is
# ``collapsium edit library edited --split ... --merge ...,... --delete ...``.

largest, second, third, *_, smallest = [topic.id for topic in topics("library")]
edited = edit(
    "library",
    "edited",
    split=[largest],
    merge=[(second, third)],
    delete=[smallest],
    rename={second: "merged"},
)
plot("edited", "after.svg", what=["map"])
print(f"{edited.topics} topics; the second half of topic {largest} is topic {edited.halves[largest]}")

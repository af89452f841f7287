"""
Map of topics
=============

Topics that are close on the map give high probability to the same words. The area of a circle is the topic's share of
the corpus. A line below the map states how well the distances on the map agree with the distances between the topics.
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
    topics=30,
    iterations=100,
    id="id",
    min_documents=5,
    max_document_share=0.2,
)

# %%
# `plot` writes PNG or SVG, depending on the name of the file. The same on the command line:
# ``collapsium plot library topic_map.svg --what map``.

plot("library", "topic_map.svg", what=["map"])

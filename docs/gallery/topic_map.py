"""
Map of topics
=============

Topics that are close on the map give high probability to the same words. The area of a circle is the topic's share of
the corpus. A line below the map says how well distances on it agree with the distances between the topics.
"""

# %%
# The texts are documentation strings of Python's standard library, which every machine with Python has.

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, plot, sample_texts

texts = pd.DataFrame(sample_texts())
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
# `plot` writes PNG or SVG, by the name of the file. On the command line it is
# ``collapsium plot library topic_map.svg --what map``.

plot("library", "topic_map.svg", what=["map"])

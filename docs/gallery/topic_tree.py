"""
Tree of topics
==============

The nested Chinese restaurant process puts each document on a path from the root of a tree to a leaf. The root has the
words of all documents, inner nodes the words of a broad subject, and leaves the words of a narrow one. A node shows
its share of the tokens and its most probable words.
"""

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, plot, sample_texts

texts = pd.DataFrame(sample_texts())
texts = texts[texts["kind"] == "annual"]
fit(
    texts,
    "library",
    family="ncrp",
    depth=3,
    iterations=30,
    id="id",
    min_documents=5,
    max_document_share=0.2,
)

# %%
# Small nodes are folded into the node above them.

plot("library", "topic_tree.svg", what=["tree"], min_share=0.01)

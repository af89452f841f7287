"""
Map of labels
=============

The hierarchical Dirichlet scaling process learns the factor by which each label scales each topic's proportion. On the
map, a president is close to the topics whose proportions are higher in his addresses.
"""

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, plot, sample_texts

texts = pd.DataFrame(sample_texts())
texts = texts[texts["kind"] == "annual"]
fit(
    texts,
    "library",
    family="hdsp",
    topics=40,
    iterations=20,
    id="id",
    labels=["president"],
    min_documents=5,
    max_document_share=0.05,
)
plot("library", "label_map.svg", what=["labels"])

"""
Map of labels
=============

The hierarchical Dirichlet scaling process learns by what factor each label raises each topic. On the map a label is
close to the topics that it raises.
"""

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, plot, sample_texts

texts = pd.DataFrame(sample_texts())
fit(
    texts,
    "library",
    family="hdsp",
    topics=40,
    iterations=40,
    id="id",
    labels=["subject"],
    min_documents=5,
    max_document_share=0.2,
)
plot("library", "label_map.svg", what=["labels"])

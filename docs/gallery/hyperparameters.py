"""
Hyperparameters over iterations
===============================

The family `hdp` can infer posterior distributions of its concentrations. The picture shows the expectations of alpha,
which governs how many topics a document has, and gamma, which governs how many topics the corpus has.
"""

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, plot, sample_texts

texts = pd.DataFrame(sample_texts())
texts = texts[texts["kind"] == "annual"]
fit(
    texts,
    "library",
    family="hdp",
    topics=30,
    iterations=60,
    split_merge_moves=False,
    inverse_temperature=1.0,
    learn=["alpha", "gamma", "pi"],
    id="id",
    min_documents=5,
    max_document_share=0.2,
)
plot("library", "hyperparameters.svg", what=["parameters"])

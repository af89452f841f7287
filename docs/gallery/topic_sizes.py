"""
Sizes of topics
===============

The picture shows the share of the tokens that belongs to each topic, the largest first. `gibbs-hdp` samples the number
of topics as well. It begins with fifty here, and adds and removes topics as it samples.
"""

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, plot, sample_texts

texts = pd.DataFrame(sample_texts())
texts = texts[texts["kind"] == "annual"]
fit(
    texts,
    "library",
    family="gibbs-hdp",
    init_topics=50,
    iterations=150,
    id="id",
    min_documents=5,
    max_document_share=0.2,
)
plot("library", "topic_sizes.svg", what=["sizes"])

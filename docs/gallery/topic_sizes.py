"""
Sizes of topics
===============

The share of the tokens that each topic holds, the largest first. `gibbs-hdp` samples the number of topics as well: it
begins with fifty here, and opens and closes topics as the texts support them.
"""

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, plot, sample_texts

texts = pd.DataFrame(sample_texts())
fit(
    texts,
    "library",
    family="gibbs-hdp",
    start_topics=50,
    iterations=150,
    id="id",
    min_documents=5,
    max_document_share=0.2,
)
plot("library", "topic_sizes.svg", what=["sizes"])

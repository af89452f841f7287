"""
Topics over time
================

Where documents have dates, the picture shows the topics' shares by period: the mean of the documents' proportions,
weighted by their tokens, with 95% intervals. The bars at the bottom count the documents.
"""

# %%
# The texts are real, and their dates are made up: each subject has a month around which its documents lie.

# sphinx_gallery_capture_repr = ()
import numpy as np
import pandas as pd

from collapsium.pipeline import fit, plot, sample_texts

texts = pd.DataFrame(sample_texts())
subjects = sorted(texts["subject"].unique())
peak = texts["subject"].map({subject: 24 * place / len(subjects) for place, subject in enumerate(subjects)})
months = np.random.default_rng(0).normal(peak, 3.0).clip(0, 23.9)
texts["date"] = (pd.Timestamp("2023-01-01") + pd.to_timedelta(months * 30.4, unit="D")).strftime("%Y-%m-%d")

fit(
    texts,
    "library",
    family="lda",
    topics=20,
    iterations=100,
    id="id",
    date="date",
    min_documents=5,
    max_document_share=0.2,
)
print(*plot("library", "topics_over_time.svg", what=["time"], period="month"), sep="\n")

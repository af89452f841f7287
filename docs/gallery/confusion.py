"""
Predicted labels
================

`predict` finds the label under which the words of a document are most probable. The picture compares the predictions
with the labels that the documents have. They are a fifth of the corpus, which was not fitted.
"""

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, ingest, predict, sample_texts, split

pd.DataFrame(sample_texts()).to_json("texts.jsonl", orient="records", lines=True)
ingest("texts.jsonl", "corpus", labels=["subject"], min_documents=5, max_document_share=0.2)
split("corpus", "train", "test", documents=True, fraction=0.2)
fit("train", "library", family="labeled-lda", iterations=100)

# %%
# Rows are the labels of the documents, columns those that were predicted.

predicted = predict("library", "test", "predictions.parquet", field="subject", confusion="confusion.svg")
print(f"{predicted.right} of {predicted.known} documents have the label that was predicted")

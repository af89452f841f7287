"""
Predicted labels
================

`predict` finds the label under which the words of a document are most probable: here, the president who spoke a
paragraph. The picture compares predictions with the true labels for a fifth of the paragraphs, which were not used in
the fit.
"""

# sphinx_gallery_capture_repr = ()
import pandas as pd

from collapsium.pipeline import fit, ingest, predict, sample_texts, split

texts = pd.DataFrame(sample_texts())
texts[texts["kind"] == "annual"].to_json("texts.jsonl", orient="records", lines=True)
ingest("texts.jsonl", "corpus", labels=["president"], min_documents=5, max_document_share=0.2)
split("corpus", "train", "test", documents=True, fraction=0.2)
fit("train", "library", family="labeled-lda", iterations=100)

# %%
# Each row shows the paragraphs of one president, and each column the paragraphs that were attributed to one president.

predicted = predict("library", "test", "predictions.parquet", field="president", confusion="confusion.svg")
print(f"{predicted.right} of {predicted.known} paragraphs are by the president who was predicted")

"""
Comparison of families
======================

`compare` fits each family to the same training tokens, with each number of topics and with several seeds. The picture
shows the mean score of the held-out tokens, with its standard error.
"""

# sphinx_gallery_capture_repr = ()
import shutil

import pandas as pd

from collapsium.pipeline import compare, ingest, sample_texts

texts = pd.DataFrame(sample_texts())
texts[texts["kind"] == "annual"].to_json("texts.jsonl", orient="records", lines=True)
ingest("texts.jsonl", "corpus", min_documents=5, max_document_share=0.2)
compared = compare(
    "corpus",
    "comparison",
    families=["lda", "hdp", "vb-lda"],
    topics=[10, 20, 40],
    restarts=2,
    iterations=20,
    settings={"hdp": {"split_merge_moves": False}},
)
shutil.copy("comparison/plots/score-by-topics.svg", "comparison.svg")

# %%
# The same values are in a table, ``comparison/table.md``.

print(compared.tables)

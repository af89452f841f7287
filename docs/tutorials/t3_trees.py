"""
Trees of topics
===============

You will fit a tree whose topics range from broad to narrow, draw it,
and find the path of each document.
"""

# %%
# A tree
# ------
#
# ``ncrp`` is the nested Chinese restaurant process. Each document
# follows one path from the root to a leaf, and each of its tokens has a
# topic of that path. The shape of the tree is inferred; `depth` is the
# number of levels. The documents are paragraphs of US presidents'
# annual addresses.

import pandas as pd

from collapsium.pipeline import (
    evaluate,
    fit,
    infer,
    ingest,
    plot,
    report,
    sample_texts,
    split,
    topics,
)

texts = pd.DataFrame(sample_texts())
texts = texts[texts.kind == "annual"]
texts.to_json("texts.jsonl", orient="records", lines=True)
ingest(
    "texts.jsonl",
    "corpus",
    title="title",
    labels=["president"],
    min_documents=5,
    max_document_share=0.2,
)
split("corpus", "train", "heldout")
fit(
    "train",
    "tree",
    family="ncrp",
    depth=3,
    iterations=30,
    heldout="heldout",
)

# %%
# `topics` lists the nodes in depth-first order. `below` is the share of
# the tokens at the node and in the subtree below it.

for node in topics("tree", words=6):
    if node.below > 0.008:
        print(
            f"{'    ' * node.level}{node.below:5.1%}",
            *(word for word, _ in node.words),
        )

# %%
# The root has words that all documents use. Inner nodes are broad
# subjects, such as the economy; leaves are narrow ones, such as
# farming.
#
# Small nodes are folded in the picture. An entry "... more" shows the
# share of the tokens that belongs to the folded nodes.

plot("tree", "tree.svg", what=["tree"], min_share=0.01)

# %%
# Paths
# -----
#
# `infer` writes each document's path: the numbers of its nodes from the
# root on.

infer("tree", "train", "paths.parquet")
paths = pd.read_parquet("paths.parquet")
paths[["id", "path"]].head()

# %%
# The leaves with the most documents:

nodes = {node.id: node for node in topics("tree", words=6)}
for leaf, size in paths.path.str[-1].value_counts().head().items():
    print(size, *(word for word, _ in nodes[leaf].words))

# %%
# Shape and prediction
# --------------------
#
# With the defaults, the tree has many nodes and predicts well. With
# ``posterior="dirichlet"``, the tree has far fewer nodes, and its
# objective is a lower bound of the texts' log probability.

fit(
    "train",
    "sparse",
    family="ncrp",
    depth=3,
    iterations=30,
    posterior="dirichlet",
    heldout="heldout",
)
for run in ("tree", "sparse"):
    score = evaluate(run, heldout="heldout").score
    print(
        f"{run}: {len(topics(run))} nodes, {score:.3f} nats per token"
    )

# %%
# In a report, a click opens a folded branch.

report("tree", "report.html", texts="texts.jsonl")

# %%
# Where to go next
# ----------------
#
# * :doc:`t5_vectors`: trees for vectors.
# * :doc:`/algorithms/trees`: the model, both forms of the bound, and
#   the Gibbs sampler ``gibbs-ncrp``.
# * :doc:`/benchmarks/papers`: the experiments of Wang and Blei (2009).

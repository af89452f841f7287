"""
Single cells
============

You will go from an AnnData file to clusters of cells that are annotated
with topics of chromatin accessibility.
"""

# %%
# Cells of an .h5ad
# -----------------
#
# A real file comes from an experiment (:doc:`/howto/single_cells`).
# Here cells of four types are simulated: the accessible peaks of a type
# are a common background and peaks specific to the type.

import anndata
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scanpy as sc
import scipy.sparse

import collapsium.pipeline as collapsium


def names(texts):
    """Return an index of objects: .h5ad lacks pandas' string dtype."""
    return pd.Index([*texts], dtype=object)


rng = np.random.default_rng(0)
types = pd.Categorical.from_codes(
    np.arange(600) // 150, names(["B", "monocyte", "NK", "T"])
)
peaks = (
    rng.dirichlet(np.full(600, 0.1), 4) * 0.7
    + rng.dirichlet(np.ones(600)) * 0.3
)
counts = rng.poisson(
    peaks[types.codes] * rng.lognormal(np.log(300), 0.3, (600, 1))
)

adata = anndata.AnnData(
    scipy.sparse.csr_matrix(counts), pd.DataFrame({"type": types})
)
adata.obs.index = names(f"CELL{n}-1" for n in range(600))
adata.var.index = names(
    f"chr1:{500 * n}-{500 * n + 500}" for n in range(600)
)
adata.write_h5ad("cells.h5ad")

# %%
# Topics
# ------
#
# `ingest` reads the file in blocks, so it may be larger than memory.
# Cells become documents and peaks become words; ``binarise`` counts
# each peak of a cell once, and ``labels`` stores a column of ``obs``.
# The command line does the same with ``collapsium ingest cells.h5ad
# cells --binarise --labels type``.

collapsium.ingest("cells.h5ad", "cells", binarise=True, labels="type")
model = collapsium.fit(
    "cells", "run", family="lda", topics=4, iterations=60, seed=1
)
print(model.topics(words=3))

# %%
# Back to AnnData
# ---------------
#
# `annotate` writes each cell's proportions into ``obsm["X_topics"]``,
# and the probabilities of the peaks into ``varm["topics"]``. With
# ``obs=True`` the proportions become columns too, for plots.

adata = anndata.read_h5ad("cells.h5ad")
model.annotate(adata, obs=True)
print(adata)

# %%
# Clusters
# --------
#
# scanpy takes the proportions in place of principal components.

sc.pp.neighbors(adata, use_rep="X_topics", n_neighbors=15)
sc.tl.leiden(
    adata,
    flavor="igraph",
    n_iterations=2,
    resolution=0.3,
    random_state=0,
)
sc.tl.umap(adata, random_state=0)
print(pd.crosstab(adata.obs["leiden"], adata.obs["type"]))

# %%
# A cluster is described by its topics, and a topic by its peaks.

columns = [
    f"topic_{topic}" for topic in adata.uns["collapsium"]["topics"]
]
print(
    adata.obs.groupby("leiden", observed=True)[columns].mean().round(2)
)

figure, axes = plt.subplots(1, 2, figsize=(8, 3.5))
for axis, color in zip(axes, ("leiden", columns[0]), strict=True):
    sc.pl.umap(adata, color=color, ax=axis, show=False)
figure.tight_layout()

# %%
# ``shares_by`` estimates the topic shares of each cell type, with 95%
# intervals. It works for every column that ``labels`` names.

shares = model.shares_by("type").frame()
print(shares[["topic", "term", "estimate", "low", "high"]].head(8))

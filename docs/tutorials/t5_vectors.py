"""
Components of vectors
=====================

You will describe vectors by a tree of components, look at the
components, and reconstruct unseen vectors.
"""

# %%
# Vectors
# -------
#
# Scikit-learn comes with 1797 pictures of handwritten digits, each 8 by
# 8 pixels. A row of the file is a picture; the last column, the digit,
# serves as the label.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from collapsium.pipeline import (
    evaluate,
    fit,
    infer,
    ingest,
    plot,
    split,
    topics,
)

digits = load_digits()
np.savetxt(
    "digits.csv",
    np.column_stack([digits.data, digits.target]),
    fmt="%d",
    delimiter=",",
)
ingest("digits.csv", "digits", format="vectors", labels=["digit=-1"])
split("digits", "train", "unseen", folds=5, fold=0)

# %%
# A tree of components
# --------------------
#
# ``hca``, hierarchical component analysis, puts each vector on a path
# of a tree, from the root to a leaf. Each node has a component, which
# is a direction. A vector is close to a weighted sum of the directions
# on its path. All vectors share the direction of the root; vectors of
# the same kind share the direction of a leaf.

model = fit(
    "train", "run", family="hca", depth=3, max_nodes=14, iterations=60
)
plot("run", "tree.svg", what=["tree"])

# %%
# A component's loadings are its coordinates, one for each column of the
# data. Here they form a picture. Negative loadings are blue, positive
# ones red.

nodes = topics("run", words=64)
figure, axes = plt.subplots(2, (len(nodes) + 1) // 2, figsize=(10, 3.2))
for axis, node in zip(axes.flat, nodes, strict=False):
    picture = np.zeros(64)
    for column, loading in node.words:
        picture[int(column.removeprefix("x")) - 1] = loading
    axis.imshow(
        picture.reshape(8, 8),
        cmap="RdBu_r",
        vmin=-abs(picture).max(),
        vmax=abs(picture).max(),
    )
    axis.set_title(f"{node.id}, level {node.level}", fontsize=8)
for axis in axes.flat:
    axis.axis("off")

# %%
# Paths
# -----
#
# `infer` writes each vector's path and its factors, the coordinates
# along the path. Equal digits share leaves:

infer("run", "unseen", "paths.parquet")
paths = pd.read_parquet("paths.parquet")
paths["digit"] = [digits.target[int(number) - 1] for number in paths.id]
pd.crosstab(paths.digit, paths.path.str[-1])

# %%
# Reconstruction
# --------------
#
# The reconstruction error is the mean squared norm of the unseen
# vectors after the components on their paths have been subtracted. For
# comparison, principal component analysis (PCA) uses as many factors
# per vector as the tree has levels.

left = evaluate("run", unseen="unseen").reconstruction_error
unseen = np.isin(np.arange(1, 1798).astype(str), paths.id.astype(str))
pca = PCA(3).fit(digits.data[~unseen])
rest = digits.data[unseen] - pca.inverse_transform(
    pca.transform(digits.data[unseen])
)
print(f"hca {left:.0f}, PCA {(rest**2).sum(axis=1).mean():.0f}")

# %%
# Where to go next
# ----------------
#
# * :doc:`t3_trees`: the same tree for documents.
# * :doc:`/howto/formats`: vectors of NumPy, CSV and Zarr.
# * :doc:`/benchmarks/papers`: the digits of Wang and Blei (2009).

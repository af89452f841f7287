"""
Tree of components
==================

Hierarchical component analysis fits a tree to dense vectors. Each vector is close to a weighted sum of the directions
on its path. The vectors are scikit-learn's images of handwritten digits, 8 by 8 pixels each.
"""

# sphinx_gallery_capture_repr = ()
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from collapsium.pipeline import Corpus, fit, ingest, plot, topics

digits = load_digits()
np.save("digits.npy", digits.data)
ingest("digits.npy", "corpus", format="vectors")
fit("corpus", "digits", family="hca", depth=3, max_nodes=14, iterations=30)
plot("digits", "vector_tree.svg", what=["tree"])

# %%
# A node's direction is an image too. In vectors with more of the component, blue pixels are darker and red pixels
# paler.

nodes = topics("digits", words=64)
columns = {name: number for number, name in enumerate(Corpus("corpus").vocabulary.words)}
figure, axes = plt.subplots(2, 7, figsize=(10, 3.4), layout="constrained")
for axis in axes.flat:
    axis.set_axis_off()
for axis, node in zip(axes.flat, nodes, strict=False):
    image = np.zeros(64)
    for name, loading in node.words:
        image[columns[name]] = loading
    axis.imshow(image.reshape(8, 8), cmap="RdBu", vmin=-abs(image).max(), vmax=abs(image).max())
    axis.set_title(f"node {node.id}, level {node.level}", fontsize=9)
plt.show()

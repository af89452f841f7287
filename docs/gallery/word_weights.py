"""
Weights of words
================

Without a list of stop words, common words fill the topics. With weights, each token counts for as much as its word says
about topics.
"""

# sphinx_gallery_capture_repr = ()
import matplotlib.pyplot as plt
import pandas as pd

from collapsium.pipeline import fit, sample_texts, topics

texts = pd.DataFrame(sample_texts())
reading = {"id": "id", "min_documents": 5, "stop_words": "none"}
fit(texts, "plain", family="lda", topics=20, iterations=60, **reading)
fit(texts, "weighted", family="lda", topics=20, iterations=60, weights="log-tf-idf", **reading)

# %%
# The largest topics of both fits, by their most probable words.

figure, axes = plt.subplots(2, 3, figsize=(9, 6), layout="constrained")
for row, name in zip(axes, ("plain", "weighted"), strict=True):
    for axis, topic in zip(row, topics(name, 10), strict=False):
        names, shares = zip(*reversed(topic.words), strict=True)
        axis.barh(names, shares, color="#0072B2")
        axis.set_title(f"{name}: {topic.share:.1%}")
        axis.set_xlabel("probability")
        axis.spines[["top", "right"]].set_visible(False)
plt.show()

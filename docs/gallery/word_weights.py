"""
Weights of words
================

Without a list of stop words, common words fill the topics. With weights, tokens count more if their
word says more about topics.
"""

# sphinx_gallery_capture_repr = ()
import matplotlib.pyplot as plt
import pandas as pd

from collapsium.pipeline import fit, sample_texts

WORDS = ("schools", "health", "soviet")
texts = pd.DataFrame(sample_texts())
texts = texts[texts["kind"] == "annual"]
reading = {"id": "id", "min_documents": 5, "stop_words": "none"}
plain = fit(texts, "plain", family="lda", topics=20, iterations=60, **reading)
weighted = fit(texts, "weighted", family="lda", topics=20, iterations=60, weights="log-tf-idf", **reading)

# %%
# For each of three words, the topic of each fit in which the word is most probable.

figure, axes = plt.subplots(2, 3, figsize=(9, 6), layout="constrained")
for row, (name, model) in zip(axes, {"plain": plain, "weighted": weighted}.items(), strict=True):
    columns = [model.vocabulary.words.index(word) for word in WORDS]
    shares = model.topics()["share"]
    for axis, topic in zip(row, model.topic_word[:, columns].argmax(axis=0), strict=True):
        words = model.words(topic)[::-1]
        axis.barh(words["word"], words["probability"], color="#0072B2")
        axis.set_title(f"{name}: {shares[topic]:.1%}")
        axis.set_xlabel("probability")
        axis.locator_params(axis="x", nbins=4)
        axis.spines[["top", "right"]].set_visible(False)
plt.show()

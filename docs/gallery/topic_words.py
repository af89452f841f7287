"""
Words of a topic
================

The most probable words of a topic are not always those that set it apart. FREX prefers words that are frequent in the
topic and rare in the others.
"""

# sphinx_gallery_capture_repr = ()
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from collapsium.pipeline import fit, name_topics, sample_texts, topics

texts = pd.DataFrame(sample_texts())
texts = texts[texts["kind"] == "annual"]
model = fit(
    texts,
    "library",
    family="lda",
    topics=20,
    iterations=60,
    id="id",
    min_documents=5,
    max_document_share=0.2,
)

# %%
# Each dot is a word of the largest topic. Frequent words are on the right, and words that hardly occur in other topics
# at the top. The words with the highest FREX are in the upper right corner.

largest = topics("library", 12, rank_by="frex")[0]
phi = model.topic_word
exclusivity = phi[largest.id] / phi.sum(axis=0)
words = np.flatnonzero(phi[largest.id] * largest.share * model.vocabulary.tokens.sum() >= 0.5)
figure, axis = plt.subplots(figsize=(8, 5.5), layout="constrained")
axis.scatter(phi[largest.id, words], exclusivity[words], s=12, color="#999999")
for word, probability in largest.words:
    place = probability, exclusivity[model.vocabulary.words.index(word)]
    axis.plot(*place, "o", color="#0072B2", markersize=5)
    axis.annotate(word, place, xytext=(4, 3), textcoords="offset points", fontsize=9)
axis.set_xscale("log")
axis.set_xlabel("probability of the word in the topic")
axis.set_ylabel("exclusivity: share among the topics")
axis.set_title(f"The twelve first words of topic {largest.id} by FREX")
axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# `name_topics` gives the topics names, here their two first words by FREX. The names are saved with the model and shown
# wherever topics appear. On the command line it is ``collapsium topics library --name MODULE:FUNCTION``.


def first_two(words, documents):  # noqa: ARG001
    """Return the name of a topic; the example documents are not needed."""
    return " and ".join(words[:2])


name_topics("library", first_two, rank_by="frex")
for topic in topics("library", 6)[:5]:
    print(f"{topic.title}: {' '.join(topic.names)}")

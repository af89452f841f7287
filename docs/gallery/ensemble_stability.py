"""
Stability of topics
===================

Six fits that differ only in their random seed are an ensemble. A topic's stability is one minus its mean Hellinger
distance to the matching topics of the other members. Topics with distinctive words, such as health care, are found by
nearly every member.
"""

# sphinx_gallery_capture_repr = ()
import matplotlib.pyplot as plt
import pandas as pd

from collapsium.pipeline import fit, sample_texts, topics

texts = pd.DataFrame(sample_texts())
texts = texts[texts["kind"] == "annual"]
fit(
    texts,
    "library",
    family="lda",
    topics=20,
    iterations=60,
    restarts=6,
    id="id",
    min_documents=5,
    max_document_share=0.2,
)

# %%
# `topics` lists the means of the members' matching topics, each with its stability.

by_stability = sorted(topics("library"), key=lambda topic: topic.stability)
figure, axis = plt.subplots(figsize=(8, 5.5), layout="constrained")
axis.barh(range(len(by_stability)), [topic.stability for topic in by_stability], color="#0072B2")
axis.set_yticks(range(len(by_stability)), [" ".join(word for word, _ in topic.words[:4]) for topic in by_stability])
axis.set_xlim(0, 1)
axis.set_xlabel("stability")
axis.set_title("Stability of the topics over six fits")
axis.spines[["top", "right"]].set_visible(False)
plt.show()

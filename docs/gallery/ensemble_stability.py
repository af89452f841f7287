"""
Stability of topics
===================

Six fits that differ in their random seed alone are an ensemble. A topic's stability is one minus its mean Hellinger
distance to the matching topics of the other members. Large topics tend to be found by every member.
"""

# sphinx_gallery_capture_repr = ()
import matplotlib.pyplot as plt
import pandas as pd

from collapsium.pipeline import fit, sample_texts, topics

texts = pd.DataFrame(sample_texts())
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
# `topics` lists the topics of the first member, each with its stability.

listed = sorted(topics("library"), key=lambda topic: topic.stability)
figure, axis = plt.subplots(figsize=(8, 5.5), layout="constrained")
axis.barh(range(len(listed)), [topic.stability for topic in listed], color="#0072B2")
axis.set_yticks(range(len(listed)), [" ".join(word for word, _ in topic.words[:4]) for topic in listed])
axis.set_xlim(0, 1)
axis.set_xlabel("stability")
axis.set_title("Stability of the topics over six fits")
axis.spines[["top", "right"]].set_visible(False)
plt.show()

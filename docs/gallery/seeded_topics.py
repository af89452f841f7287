"""
Seeded topics
=============

Seeds are a few words for each topic that you expect. They raise the prior probability of these words in the topic, so
that the topic is found and has a fixed number and name.
"""

# sphinx_gallery_capture_repr = ()
import matplotlib.pyplot as plt
import pandas as pd

from collapsium.pipeline import fit, sample_texts, topics

texts = pd.DataFrame(sample_texts())
texts = texts[texts["kind"] == "annual"]
reading = {"id": "id", "min_documents": 5, "max_document_share": 0.2}
seeds = {
    "schools": ["schools", "teachers", "students"],
    "health": ["health", "medical", "insurance"],
    "crime": ["crime", "drugs", "police"],
}
model = fit(texts, "seeded", family="lda", topics=20, iterations=60, seeds=seeds, **reading)

# %%
# The first topics are the seeded ones. Their top words are the seed words and words that occur with them.

figure, axes = plt.subplots(1, 3, figsize=(9, 4), layout="constrained")
seeded = {topic.title: topic for topic in topics("seeded", 10) if topic.title is not None}
for axis, (name, words) in zip(axes, seeds.items(), strict=True):
    names, shares = zip(*reversed(seeded[name].words), strict=True)
    colours = ["#E69F00" if word in words else "#0072B2" for word in names]
    axis.barh(names, shares, color=colours)
    axis.set_title(f"{name}: {seeded[name].share:.1%} of tokens")
    axis.set_xlabel("probability")
    axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Without seed words, the same words belong to topics with arbitrary numbers.

plain = fit(texts, "plain", family="lda", topics=20, iterations=60, **reading)
for name, words in seeds.items():
    columns = [plain.vocabulary.words.index(word) for word in words]
    print(name, {word: int(plain.topic_word[:, column].argmax()) for word, column in zip(words, columns, strict=True)})

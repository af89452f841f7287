"""
Consensus of restarts
=====================

The picture shows two sets of four fits with different seeds, and the consensus of each set. A topic's stability is one
minus the Hellinger distance to the matching topic of the other set. The topics of two consensuses are more alike than
the topics of two single fits.
"""

# sphinx_gallery_capture_repr = ()
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from collapsium.pipeline import Model, fit, ingest, sample_texts, topics
from collapsium.pipeline.models.topics import stability

texts = pd.DataFrame(sample_texts())
texts[texts["kind"] == "annual"].to_json("texts.jsonl", orient="records", lines=True)
ingest("texts.jsonl", "corpus", min_documents=5, max_document_share=0.2)
for seed in (0, 1):
    fit("corpus", f"set-{seed}", family="lda", topics=20, iterations=40, restarts=4, combine="consensus", seed=seed)


def sorted_stability(one, other):
    """Return the stability of the topics of one model in another, ascending."""
    return np.sort([topic.value for topic in stability(Model(one), [Model(other)]).values()])


figure, axis = plt.subplots(figsize=(7.0, 4.0), layout="constrained")
numbers = [f"{number:03d}" for number in range(4)]
for first in numbers:
    for second in numbers:
        values = sorted_stability(f"set-0/members/{first}", f"set-1/members/{second}")
        label = "a fit and a fit of the other set" if first == second == "000" else None
        axis.plot(range(1, len(values) + 1), values, color="0.75", linewidth=0.8, label=label)
values = sorted_stability("set-0", "set-1")
axis.plot(range(1, len(values) + 1), values, color="#0072B2", marker="o", label="the two consensuses")
axis.set(xlabel="topics, the least stable first", ylabel="stability", ylim=(0, 1), xticks=range(2, 21, 2))
axis.spines[["top", "right"]].set_visible(False)
axis.legend(frameon=False)
figure.savefig("consensus.svg")
plt.close(figure)

# %%
# `topics` lists the topics of the consensus, each with the number of members that found it.

for topic in topics("set-0", words=5)[:8]:
    print(f"{topic.share:6.1%}  found in {topic.support} of 4: {' '.join(topic.names)}")

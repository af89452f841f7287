"""
Initialisation of a fit
=======================

A fit starts from the document proportions that ``init`` selects (:doc:`/howto/initialisation`): random proportions
(``random``), components of a mixture (``documents``, and ``tree`` with a root topic for common words), or clusters
(``quick-clusters``, ``clusters``). The picture shows how quickly each fit learns to predict held-out tokens.
"""

# sphinx_gallery_capture_repr = ()
import matplotlib.pyplot as plt
import pandas as pd

from collapsium.pipeline import fit, ingest, sample_texts, split

texts = pd.DataFrame(sample_texts())
texts[texts["kind"] == "annual"].to_json("texts.jsonl", orient="records", lines=True)
ingest("texts.jsonl", "corpus", min_documents=5, max_document_share=0.2)
split("corpus", "train", "heldout", fraction=0.1)

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
colours = {
    "random": "#999999",
    "documents": "#56B4E9",
    "tree": "#009E73",
    "quick-clusters": "#E69F00",
    "clusters": "#D55E00",
}
for init, colour in colours.items():
    scores = []

    def collect(event, scores=scores):
        """Append the score of an iteration."""
        if event["event"] == "iteration" and "score" in event:
            scores.append(event["score"])

    options = {"family": "lda", "topics": 20, "iterations": 40, "inverse_temperature": 1.0, "seed": 3}
    fit("train", init, heldout="heldout", init=init, sinks=[collect], **options)
    axis.plot(range(1, len(scores) + 1), scores, color=colour, label=init)
axis.set_xlabel("iteration")
axis.set_ylabel("held-out score (nats per token)")
axis.spines[["top", "right"]].set_visible(False)
axis.legend(title="initialisation", frameon=False, loc="lower right")
plt.show()

# %%
# With ``init_strength``, the initial proportions stay in each document's prior, which preserves good clusters but does
# not improve them.

weak = fit("train", "weak", family="lda", topics=20, iterations=20, init="clusters")
strong = fit("train", "strong", family="lda", topics=20, iterations=20, init="clusters", init_strength=80.0)
for name, model in (("initialisation only", weak), ("initialisation as prior", strong)):
    largest = model.document_topic.max(axis=1)
    print(f"{name}: the largest topic has {largest.mean():.0%} of a document, on average")

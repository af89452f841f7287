"""
Score over time
===============

Collapsium's `lda` and scikit-learn's variational LDA are fitted to the same tokens with the same priors. The score is
the mean log probability of held-out tokens. Each point of scikit-learn is a fit of 1, 2, 4 or 8 iterations.
"""

# sphinx_gallery_capture_repr = ()
import json
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix, vstack
from sklearn.decomposition import LatentDirichletAllocation

from collapsium.pipeline import Corpus, fit, ingest, sample_texts, split

TOPICS, ALPHA, BETA = 20, 0.1, 100.0
texts = pd.DataFrame(sample_texts())
texts[(texts["kind"] == "annual") & (texts["year"] > 1980)].to_json("texts.jsonl", orient="records", lines=True)
ingest("texts.jsonl", "corpus", min_documents=5, max_document_share=0.2)
split("corpus", "train", "heldout", fraction=0.1)
fit("train", "library", family="lda", topics=TOPICS, alpha=ALPHA, beta=BETA, iterations=60, heldout="heldout")

# %%
# The seconds and the scores of Collapsium are in the run's events.

events = [json.loads(line) for line in Path("library/events.jsonl").read_text().splitlines()]
ours = [(event["elapsed"], event["score"]) for event in events if event["event"] == "iteration"]

# %%
# The same score for scikit-learn: proportions are fitted to the training tokens, and the held-out tokens are scored.


def counts(folder):
    """Return a corpus as a matrix of documents and words."""
    corpus = Corpus(folder)
    shards = [reference.documents() for reference in corpus.references]
    words = len(corpus.vocabulary.words)
    return vstack(
        [csr_matrix((shard.counts, shard.words, shard.offsets), (len(shard), words)) for shard in shards]
    ).tocsr()


train, heldout = counts("train"), counts("heldout").tocoo()
theirs = []
for iterations in (1, 2, 4, 8):
    model = LatentDirichletAllocation(
        TOPICS, doc_topic_prior=ALPHA, topic_word_prior=BETA / train.shape[1], max_iter=iterations, random_state=0
    )
    began = time.perf_counter()
    model.fit(train)
    seconds = time.perf_counter() - began
    theta = model.transform(train)
    phi = model.components_ / model.components_.sum(axis=1, keepdims=True)
    probability = (theta[heldout.row] * phi[:, heldout.col].T).sum(axis=1)
    theirs.append((seconds, np.average(np.log(probability), weights=heldout.data)))

# %%

figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
axis.plot(*zip(*ours, strict=True), color="#0072B2", label="Collapsium, lda")
axis.plot(*zip(*theirs, strict=True), "s-", color="#D55E00", label="scikit-learn, variational LDA")
axis.set_xscale("log")
axis.set_xlabel("seconds")
axis.set_ylabel("nats per held-out token")
axis.legend(frameon=False)
axis.spines[["top", "right"]].set_visible(False)
plt.show()

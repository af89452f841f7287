"""
Topics of texts
===============

You will turn texts into a corpus, fit topics, read the outputs, and use
the model for new texts.
"""

# %%
# Texts
# -----
#
# The sample texts are paragraphs of addresses by US presidents. This
# page uses the annual addresses of 1945 to 2006. You can replace them
# by any frame with a column of texts.

import pandas as pd

from collapsium.pipeline import (
    coherence,
    evaluate,
    fit,
    infer,
    ingest,
    plot,
    report,
    sample_texts,
    split,
)

texts = pd.DataFrame(sample_texts())
texts = texts[texts.kind == "annual"]
texts.to_json("texts.jsonl", orient="records", lines=True)
texts[["id", "title", "text"]].head()

# %%
# A corpus
# --------
#
# `ingest` counts words. Rare and very common words are dropped, because
# they say little about topics. With `phrases`, words that often follow
# one another are joined into one, such as ``social_security``. `ingest`
# returns the manifest, the record of the corpus's contents.

manifest = ingest(
    "texts.jsonl",
    "corpus",
    title="title",
    date="year",
    labels=["president", "party", "address"],
    phrases="npmi",
    min_documents=5,
    max_document_share=0.2,
)
print(f"{manifest.documents} documents, {manifest.tokens} tokens")

# %%
# A token is one occurrence of a word. Each token is held out with
# probability 0.1, to see how well the model predicts.

split("corpus", "train", "heldout", fraction=0.1)

# %%
# A fit
# -----
#
# ``hdp`` is the hierarchical Dirichlet process. It infers the number of
# topics, up to the truncation `topics`; on texts it usually keeps
# nearly all. The fit is written to the folder ``run``, and `fit`
# returns the model.

model = fit(
    "train",
    "run",
    family="hdp",
    topics=30,
    iterations=100,
    heldout="heldout",
)
topics = model.topics()
topics.head(10)

# %%
# The frame is indexed by the topic's number, which never changes
# within a run. `share` is the part of the tokens that belongs to the
# topic, and `words` lists its most probable words.
#
# Did the fit converge? The score, the mean log probability of a
# held-out token in nats, levels off over the iterations.

plot("run", "score.svg", what=["score"])

# %%
# Because the documents have dates, `plot` can draw the topics that are
# largest or change most from decade to decade, with 95% intervals.
# Paragraphs of the same address resemble each other; `cluster` widens
# the intervals accordingly.

plot(
    "run",
    "time.svg",
    what=["time"],
    period="decade",
    cluster="address",
)

# %%
# Is it good?
# -----------
#
# The score compares models that are fitted to the same corpus.
# Perplexity is the exponential of the negated score. Coherence looks at
# the topics' words instead: do they occur in the same documents?
# Diversity is the number of different words in the topics' lists of top
# words, divided by the total length of the lists.

score = evaluate("run", heldout="heldout")
print(
    f"{score.score:.3f} nats per token,",
    f"perplexity {score.perplexity:.0f}",
)
measured = coherence("run", "corpus")
print(
    f"coherence {measured.npmi:.3f}, diversity {measured.diversity:.2f}"
)

# %%
# The topics with the most coherent words:

best = pd.Series(measured.topic_npmi, measured.topics).nlargest(5)
topics.loc[best.index, ["words"]].assign(npmi=best)

# %%
# Documents
# ---------
#
# A row of `document_topics` has the proportions of a training document,
# which sum to one. These are the three largest proportions of a
# paragraph of Kennedy's address of 1962, on the deficit after a
# recession.

model.document_topics().loc["1962-Kennedy/020"].nlargest(3)

# %%
# `transform` fits the proportions of new texts, with the topics held
# fixed. `infer` does the same for files and corpora of any size; for
# the training corpus, as here, it writes the proportions of the fit.

new = [
    "We seek a treaty with the Soviet Union to limit nuclear weapons.",
    "Every child should be able to read by the third grade.",
]
shares = model.transform(new)
for text, row in zip(new, shares, strict=True):
    first = row.argmax()
    print(text)
    print(f"    topic {first}, {row.max():.0%}: {topics.words[first]}")
infer("run", "train", "proportions.parquet")
pd.read_parquet("proportions.parquet").head(3)

# %%
# A report
# --------
#
# A single HTML file shows all of this, with passages of the texts. It
# works offline.

report(
    "run",
    "report.html",
    texts="texts.jsonl",
    title="Topics of US presidents' annual addresses",
)

# %%
# Where to go next
# ----------------
#
# * :doc:`/howto/formats`: other sources, languages, stop words, lemmas.
# * :doc:`t6_ensembles`: several fits predict better than one.
# * :doc:`/choosing`: the other families.

"""
Scikit-learn pipelines
======================

You will use topics as features in a pipeline, search for a number of
topics, and learn from minibatches.
"""

# %%
# Topics as features
# ------------------
#
# The estimators follow scikit-learn's interface. They work in pipelines
# and searches, can be cloned and pickled, and pass scikit-learn's
# estimator checks. Rows are documents, columns are words.
#
# Here the documents are paragraphs of US presidents' annual addresses,
# and the pipeline predicts the speaker from their topics.

import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

from collapsium.pipeline import sample_texts
from collapsium.pipeline.estimators import CollapsedHDP, CollapsedLDA

texts = pd.DataFrame(sample_texts())
texts = texts[texts.kind == "annual"]
train, test = train_test_split(texts, test_size=0.25, random_state=0)

words = CountVectorizer(stop_words="english", min_df=5, max_df=0.2)
pipeline = make_pipeline(
    words,
    CollapsedLDA(n_components=40, max_iter=60, random_state=0),
    LogisticRegression(max_iter=1000),
)
pipeline.fit(train.text, train.president)
print(f"accuracy {pipeline.score(test.text, test.president):.2f}")

# %%
# The features are the documents' proportions. They sum to one.

proportions = pipeline[:-1].transform(test.text)
print(proportions.shape, proportions.sum(axis=1).round(6).min())

# %%
# ``components_`` are pseudo-counts of words, one row per topic. Divided
# by its sum, a row is the topic's distribution.

names = words.get_feature_names_out()
for row in pipeline[1].components_[:4]:
    print(*names[row.argsort()[:-8:-1]])

# %%
# A search
# --------
#
# `score` measures document completion: proportions are fitted to a
# random half of each document's tokens, and the score is the mean log
# probability of the tokens in the other half, in nats; higher is
# better. A search therefore needs no labels.

search = GridSearchCV(
    make_pipeline(words, CollapsedLDA(max_iter=40, random_state=0)),
    {"collapsedlda__n_components": [5, 15, 40]},
    cv=3,
)
search.fit(texts.text)
results = pd.DataFrame(search.cv_results_)
results[["param_collapsedlda__n_components", "mean_test_score"]]

# %%
# Minibatches
# -----------
#
# `partial_fit` updates the model from one batch of documents
# (:doc:`/algorithms/stochastic`). `total_documents` is the number of
# documents that you expect in total. Score documents to which the
# model was not fitted:

counts = words.fit_transform(train.text)
unseen = words.transform(test.text)
online = CollapsedLDA(
    n_components=20, total_documents=counts.shape[0], random_state=0
)
for first in range(0, counts.shape[0], 500):
    online.partial_fit(counts[first : first + 500])
print(f"{online.score(unseen):.3f} nats per token after one pass")

# %%
# ``n_components`` is the largest number of topics of ``CollapsedHDP``.
# With 100 iterations or more, it removes topics that it finds
# redundant; in texts it usually finds none
# (:doc:`/algorithms/number-of-topics`).

process = CollapsedHDP(n_components=40, max_iter=100, random_state=0)
process.fit(counts)
print(f"{process.score(unseen):.3f} nats per token")
print(f"{process.components_.shape[0]} topics")

# %%
# Where to go next
# ----------------
#
# * :doc:`/howto/migrating`: from scikit-learn's LDA to Collapsium's.
# * :doc:`/reference/python`: all estimators and their parameters.

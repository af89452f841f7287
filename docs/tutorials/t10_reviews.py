"""
Reviews: clusters by a preset
=============================

You will group short unlabelled reviews by their subject, look at the
groups, and assign new reviews to them. Each block of code is a cell of
a notebook, which you can download at the end of the page.
"""

# %%
# The reviews are simulated, in equal parts about a restaurant, a
# hotel, a book, headphones and a barber. They are short, and most of
# their words are common to all subjects.

import numpy as np
import pandas as pd

from collapsium.pipeline import compare, fit, measure

subjects = pd.Series(
    {
        "restaurant": "pizza waiter menu dessert sauce chef wine dish",
        "hotel": "room bed lobby pool towels view breakfast stay",
        "book": "plot author chapter ending novel prose pages hero",
        "headphones": "bass sound cable battery noise volume ear fit",
        "barber": "haircut colour stylist salon fringe curls cut dye",
    }
).str.split()
common = "great nice poor price time friendly slow again love service"
generator = np.random.default_rng(0)
about = generator.choice(subjects.index, 2000)
reviews = pd.DataFrame({"about": about})
own = generator.permuted(np.stack(subjects[about]), axis=1)
any_review = generator.choice(common.split(), (2000, 6))
reviews["text"] = pd.DataFrame(np.hstack([own[:, :3], any_review])).agg(
    " ".join, axis=1
)
reviews.head()

# %%
# For such short documents, `fit` suggests presets, which set several
# options at once. The preset `clusters` is for documents that are each
# about a single subject. Ask for somewhat more groups than you expect:
# it is easier to join two groups with the same subject than to separate
# a group that mixes two. The subjects are stored as labels only for the
# comparison below; ``lda`` does not use them.

reading = {"labels": ["about"], "min_documents": 5}
groups = fit(
    reviews,
    family="lda",
    topics=10,
    iterations=40,
    preset="clusters",
    **reading,
)
groups.topics(6)

# %%
# The groups
# ----------
#
# A review's largest topic is its group. Here the subjects are known, so
# a table can compare them with the groups.

largest = groups.document_topics().idxmax(axis=1)
pd.crosstab(reviews["about"], largest)

# %%
# Two metrics compare groups with labels: purity and normalised mutual
# information.

measured = measure(groups, metrics="purity,nmi", label_field="about")
measured["purity"].value, measured["nmi"].value

# %%
# Passages
# --------

groups.examples(n=2)[["topic", "proportion", "passage"]]

# %%
# How many groups?
# ----------------
#
# `compare` accepts presets too.

compared = compare(
    reviews,
    topics=[2, 5, 10],
    iterations=20,
    preset="clusters",
    **reading,
)
compared

# %%

compared.plot()

# %%
# New reviews
# -----------

groups.find(["the stylist cut my fringe", "a room with a view"], n=1)

# %%
# Where to go next
# ----------------
#
# * :doc:`/howto/presets`: presets, and their results on public data.
# * :doc:`t9_speeches`: groups and time with intervals.

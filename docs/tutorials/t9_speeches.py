"""
Speeches: by party, and over time
=================================

You will choose a number of topics for a frame of texts, read the
topics with their passages, see their shares by party and over time,
and save a figure for a paper and a report. Each block of code is a cell
of a notebook, which you can download at the end of the page.
"""

# %%
# The frame has a row for each paragraph of the annual addresses of US
# presidents from 1945 to 2006.

import pandas as pd

from collapsium.pipeline import compare, fit, sample_texts

texts = pd.DataFrame(sample_texts()).query("kind == 'annual'")
texts[["year", "president", "party", "text"]].head()

# %%
# How many topics?
# ----------------
#
# `compare` fits each number of topics with two seeds, here to a sample
# of the paragraphs. It shows how well words are predicted, whether
# topics are coherent and exclusive, and how many of them another seed
# finds again.

reading = {"min_documents": 5, "max_document_share": 0.2}
compared = compare(
    texts, topics=[5, 10, 20], sample_documents=2500, **reading
)
compared

# %%
# The same as a picture, with the words of the largest topics:

compared.plot()

# %%
# The topics
# ----------
#
# Columns of the frame become labels and the date of the documents.

model = fit(
    texts,
    family="lda",
    topics=compared.recommendation.topics,
    iterations=80,
    labels=["party", "address"],
    date="year",
    **reading,
)
model

# %%
# A few words find a topic, and its passages show what it is about.

nearest = model.find("military troops war")
nearest

# %%

war = int(nearest["topic"].iloc[0])
taxes = int(model.find("taxes")["topic"].iloc[0])
model.examples(war, n=2)

# %%
# Parties
# -------
#
# These are the topics' shares in the addresses of each party.
# Paragraphs of the same address resemble each other, so errors are
# clustered by address. Parties held office in different years:
# :doc:`t9_groups_and_time` compares them at the same time.

model.shares_by("party", cluster="address")

# %%
# Time
# ----
#
# Periods may have any width, and the bands account for dependence in
# the same way. The result is a Matplotlib figure that you can change
# and save as PDF.

figure = model.plot(
    "time", topics=[war, taxes], period="5 years", cluster="address"
)
figure.savefig("time.pdf")
figure

# %%
# All results are also available as data frames:

years = model.shares_over("5 years", cluster="address").frame()
years.query("topic == @war")[["term", "estimate", "low", "high"]].tail()

# %%
# A report
# --------
#
# A single file for any browser shows the map of topics, their words,
# their shares over time, and passages.

model.report("addresses.html")

# %%
# Where to go next
# ----------------
#
# * :doc:`/howto/better_topics`: what helps if topics are not good.
# * :doc:`t9_groups_and_time`: differences in the same years, and
#   curves.
# * :doc:`t10_reviews`: documents grouped by a preset.

"""
Effects of groups and time
==========================

You will estimate how topics differ between groups in the same years,
and how they change over the years within groups, with intervals that
you can defend. You will also find the words that each group uses.
:doc:`t9_speeches` shows how to choose and read topics for the same
speeches. If you know stm's vignette (blog posts, ideology and day),
this is the same analysis for speeches, party and year.
"""

# %%
# Speeches with parties and years
# -------------------------------
#
# The documents are the paragraphs of 65 annual addresses of US
# presidents to Congress, 1945 to 2006. The column `address` groups the
# paragraphs of one address, which we will need for the intervals.

import pandas as pd

from collapsium.pipeline import fit, sample_texts
from collapsium.pipeline.reporting.plots.effects import (
    effects_figure,
    words_figure,
    words_over_figure,
)

texts = pd.DataFrame(sample_texts()).query("kind == 'annual'")
model = fit(
    texts,
    family="lda",
    topics=20,
    id="id",
    title="title",
    date="year",
    labels=["party", "address"],
    covariates=["year"],
    min_documents=5,
    max_document_share=0.2,
)
model.topics(5)

# %%
# This page follows four of the twenty topics. Names make the figures
# easier to read.

names = {
    2: "Budget and taxes",
    6: "War and terror",
    9: "Schools",
    13: "Prices and farms",
}

# %%
# Does a topic depend on the party?
# ---------------------------------
#
# Parties took turns in office, so a comparison must hold time constant:
# the formula contains the party and a smooth curve over the years.
# Because paragraphs of the same address resemble each other,
# ``cluster="address"`` bases the errors on 65 addresses rather than
# 5,451 paragraphs.

formula = "~ party + bs(year, df=4)"
contrast = ["party=Democratic,Republican"]
gap = model.effects(formula, cluster="address", contrast=contrast)
columns = ["topic", "words", "estimate", "low", "high", "p_adjusted"]
gap.frame().sort_values("p_adjusted")[columns].head().round(3)

# %%
# An estimate of 0.02 means that Democrats spend two percentage points
# more of a paragraph on the topic than Republicans in the same years:
# they speak more about schools, and less about the military.
# ``p_adjusted`` accounts for testing twenty topics at once. The forest
# plot shows all of them; intervals that contain zero are grey.

forest = effects_figure(
    gap, names=names, title="Democrats minus Republicans, same years"
)

# %%
# Without clusters, the same intervals are much narrower, and wrong:

naive = model.effects(formula, contrast=contrast)
print(f"{(gap.se / naive.se).mean():.1f} times as wide with clusters")

# %%
# A permutation test checks the intervals without theory: if parties are
# assigned to the addresses at random, about 5% of the coefficients
# should look significant.

checked = model.effects(formula, cluster="address", permutations=10)
print(*checked.notes, sep="\n")

# %%
# Curves
# ------
#
# ``at`` predicts the share of each topic along the years, averaged over
# the observed parties. The logit link keeps bands between 0 and 1.

curves = effects_figure(
    model.effects(
        "~ party + bs(year, df=5)",
        cluster="address",
        at=["year"],
        link="logit",
    ),
    topics=list(names),
    names=names,
    title="Share of a paragraph, with 95% intervals",
)

# %%
# How do parties speak of the same topic?
# ---------------------------------------
#
# Log-odds compare the words within a topic. Democrats use words with
# positive log-odds (right) more often, and Republicans words with
# negative log-odds (left).

spoken = words_figure(
    model.words_by(9, "party", contrast=["Democratic", "Republican"]),
    title="Schools: words of Democrats (right) and Republicans (left)",
)

# %%
# Words over time
# ---------------
#
# The fitted topic of war has a single list of words for sixty years.
# ``words_over`` estimates the words of each decade, smoothed towards
# the neighbouring decades.

words = model.words_over(6, "decade")
words.frame(6).pivot(index="period", columns="rank", values="word")

# %%
# ``changes_frame`` lists the words that rise and fall, and the figure
# draws them.

changed = words_over_figure(words, names=names)
words.changes_frame(4).round(4)

# %%
# What the intervals leave out
# ----------------------------
#
# The intervals take the topics as given. If you chose the number of
# topics, or the seed, because of an effect, they are too narrow. By
# default, tempering spreads tokens over more topics, which can blur
# them. Before you publish, repeat the analysis with
# ``inverse_temperature=1`` and with other seeds
# (:doc:`/howto/effects`). Finally, parties were not assigned to years
# at random, so a difference between them is not a causal effect.
#
# A report puts the effects, the curves and the words over time into a
# file that you can share.

model.report(
    "effects.html",
    effects=formula,
    cluster="address",
    words_over="decade",
    word_topics=[6],
)
model.close()

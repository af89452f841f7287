"""
Map of topics
=============

Topics that are close on the map give high probability to the same words. The area of a circle is the topic's share of
the corpus.
"""

# %%
# The corpus is drawn from a model of ten topics.

from collapsium.pipeline import fit, plot, simulate

simulate("corpus", family="lda", topics=10, documents=300, words=200, tokens=80)
fit("corpus", "run", family="lda", topics=10, iterations=40)

# %%
# `plot` writes PNG or SVG, by the name of the file.

plot("run", "topic_map.svg", what=["map"])

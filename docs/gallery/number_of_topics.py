"""
Number of topics over iterations
================================

The family `hdp` merges, deletes and splits topics between iterations. Here it begins with forty topics; the documents
were simulated from a model with ten.
"""

# sphinx_gallery_capture_repr = ()
from collapsium.pipeline import fit, plot, simulate

simulate("corpus", family="lda", topics=10, documents=1000, words=500, tokens=100)
fit("corpus", "ten-topics", family="hdp", topics=40, iterations=150)
plot("ten-topics", "number_of_topics.svg", what=["topics"])

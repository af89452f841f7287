"""Refuse scores of tokens or documents that a model was fitted to.

Two corpora that were split from one another, or from a common one, are compared by their lineage, which is exact.
Where no common corpus is known, a corpus of held-out tokens is compared with the training corpus count by count:
tokens that were held out at random do not lie within the counts of the training documents. Of unseen documents, some
are looked up by their ids among the training documents.
"""

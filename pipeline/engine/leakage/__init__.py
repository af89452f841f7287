"""Refuse scores of tokens or documents that a model was fitted to.

Two corpora that were split from one another, or from a common one, are compared by their lineage, which is exact.
Where no common corpus is known, held-out tokens are compared with the training tokens count by count: counts of tokens
held out at random now and then exceed those of the training documents. Of unseen documents, a sample is looked up by id
among the training documents.
"""

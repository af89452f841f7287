"""Fit a model: set-up, the loop, persistence.

`fit` and `resume` are the entry points. May import corpora, families, executors, monitoring and formatting.
"""

"""Starts of fits that are computed from the corpus: pure tasks on shards.

Entry points are `words`, `clusters` and `mixtures`. May import families' helpers, kernels and arrays.
"""

"""Tasks that turn texts into the shards of a corpus.

May import families, kernels and arrays.
"""

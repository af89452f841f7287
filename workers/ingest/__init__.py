"""Tasks of ingesting texts.

May import families, kernels and arrays.
"""

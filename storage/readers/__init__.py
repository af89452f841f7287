"""Readers of sources: counts, texts, vectors and side files.

`open` has the entry points. This package may import `corpus` and `io`.
"""

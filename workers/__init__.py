"""Computation on the shards of a corpus: sweeps and their compiled kernels, deltas, random streams.

`tasks` has the functions that executors submit. May import only storage.
"""

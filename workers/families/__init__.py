"""Worker halves of the model families: what is computed beside a shard.

`load_sweeps` in `base` is the entry point. May import kernels and arrays.
"""

"""Worker halves of the model families: what is computed beside a shard.

`ShardModel` in `base` is the entry point. May import kernels and arrays.
"""

"""The workers' halves of the model families: computation on shards and on blocks of the vocabulary.

`ShardModel` in `base` is the entry point. May import kernels and arrays.
"""

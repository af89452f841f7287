"""The model families: options, states, the driver's half, and computation on shards and on blocks of the vocabulary.

`Family` in `family` and `ShardModel` in `base` are the contracts. Neither Dask nor plots may be imported from here.
"""

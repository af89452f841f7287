"""The model families: options, states, and computation on the driver, on shards and on blocks of the vocabulary.

`Family` in `family` is the contract. Neither Dask nor plots may be imported from here.
"""

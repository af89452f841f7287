"""The format of corpora: manifest, shards, vocabulary, labels, segments, vectors.

May import io.
"""

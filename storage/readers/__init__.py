"""Read sources, by what they hold: counts, texts, vectors, side files.

`open` has the entry points. May import corpus and io.
"""
